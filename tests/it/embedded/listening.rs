//! The embedded cache with a socket beside its clients that need none (D59).

use std::net::SocketAddr;
use std::pin::pin;

use futures::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use shardcache::embedded::EmbeddedCache;
use shardcache::failure::Failure;

use super::{amber, create};
use crate::checker::Step;
use crate::harness::eventually;
use crate::wire::{PATIENCE, Wire};
use crate::writer::collection;

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[tokio::test]
async fn d59_the_same_cache_is_reached_by_a_socket() {
    let cache = EmbeddedCache::builder().memory().listen(anywhere()).start().expect("it starts");
    let address = cache.address().expect("it listens");
    // From the start on: the request waits for the store as those in process do.
    let wire = Wire::tcp(&format!("http://{address}"));
    let path = collection("amber", "root");
    assert!(wire.list(&path).await.expect("served").items.is_empty());
    let mine = amber(&cache);
    let created = create(&mine, "from-inside").await;
    let version = created.metadata.resource_version.expect("it has one");
    // What is written here is seen there, and the other way round, under the same versions.
    let listed = wire.list(&path).await.expect("served");
    assert_eq!((listed.items.len(), listed.version.to_string()), (1, version.clone()));
    let mut events = pin!(mine.watch(&WatchParams::default(), &version).await.expect("it opens"));
    let body = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"from-outside"}}"#;
    assert_eq!(wire.call(http::Method::POST, &path, body).await.status, 201);
    match events.try_next().await.expect("no error") {
        Some(WatchEvent::Added(role)) => assert_eq!(role.metadata.name.as_deref(), Some("from-outside")),
        other => panic!("{other:?}"),
    }
    // The end is as graceful there: a last bookmark, and the port is free.
    let query = format!("resourceVersion={version}&allowWatchBookmarks=true");
    let mut watch = wire.watch(&path, &query).await.expect("admitted");
    assert!(matches!(watch.expect().await, Step::Added(_)));
    let ending = tokio::spawn(cache.shutdown(PATIENCE));
    let mut last = None;
    while let Some(step) = watch.next().await {
        last = Some(step.expect("a whole line"));
    }
    assert!(matches!(last, Some(Step::Bookmark { .. })), "{last:?}");
    ending.await.expect("joined").expect("a clean end");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn d59_without_being_asked_to_it_listens_nowhere() {
    let cache = EmbeddedCache::builder().memory().start().expect("it starts");
    assert_eq!(cache.address(), None);
    cache.shutdown(PATIENCE).await.expect("a clean end");
}

#[tokio::test]
async fn d59_what_it_cannot_listen_on_is_said_at_once() {
    let taken = std::net::TcpListener::bind(anywhere()).expect("a free port");
    let address = taken.local_addr().expect("bound");
    let refused = EmbeddedCache::builder().memory().listen(address).start();
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
    // Plain HTTP is for loopback (D52), in whichever process it is.
    let exposed = EmbeddedCache::builder().memory().listen(SocketAddr::from(([0, 0, 0, 0], 0))).start();
    assert!(matches!(exposed, Err(Failure::Usage(_))), "{exposed:?}");
}

#[tokio::test]
async fn d59_a_dropped_cache_leaves_its_address() {
    let cache = EmbeddedCache::builder().memory().listen(anywhere()).start().expect("it starts");
    let address = cache.address().expect("it listens");
    drop(cache);
    let free = || async { std::net::TcpListener::bind(address).is_ok() };
    eventually("the address is free", free).await;
}
