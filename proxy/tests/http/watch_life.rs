use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shardcache_proxy::metrics::labels::{Class, Reason};

use crate::world::{PATIENCE, WIDGETS, World};

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

#[tokio::test]
async fn b005_b037_b038_bookmarks_move_on_while_nothing_matches() {
    let world = World::with(|config| config.bookmark_interval = Duration::from_millis(20));
    let start: u64 = world.head().parse().expect("a number");
    let mut lines = world
        .watch(&format!("resourceVersion={start}&allowWatchBookmarks=true&labelSelector=never%3D1"))
        .await;
    let mut last = start;
    for round in 0..10 {
        let written: u64 =
            world.put("s/c/n/a", "x=1", &json!({ "round": round })).await.parse().expect("a number");
        loop {
            let (kind, object) = lines.event().await;
            assert_eq!(kind, "BOOKMARK");
            assert!(version_of(&object) >= last, "a bookmark went back");
            last = version_of(&object);
            if last >= written {
                break;
            }
        }
    }
    // Resuming there costs nothing and loses nothing.
    let mut resumed = world.watch(&format!("resourceVersion={last}&labelSelector=never%3D1")).await;
    world.put("s/c/n/b", "never=1", &json!({})).await;
    assert_eq!(resumed.brief().await, "ADDED b");
}

#[tokio::test]
async fn i7_no_event_at_or_below_a_bookmark_follows_it() {
    let world = World::with(|config| config.bookmark_interval = Duration::from_millis(1));
    let mut lines = world.watch(&format!("resourceVersion={}&allowWatchBookmarks=true", world.head())).await;
    let writer = async {
        for n in 0..300 {
            world.put(&format!("s/c/n/{}", n % 10), "", &json!({ "n": n })).await;
        }
    };
    let reader = async {
        let (mut events, mut bookmark, mut last) = (0, 0, 0);
        while events < 300 {
            let (kind, object) = lines.event().await;
            let version = version_of(&object);
            if kind == "BOOKMARK" {
                assert!(version >= last.max(bookmark));
                bookmark = version;
            } else {
                assert!(version > bookmark && version > last, "{version} after {bookmark}");
                (last, events) = (version, events + 1);
            }
        }
    };
    tokio::join!(writer, reader);
}

#[tokio::test]
async fn bookmarks_are_sent_only_on_request() {
    let world = World::with(|config| config.bookmark_interval = Duration::from_millis(5));
    let mut lines = world.watch("resourceVersion=0&timeoutSeconds=1").await;
    assert_eq!(lines.line().await, None);
}

#[tokio::test]
async fn w11_the_timeout_is_kept_after_a_last_bookmark() {
    let world = World::new();
    for seconds in [1, 3] {
        let started = Instant::now();
        let head = world.head();
        let query = format!("resourceVersion={head}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        let mut lines = world.watch(&query).await;
        assert_eq!(lines.brief().await, "BOOKMARK");
        let bookmark = started.elapsed();
        assert_eq!(lines.line().await, None);
        let before = Duration::from_secs(seconds).saturating_sub(bookmark);
        assert!(before >= Duration::from_millis(400) && before <= Duration::from_secs(2), "{before:?}");
        let error = started.elapsed().abs_diff(Duration::from_secs(seconds));
        assert!(error < Duration::from_secs(1), "{error:?}");
    }
    assert_eq!(world.metrics().watch.terminations.get_or_create(&Reason::Timeout.into()).get(), 2);
}

#[tokio::test]
async fn a_busy_stream_ends_at_its_deadline_too() {
    let world = World::new();
    let mut lines = world.watch("resourceVersion=0&timeoutSeconds=1").await;
    let writer = async {
        for n in 0.. {
            world.put("s/c/n/a", "", &json!({ "n": n })).await;
            tokio::task::yield_now().await;
        }
    };
    let reader = async { while lines.line().await.is_some() {} };
    tokio::select! {
        () = writer => unreachable!("it writes for ever"),
        ended = tokio::time::timeout(PATIENCE, reader) => ended.expect("the stream ends"),
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_watcher_along() {
    let world = World::new();
    let open = || world.metrics().http.in_flight.get_or_create(&Class::Watch.into()).get();
    let mut all = vec![];
    for _ in 0..10 {
        all.push(world.watch("").await);
    }
    assert_eq!(open(), 10);
    all.truncate(3);
    assert_eq!(open(), 3);
    assert_eq!(world.metrics().watch.terminations.get_or_create(&Reason::Client.into()).get(), 7);
}

#[tokio::test]
async fn d59_draining_ends_watches_with_a_bookmark_and_refuses_new_requests() {
    let world = World::new();
    let mut with = world.watch(&format!("allowWatchBookmarks=true&resourceVersion={}", world.head())).await;
    let mut without = world.watch(&format!("resourceVersion={}", world.head())).await;
    let written = world.put("s/c/n/a", "", &json!({})).await;
    world.service.api().drain();
    assert_eq!(with.brief().await, "ADDED a");
    let (kind, object) = with.event().await;
    assert_eq!((kind.as_str(), version_of(&object)), ("BOOKMARK", written.parse().expect("a number")));
    assert_eq!(with.line().await, None);
    assert_eq!(without.brief().await, "ADDED a");
    assert_eq!(without.line().await, None);
    let refused = world.get(WIDGETS).await;
    let expected = "The apiserver is shutting down, please try again later.";
    assert_eq!(refused.status(), (429, "TooManyRequests".into(), expected.into()));
    assert_eq!((refused.header("retry-after"), refused.header("connection")), (Some("5"), Some("close")));
    assert_eq!(world.get("/livez").await.status, http::StatusCode::OK);
}

#[tokio::test]
async fn w14_a_reader_that_sleeps_catches_up_without_a_gap() {
    let world = World::new();
    let mut sleeper = world.watch(&format!("resourceVersion={}", world.head())).await;
    let mut brisk = world.watch(&format!("resourceVersion={}", world.head())).await;
    for n in 0..6000 {
        world.put("s/c/n/a", "", &json!({ "n": n })).await;
        let (_, object) = brisk.event().await;
        assert_eq!(object["spec"]["n"], json!(n));
    }
    for n in 0..6000 {
        let (_, object) = sleeper.event().await;
        assert_eq!(object["spec"]["n"], json!(n));
    }
}
