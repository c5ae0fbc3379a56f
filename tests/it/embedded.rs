//! The cache inside this process: the same service without a socket, and failures that stay in it.

mod bugs;
mod disk;
mod faults;
mod listening;

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use shardcache::embedded::{EmbeddedCache, Identity, Phase, Scope};

use crate::harness::eventually;
use crate::wire::PATIENCE;

fn open(directory: &Path) -> EmbeddedCache {
    EmbeddedCache::builder().redb(directory).start().expect("it starts")
}

fn roles(cache: &EmbeddedCache, scope: &Scope, identity: &Identity) -> Api<ClusterRole> {
    Api::all(cache.client(scope, identity))
}

fn amber(cache: &EmbeddedCache) -> Api<ClusterRole> {
    roles(cache, &Scope::shard("amber").cluster("root"), &Identity::shard("amber"))
}

async fn create(roles: &Api<ClusterRole>, name: &str) -> ClusterRole {
    let mut role = ClusterRole::default();
    role.metadata.name = Some(name.to_owned());
    roles.create(&PostParams::default(), &role).await.expect("created")
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer: {other}"),
    }
}

#[tokio::test]
async fn d58_a_client_without_a_socket_does_what_one_with_a_socket_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = open(directory.path());
    let (mine, all) = (amber(&cache), roles(&cache, &Scope::wildcard(), &Identity::named("reader", &[])));
    // The very first request waits for the store to be loaded.
    let created = create(&mine, "a").await;
    assert_eq!(created.annotations().get("kcp.io/shard").map(String::as_str), Some("amber"));
    let listed = all.list(&ListParams::default()).await.expect("listed");
    assert_eq!(listed.items.len(), 1);
    let version = listed.metadata.resource_version.expect("a list has a version");
    let mut events = pin!(all.watch(&WatchParams::default(), &version).await.expect("it opens"));
    create(&mine, "b").await;
    match events.try_next().await.expect("no error") {
        Some(WatchEvent::Added(role)) => assert_eq!(role.name_any(), "b"),
        other => panic!("{other:?}"),
    }
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d50_the_identity_of_a_client_is_enforced() {
    let cache = EmbeddedCache::builder().memory().start().expect("it starts");
    let role = ClusterRole::default();
    let sapphire = Scope::shard("sapphire").cluster("root");
    for (scope, identity, expected) in [
        (&sapphire, Identity::shard("amber"), 403),
        (&sapphire, Identity::named("reader", &[]), 403),
        (&Scope::wildcard(), Identity::shard("amber"), 403),
        // Allowed, so the request itself is judged: it has no name.
        (&sapphire, Identity::shard("sapphire"), 422),
        (&sapphire, Identity::admin(), 422),
    ] {
        let refused = roles(&cache, scope, &identity).create(&PostParams::default(), &role).await;
        assert_eq!(code(&refused.expect_err("refused")), expected, "{scope:?} {identity:?}");
    }
    // A name cannot lead out of its place in the path.
    let climbing = Scope::shard("../../admin/backup?").cluster("root");
    let refused = roles(&cache, &climbing, &Identity::admin()).list(&ListParams::default()).await;
    assert!(matches!(code(&refused.expect_err("no such name")), 400 | 404 | 422));
}

#[tokio::test]
async fn d59_shutdown_ends_watches_cleanly_and_what_was_acknowledged_is_there_afterwards() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = open(directory.path());
    let mine = amber(&cache);
    for number in 0..20 {
        create(&mine, &format!("role-{number}")).await;
    }
    let events = mine.watch(&WatchParams::default(), "0").await.expect("it opens");
    let watching = tokio::spawn(async move {
        let mut events = pin!(events);
        let mut last = None;
        while let Some(event) = events.try_next().await.expect("no cut, a clean end") {
            last = Some(event);
        }
        last
    });
    cache.shutdown(PATIENCE).await.expect("a clean end");
    let last = tokio::time::timeout(PATIENCE, watching).await.expect("it ended").expect("joined");
    assert!(matches!(last, Some(WatchEvent::Bookmark(_))), "{last:?}");

    let cache = open(directory.path());
    let listed = amber(&cache).list(&ListParams::default()).await.expect("listed");
    assert_eq!(listed.items.len(), 20);
    // No shutdown this time: dropping is as safe as being killed.
    create(&amber(&cache), "late").await;
    drop(cache);
    let cache = reopened(directory.path()).await;
    assert!(amber(&cache).get_opt("late").await.expect("asked").is_some());
}

