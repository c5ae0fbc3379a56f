//! What the cache's tests share: small objects, a store in memory, and a reflector stepped by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use shardcache_storage::{
    Action, Change, Draft, Event, Guard, Key, LogPage, MemoryStore, Object, Opening, PLACEHOLDER, ReadLimit,
    ResourceVersion, Revision, Span, Spans, State, StorageError, Store, Tag, TypeName,
};

use super::{CacheConfig, Reflector, Snapshot, WatchCache, WatchStep, Watcher};
use crate::filter::Filter;
use crate::metrics::Metrics;
use crate::scope::{Part, Scope};
use crate::selector::{FieldSelector, LabelSelector};
use crate::types::Types;

/// The type of most tests.
pub(crate) fn widgets() -> TypeName {
    TypeName::new("example.dev", "widgets")
}

/// Another type.
pub(crate) fn gadgets() -> TypeName {
    TypeName::new("example.dev", "gadgets")
}

/// A key from `shard/cluster/namespace/name`.
pub(crate) fn key(path: &str) -> Key {
    let parts: Vec<_> = path.split('/').collect();
    let [shard, cluster, namespace, name] = parts[..] else { panic!("not four parts: {path}") };
    Key::new(shard, cluster, namespace, name).expect("no NUL")
}

/// Labels from `a=1,b=2`.
pub(crate) fn labels(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    text.split(',').filter_map(pair).collect()
}

/// An encoded object; `content` is any text without quotes and makes states tell apart.
pub(crate) fn draft(path: &str, label_text: &str, uid: &str, content: &str) -> Draft {
    let mut body = String::from(r#"{"apiVersion":"v1","metadata":{"resourceVersion":""#);
    let resource_version_at = body.len() as u32;
    body.push_str(std::str::from_utf8(PLACEHOLDER).expect("digits"));
    body.push_str(r#"","uid":""#);
    let uid_span = Span { at: body.len() as u32, len: uid.len() as u32 };
    body.push_str(uid);
    body.push_str(r#""},"content":""#);
    body.push_str(content);
    body.push_str(r#""}"#);
    let spans = Spans { resource_version_at, uid: uid_span, ..Spans::default() };
    Draft::new(&key(path), &labels(label_text), body.as_bytes(), spans).expect("small")
}

/// A filter from a scope `shard/cluster` or `shard/cluster/namespace` and a label selector.
pub(crate) fn filter(scope: &str, label_selector: &str) -> Filter {
    let mut parts = scope.split('/');
    let mut part = || match parts.next().expect("shard and cluster") {
        "*" => Part::Any,
        one => Part::One(one.into()),
    };
    let scope = Scope { shard: part(), cluster: part(), namespace: parts.next().map(Into::into) };
    let labels = LabelSelector::parse(label_selector).expect("a legal selector");
    Filter { labels, ..Filter::scope(scope) }
}

/// Everything.
pub(crate) fn all() -> Filter {
    filter("*/*", "")
}

/// One name.
pub(crate) fn named(scope: &str, name: &str) -> Filter {
    let fields = FieldSelector::parse(&format!("metadata.name={name}")).expect("a legal selector");
    Filter { fields, ..filter(scope, "") }
}

/// A put or, without labels, a deletion.
pub(crate) fn change(type_name: TypeName, path: &str, state: Option<(&str, &str)>) -> Change {
    let action =
        state.map_or(Action::Delete, |(labels, content)| Action::Put(draft(path, labels, path, content)));
    Change { type_name, key: key(path), guard: Guard::default(), action }
}

/// A store in memory, and the cache over it. The reflector moves only when a method here moves it.
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) cache: WatchCache,
    pub(crate) reflector: Reflector,
    pub(crate) metrics: Metrics,
    /// Makes reads of the store's log fail while set.
    pub(crate) failing: Arc<AtomicBool>,
    /// Reads of the store's log so far.
    pub(crate) log_reads: Arc<AtomicUsize>,
    config: CacheConfig,
}

/// The store as the cache sees it: reads of the log are counted, and fail on demand.
struct Observed {
    store: Arc<MemoryStore>,
    failing: Arc<AtomicBool>,
    log_reads: Arc<AtomicUsize>,
}

impl Store for Observed {
    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>> {
        self.log_reads.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) {
            return Box::pin(async { Err(StorageError::Corrupt("on demand".to_owned())) });
        }
        self.store.events(type_name, after, up_to, limit)
    }

    shardcache_storage::delegate_store!(store: commit, push, subscribe, lineage, backup, health, close);
}

/// A new store in memory.
pub(crate) fn store() -> Arc<MemoryStore> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    MemoryStore::new(Opening { now, entropy: 4711, host: "test".to_owned() })
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(CacheConfig::default())
    }

    pub(crate) fn with(config: CacheConfig) -> Self {
        let store = store();
        let (failing, log_reads) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let observed = Observed {
            store: Arc::clone(&store),
            failing: Arc::clone(&failing),
            log_reads: Arc::clone(&log_reads),
        };
        let (cache, reflector, metrics) = open(observed, &config);
        Self { store, cache, reflector, metrics, failing, log_reads, config }
    }

    /// Throws the cache away and opens another one over the same store, as a restart does.
    pub(crate) fn restart(&mut self) {
        let store = Arc::clone(&self.store);
        let (failing, log_reads) = (Arc::clone(&self.failing), Arc::clone(&self.log_reads));
        let observed = Observed { store, failing, log_reads };
        (self.cache, self.reflector, self.metrics) = open(observed, &self.config);
    }

    /// Commits changes that must all apply, without moving the reflector.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Vec<Arc<Event>> {
        let receipt = self.store.commit(changes).await.expect("a store in memory does not fail");
        receipt.into_iter().map(|result| result.expect("applies").event).collect()
    }

    /// Moves the reflector until what is committed is published and dispatched.
    pub(crate) async fn reflect(&mut self) {
        let head = self.store.subscribe().state.head();
        while self.cache.0.progress().revision() < head {
            assert!(self.reflector.step().await, "the store is open");
        }
    }

    /// Puts one widget and reflects it.
    pub(crate) async fn put(&mut self, path: &str, labels: &str, content: &str) -> Arc<Event> {
        self.apply(change(widgets(), path, Some((labels, content)))).await
    }

    /// Deletes one widget and reflects it.
    pub(crate) async fn delete(&mut self, path: &str) -> Arc<Event> {
        self.apply(change(widgets(), path, None)).await
    }

    pub(crate) async fn apply(&mut self, change: Change) -> Arc<Event> {
        let event = self.commit(vec![change]).await.pop().expect("one change");
        self.reflect().await;
        event
    }

    /// Compacts the widgets' log up to a revision and reflects it.
    pub(crate) async fn compact(&mut self, to: Revision) -> Revision {
        let floor = self.store.compact(widgets(), to).await.expect("compacts");
        while self.cache.snapshot().state.floor(&widgets()) < floor {
            assert!(self.reflector.step().await, "the store is open");
        }
        floor
    }

    pub(crate) fn head(&self) -> Revision {
        self.cache.snapshot().state.head()
    }

    pub(crate) fn watch(&self, filter: Filter, after: Revision) -> Watcher {
        self.cache.watch(&widgets(), filter, after).expect("the history reaches there")
    }
}

