//! The watch cache (skeleton): the read side of everything.
use std::sync::Arc;
use std::time::Duration;

use shardcache_storage::{
    Event, LogPage, Object, Objects, ResourceVersion, Revision, State, StorageError, Store, TypeName,
};

use crate::filter::Filter;
use crate::metrics::Metrics;
use crate::types::Types;

/// Bounds of the cache; see D28.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Bytes of superseded bodies the in-memory history may hold.
    pub history_bytes: u64,
    /// Snapshots retained for paging.
    pub snapshots_max: usize,
    /// How long a snapshot is retained for paging.
    pub snapshot_age: Duration,
    /// Bytes of bodies superseded since the oldest retained snapshot, above which it is dropped.
    pub snapshot_bytes: u64,
    /// Watchers that may read the store's log at the same time; others wait their turn.
    pub cold_readers_max: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            history_bytes: 256 << 20,
            snapshots_max: 64,
            snapshot_age: Duration::from_secs(300),
            snapshot_bytes: 256 << 20,
            cold_readers_max: 64,
        }
    }
}

/// Handle to the cache; cheap to clone.
#[derive(Clone)]
pub struct WatchCache(Arc<()>);

/// The task that follows the store; the only writer of the cache.
pub struct Reflector(());

/// Immutable view of everything at one commit boundary.
pub struct Snapshot {
    /// Objects.
    pub state: State,
    /// Served types.
    pub types: Arc<Types>,
}

/// What a watcher yields.
#[derive(Debug)]
pub enum WatchStep {
    /// Events for this watcher, in order, at least one.
    Events(Vec<Delivery>),
    /// The history after the watcher's position is gone: 410.
    Expired,
    /// The server is shutting down; send a last bookmark and end.
    Draining,
    /// The store's log could not be read: an in-stream 500, then the end. The client may resume.
    Failed(StorageError),
}

/// One event as this watcher sees it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// ADDED, MODIFIED or DELETED for this watcher.
    pub kind: Transition,
    /// What happened.
    pub event: Arc<Event>,
}

/// Transition table D24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Did not match, matches now.
    Added,
    /// Matched and matches.
    Modified,
    /// Matched, does not match now (or is gone): the previous object under the event's version.
    Deleted,
}

/// One client's stream position.
pub struct Watcher(());

/// The cache cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// History before this revision was compacted.
    #[error("too old: compacted up to {floor}")]
    TooOld {
        /// The type's floor.
        floor: Revision,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl WatchCache {
    /// Subscribes to the store; run the reflector on a task. `types` is the built-in table: what the
    /// store's state adds to it is derived here ([`Types::at`]).
    pub fn open(
        _store: Arc<dyn Store>,
        _types: &Arc<Types>,
        _config: CacheConfig,
        _metrics: &Metrics,
    ) -> (Self, Reflector) {
        todo!()
    }
    /// The newest published snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        todo!()
    }
    /// Waits until a snapshot at or after the revision is published. No timeout: callers bring one.
    pub async fn published(&self, _at_least: Revision) -> Arc<Snapshot> {
        todo!()
    }
    /// Starts a watcher strictly after a revision (which must be `Standing::Issued`).
    pub fn watch(
        &self,
        _type_name: &TypeName,
        _filter: Filter,
        _after: Revision,
    ) -> Result<Watcher, CacheError> {
        todo!()
    }
    /// The objects of a type exactly at an issued revision: a retained snapshot, else head with later
    /// events undone (D26), else `TooOld`.
    pub async fn objects_at(&self, _type_name: &TypeName, _at: Revision) -> Result<Objects, CacheError> {
        todo!()
    }
    /// Retains a snapshot for later pages (bounded by count, age and bytes).
    pub fn retain(&self, _snapshot: &Arc<Snapshot>) {
        todo!()
    }
    /// Makes every watcher yield `Draining`, now or when it has caught up.
    pub fn drain(&self) {
        todo!()
    }
}

impl Reflector {
    /// Follows the store until it closes.
    pub async fn run(self) {
        todo!()
    }
}

/// Size of a set of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of objects.
    pub objects: usize,
    /// Sum of their encoded bodies, in bytes.
    pub body_bytes: u64,
}

/// Selected objects in key order, strictly after the joined key `after` if given; for objects that come
/// from [`WatchCache::objects_at`].
pub fn scan<'a>(
    _objects: &'a Objects,
    _filter: &'a Filter,
    _after: Option<&str>,
) -> Box<dyn Iterator<Item = &'a Object> + Send + 'a> {
    todo!()
}

/// How many objects lie in a filter's scope after the key; `None` if the filter has selectors (Kubernetes'
/// `remainingItemCount` exists without them only). O(answer), O(1) for all of a type.
pub fn remaining(_objects: &Objects, _filter: &Filter, _after: Option<&str>) -> Option<usize> {
    todo!()
}

impl Snapshot {
    /// A snapshot without label indexes.
    pub fn new(state: State, types: Arc<Types>) -> Self {
        Self { state, types }
    }
    /// Number and bytes of what a filter selects of a type, where that is known without looking at each
    /// object: all of a type, unfiltered.
    pub fn totals(&self, _type_name: &TypeName, _filter: &Filter) -> Option<Totals> {
        todo!()
    }
    /// Selected objects of a type in key order, strictly after the joined key `after` if given. Uses the
    /// most selective of key range, name and label index.
    pub fn scan<'a>(
        &'a self,
        _type_name: &TypeName,
        _filter: &'a Filter,
        _after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Object> + Send + 'a> {
        todo!()
    }
    /// Version of the snapshot.
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.resource_version()
    }
}

impl Watcher {
    /// Waits for the next events. Cancel safe.
    pub async fn next(&mut self) -> WatchStep {
        todo!()
    }
    /// A version up to which every matching event has been yielded: what a bookmark may say (D25: never
    /// overtakes an event). Never falls; also moves while nothing matches. Equal to the version the
    /// watcher started after, or was last given here, if nothing happened since.
    pub fn bookmark(&mut self) -> ResourceVersion {
        todo!()
    }
}

const _: fn(LogPage) = |_| ();
