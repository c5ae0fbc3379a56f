//! What a client is told when the store cannot write; and that answers wait for publication.

use std::sync::Arc;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use shardcache_storage::{Change, MemoryStore, Opening, Receipt, StorageError, Store};

use super::{EXPORTS, Server, at, export};
use crate::service::ApiConfig;

/// A store in memory whose commits fail as told, or hang if told nothing but to wait.
struct Failing {
    inner: Arc<MemoryStore>,
    next: Mutex<Option<StorageError>>,
    hang: bool,
}

impl Failing {
    fn new(hang: bool) -> Arc<Self> {
        let inner = MemoryStore::new(Opening::from_system());
        Arc::new(Self { inner, next: Mutex::new(None), hang })
    }

    fn fail(&self, error: StorageError) {
        *self.next.lock().expect("not poisoned") = Some(error);
    }
}

impl Store for Failing {
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        if self.hang {
            return futures::future::pending().boxed();
        }
        match self.next.lock().expect("not poisoned").take() {
            Some(error) => futures::future::ready(Err(error)).boxed(),
            None => self.inner.commit(changes),
        }
    }

    shardcache_storage::delegate_store!(inner: push, subscribe, lineage, events, backup, health, close);
}

#[tokio::test]
async fn a_store_that_cannot_write_is_told_apart_from_a_write_that_is_wrong() {
    let store = Failing::new(false);
    let server = Server::over(Arc::<Failing>::clone(&store), ApiConfig::default());
    let created = server.create("x").await;
    let mut changed = created.clone();
    changed["spec"] = json!({ "a": 1 });
    for (error, code, reason, message, retry) in [
        (
            || StorageError::Overloaded,
            429,
            "TooManyRequests",
            "Too many requests, please try again later.",
            "1",
        ),
        (
            || StorageError::DiskFull,
            503,
            "ServiceUnavailable",
            "the disk is full; writes are refused until space is free",
            "5",
        ),
        (
            || StorageError::ReadOnly("EIO".into()),
            503,
            "ServiceUnavailable",
            "the store is read-only after a failed write: EIO",
            "5",
        ),
        (|| StorageError::Closed, 503, "ServiceUnavailable", "the server is shutting down", "1"),
    ] as [(fn() -> StorageError, u16, &str, &str, &str); 4]
    {
        store.fail(error());
        let mut answers = vec![server.post(EXPORTS, &export("y")).await];
        store.fail(error());
        answers.push(server.put(&at("x"), &changed).await);
        store.fail(error());
        answers.push(server.merge(&at("x"), &json!({ "spec": { "a": 1 } })).await);
        store.fail(error());
        answers.push(server.delete(&at("x")).await);
        store.fail(error());
        answers.push(server.delete(EXPORTS).await);
        for answer in answers {
            assert_eq!((answer.code, answer.message()), (code, message));
            assert_eq!(
                (&answer.body["reason"], &answer.headers["retry-after"]),
                (&reason.into(), &retry.parse().expect("legal"))
            );
        }
    }
    store.fail(StorageError::Corrupt("page 7".into()));
    assert_eq!(server.delete(&at("x")).await.expect(500).body["reason"], "InternalError");
    assert_eq!(server.get(&at("x")).await.expect(200).body, created);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_on() {
    let server = Server::over(Failing::new(true), ApiConfig::default());
    for (url, seconds) in [(EXPORTS.to_owned(), 34), (format!("{EXPORTS}?timeout=3s"), 3)] {
        let started = tokio::time::Instant::now();
        let answer = server.post(&url, &export("x")).await.expect(504);
        assert_eq!(answer.body["reason"], "Timeout");
        assert_eq!(started.elapsed().as_secs(), seconds);
    }
}

#[tokio::test]
async fn new_objects_are_refused_above_the_bound_on_all_of_them() {
    let config = ApiConfig { object_bytes_max: Some(900), ..ApiConfig::default() };
    let server = Server::over(MemoryStore::new(Opening::from_system()), config);
    let mut first = server.create("a").await;
    server.create("b").await;
    server.create("c").await;
    let refused = server.post(EXPORTS, &export("d")).await.expect(507);
    assert_eq!(refused.body["reason"], "InsufficientStorage");
    first["spec"] = json!({ "text": "x".repeat(2_000) });
    server.put(&at("a"), &first).await.expect(200);
    server.post(EXPORTS, &export("d")).await.expect(507);
    server.delete(&at("a")).await.expect(200);
    server.create("d").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d12_whoever_is_answered_sees_the_write_in_the_next_read() {
    let server = Server::start();
    let writers = (0..8).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            for n in 0..40 {
                let name = format!("w{writer}-{n}");
                let mut object = server.create(&name).await;
                assert_eq!(server.get(&at(&name)).await.expect(200).body, object);
                object["spec"] = json!({ "n": n });
                let updated = server.put(&at(&name), &object).await.expect(200).body;
                assert_eq!(server.get(&at(&name)).await.expect(200).body, updated);
                server.post(EXPORTS, &export(&name)).await.expect(409);
                server.delete(&at(&name)).await.expect(200);
                server.get(&at(&name)).await.expect(404);
            }
        })
    });
    for done in futures::future::join_all(writers).await {
        done.expect("no panic");
    }
}

#[tokio::test]
async fn refusals_are_counted_by_what_they_mean() {
    use crate::metrics::labels::WriteRefusal;
    let server = Server::start();
    let created = server.create("x").await;
    server.post(EXPORTS, &export("x")).await.expect(409);
    server.post(EXPORTS, &export("X")).await.expect(422);
    server.delete(&at("y")).await.expect(404);
    let mut stale = created;
    stale["metadata"]["resourceVersion"] = "7".into();
    server.put(&at("x"), &stale).await.expect(409);
    let count = |reason: WriteRefusal| server.api.metrics.write.refusals.get_or_create(&reason.into()).get();
    for reason in
        [WriteRefusal::AlreadyExists, WriteRefusal::Invalid, WriteRefusal::NotFound, WriteRefusal::Conflict]
    {
        assert_eq!(count(reason), 1, "{reason:?}");
    }
}
