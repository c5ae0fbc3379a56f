use std::time::Duration;

use futures::FutureExt as _;
use shardcache_storage::{ResourceVersion, Store as _};

use super::super::index::IndexBy;
use super::super::scan::CLUSTER_SEEKS_MAX;
use super::super::testing::*;
use super::super::{CacheConfig, WatchStep};

#[tokio::test]
async fn published_waits_for_the_commit_that_holds_the_revision() {
    let mut world = World::new();
    let receipt = world.store.commit(vec![change(widgets(), "amber/root//a", Some(("", "1")))]).await;
    let head = receipt.expect("commits")[0].as_ref().expect("applies").head;
    let cache = world.cache.clone();
    let mut published = tokio::spawn(async move { cache.published(head).await });
    assert!((&mut published).now_or_never().is_none());
    world.reflect().await;
    let snapshot = published.await.expect("no panic");
    assert_eq!(snapshot.state.head(), head);
    assert!(snapshot.state.get(&widgets(), key("amber/root//a").as_str()).is_some());
    let earlier = shardcache_storage::Revision(head.0 - 1);
    assert!(world.cache.published(earlier).now_or_never().is_some(), "what is published is there at once");
}

#[tokio::test]
async fn a_commit_is_one_snapshot_and_splits_by_type_in_order() {
    let mut world = World::new();
    let start = world.head();
    let mut widget_watcher = world.watch(all(), start);
    let mut gadget_watcher = world.cache.watch(&gadgets(), all(), start).expect("issued");
    let changes = vec![
        change(widgets(), "amber/root//a", Some(("", "1"))),
        change(gadgets(), "amber/root//b", Some(("", "1"))),
        change(widgets(), "amber/root//a", Some(("", "2"))),
        change(gadgets(), "amber/root//b", None),
    ];
    world.commit(changes).await;
    assert!(world.reflector.step().await);
    assert_eq!(world.head().0, start.0 + 4, "one step, one boundary");
    assert_eq!(drain_now(&mut widget_watcher), ["+a 1", "~a 2"]);
    assert_eq!(drain_now(&mut gadget_watcher), ["+b 1", "-b 1"]);
    assert_eq!(widget_watcher.bookmark(), gadget_watcher.bookmark());
}

#[tokio::test]
async fn draining_comes_after_everything_published() {
    let mut world = World::new();
    let mut behind = world.watch(all(), world.head());
    world.put("amber/root//a", "", "1").await;
    let mut level = world.watch(all(), world.head());
    let waiting = tokio::spawn(async move { level.next().await });
    tokio::task::yield_now().await;
    world.cache.drain();
    assert!(world.reflector.step().await);
    assert!(matches!(waiting.await.expect("no panic"), WatchStep::Draining), "a waiting watcher wakes");
    assert_eq!(drain_now(&mut behind), ["+a 1", "! draining"]);
    assert_eq!(
        behind.bookmark().map(ResourceVersion::revision),
        Some(world.head()),
        "the last bookmark is the newest version"
    );
    let mut late = world.watch(all(), world.head());
    assert_eq!(drain_now(&mut late), ["! draining"]);
    // What is still written while clients go away is not withheld.
    world.put("amber/root//a", "", "2").await;
    assert_eq!(drain_now(&mut behind), ["~a 2", "! draining"]);
}

#[tokio::test]
async fn a_store_that_closes_ends_the_reflector_and_the_watchers() {
    let world = World::new();
    let mut watcher = world.watch(all(), world.head());
    world.commit(vec![change(widgets(), "amber/root//a", Some(("", "1")))]).await;
    world.store.close().await.expect("closes");
    let waiting = tokio::spawn(async move {
        let first = watcher.next().await;
        (matches!(first, WatchStep::Events(_)), watcher.next().await)
    });
    world.reflector.run().await;
    let (event_first, end) = waiting.await.expect("no panic");
    assert!(event_first && matches!(end, WatchStep::Draining));
}

#[tokio::test]
async fn a_reflector_that_dies_leaves_nobody_waiting() {
    let world = World::new();
    let mut watcher = world.watch(all(), world.head());
    let waiting = tokio::spawn(async move { watcher.next().await });
    tokio::task::yield_now().await;
    drop(world.reflector);
    assert!(matches!(waiting.await.expect("no panic"), WatchStep::Draining));
}

#[tokio::test]
async fn d28_the_largest_type_pays_for_the_history() {
    const BUDGET: u64 = 200_000;
    let mut world = World::with(CacheConfig { history_bytes: BUDGET, ..CacheConfig::default() });
    let start = world.head();
    for n in 0..20 {
        world.apply(change(gadgets(), "amber/root//quiet", Some(("", &n.to_string())))).await;
    }
    let noise = "x".repeat(1000);
    for _ in 0..500 {
        world.put("amber/root//noisy", "", &noise).await;
        let bytes = world.metrics.cache.history_bytes.get();
        assert!(bytes <= BUDGET as i64, "{bytes}");
    }
    let mut quiet = world.cache.watch(&gadgets(), all(), start).expect("issued");
    assert_eq!(drain_now(&mut quiet).len(), 20);
    let log_reads = || world.log_reads.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(log_reads(), 0, "the quiet type is still in memory");
    let mut other = world.watch(all(), start);
    assert_eq!(drain_now(&mut other).len(), 500);
    assert!(log_reads() > 0);
    let shared = &world.cache.0;
    let counted: usize = shared.feeds().iter().map(|feed| feed.events()).sum();
    assert_eq!(world.metrics.cache.history_events.get(), counted as i64);
    assert!(world.metrics.cache.history_bytes.get() > BUDGET as i64 / 2, "the budget is used");
}

