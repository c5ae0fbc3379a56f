//! The writer's side of the store: one transaction per batch, compaction riding along, recovery.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::{ReadableTable, WriteTransaction};

use crate::change::Event;
use crate::committer::{Failure, Log};
use crate::error::StorageError;
use crate::failpoint;
use crate::key::TypeName;
use crate::ledger::Touched;
use crate::lineage::Lineage;
use crate::metrics::Metrics;
use crate::object::Tombstone;
use crate::resource_version::Revision;
use crate::retention::{Ages, Entry, History, Plan};
use crate::state::State;

use super::handle::Handle;
use super::open::Directory;
use super::push_rows;
use super::read;
use super::tables::{self, FLOORS, INCS, REVS, TIMES, TYPES};

/// What the writer and the readers of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) handle: Handle,
    history: Mutex<History>,
    lineage: Mutex<Arc<Lineage>>,
}

impl Shared {
    pub(crate) fn new(handle: Handle, history: History, lineage: Lineage) -> Self {
        Self { handle, history: Mutex::new(history), lineage: Mutex::new(Arc::new(lineage)) }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        // Its methods panic for broken invariants only; the writer would have stopped with it.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lineage(&self) -> Arc<Lineage> {
        Arc::clone(&self.lineage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_lineage(&self, lineage: Lineage) {
        *self.lineage.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(lineage);
    }
}

/// Wall clock that cannot jump: the time of the opening plus what has passed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) opened_ms: u64,
    pub(crate) since: Instant,
}

impl Clock {
    fn now_ms(self) -> u64 {
        self.opened_ms + self.since.elapsed().as_millis() as u64
    }
}

/// The log of a redb store.
pub(crate) struct RedbLog {
    pub(super) shared: Arc<Shared>,
    pub(super) type_ids: HashMap<TypeName, u32>,
    /// Types whose row is not known to be durable.
    pub(super) new_types: Vec<(u32, TypeName)>,
    /// Indices of the incarnations' rows, in the order of the lineage.
    pub(super) incarnation_rows: VecDeque<u32>,
    pub(super) ages: Ages,
    pub(super) history_bytes: u64,
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    /// Keeps other processes out until the log is dropped.
    pub(super) directory: Option<Directory>,
}

/// Everything that one transaction makes durable.
struct Batch<'a> {
    events: &'a [Arc<Event>],
    touched: &'a Touched,
    state: &'a State,
    time: Option<(Revision, u64)>,
    plan: &'a Plan,
}

impl RedbLog {
    /// Writes one transaction; on failure the database is taken down and nothing has happened, as far
    /// as anybody can know.
    fn write(
        &mut self,
        events: &[Arc<Event>],
        touched: &Touched,
        plan: Plan,
        state: &mut State,
    ) -> Result<(), Failure> {
        let now_ms = self.clock.now_ms();
        let time = events.last().and_then(|event| self.ages.row_for(event.revision, now_ms));
        let pruned = match self.transact(&Batch { events, touched, state, time, plan: &plan }) {
            Ok(pruned) => pruned,
            Err(error) => {
                self.shared.history().restore(plan);
                return Err(self.classify(&error));
            }
        };
        self.new_types.clear();
        self.ages.removed();
        if let Some(event) = events.last() {
            self.ages.record(event.revision, now_ms, time);
        }
        for (name, floor) in plan.floors() {
            state.set_floor(name, floor);
        }
        self.prune_lineage(pruned);
        let mut history = self.shared.history();
        for event in events {
            history.record(&event.type_name, Entry::of(event));
        }
        let span_ms = self.ages.oldest_ms().map_or(0, |oldest| now_ms.saturating_sub(oldest));
        self.metrics.history(history.events(), history.superseded_bytes(), Duration::from_millis(span_ms));
        Ok(())
    }