/// The store of a dropped cache is free once its writer has come to its end; until then the new cache's
/// own backoff finds it in use.
async fn reopened(directory: &Path) -> EmbeddedCache {
    let cache = open(directory);
    tokio::time::timeout(PATIENCE, cache.ready()).await.expect("in time").expect("it opens");
    cache
}

#[tokio::test]
async fn d59_requests_end_with_the_cache_that_is_dropped() {
    let cache = EmbeddedCache::builder().memory().start().expect("it starts");
    let mine = amber(&cache);
    create(&mine, "a").await;
    let mut events = pin!(mine.watch(&WatchParams::default(), "0").await.expect("it opens"));
    assert!(events.try_next().await.expect("no error").is_some());
    drop(cache);
    let rest = async { while let Ok(Some(_)) = events.try_next().await {} };
    tokio::time::timeout(PATIENCE, rest).await.expect("the watch of a dropped cache ends");
    let refused = tokio::time::timeout(PATIENCE, mine.list(&ListParams::default())).await;
    assert!(refused.expect("it does not hang").is_err());
}

#[tokio::test]
async fn d60_a_cache_that_cannot_open_its_store_fails_and_its_host_lives_on() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("store.redb"), b"").expect("written");
    let cache = open(directory.path());
    let mine = amber(&cache);
    eventually("the cache has failed", || async { matches!(cache.phase(), Phase::Failed(_)) }).await;
    let refused = mine.list(&ListParams::default()).await.expect_err("there is nothing to serve");
    let kube::Error::Api(status) = refused else { panic!("not an answer: {refused}") };
    assert_eq!((status.code, status.reason.as_str()), (503, "ServiceUnavailable"));
    let details = status.details.expect("it says why");
    assert!(details.causes.iter().any(|cause| cause.reason == "CacheUnavailable"));
    assert!(status.message.contains("0 bytes"), "{}", status.message);

    // The operator repairs it; the cache tries again by itself.
    std::fs::remove_file(directory.path().join("store.redb")).expect("removed");
    tokio::time::timeout(PATIENCE, cache.ready()).await.expect("in time").expect("it recovers");
    create(&mine, "a").await;
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d59_a_shutdown_before_readiness_does_not_keep_waiting_requests_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    for _ in 0..10 {
        let cache = open(directory.path());
        let early = amber(&cache);
        let asking = tokio::spawn(async move { early.list(&ListParams::default()).await });
        tokio::task::yield_now().await;
        let began = std::time::Instant::now();
        cache.shutdown(PATIENCE).await.expect("a clean end");
        // Served, refused because it is draining, or told that there is nothing: but told.
        if let Err(error) = asking.await.expect("joined") {
            let told = matches!(&error, kube::Error::Api(status) if [429, 503].contains(&status.code));
            assert!(told || !matches!(error, kube::Error::Api(_)), "{error}");
        }
        assert!(began.elapsed() < PATIENCE / 4, "it waited for a request that waits for it");
    }
}

#[tokio::test]
async fn two_caches_do_not_share_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = open(directory.path());
    first.ready().await.expect("it opens");
    let second = open(directory.path());
    let failed = |phase: Phase| match phase {
        Phase::Failed(why) => why.contains("in use"),
        _ => false,
    };
    eventually("the second one is refused", || async { failed(second.phase()) }).await;
    create(&amber(&first), "a").await;
    first.shutdown(Duration::from_secs(1)).await.expect("a clean end");
    // Now it is free.
    tokio::time::timeout(PATIENCE, second.ready()).await.expect("in time").expect("it opens");
}

#[test]
fn a_cache_is_started_and_dropped_outside_and_inside_of_other_runtimes() {
    let outside = EmbeddedCache::builder().memory().threads(1).start().expect("it starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let inside = EmbeddedCache::builder().memory().start().expect("it starts");
        create(&amber(&inside), "a").await;
        create(&amber(&outside), "a").await;
        drop(inside);
        drop(outside);
    });
}