fn open(store: Observed, config: &CacheConfig) -> (WatchCache, Reflector, Metrics) {
    let metrics = Metrics::default();
    let types = Types::builtin(Vec::new());
    let (cache, reflector) = WatchCache::open(Arc::new(store), &types, config.clone(), &metrics);
    (cache, reflector, metrics)
}

/// Everything a watcher can yield without waiting: `+`, `~`, `-`, then name and content; `!` for an end.
pub(crate) fn drain_now(watcher: &mut Watcher) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(step) = poll_now(watcher) {
        match step {
            WatchStep::Events(deliveries) => seen.extend(deliveries.iter().map(describe)),
            end => {
                seen.push(format!("! {}", name_of(&end)));
                break;
            }
        }
    }
    seen
}

fn name_of(step: &WatchStep) -> &'static str {
    match step {
        WatchStep::Events(_) => "events",
        WatchStep::Expired => "expired",
        WatchStep::Draining => "draining",
        WatchStep::Failed(_) => "failed",
    }
}

/// The next step, if the watcher need not wait for it.
pub(crate) fn poll_now(watcher: &mut Watcher) -> Option<WatchStep> {
    use futures::FutureExt as _;
    // The store in memory answers at once, so that only waiting for events is pending.
    tokio::task::unconstrained(watcher.next()).now_or_never()
}

/// One delivery in the notation of [`drain_now`].
pub(crate) fn describe(delivery: &super::Delivery) -> String {
    use super::Transition::{Added, Deleted, Modified};
    let event = &delivery.event;
    let (mark, object) = match delivery.kind {
        Added => ('+', event.current.as_ref()),
        Modified => ('~', event.current.as_ref()),
        Deleted => ('-', event.previous.as_ref()),
    };
    let object = object.expect("the kind says that it is there");
    format!("{mark}{} {}", object.parts().name, content(object))
}

/// The content of an object made by [`draft`].
pub(crate) fn content(object: &Object) -> String {
    let body: serde_json::Value = serde_json::from_slice(object.body_bytes()).expect("JSON");
    body["content"].as_str().expect("text").to_owned()
}

/// A legal version of a revision, for tests without a store.
pub(crate) fn version(revision: u64) -> ResourceVersion {
    ResourceVersion::new(Revision((1_790_000_000_000 << 11) + revision), Tag::new(7).expect("legal"))
}

/// Events of puts and deletions applied in order to an empty store, for tests of the pure parts.
pub(crate) async fn events(changes: Vec<Change>) -> (State, Vec<Arc<Event>>) {
    let store = store();
    let receipt = store.commit(changes).await.expect("a store in memory does not fail");
    let events = receipt.into_iter().map(|result| result.expect("applies").event).collect();
    (store.subscribe().state, events)
}

/// A snapshot of a state.
pub(crate) fn snapshot(state: State) -> Arc<Snapshot> {
    Arc::new(Snapshot::new(state, Types::builtin(Vec::new())))
}

/// Cases of a property test: `default`, or `SHARDCACHE_PROPERTY_CASES` if that is more.
pub(crate) fn cases(default: u32) -> u32 {
    let wanted = std::env::var("SHARDCACHE_PROPERTY_CASES").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(default).max(default)
}

/// Runs a future in a test that is not async.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(future)
}