    /// One transaction. Returns how many of the oldest incarnations were removed in it.
    fn transact(&mut self, batch: &Batch<'_>) -> Result<usize, redb::Error> {
        self.shared.handle.disk().forgive();
        let txn = self.shared.handle.begin_write()?;
        {
            let mut revs = txn.open_table(REVS)?;
            // Appending through a cursor fills pages a run at a time, and refuses a revision out of order.
            let mut end = revs.upper_bound_mut(Bound::<u64>::Unbounded)?;
            for event in batch.events {
                match &event.current {
                    Some(object) => end.insert_before(event.revision.0, object.record())?,
                    None => end.insert_before(event.revision.0, self.tombstone(event).as_slice())?,
                }
            }
            end.close()?;
            if !batch.plan.is_empty() {
                let keys = batch.plan.removals().map(|revision| revision.0);
                self.metrics.compacted(tables::remove_all(&mut revs, keys)?);
            }
        }
        failpoint::hit("in-transaction");
        if !self.new_types.is_empty() {
            let mut types = txn.open_table(TYPES)?;
            for (id, name) in &self.new_types {
                types.insert(id, tables::encode_type(name).as_str())?;
            }
        }
        if batch.time.is_some() || !self.ages.passed().is_empty() {
            let mut times = txn.open_table(TIMES)?;
            tables::remove_all(&mut times, self.ages.passed().iter().map(|revision| revision.0))?;
            if let Some((revision, ms)) = batch.time {
                times.insert(revision.0, ms)?;
            }
        }
        push_rows::write(&txn, batch.touched, batch.state)?;
        let mut pruned = 0;
        if !batch.plan.is_empty() {
            self.write_floors(&txn, batch.plan)?;
            pruned = self.remove_incarnations(&txn)?;
            failpoint::hit("in-compaction");
        }
        failpoint::hit("before-sync");
        txn.commit()?;
        Ok(pruned)
    }

    fn write_floors(&self, txn: &WriteTransaction, plan: &Plan) -> Result<(), redb::Error> {
        let mut floors = txn.open_table(FLOORS)?;
        for (name, floor) in plan.floors() {
            floors.insert(self.type_ids[name], floor.0)?;
        }
        Ok(())
    }

    fn tombstone(&self, event: &Event) -> Vec<u8> {
        let previous = event.previous.as_ref().map_or(Revision::ZERO, crate::object::Object::revision);
        Tombstone { type_id: self.type_ids[&event.type_name], previous, key: event.key().into() }.encode()
    }

    /// Removes the rows of the oldest incarnations that no version anybody can use comes from: all
    /// below every floor, and no record left that carries a version of theirs.
    fn remove_incarnations(&self, txn: &WriteTransaction) -> Result<usize, redb::Error> {
        let lineage = self.shared.lineage();
        let lowest = self.shared.history().lowest_floor().unwrap_or_default();
        let candidates = lineage.incarnations.iter().take_while(|i| i.end.is_some_and(|end| end < lowest));
        let candidates: Vec<_> = candidates.collect();
        if candidates.is_empty() {
            return Ok(0);
        }
        let revs = txn.open_table(REVS)?;
        let oldest = revs.first()?.map(|(revision, _)| Revision(revision.value()));
        let unused = |end: Option<Revision>| oldest.is_none_or(|oldest| end < Some(oldest));
        let count = candidates.iter().take_while(|i| unused(i.end)).count();
        let mut rows = txn.open_table(INCS)?;
        for index in self.incarnation_rows.iter().take(count) {
            rows.remove(index)?;
        }
        Ok(count)
    }

    fn prune_lineage(&mut self, count: usize) {
        if count > 0 {
            self.incarnation_rows.drain(..count);
            let mut lineage = Lineage::clone(&self.shared.lineage());
            lineage.incarnations.drain(..count);
            self.shared.set_lineage(lineage);
        }
    }

    fn due(&mut self) -> Plan {
        let cutoff = self.ages.cutoff(self.clock.now_ms());
        let mut history = self.shared.history();
        if history.is_due(cutoff, self.history_bytes) {
            history.plan(cutoff, self.history_bytes)
        } else {
            Plan::default()
        }
    }

    /// A commit that changes nothing: proves that there is space.
    fn probe(&self) -> Result<(), redb::Error> {
        let txn = self.shared.handle.begin_write()?;
        tables::write_probe(&txn, self.clock.now_ms())?;
        Ok(txn.commit()?)
    }

