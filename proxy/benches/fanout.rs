//! Cost of fan-out inside the process, without sockets: `cargo bench -p shardcache-proxy --bench fanout`.
//!
//! 1. One event with 100, 10 000 and 100 000 watchers on disjoint `shard in (i)` selectors: reflector step
//!    and delivery to the one watcher concerned. Goal: 100k costs at most 1.3 times 100.
//! 2. Deliveries per second of one stream of events to 1000 match-all watchers, each its own task.
//!
//! Medians of several rounds. Run on a machine that does nothing else.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use shardcache_proxy::cache::{CacheConfig, Reflector, WatchCache, WatchStep};
use shardcache_proxy::filter::Filter;
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::scope::{Part, Scope};
use shardcache_proxy::selector::LabelSelector;
use shardcache_proxy::types::Types;
use shardcache_storage::{
    Action, Change, Commit, Draft, Guard, Key, MemoryStore, Opening, PLACEHOLDER, Push, Pushed, Receipt,
    Revision, Spans, State, StorageError, Store, Subscription, TypeName,
};
use tokio::sync::mpsc;

/// Objects that the events update in turn.
const OBJECTS: usize = 1000;
const BODY_BYTES: usize = 2048;
const EVENTS: usize = 4000;
const ROUNDS: usize = 5;
const WATCHERS: usize = 1000;
const SEED: u64 = 0x5eed;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    runtime.block_on(event_costs([100, 10_000, 100_000]));
    for batch in [1, 10, 100] {
        let rate = runtime.block_on(delivery_rate(batch));
        println!(
            "{WATCHERS} match-all watchers, {batch:>3} events per commit: {:.1} M deliveries/s",
            rate / 1e6
        );
    }
}

/// Prints nanoseconds per event, and classes judged per event, for each number of classes.
async fn event_costs(sizes: [usize; 3]) {
    let mut recordings = Vec::new();
    for classes in sizes {
        recordings.push(record(EVENTS, 1, |random| format!("{}", random % classes as u64)).await);
    }
    let mut rounds: [Vec<f64>; 3] = Default::default();
    let mut judged = [0.0; 3];
    // Sizes take turns, so that whatever else the machine does concerns all of them.
    for _ in 0..ROUNDS {
        for (at, (start, commits)) in recordings.iter().enumerate() {
            let (nanos, judgements) = event_cost(sizes[at], start, commits).await;
            rounds[at].push(nanos);
            judged[at] = judgements;
        }
    }
    let costs = rounds.map(median);
    for (at, classes) in sizes.into_iter().enumerate() {
        println!(
            "{classes:>7} disjoint selectors: {:>6.0} ns per event, {:.2} judged",
            costs[at], judged[at]
        );
    }
    println!("ratio 100k / 100: {:.2} (goal 1.3)", costs[2] / costs[0]);
}

/// Nanoseconds per event, and classes judged per event.
async fn event_cost(classes: usize, start: &Arc<Recording>, commits: &[Commit]) -> (f64, f64) {
    let (cache, mut reflector, feed, metrics) = open(start);
    let mut watchers: Vec<_> = (0..classes)
        .map(|n| {
            let filter = selecting(&format!("shard in ({n})"));
            cache.watch(&widgets(), filter, start.head()).expect("issued")
        })
        .collect();
    let began = cpu_time();
    for commit in commits {
        feed.send(commit.clone()).await.expect("the reflector lives");
        assert!(reflector.step().await);
        let object = commit.events[0].current.as_ref().expect("a put");
        let shard: usize = object.label("shard").and_then(|text| text.parse().ok()).expect("a number");
        let step = watchers[shard].next().now_or_never();
        assert!(matches!(step, Some(WatchStep::Events(_))), "the watcher concerned has the event");
    }
    let nanos = cpu_time().saturating_sub(began).as_nanos() as f64 / EVENTS as f64;
    (nanos, metrics.watch.judgements.get() as f64 / EVENTS as f64)
}

