//! Which history is kept: the index of every event that can be replayed, and what to forget next.
//!
//! Pure bookkeeping: an engine records its durable events here, asks for a [`Plan`], makes it durable
//! and drops it, or gives it back if that failed. The plan is taken out of the index *before* it is
//! carried out, so whoever reads the index never looks for a record that is being removed.
//!
//! An event costs 24 bytes here. The *floor* of a type is the revision of its newest forgotten event:
//! a watch can start at or after it. Forgetting an event makes the state it superseded removable, and
//! a deletion itself; the newest state of a live object is never removed.

use std::collections::{BTreeMap, VecDeque};

use crate::change::Event;
use crate::key::TypeName;
use crate::object::HEADER;
use crate::resource_version::Revision;

/// Most removals in one plan, so that no transaction of the writer grows long.
pub(crate) const REMOVALS_MAX: usize = 1000;
/// Most events forgotten in one plan, removals or not.
const FORGOTTEN_MAX: usize = 16 * REMOVALS_MAX;

/// Every event above the floor of its type.
#[derive(Debug, Default)]
pub(crate) struct History {
    types: BTreeMap<TypeName, TypeHistory>,
    events: usize,
    superseded_bytes: u64,
    /// Whether the byte limit was exceeded and forgetting goes on to a little below it.
    draining: bool,
}

#[derive(Debug, Default)]
struct TypeHistory {
    floor: Revision,
    entries: VecDeque<Entry>,
    superseded_bytes: u64,
}

/// One event that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The event.
    pub(crate) revision: Revision,
    /// The state it superseded, removable once the event is forgotten; zero if it created the object.
    pub(crate) previous: Revision,
    /// Bytes of records that become removable.
    pub(crate) frees: u32,
    /// Whether the event is a deletion, so that its own record goes too.
    pub(crate) deletion: bool,
}

/// What to forget, in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The events, oldest first within each type.
    forgotten: BTreeMap<TypeName, Forgotten>,
    removals: usize,
    events: usize,
}

#[derive(Debug)]
struct Forgotten {
    floor_before: Revision,
    entries: Vec<Entry>,
}

impl Entry {
    /// The entry of an event.
    pub(crate) fn of(event: &Event) -> Self {
        let previous = event.previous.as_ref();
        let deletion = event.current.is_none();
        let tombstone = if deletion { HEADER + event.key().len() } else { 0 };
        Self {
            revision: event.revision,
            previous: previous.map_or(Revision::ZERO, crate::object::Object::revision),
            frees: (previous.map_or(0, crate::object::Object::size) + tombstone) as u32,
            deletion,
        }
    }

    /// The records that nobody needs once the event is forgotten.
    fn removable(self) -> impl Iterator<Item = Revision> {
        let superseded = (self.previous != Revision::ZERO).then_some(self.previous);
        superseded.into_iter().chain(self.deletion.then_some(self.revision))
    }
}

impl History {
    /// Adds a durable event; events of a type come in order.
    pub(crate) fn record(&mut self, type_name: &TypeName, entry: Entry) {
        if !self.types.contains_key(type_name) {
            self.types.insert(type_name.clone(), TypeHistory::default());
        }
        let history = self.types.get_mut(type_name).expect("it was just put there");
        debug_assert!(history.entries.back().is_none_or(|last| last.revision < entry.revision));
        history.entries.push_back(entry);
        history.superseded_bytes += u64::from(entry.frees);
        self.superseded_bytes += u64::from(entry.frees);
        self.events += 1;
    }

    /// Sets the floor and all events of a type, as read from disk.
    pub(crate) fn load(&mut self, type_name: TypeName, floor: Revision, entries: VecDeque<Entry>) {
        let superseded_bytes = entries.iter().map(|entry| u64::from(entry.frees)).sum();
        self.events += entries.len();
        self.superseded_bytes += superseded_bytes;
        self.types.insert(type_name, TypeHistory { floor, entries, superseded_bytes });
    }

    /// Oldest revision from which the type can be replayed.
    pub(crate) fn floor(&self, type_name: &TypeName) -> Revision {
        self.types.get(type_name).map_or(Revision::ZERO, |history| history.floor)
    }

    /// The lowest floor of all types; `None` if there are none.
    pub(crate) fn lowest_floor(&self) -> Option<Revision> {
        self.types.values().map(|history| history.floor).min()
    }