    /// Drops the failed database; tells what happened to its file, if that is where it failed.
    fn take_down(&self) -> Option<Failure> {
        let handle = &self.shared.handle;
        handle.take_down(handle.generation());
        handle.disk().failure()
    }

    /// Why a batch could not be written.
    fn classify(&self, error: &redb::Error) -> Failure {
        match self.take_down() {
            Some(Failure::DiskFull) => Failure::DiskFull,
            Some(Failure::Fatal(problem)) => Failure::Fatal(problem),
            None => Failure::Fatal(error.to_string()),
        }
    }

    /// Why a full disk cannot be written to again, yet.
    fn not_yet(&self, error: &redb::Error) -> Failure {
        match (self.take_down(), error) {
            (Some(Failure::Fatal(problem)), _) => Failure::Fatal(problem),
            (_, redb::Error::Corrupted(problem)) => Failure::Fatal(problem.clone()),
            // If nothing is wrong with the disk, something else did not work this time.
            _ => Failure::DiskFull,
        }
    }
}

impl Log for RedbLog {
    fn type_id(&mut self, type_name: &TypeName) -> u32 {
        if let Some(id) = self.type_ids.get(type_name) {
            return *id;
        }
        let id = self.type_ids.values().max().map_or(1, |highest| highest + 1);
        self.type_ids.insert(type_name.clone(), id);
        self.new_types.push((id, type_name.clone()));
        id
    }

    fn append(&mut self, events: &[Arc<Event>], touched: &Touched, state: &mut State) -> Result<(), Failure> {
        let plan = self.due();
        self.write(events, touched, plan, state)
    }

    fn compact(&mut self, type_name: &TypeName, to: Revision, state: &mut State) -> Result<(), Failure> {
        loop {
            let plan = self.shared.history().plan_type(type_name, to);
            if plan.is_empty() {
                return Ok(());
            }
            self.write(&[], &Touched::default(), plan, state)?;
        }
    }

    fn maintain(&mut self, state: &mut State) -> Result<bool, Failure> {
        let plan = self.due();
        if plan.is_empty() {
            return Ok(false);
        }
        self.write(&[], &Touched::default(), plan, state)?;
        Ok(true)
    }

    fn pause(&mut self) -> Option<Duration> {
        let now_ms = self.clock.now_ms();
        let cutoff = self.ages.cutoff(now_ms);
        let history = self.shared.history();
        if history.is_due(cutoff, self.history_bytes) {
            return Some(Duration::ZERO);
        }
        self.ages.next_in_ms(now_ms).map(Duration::from_millis)
    }

    fn recover(&mut self, state: &mut State) -> Result<Vec<Arc<Event>>, Failure> {
        let shared = Arc::clone(&self.shared);
        shared.handle.reopen().map_err(|error| self.not_yet(&error))?;
        self.probe().map_err(|error| self.not_yet(&error))?;
        // The transaction that failed may have reached the disk all the same, whole.
        let unreadable = |error: StorageError| Failure::Fatal(error.to_string());
        let floors = read::floors(&shared).map_err(unreadable)?;
        let txn = shared.handle.begin_read().map_err(unreadable)?;
        push_rows::read(&txn, state).map_err(unreadable)?;
        drop(txn);
        let adopted = read::above(&shared, &self.type_ids, state).map_err(unreadable)?;
        let mut history = shared.history();
        for (name, id) in &self.type_ids {
            let floor = floors.get(id).copied().unwrap_or_default();
            while !history.plan_type(name, floor).is_empty() {}
            state.set_floor(name, history.floor(name));
        }
        for event in &adopted {
            history.record(&event.type_name, Entry::of(event));
        }
        if let Some(event) = adopted.last() {
            self.ages.record(event.revision, self.clock.now_ms(), None);
        }
        Ok(adopted)
    }

    fn close(&mut self) -> Result<(), Failure> {
        let closed = self.shared.handle.close();
        drop(self.directory.take());
        closed.map_err(|error| Failure::Fatal(error.to_string()))
    }
}
