use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use shardcache_proxy::access::{Access, Identity};
use shardcache_proxy::cache::CacheConfig;
use shardcache_storage::{BackupReport, Lineage, MemoryStore, Opening, Revision, StorageError, Store};

use crate::world::{Answer, WIDGETS, World, request, serve};

const BACKUP: &str = "/services/cache/admin/backup";

/// A store in memory that writes backups of a megabyte, and whose lineage can be made to panic.
struct Odd {
    store: Arc<MemoryStore>,
    broken: AtomicBool,
}

impl Odd {
    fn new() -> Arc<Self> {
        let store = MemoryStore::new(Opening::from_system());
        Arc::new(Self { store, broken: AtomicBool::new(false) })
    }
}

impl Store for Odd {
    fn lineage(&self) -> Arc<Lineage> {
        assert!(!self.broken.load(Ordering::Relaxed), "broken on purpose");
        self.store.lineage()
    }

    fn backup(&self, to: PathBuf) -> BoxFuture<'static, Result<BackupReport, StorageError>> {
        Box::pin(async move {
            let bytes = contents();
            tokio::fs::write(&to, &bytes).await.expect("written");
            Ok(BackupReport { head: Revision(7), objects: 3, bytes: bytes.len() as u64 })
        })
    }

    shardcache_storage::delegate_store!(store: commit, push, subscribe, events, health, close);
}

fn contents() -> Vec<u8> {
    (0..1_u32 << 20).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn d52_only_administrators_take_backups() {
    let world = World::new();
    for (access, expected) in
        [(Access::loopback(), 401), (Access::of(&Identity::shard("s")), 403), (Access::internal(), 501)]
    {
        let mut request: http::Request<Full<_>> =
            request(Method::POST, BACKUP, &[("host", "localhost")], Bytes::new());
        request.extensions_mut().insert(access);
        assert_eq!(Answer::of(world.send(request).await).await.status().0, expected);
    }
    assert_eq!(world.call(Method::DELETE, BACKUP, &[]).await.status().0, 405);
    assert_eq!(world.get("/services/cache/admin/other").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_backup_is_streamed_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let data_dir = Some(directory.path().to_owned());
    let odd = Odd::new();
    let service = serve(odd, |config| config.data_dir = data_dir, CacheConfig::default());
    let world = World { store: MemoryStore::new(Opening::from_system()), service };
    let begun = world.send(request(Method::GET, BACKUP, &[], Bytes::new())).await;
    assert_eq!(begun.status(), StatusCode::OK);
    // One at a time; and while it is being sent the directory is clean already.
    assert_eq!(world.get(BACKUP).await.status().0, 429);
    assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
    let answer = Answer::of(begun).await;
    assert!(answer.body == contents());
    assert_eq!((answer.header("x-cache-revision"), answer.header("x-cache-objects")), (Some("7"), Some("3")));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    // A client that goes away makes room too.
    drop(world.send(request(Method::POST, BACKUP, &[], Bytes::new())).await);
    assert_eq!(world.get(BACKUP).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_panic_ends_its_request_with_500_and_nothing_else() {
    let odd = Odd::new();
    let service = serve(Arc::clone(&odd) as _, |_| {}, CacheConfig::default());
    let world = World { store: Arc::clone(&odd.store), service };
    let mut open = world.watch("").await;
    odd.broken.store(true, Ordering::Relaxed);
    let answer = world.get(&format!("{WIDGETS}?resourceVersion=7")).await;
    let expected = "Internal error occurred: the handler of this request failed";
    assert_eq!(answer.status(), (500, "InternalError".into(), expected.into()));
    assert_eq!(world.metrics().http.panics.get(), 1);
    assert_eq!(world.get(WIDGETS).await.status, StatusCode::OK);
    world.put("s/c/n/a", "", &json!({})).await;
    assert_eq!(open.brief().await, "ADDED a");
    let list = world.send(request(Method::GET, WIDGETS, &[], Bytes::new())).await;
    assert!(list.into_body().collect().await.is_ok());
}
