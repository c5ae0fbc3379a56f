//! Cold reads of the log: events that no ring in memory holds any more.
//!
//! Each page is one short redb read transaction (at most [`PAGE_EVENTS`] events or [`PAGE_TIME`]),
//! because a long one pins pages and makes the file grow. Never runs on the writer's thread.
//!
//! Consistent with the floors: the transaction begins before the index is asked, and whatever the
//! index still has then was not removed before the transaction began.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::{ReadOnlyTable, ReadTransaction};

use crate::change::Event;
use crate::error::StorageError;
use crate::key::TypeName;
use crate::lineage::Lineage;
use crate::object::{Object, Record};
use crate::resource_version::Revision;
use crate::state::State;
use crate::store::{LogPage, ReadLimit};

use super::handle::unreadable;
use super::log::Shared;
use super::tables::{self, REVS};

/// Most events of one page, whatever the caller allows.
const PAGE_EVENTS: usize = 1000;
/// Longest a page's transaction stays open.
const PAGE_TIME: Duration = Duration::from_millis(250);

type Revs = ReadOnlyTable<u64, &'static [u8]>;

/// What is read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) type_name: TypeName,
    /// Strictly after this revision …
    pub(crate) after: Revision,
    /// … and up to this one.
    pub(crate) up_to: Revision,
    /// The published head: the log can be ahead of it for a moment, and nobody may see that.
    pub(crate) head: Revision,
    pub(crate) limit: ReadLimit,
}

/// One page of the log. When the database turns out to have failed, reads the file as it is.
pub(crate) fn page(shared: &Shared, wanted: &Wanted) -> Result<LogPage, StorageError> {
    let generation = shared.handle.generation();
    match try_page(shared, wanted) {
        Err(StorageError::ReadOnly(_)) => {
            shared.handle.take_down(generation);
            try_page(shared, wanted)
        }
        result => result,
    }
}

fn try_page(shared: &Shared, wanted: &Wanted) -> Result<LogPage, StorageError> {
    let began = Instant::now();
    let up_to = wanted.up_to.min(wanted.head);
    let txn = shared.handle.begin_read()?;
    let (revisions, more) = shared
        .history()
        .between(&wanted.type_name, wanted.after, up_to, wanted.limit.events.clamp(1, PAGE_EVENTS))
        .map_err(|floor| StorageError::Compacted { requested: wanted.after, floor })?;
    let last = revisions.last().copied();
    let complete_to = if more { last.expect("there are more than none") } else { up_to.max(wanted.after) };
    let mut page = LogPage { events: Vec::with_capacity(revisions.len()), complete_to };
    if revisions.is_empty() {
        return Ok(page);
    }
    let revs = txn.open_table(REVS).map_err(unreadable)?;
    let lineage = shared.lineage();
    let mut bytes = 0;
    for revision in revisions {
        let event = event(&revs, &lineage, wanted.head, &wanted.type_name, revision)
            .map_err(|error| forgotten_or(error, &txn, wanted))?;
        bytes += [&event.current, &event.previous]
            .into_iter()
            .flatten()
            .map(|object| object.body_bytes().len())
            .sum::<usize>();
        page.events.push(Arc::new(event));
        if (bytes >= wanted.limit.bytes || began.elapsed() >= PAGE_TIME) && last != Some(revision) {
            page.complete_to = revision;
            break;
        }
    }
    Ok(page)
}

/// After a failed write the file may hold what the failed transaction forgot: then a record is missing
/// because it is below a floor that nobody was told of.
fn forgotten_or(error: StorageError, txn: &ReadTransaction, wanted: &Wanted) -> StorageError {
    let requested = wanted.after;
    match floor_in(txn, &wanted.type_name) {
        Ok(floor) if floor > requested => StorageError::Compacted { requested, floor },
        _ => error,
    }
}

fn floor_in(txn: &ReadTransaction, type_name: &TypeName) -> Result<Revision, StorageError> {
    let ids = tables::rows(txn, tables::TYPES, |id, value| Ok((id, tables::decode_type(value)?)))?;
    let id = ids.into_iter().find(|(_, name)| name == type_name).map(|(id, _)| id);
    let floors = tables::rows(txn, tables::FLOORS, |id, floor| Ok((id, Revision(floor))))?;
    Ok(floors.into_iter().find(|(of, _)| Some(*of) == id).map_or(Revision::ZERO, |(_, floor)| floor))
}

/// The events above the head of `state` that are in the file, applied to `state`.
pub(crate) fn above(
    shared: &Shared,
    type_ids: &HashMap<TypeName, u32>,
    state: &mut State,
) -> Result<Vec<Arc<Event>>, StorageError> {
    let names: HashMap<u32, &TypeName> = type_ids.iter().map(|(name, id)| (*id, name)).collect();
    let lineage = shared.lineage();
    let txn = shared.handle.begin_read()?;
    let revs = txn.open_table(REVS).map_err(unreadable)?;
    let above = (Bound::Excluded(state.head().0), Bound::Unbounded);
    let mut events = Vec::new();
    for row in revs.range::<u64>(above).map_err(unreadable)? {
        let (key, value) = row.map_err(unreadable)?;
        let revision = Revision(key.value());
        let head = crate::object::RecordHead::peek(value.value())?;
        let name = names.get(&head.type_id).ok_or_else(|| missing(revision, "the name of its type"))?;
        let event = event(&revs, &lineage, revision, name, revision)?;
        match &event.current {
            Some(object) => drop(state.insert(name, object.clone())),
            None => drop(state.remove(name, event.key())),
        }
        state.set_head(event.resource_version);
        events.push(Arc::new(event));
    }
    Ok(events)
}

/// The newest floors in the file.
pub(crate) fn floors(shared: &Shared) -> Result<HashMap<u32, Revision>, StorageError> {
    let txn = shared.handle.begin_read()?;
    Ok(tables::rows(&txn, tables::FLOORS, |id, floor| Ok((id, Revision(floor))))?.into_iter().collect())
}

fn event(
    revs: &Revs,
    lineage: &Lineage,
    head: Revision,
    type_name: &TypeName,
    revision: Revision,
) -> Result<Event, StorageError> {
    let version = lineage
        .version_of(revision, head)
        .ok_or_else(|| missing(revision, "the incarnation that issued it"))?;
    match record(revs, revision)? {
        Record::Put(object) => {
            let previous = match object.previous_revision() {
                Revision::ZERO => None,
                previous => Some(put(revs, previous)?),
            };
            Ok(Event::new(version, type_name.clone(), previous, Some(object)))
        }
        Record::Delete(tombstone) => {
            Ok(Event::new(version, type_name.clone(), Some(put(revs, tombstone.previous)?), None))
        }
    }
}

fn put(revs: &Revs, revision: Revision) -> Result<Object, StorageError> {
    match record(revs, revision)? {
        Record::Put(object) => Ok(object),
        Record::Delete(_) => Err(missing(revision, "a state: it is a deletion")),
    }
}

fn record(revs: &Revs, revision: Revision) -> Result<Record, StorageError> {
    let row = revs.get(revision.0).map_err(unreadable)?.ok_or_else(|| missing(revision, "a record"))?;
    Ok(Record::decode(revision, row.value())?)
}

fn missing(revision: Revision, what: &str) -> StorageError {
    StorageError::Corrupt(format!("event {revision} lacks {what}"))
}