    /// At most `max` events of the type in `(after, up_to]`, oldest first, and whether there are more;
    /// the floor if `after` is below it.
    pub(crate) fn between(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        max: usize,
    ) -> Result<(Vec<Revision>, bool), Revision> {
        let Some(history) = self.types.get(type_name) else { return Ok((Vec::new(), false)) };
        if after < history.floor {
            return Err(history.floor);
        }
        let from = history.entries.partition_point(|entry| entry.revision <= after);
        let to = history.entries.partition_point(|entry| entry.revision <= up_to).max(from);
        let found = history.entries.range(from..to).take(max).map(|entry| entry.revision).collect();
        Ok((found, to - from > max))
    }

    /// Events that can be replayed.
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// Bytes of the records that forgetting everything would remove.
    pub(crate) fn superseded_bytes(&self) -> u64 {
        self.superseded_bytes
    }

    /// The oldest event that can be replayed.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.types.values().filter_map(|history| history.entries.front()).map(|entry| entry.revision).min()
    }

    /// Whether [`History::plan`] has something to do.
    pub(crate) fn is_due(&self, cutoff: Revision, bytes_max: u64) -> bool {
        self.draining
            || self.superseded_bytes > bytes_max
            || self.oldest().is_some_and(|oldest| oldest <= cutoff)
    }

    /// Takes out what is due: events at or below `cutoff` (too old), and while more than `bytes_max`
    /// bytes are superseded, the oldest events of the type that has the most of them, so that a noisy
    /// type cannot use up a quiet type's history. At most [`REMOVALS_MAX`] removals.
    pub(crate) fn plan(&mut self, cutoff: Revision, bytes_max: u64) -> Plan {
        let mut plan = Plan::default();
        for (name, history) in &mut self.types {
            while history.entries.front().is_some_and(|oldest| oldest.revision <= cutoff) && plan.has_room() {
                plan.take_oldest(name, history);
            }
        }
        self.count_out(&plan);
        // A little below the limit, so that at the limit not every commit has something to remove.
        let target = bytes_max - bytes_max / 16;
        self.draining |= self.superseded_bytes > bytes_max;
        let mut by_bytes = Plan::default();
        let mut bytes = self.superseded_bytes;
        while self.draining && bytes > target && plan.has_room_beside(&by_bytes) {
            // The first of equals, so that the choice does not depend on anything else.
            let largest = self.types.iter_mut().rev().max_by_key(|(_, history)| history.superseded_bytes);
            let (name, history) = largest.expect("bytes are superseded, so there is a type");
            bytes -= u64::from(by_bytes.take_oldest(name, history).frees);
        }
        self.draining &= bytes > target;
        self.count_out(&by_bytes);
        plan.merge(by_bytes);
        plan
    }

    /// Takes out the events of one type up to `to`, at most [`REMOVALS_MAX`] removals of them.
    pub(crate) fn plan_type(&mut self, type_name: &TypeName, to: Revision) -> Plan {
        let mut plan = Plan::default();
        if let Some(history) = self.types.get_mut(type_name) {
            while history.entries.front().is_some_and(|oldest| oldest.revision <= to) && plan.has_room() {
                plan.take_oldest(type_name, history);
            }
        }
        self.count_out(&plan);
        plan
    }

    /// Puts back a plan that could not be carried out.
    pub(crate) fn restore(&mut self, plan: Plan) {
        for (name, forgotten) in plan.forgotten {
            let history = self.types.get_mut(&name).expect("types are never removed");
            history.floor = forgotten.floor_before;
            for entry in forgotten.entries.into_iter().rev() {
                history.superseded_bytes += u64::from(entry.frees);
                self.superseded_bytes += u64::from(entry.frees);
                self.events += 1;
                history.entries.push_front(entry);
            }
        }
    }

    fn count_out(&mut self, plan: &Plan) {
        self.events -= plan.events;
        let entries = plan.forgotten.values().flat_map(|forgotten| &forgotten.entries);
        self.superseded_bytes -= entries.map(|entry| u64::from(entry.frees)).sum::<u64>();
    }
}

impl Plan {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// The new floors.
    pub(crate) fn floors(&self) -> impl Iterator<Item = (&TypeName, Revision)> {
        self.forgotten.iter().filter_map(|(name, forgotten)| Some((name, forgotten.entries.last()?.revision)))
    }