#[tokio::test]
async fn what_the_store_compacted_leaves_memory() {
    let mut world = World::new();
    // It does not read: its ring must not keep what the history lets go.
    let _stalled = world.watch(all(), world.head());
    for n in 0..10 {
        world.put("amber/root//a", "", &n.to_string()).await;
    }
    let feed = world.cache.0.feed(&widgets());
    assert_eq!(feed.events(), 10);
    let floor = world.compact(world.head()).await;
    assert_eq!((feed.events(), feed.start(), feed.bytes()), (0, floor, 0));
}

#[tokio::test]
async fn metrics_tell_what_the_cache_holds() {
    let mut world = World::new();
    world.put("amber/root//a", "", "1").await;
    let watchers: Vec<_> = (0..3).map(|_| world.watch(all(), world.head())).collect();
    world.put("amber/root//a", "", "2").await;
    let metrics = world.metrics.clone();
    assert_eq!(metrics.cache.revision.get(), world.head().0 as i64);
    assert_eq!(metrics.cache.objects.get(), 1);
    assert!(metrics.cache.object_bytes.get() > 0);
    assert_eq!((metrics.watch.classes.get(), metrics.watch.judgements.get()), (1, 1));
    drop(watchers);
    world.put("amber/root//a", "", "3").await;
    assert_eq!((metrics.watch.classes.get(), metrics.watch.judgements.get()), (0, 1));
}

#[tokio::test]
async fn an_old_snapshot_is_let_go_by_age() {
    let config = CacheConfig { snapshot_age: Duration::ZERO, ..CacheConfig::default() };
    let mut world = World::with(config);
    world.put("amber/root//a", "", "1").await;
    world.cache.retain(&world.cache.snapshot());
    assert_eq!(world.metrics.cache.snapshots.get(), 1);
    world.put("amber/root//a", "", "2").await;
    assert_eq!(world.metrics.cache.snapshots.get(), 0);
}

fn in_cluster(world: &World, filter: &crate::filter::Filter) -> Vec<String> {
    let snapshot = world.cache.snapshot();
    snapshot.scan(&widgets(), filter, None).map(|object| object.key().to_owned()).collect()
}

#[tokio::test]
async fn d20_clusters_are_indexed_after_a_scan_that_sought_in_too_many_shards() {
    let mut world = World::new();
    // One seek for each shard, past its two objects of another cluster.
    let put = |path: String| change(widgets(), &path, Some(("", "c")));
    let shard = |n: u32| ["x", "y"].map(|name| put(format!("s{n:05}/away//{name}")));
    let mut changes: Vec<_> = (0..CLUSTER_SEEKS_MAX).flat_map(shard).collect();
    changes.extend([put("s00000/home//h".to_owned()), put("s00700/home//h".to_owned())]);
    world.commit(changes).await;
    world.reflect().await;
    let (home, named) = (filter("*/home", ""), named("*/home", "h"));
    assert_eq!((in_cluster(&world, &home).len(), in_cluster(&world, &named).len()), (2, 2));
    assert!(world.reflector.step().now_or_never().is_none(), "so few shards are sought in");

    world.commit(shard(CLUSTER_SEEKS_MAX).into()).await;
    world.reflect().await;
    for of_one_shard in [filter("s00700/home", ""), filter("*/*", ""), filter("s00700/*", "")] {
        in_cluster(&world, &of_one_shard);
    }
    assert!(world.reflector.step().now_or_never().is_none(), "other scopes are ranges");

    let scanned = in_cluster(&world, &home);
    assert_eq!(scanned.len(), 2);
    assert!(world.reflector.step().await, "takes the request");
    // What happens during the building is in the index.
    world.put("s00500/home//h", "", "new").await;
    while !world.cache.snapshot().indexes().has(&widgets(), &IndexBy::Cluster) {
        assert!(world.reflector.step().await);
    }
    let with_new = [scanned[0].clone(), key("s00500/home//h").as_str().to_owned(), scanned[1].clone()];
    assert_eq!(in_cluster(&world, &home), with_new);
    world.delete("s00700/home//h").await;
    assert_eq!(in_cluster(&world, &home), with_new[..2]);
    assert_eq!(in_cluster(&world, &named), with_new[..2]);
    assert_eq!(world.metrics.cache.indexes.get(), 1);
    assert!(world.reflector.step().now_or_never().is_none(), "and is not asked for again");
}
