//! D60's faults, one by one: what clients get, what the host sees, and how it ends. The table "Faults of
//! an embedded cache" of docs/operations.md says the same.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use shardcache::embedded::{EmbeddedCache, Phase};
use shardcache_storage::Store;

use super::bugs::{Buggy, Bugs};
use super::disk::{Disk, Mood};
use super::{amber, create};
use crate::harness::eventually;
use crate::wire::PATIENCE;

/// A cache on a disk that can be broken. A store that cannot write is given up soon.
fn on(disk: &Disk) -> EmbeddedCache {
    let disk = disk.clone();
    let builder = EmbeddedCache::builder().store(move || disk.open());
    builder.read_only_grace(Duration::from_millis(200)).start().expect("it starts")
}

async fn try_create(roles: &Api<ClusterRole>, name: &str) -> Result<ClusterRole, kube::Error> {
    let mut role = ClusterRole::default();
    role.metadata.name = Some(name.to_owned());
    roles.create(&PostParams::default(), &role).await
}

/// The answer of a cache that cannot do what it was asked for.
fn unavailable<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> String {
    match result.expect_err("it cannot") {
        kube::Error::Api(status) => {
            assert_eq!((status.code, status.reason.as_str()), (503, "ServiceUnavailable"), "{status:?}");
            status.message.clone()
        }
        other => panic!("not an answer: {other}"),
    }
}

async fn names(roles: &Api<ClusterRole>) -> Vec<String> {
    let listed = roles.list(&ListParams::default()).await.expect("it is served");
    listed.items.into_iter().filter_map(|role| role.metadata.name).collect()
}

async fn recovers(cache: &EmbeddedCache) {
    eventually("it is ready again", || async { matches!(cache.phase(), Phase::Ready(_)) }).await;
}

async fn fails(cache: &EmbeddedCache) {
    eventually("it has failed", || async { matches!(cache.phase(), Phase::Failed(_)) }).await;
}