    /// The records to remove.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Revision> {
        self.forgotten.values().flat_map(|forgotten| &forgotten.entries).flat_map(|entry| entry.removable())
    }

    fn has_room(&self) -> bool {
        self.has_room_beside(&Self::default())
    }

    fn has_room_beside(&self, other: &Self) -> bool {
        // An entry removes two records at most.
        self.removals + other.removals + 2 <= REMOVALS_MAX && self.events + other.events < FORGOTTEN_MAX
    }

    fn take_oldest(&mut self, name: &TypeName, history: &mut TypeHistory) -> Entry {
        let entry = history.entries.pop_front().expect("the caller saw one");
        if !self.forgotten.contains_key(name) {
            let forgotten = Forgotten { floor_before: history.floor, entries: Vec::new() };
            self.forgotten.insert(name.clone(), forgotten);
        }
        self.forgotten.get_mut(name).expect("it was just put there").entries.push(entry);
        history.floor = entry.revision;
        history.superseded_bytes -= u64::from(entry.frees);
        self.removals += entry.removable().count();
        self.events += 1;
        entry
    }

    fn merge(&mut self, later: Self) {
        self.removals += later.removals;
        self.events += later.events;
        for (name, forgotten) in later.forgotten {
            match self.forgotten.get_mut(&name) {
                Some(earlier) => earlier.entries.extend(forgotten.entries),
                None => drop(self.forgotten.insert(name, forgotten)),
            }
        }
    }
}

/// When things happened, coarsely: turns an age into a revision.
#[derive(Debug)]
pub(crate) struct Ages {
    age_ms: u64,
    /// `(revision, ms)`: every event up to the revision happened at or before the time.
    rows: VecDeque<(Revision, u64)>,
    /// The newest event, if it is not covered by a row.
    tail: Option<(Revision, u64)>,
    cutoff: Revision,
    /// Rows that nobody needs any more, to be removed from disk.
    passed: Vec<Revision>,
}

impl Ages {
    /// Rows are at least this far apart.
    const STEP_MIN_MS: u64 = 1000;
    /// About how many rows cover the age.
    const STEPS: u64 = 3600;

    /// Ages for a history that keeps `age_ms`, from rows on disk.
    pub(crate) fn new(age_ms: u64, rows: impl IntoIterator<Item = (Revision, u64)>) -> Self {
        let rows = rows.into_iter().collect();
        Self { age_ms, rows, tail: None, cutoff: Revision::ZERO, passed: Vec::new() }
    }

    /// The row to store with a commit at `now_ms` whose last event is `head`, if one is due.
    pub(crate) fn row_for(&self, head: Revision, now_ms: u64) -> Option<(Revision, u64)> {
        let step = Self::STEP_MIN_MS.max(self.age_ms / Self::STEPS);
        self.rows.back().is_none_or(|(_, last_ms)| now_ms >= last_ms + step).then_some((head, now_ms))
    }

    /// Notes a durable commit, and the row that was stored with it.
    pub(crate) fn record(&mut self, head: Revision, now_ms: u64, row: Option<(Revision, u64)>) {
        self.rows.extend(row);
        self.tail = if row.is_some() { None } else { Some((head, now_ms)) };
    }

    /// The revision up to which everything is older than the age.
    pub(crate) fn cutoff(&mut self, now_ms: u64) -> Revision {
        let is_old = |at_ms: u64| at_ms.saturating_add(self.age_ms) <= now_ms;
        while let Some((revision, at_ms)) = self.rows.front().copied().filter(|(_, at_ms)| is_old(*at_ms)) {
            self.cutoff = self.cutoff.max(revision);
            self.passed.push(revision);
            self.rows.pop_front();
            debug_assert!(is_old(at_ms));
        }
        if self.rows.is_empty()
            && let Some((revision, _)) = self.tail.take_if(|(_, at_ms)| is_old(*at_ms))
        {
            self.cutoff = self.cutoff.max(revision);
        }
        self.cutoff
    }

    /// Milliseconds until the cutoff moves; `None` if only a commit can change that.
    pub(crate) fn next_in_ms(&self, now_ms: u64) -> Option<u64> {
        let (_, at_ms) = self.rows.front().or(self.tail.as_ref())?;
        Some(at_ms.saturating_add(self.age_ms).saturating_sub(now_ms))
    }

    /// About when the oldest event that is not too old happened.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        self.rows.front().or(self.tail.as_ref()).map(|(_, at_ms)| *at_ms)
    }

    /// Rows to remove from disk; call [`Ages::removed`] once that is durable.
    pub(crate) fn passed(&self) -> &[Revision] {
        &self.passed
    }

    /// The rows of [`Ages::passed`] are gone.
    pub(crate) fn removed(&mut self) {
        self.passed.clear();
    }
}

#[cfg(test)]
mod tests;
