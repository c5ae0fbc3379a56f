//! The watch cache: the read side of everything.
//!
//! ```text
//! Store::subscribe ─► reflector ─┬─► snapshot ───────────────────────► LIST, GET, pages (exact, retained)
//!                                ├─► feed: history ──────────┐
//!                                └─► feed: registry ─► class ┴► watcher ─► WATCH
//!                                                      Store::events ─┘ (log)
//! ```
//!
//! Guarantees, for every watcher: events in order, none twice, none missing, or an honest 410; bookmarks
//! that never overtake an event; and that no reader, however slow, delays the writer or another reader.
//! Memory beyond the live objects is bounded by [`CacheConfig`] (D28). Knows nothing of HTTP, encodes
//! nothing, and learns of writes only through the store's subscription.

mod anchor;
mod class;
mod exact;
mod feed;
mod history;
mod index;
mod log;
mod reflector;
mod registry;
mod retained;
mod scan;
mod snapshot;
#[cfg(test)]
pub(crate) mod testing;
mod watcher;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::gauge::Gauge;
use shardcache_storage::{Objects, ResourceVersion, Revision, StorageError, Store, TypeName};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;

pub use class::{Delivery, Transition};
pub use reflector::Reflector;
pub use scan::{remaining, scan};
pub use snapshot::{Snapshot, Totals};
pub use watcher::{WatchStep, Watcher};

use crate::filter::Filter;
use crate::metrics::Metrics;
use crate::metrics::labels::State;
use crate::types::Types;
use feed::Feed;
use index::{IndexRequests, Indexes};
use retained::{Limits, Retained};

/// Indexes that can wait to be built.
const INDEX_REQUESTS_MAX: usize = 16;
/// The history is trimmed to this much below its bound, so that not every commit trims.
const HISTORY_SLACK_PARTS: u64 = 16;

/// Bounds of the cache; see D28.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Bytes of superseded bodies the in-memory history may hold.
    pub history_bytes: u64,
    /// Snapshots retained for paging.
    pub snapshots_max: usize,
    /// How long a snapshot is retained for paging after it was last used.
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
            snapshot_age: Duration::from_mins(5),
            snapshot_bytes: 256 << 20,
            cold_readers_max: 64,
        }
    }
}

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

/// Handle to the cache; cheap to clone.
#[derive(Clone, Debug)]
pub struct WatchCache(Arc<Shared>);

/// What the reflector, the watchers and the lists have in common.
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    config: CacheConfig,
    metrics: Metrics,
    snapshot: ArcSwap<Snapshot>,
    /// Head of the published snapshot.
    published: watch::Sender<Revision>,
    /// Every event at or below is in the rings of its classes. Set after they were pushed, read before a
    /// ring is looked at: the channel's lock carries that order (D25).
    dispatched: watch::Sender<ResourceVersion>,
    /// Version of the state the cache began with: no feed knows of events at or below it.
    opened: ResourceVersion,
    feeds: RwLock<HashMap<TypeName, Arc<Feed>>>,
    retained: Mutex<Retained>,
    /// Turns at reading the store's log.
    readers: Semaphore,
    /// Bytes that histories growing backwards have read and not yet taken in.
    growing: AtomicU64,
    /// Asks the reflector to begin draining once everything published is dispatched.
    drain: Notify,
    draining: AtomicBool,
    /// Set when the reflector is dropped, however that came about.
    ended: AtomicBool,
}

/// Whether the cache still follows its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// Every commit is published as it comes.
    Live,
    /// The same, but watchers are being sent away: the server is shutting down.
    Draining,
    /// The reflector is gone: the store was closed, or the task died. What is published stays readable
    /// and will never change.
    Ended,
}

impl WatchCache {
    /// Subscribes to the store; run the reflector on a task. `types` is the built-in table: what the
    /// store's state adds to it is derived here ([`Types::at`]).
    pub fn open(
        store: Arc<dyn Store>,
        types: &Arc<Types>,
        config: CacheConfig,
        metrics: &Metrics,
    ) -> (Self, Reflector) {
        let subscription = store.subscribe();
        let opened = subscription.state.resource_version();
        let (requests, wanted) = mpsc::channel(INDEX_REQUESTS_MAX);
        let requests = IndexRequests(requests);
        let types = types.at(&subscription.state);
        let snapshot = Snapshot::indexed(subscription.state, types, Indexes::default(), requests.clone());
        let limits =
            Limits { count: config.snapshots_max, age: config.snapshot_age, bytes: config.snapshot_bytes };
        let shared = Arc::new(Shared {
            store,
            metrics: metrics.clone(),
            snapshot: ArcSwap::from_pointee(snapshot),
            published: watch::Sender::new(opened.revision()),
            dispatched: watch::Sender::new(opened),
            opened,
            feeds: RwLock::default(),
            retained: Mutex::new(Retained::new(limits)),
            readers: Semaphore::new(config.cold_readers_max.max(1)),
            growing: AtomicU64::new(0),
            drain: Notify::new(),
            draining: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            config,
        });
        shared.note_state();
        let reflector = Reflector::new(Arc::clone(&shared), subscription.commits, requests, wanted);
        (Self(shared), reflector)
    }