/// What a store does that can never write again: it answers reads, then it is opened again, and everything
/// acknowledged is there.
async fn gives_up_and_comes_back(mood: Mood) {
    let disk = Disk::new();
    let cache = on(&disk);
    let mine = amber(&cache);
    let before = create(&mine, "before").await;
    let version = before.metadata.resource_version.expect("it has one");
    disk.set(mood);
    unavailable(try_create(&mine, "refused").await);
    fails(&cache).await;
    disk.set(Mood::Healthy);
    recovers(&cache).await;
    assert!(names(&mine).await.contains(&"before".to_owned()));
    create(&mine, "after").await;
    // Nobody has to list again: the version of before the fault is a place to go on from.
    let mut events = pin!(mine.watch(&WatchParams::default(), &version).await.expect("it opens"));
    loop {
        match events.try_next().await.expect("no error") {
            Some(WatchEvent::Added(role)) if role.metadata.name.as_deref() == Some("after") => break,
            // What was refused may have become durable all the same; its writer was told so.
            Some(WatchEvent::Added(role)) => assert_eq!(role.metadata.name.as_deref(), Some("refused")),
            Some(WatchEvent::Bookmark(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d60_an_io_error_is_final_for_the_store_and_not_for_the_cache() {
    gives_up_and_comes_back(Mood::Broken).await;
}

#[tokio::test]
async fn d60_a_panic_of_the_writer_is_an_io_error_to_everybody_else() {
    gives_up_and_comes_back(Mood::Panicking).await;
}

#[tokio::test]
async fn d60_while_it_cannot_write_it_serves_reads() {
    let disk = Disk::new();
    let opened = disk.clone();
    // The default grace is longer than this test.
    let cache = EmbeddedCache::builder().store(move || opened.open()).start().expect("it starts");
    let mine = amber(&cache);
    create(&mine, "before").await;
    disk.set(Mood::Broken);
    for name in ["one", "two"] {
        unavailable(try_create(&mine, name).await);
        assert_eq!(names(&mine).await, ["before"]);
    }
    assert!(matches!(cache.phase(), Phase::Ready(_)));
    drop(cache);
}

#[tokio::test]
async fn d60_a_full_disk_refuses_writes_until_there_is_space() {
    let disk = Disk::new();
    let cache = on(&disk);
    let mine = amber(&cache);
    create(&mine, "before").await;
    disk.set(Mood::Full);
    let message = unavailable(try_create(&mine, "refused").await);
    assert!(message.contains("full"), "{message}");
    // It is no failure: nothing is opened again, reads are served.
    for _ in 0..10 {
        assert_eq!(names(&mine).await, ["before"]);
        assert!(matches!(cache.phase(), Phase::Ready(_)));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    disk.set(Mood::Healthy);
    eventually("there is space", || async { try_create(&mine, "after").await.is_ok() }).await;
    assert!(names(&mine).await.contains(&"after".to_owned()));
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d60_a_stall_holds_up_writers_and_nobody_else() {
    let disk = Disk::new();
    let cache = on(&disk);
    let mine = amber(&cache);
    let before = create(&mine, "before").await;
    let version = before.metadata.resource_version.expect("it has one");
    let mut events = pin!(mine.watch(&WatchParams::default(), &version).await.expect("it opens"));
    disk.set(Mood::Stalled);
    let writing = tokio::spawn({
        let mine = mine.clone();
        async move { try_create(&mine, "stalled").await }
    });
    tokio::time::timeout(PATIENCE, disk.has_stalled()).await.expect("it is being written");
    // The host and its readers go on, on one thread that the cache has no part in.
    for _ in 0..200 {
        assert_eq!(names(&mine).await, ["before"]);
        assert!(matches!(cache.phase(), Phase::Ready(_)), "{:?}", cache.phase());
    }
    assert!(!writing.is_finished(), "acknowledged before it was durable");
    disk.set(Mood::Healthy);
    writing.await.expect("joined").expect("it is durable in the end");
    match events.try_next().await.expect("no error") {
        Some(WatchEvent::Added(role)) => assert_eq!(role.metadata.name.as_deref(), Some("stalled")),
        other => panic!("{other:?}"),
    }
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d60_a_panic_of_the_reflector_fails_the_cache_which_is_opened_again() {
    let (disk, bugs) = (Disk::new(), Bugs::default());
    let (opened, planted) = (disk.clone(), bugs.clone());
    let cache = EmbeddedCache::builder()
        .store(move || Ok(Arc::new(Buggy { store: opened.open()?, bugs: planted.clone() }) as Arc<dyn Store>))
        .start()
        .expect("it starts");
    let mine = amber(&cache);
    let before = create(&mine, "before").await;
    let version = before.metadata.resource_version.expect("it has one");
    let events = mine.watch(&WatchParams::default(), &version).await.expect("it opens");
    bugs.in_the_reflector.store(true, Ordering::Relaxed);
    // It is durable whatever its writer is told.
    let _ = try_create(&mine, "during").await;
    // Nobody waits for events that will not come.
    let mut events = pin!(events);
    let ending = async { while let Ok(Some(_)) = events.try_next().await {} };
    tokio::time::timeout(PATIENCE, ending).await.expect("the watch ends");
    fails(&cache).await;
    let message = unavailable(mine.list(&ListParams::default()).await);
    assert!(message.contains("reflector"), "{message}");
    recovers(&cache).await;
    create(&mine, "after").await;
    assert_eq!(names(&mine).await, ["after", "before", "during"]);
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d60_a_panic_of_a_request_ends_that_request() {
    let (disk, bugs) = (Disk::new(), Bugs::default());
    let (opened, planted) = (disk.clone(), bugs.clone());
    let cache = EmbeddedCache::builder()
        .store(move || Ok(Arc::new(Buggy { store: opened.open()?, bugs: planted.clone() }) as Arc<dyn Store>))
        .start()
        .expect("it starts");
    let mine = amber(&cache);
    create(&mine, "before").await;
    bugs.in_a_request.store(true, Ordering::Relaxed);
    assert!(try_create(&mine, "hit").await.is_err());
    assert!(matches!(cache.phase(), Phase::Ready(_)));
    create(&mine, "after").await;
    assert_eq!(names(&mine).await, ["after", "before"]);
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d60_a_corrupt_file_fails_the_cache_and_is_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store.redb");
    let cache = super::open(directory.path());
    create(&amber(&cache), "before").await;
    cache.shutdown(PATIENCE).await.expect("a clean end");
    let whole = std::fs::read(&file).expect("it is there");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 4..damaged.len() / 2;
    damaged[middle].fill(0x5a);
    std::fs::write(&file, &damaged).expect("writable");

    let cache = super::open(directory.path());
    fails(&cache).await;
    unavailable(amber(&cache).list(&ListParams::default()).await);
    assert!(std::fs::read(&file).expect("it is there") == damaged, "the evidence stays");
    // The operator restores it; nobody has to restart the host.
    std::fs::write(&file, &whole).expect("writable");
    recovers(&cache).await;
    assert_eq!(names(&amber(&cache)).await, ["before"]);
    cache.shutdown(PATIENCE).await.expect("a clean end");
}
