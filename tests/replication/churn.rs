//! Writers at the sources. What a source has in the end is asked of the source; the book only knows what
//! may have been deleted there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::view::{GROUP, KINDS, Kind};
use crate::wire::Server;

/// Connections to each source while it is filled.
const FILLERS: usize = 48;
/// Writers at each source while it is churned; no two of them write one object.
const WRITERS: usize = 4;
/// Pause of a writer, which leaves the machine to those who are tested.
const PAUSE: Duration = Duration::from_millis(10);

/// Uids that were asked to be deleted.
pub(crate) type Book = Arc<Mutex<BTreeSet<String>>>;

/// A source, and its shard in the cache.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) shard: &'static str,
    pub(crate) server: Server,
}

/// Names repeat over shards and namespaces, so that a mix-up would show.
fn path(kind: &Kind, number: usize) -> (String, String) {
    let name = format!("o-{number}");
    let collection = if kind.namespaced {
        format!("/apis/{GROUP}/v1/namespaces/space-{}/{}", number % 7, kind.plural)
    } else {
        format!("/apis/{GROUP}/v1/{}", kind.plural)
    };
    (collection, name)
}

fn object(source: &Source, kind: &Kind, name: &str, size: u64) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind.kind,
        "metadata": { "name": name, "labels": { "shard": source.shard }, "annotations": { "note": "ü\"\\ \u{2028}" } },
        "spec": { "color": source.shard, "size": size, "on": size.is_multiple_of(2) },
    })
}

/// Creates the first `count` objects of each type.
pub(crate) async fn fill(source: &Source, count: usize) {
    let next = Arc::new(AtomicUsize::new(0));
    let mut fillers = JoinSet::new();
    for _ in 0..FILLERS.min(count) {
        let (source, next) = (source.clone(), Arc::clone(&next));
        fillers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(kind) = KINDS.get(number / count) else { return };
                let (collection, name) = path(kind, number % count);
                let body = object(&source, kind, &name, number as u64);
                let (status, answer) =
                    source.server.call(Method::POST, &collection, Some(&body)).await.expect("it runs");
                assert_eq!(status, StatusCode::CREATED, "{collection}: {answer}");
            }
        });
    }
    fillers.join_all().await;
}

/// Creates one more object of a type.
pub(crate) async fn create(source: &Source, kind: &Kind, name: &str) {
    let (collection, _) = path(kind, 0);
    let body = object(source, kind, name, 1);
    let (status, answer) = source.server.call(Method::POST, &collection, Some(&body)).await.expect("it runs");
    assert_eq!(status, StatusCode::CREATED, "{collection}: {answer}");
}

/// Writers that go on until they are stopped, whatever becomes of their source.
pub(crate) struct Churn {
    stop: CancellationToken,
    done: [Arc<AtomicUsize>; 2],
    writers: JoinSet<()>,
}

impl Churn {
    /// Writes to objects below `count`, and half as many more that do not exist at first.
    pub(crate) fn start(sources: &[Source; 2], book: &Book, count: usize, seed: u64) -> Self {
        let stop = CancellationToken::new();
        let done = <[Arc<AtomicUsize>; 2]>::default();
        let mut writers = JoinSet::new();
        for (source, done) in sources.iter().zip(&done) {
            for writer in 0..WRITERS {
                let mut random = StdRng::seed_from_u64(seed * 1000 + writer as u64);
                let (source, book, done, stop) =
                    (source.clone(), Arc::clone(book), Arc::clone(done), stop.clone());
                writers.spawn(async move {
                    while !stop.is_cancelled() {
                        // A few objects get most of the writes.
                        let most = count + count / 2;
                        let range = if random.random_bool(0.5) { most.min(40) } else { most };
                        let number = random.random_range(0..range) / WRITERS * WRITERS + writer;
                        let kind = &KINDS[random.random_range(0..KINDS.len())];
                        if write(&source, &book, kind, number, &mut random).await.is_ok() {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                });
            }
        }
        Self { stop, done, writers }
    }

    /// Waits until both sources have done some more writes.
    pub(crate) async fn more(&self, writes: usize) {
        for at in 0..self.done.len() {
            self.more_at(at, writes).await;
        }
    }

    /// Waits until one source has done some more writes.
    pub(crate) async fn more_at(&self, at: usize, writes: usize) {
        let done = &self.done[at];
        let until = done.load(Ordering::Relaxed) + writes;
        crate::eventually("the source is written to", async || {
            if done.load(Ordering::Relaxed) >= until { Ok(()) } else { Err("too few writes".to_owned()) }
        })
        .await;
    }

    /// Ends in the middle of nothing; the number of writes.
    pub(crate) async fn stop(self) -> usize {
        self.stop.cancel();
        self.writers.join_all().await;
        self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum()
    }
}

/// One write, or two; `Err` if the source did not answer.
async fn write(
    source: &Source,
    book: &Book,
    kind: &Kind,
    number: usize,
    random: &mut StdRng,
) -> Result<(), String> {
    let (collection, name) = path(kind, number);
    let one = format!("{collection}/{name}");
    let size = random.random_range(0..1000);
    let body = object(source, kind, &name, size);
    let server = &source.server;
    match random.random_range(0..6) {
        0 => drop(server.call(Method::POST, &collection, Some(&body)).await?),
        1 | 2 => {
            let change = json!({ "spec": { "size": size } });
            server.call(Method::PATCH, &one, Some(&change)).await?;
        }
        3 => {
            let tier = if size % 3 == 0 { Value::Null } else { json!(format!("tier-{}", size % 3)) };
            let change = json!({ "metadata": { "labels": { "tier": tier } } });
            server.call(Method::PATCH, &one, Some(&change)).await?;
        }
        again => {
            let (status, found) = server.call(Method::GET, &one, None).await?;
            if status == StatusCode::OK {
                let uid = found["metadata"]["uid"].as_str().ok_or("an object without a uid")?;
                // Before it is asked for: whether a source that dies has done it, nobody knows.
                book.lock().insert(uid.to_owned());
                server.call(Method::DELETE, &one, None).await?;
            }
            if again == 4 {
                server.call(Method::POST, &collection, Some(&body)).await?;
            }
        }
    }
    Ok(())
}