    /// The newest published snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot()
    }

    /// Waits until a snapshot at or after the revision is published. No timeout: callers bring one.
    pub async fn published(&self, at_least: Revision) -> Arc<Snapshot> {
        self.0.published(at_least).await
    }

    /// Waits for a snapshot that fulfils a condition: for what changes without an event. No timeout.
    pub(crate) async fn showing(&self, condition: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut published = self.0.published.subscribe();
        loop {
            let snapshot = self.snapshot();
            if condition(&snapshot) {
                return snapshot;
            }
            published.changed().await.expect("the sender lives in `self`");
        }
    }

    /// Told of every snapshot that is published, of those that differ in no object too.
    pub(crate) fn changes(&self) -> watch::Receiver<Revision> {
        self.0.published.subscribe()
    }

    /// Starts a watcher strictly after a revision (which must be `Standing::Issued`).
    pub fn watch(
        &self,
        type_name: &TypeName,
        filter: Filter,
        after: Revision,
    ) -> Result<Watcher, CacheError> {
        let snapshot = self.snapshot();
        let floor = snapshot.state.floor(type_name);
        let version = self.0.store.lineage().version_of(after, snapshot.state.head());
        let Some(version) = version.filter(|_| after >= floor) else {
            return Err(CacheError::TooOld { floor });
        };
        let feed = self.0.feed(type_name);
        let member = feed.join(filter, |requirement| snapshot.indexes().count(type_name, requirement));
        Ok(Watcher::new(Arc::clone(&self.0), feed, member, version))
    }

    /// The objects of a type exactly at an issued revision: a retained snapshot, else head with later
    /// events undone (D26), else `TooOld`. Waits if the revision is not published yet.
    pub async fn objects_at(&self, type_name: &TypeName, at: Revision) -> Result<Objects, CacheError> {
        exact::objects_at(&self.0, type_name, at).await
    }

    /// Retains a snapshot for later pages (bounded by count, age and bytes).
    pub fn retain(&self, snapshot: &Arc<Snapshot>) {
        self.0.retained.lock().keep(snapshot, Instant::now());
        self.0.note_retained();
    }

    /// Whether the cache still follows its store.
    pub fn following(&self) -> Following {
        if self.0.ended.load(Ordering::Acquire) {
            Following::Ended
        } else if self.0.is_draining() {
            Following::Draining
        } else {
            Following::Live
        }
    }

    /// Makes every watcher yield `Draining`, now or when it has caught up.
    pub fn drain(&self) {
        self.0.drain.notify_one();
    }
}

impl Shared {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    fn publish(&self, snapshot: Arc<Snapshot>) {
        let head = snapshot.state.head();
        self.snapshot.store(snapshot);
        self.published.send_replace(head);
        self.note_state();
    }

    async fn published(&self, at_least: Revision) -> Arc<Snapshot> {
        let mut published = self.published.subscribe();
        let waited = published.wait_for(|head| *head >= at_least).await;
        waited.expect("the sender lives in `self`");
        self.snapshot()
    }

    /// Waits until every event at or below the revision is in its history and its rings.
    async fn dispatched(&self, at_least: Revision) {
        let mut dispatched = self.dispatched.subscribe();
        let waited = dispatched.wait_for(|version| version.revision() >= at_least).await;
        waited.expect("the sender lives in `self`");
    }

    fn progress(&self) -> ResourceVersion {
        *self.dispatched.borrow()
    }

    /// The feed of a type. Made when first asked for: until then the type had no event since the opening.
    fn feed(&self, type_name: &TypeName) -> Arc<Feed> {
        if let Some(feed) = self.feeds.read().get(type_name) {
            return Arc::clone(feed);
        }
        let mut feeds = self.feeds.write();
        let feed = feeds
            .entry(type_name.clone())
            .or_insert_with(|| Arc::new(Feed::new(type_name.clone(), self.opened)));
        Arc::clone(feed)
    }

    fn feeds(&self) -> Vec<Arc<Feed>> {
        self.feeds.read().values().cloned().collect()
    }

    fn history_bytes(&self) -> u64 {
        self.feeds.read().values().map(|feed| feed.bytes()).sum()
    }

    /// Keeps the histories within their bound: the type with the most bytes pays, so that a noisy type
    /// sends nobody else's watchers to the disk.
    fn trim_history(&self) {
        let max = self.config.history_bytes;
        let mut bytes = self.note_history();
        if bytes <= max {
            return;
        }
        let target = max - max / HISTORY_SLACK_PARTS;
        let mut feeds: Vec<_> = self.feeds().into_iter().map(|feed| (feed.bytes(), feed)).collect();
        feeds.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (own, feed) in feeds {
            if bytes <= target {
                break;
            }
            feed.shrink_by(bytes - target);
            bytes -= own - feed.bytes();
        }
        self.note_history();
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// To be called when everything published is dispatched.
    fn begin_draining(&self) {
        self.draining.store(true, Ordering::Release);
        self.feeds().iter().for_each(|feed| feed.wake_all());
    }

    fn watchers(&self, state: State) -> Gauge {
        self.metrics.watch.watchers.get_or_create(&state.into()).clone()
    }

    fn note_state(&self) {
        let (snapshot, metrics) = (self.snapshot(), &self.metrics.cache);
        metrics.revision.set(snapshot.state.head().0 as i64);
        metrics.objects.set(snapshot.state.len() as i64);
        metrics.object_bytes.set(snapshot.state.body_bytes() as i64);
    }

    fn note_retained(&self) {
        let retained = self.retained.lock();
        self.metrics.cache.snapshots.set(retained.len() as i64);
        self.metrics.cache.snapshot_bytes.set(retained.bytes() as i64);
    }

    /// Measures the histories; returns their bytes.
    fn note_history(&self) -> u64 {
        let feeds = self.feeds.read();
        let bytes = feeds.values().map(|feed| feed.bytes()).sum();
        let events: usize = feeds.values().map(|feed| feed.events()).sum();
        let classes: usize = feeds.values().map(|feed| feed.classes()).sum();
        self.metrics.cache.history_events.set(events as i64);
        self.metrics.cache.history_bytes.set(bytes as i64);
        self.metrics.watch.classes.set(classes as i64);
        bytes
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchCache").field("head", &self.published.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
