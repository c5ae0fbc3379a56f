//! The store without a disk: the executable specification of [`Store`], and a store for tests.
//!
//! Same contract as every engine, except that nothing outlives the process: a new one has a new
//! lineage, so versions of an earlier one are foreign to it. The log is a list of events and reading
//! it is a filter. History is kept until [`MemoryStore::compact`] is called.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::change::{Change, Event};
use crate::committer::{Committer, Failure, Limits, Log};
use crate::error::StorageError;
use crate::key::TypeName;
use crate::ledger::Touched;
use crate::lineage::{self, Lineage, Opening};
use crate::metrics::Metrics;
use crate::push::{Push, Pushed};
use crate::resource_version::{ResourceVersion, Revision};
use crate::state::State;
use crate::store::{BackupReport, Health, LogPage, ReadLimit, Receipt, Store, Subscription};

/// A store that lives as long as its process.
#[derive(Debug)]
pub struct MemoryStore {
    committer: Committer,
    history: Arc<Mutex<History>>,
    lineage: Arc<Lineage>,
    metrics: Metrics,
}

/// Every event above the floor of its type, oldest first.
#[derive(Debug, Default)]
struct History {
    events: Vec<Arc<Event>>,
    floors: imbl::OrdMap<TypeName, Revision>,
}

struct MemoryLog(Arc<Mutex<History>>);

impl MemoryStore {
    /// An empty store with a lineage of its own.
    #[expect(clippy::needless_pass_by_value, reason = "an opening is used once, as by every engine")]
    pub fn new(opening: Opening) -> Arc<Self> {
        let incarnation = lineage::begin(&[], Revision::ZERO, &opening).incarnation;
        let tag = incarnation.tag;
        let state = State::empty(ResourceVersion::new(incarnation.start, tag));
        let lineage = Lineage { store: uuid::Uuid::new_v4(), incarnations: vec![incarnation] };
        let history = Arc::new(Mutex::new(History::default()));
        let metrics = Metrics::default();
        let log = MemoryLog(Arc::clone(&history));
        let committer = Committer::start(log, state, tag, Limits::default(), metrics.clone());
        Arc::new(Self { committer, history, lineage: Arc::new(lineage), metrics })
    }

    /// Forgets the history of a type up to its newest event at or below `to`; returns the new floor.
    pub fn compact(
        &self,
        type_name: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>> {
        self.committer.compact(type_name, to)
    }

    /// The store's metrics, to be registered where they are served.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn read(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> Result<LogPage, StorageError> {
        // The log may be ahead of what is published for a moment; nobody may see that.
        let up_to = up_to.min(self.committer.state().head());
        let history = lock(&self.history);
        let floor = history.floors.get(type_name).copied().unwrap_or_default();
        if after < floor {
            return Err(StorageError::Compacted { requested: after, floor });
        }
        let mut page = LogPage { events: Vec::new(), complete_to: up_to.max(after) };
        let mut bytes = 0;
        for event in &history.events {
            if event.type_name != *type_name || event.revision <= after || event.revision > up_to {
                continue;
            }
            if !page.events.is_empty() && (page.events.len() >= limit.events || bytes >= limit.bytes) {
                page.complete_to = page.events.last().expect("the page is not empty").revision;
                break;
            }
            bytes += event.current.as_ref().map_or(0, |object| object.body_bytes().len());
            page.events.push(Arc::clone(event));
        }
        Ok(page)
    }
}

impl Store for MemoryStore {
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        self.committer.commit(changes)
    }

    fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>> {
        self.committer.push(push)
    }

    fn subscribe(&self) -> Subscription {
        self.committer.subscribe()
    }

    fn lineage(&self) -> Arc<Lineage> {
        Arc::clone(&self.lineage)
    }

    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>> {
        ready(self.read(type_name, after, up_to, limit)).boxed()
    }

    fn backup(&self, _to: PathBuf) -> BoxFuture<'static, Result<BackupReport, StorageError>> {
        ready(Err(StorageError::Backup("a store in memory has nothing to copy".to_owned()))).boxed()
    }

    fn health(&self) -> Health {
        self.committer.health()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StorageError>> {
        self.committer.close()
    }
}

impl Log for MemoryLog {
    fn type_id(&mut self, _type_name: &TypeName) -> u32 {
        // Ids are for files; in memory every event names its type.
        0
    }

    fn append(
        &mut self,
        events: &[Arc<Event>],
        _touched: &Touched,
        _state: &mut State,
    ) -> Result<(), Failure> {
        lock(&self.0).events.extend_from_slice(events);
        Ok(())
    }

    fn compact(&mut self, type_name: &TypeName, to: Revision, state: &mut State) -> Result<(), Failure> {
        let mut history = lock(&self.0);
        let is_old = |event: &Arc<Event>| event.type_name == *type_name && event.revision <= to;
        if let Some(newest) = history.events.iter().rfind(|event| is_old(event)) {
            let floor = newest.revision;
            history.floors.insert(type_name.clone(), floor);
            history.events.retain(|event| !is_old(event));
            state.set_floor(type_name, floor);
        }
        Ok(())
    }

    fn maintain(&mut self, _state: &mut State) -> Result<bool, Failure> {
        Ok(false)
    }

    fn pause(&mut self) -> Option<Duration> {
        None
    }

    fn recover(&mut self, _state: &mut State) -> Result<Vec<Arc<Event>>, Failure> {
        Ok(Vec::new())
    }

    fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    // Each change of the history is one call that leaves it whole.
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