/// Time this thread has run; the wall clock where the kernel does not tell.
fn cpu_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Deliveries per second.
async fn delivery_rate(batch: usize) -> f64 {
    let (start, commits) = record(EVENTS, batch, |_| "0".to_owned()).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (cache, reflector, feed, _) = open(&start);
        let reflecting = tokio::spawn(reflector.run());
        let watching: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let mut watcher = cache.watch(&widgets(), selecting(""), start.head()).expect("issued");
                tokio::spawn(async move {
                    let mut seen = 0;
                    while seen < EVENTS {
                        match watcher.next().await {
                            WatchStep::Events(deliveries) => seen += deliveries.len(),
                            end => panic!("{end:?}"),
                        }
                    }
                })
            })
            .collect();
        let began = Instant::now();
        for commit in &commits {
            feed.send(commit.clone()).await.expect("the reflector lives");
        }
        for watcher in watching {
            watcher.await.expect("no panic");
        }
        rounds.push((WATCHERS * EVENTS) as f64 / began.elapsed().as_secs_f64());
        drop(feed);
        reflecting.await.expect("no panic");
    }
    median(rounds)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn widgets() -> TypeName {
    TypeName::new("example.dev", "widgets")
}

fn selecting(labels: &str) -> Filter {
    let everywhere = Scope { shard: Part::Any, cluster: Part::Any, namespace: None };
    Filter { labels: LabelSelector::parse(labels).expect("legal"), ..Filter::scope(everywhere) }
}

/// Objects as they are before the measurement, and the commits to measure.
async fn record(events: usize, batch: usize, shard: impl Fn(u64) -> String) -> (Arc<Recording>, Vec<Commit>) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    let store = MemoryStore::new(Opening { now, entropy: SEED, host: "bench".to_owned() });
    let mut random = SEED;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let initial = (0..OBJECTS).map(|n| put(n, "none")).collect();
    store.commit(initial).await.expect("commits");
    let Subscription { state, mut commits } = store.subscribe();
    let mut recorded = Vec::new();
    for first in (0..events).step_by(batch) {
        let changes = (first..first + batch).map(|n| put(n % OBJECTS, &shard(next()))).collect();
        store.commit(changes).await.expect("commits");
        recorded.push(commits.recv().await.expect("the store is open"));
    }
    (Arc::new(Recording { state, store, feed: Mutex::default() }), recorded)
}

fn put(n: usize, shard: &str) -> Change {
    let head = r#"{"apiVersion":"v1","metadata":{"resourceVersion":""#;
    let digits = std::str::from_utf8(PLACEHOLDER).expect("digits");
    let body = format!(r#"{head}{digits}"}},"content":"{}"}}"#, "x".repeat(BODY_BYTES));
    let spans = Spans { resource_version_at: head.len() as u32, ..Spans::default() };
    let key = Key::new("amber", "root", "", &format!("widget-{n:06}")).expect("legal");
    let labels = [("app", "bench"), ("shard", shard), ("tier", "x")];
    let draft = Draft::new(&key, &labels, body.as_bytes(), spans).expect("small");
    Change { type_name: widgets(), key, guard: Guard::default(), action: Action::Put(draft) }
}

fn open(recording: &Arc<Recording>) -> (WatchCache, Reflector, mpsc::Sender<Commit>, Metrics) {
    let metrics = Metrics::default();
    let types = Types::builtin(Vec::new());
    let store = Arc::clone(recording) as Arc<dyn Store>;
    let (cache, reflector) = WatchCache::open(store, &types, CacheConfig::default(), &metrics);
    let feed = recording.feed.lock().expect("no panic").take().expect("the cache has subscribed");
    (cache, reflector, feed, metrics)
}

/// A store whose commits come from the bench.
struct Recording {
    state: State,
    store: Arc<MemoryStore>,
    feed: Mutex<Option<mpsc::Sender<Commit>>>,
}

impl Recording {
    fn head(&self) -> Revision {
        self.state.head()
    }
}

impl Store for Recording {
    fn commit(&self, _changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        Box::pin(async { Err(StorageError::Closed) })
    }

    fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>> {
        drop(push);
        Box::pin(async { Err(StorageError::Closed) })
    }

    fn subscribe(&self) -> Subscription {
        let (feed, commits) = mpsc::channel(64);
        *self.feed.lock().expect("no panic") = Some(feed);
        Subscription { state: self.state.clone(), commits }
    }

    shardcache_storage::delegate_store!(store: lineage, events, backup, health, close);
}
