//! Group commit: many callers, one writer thread, one transaction for all that waits.
//!
//! While a commit is being synced to disk, requests queue; the next commit takes all of them, up to
//! 4096 changes or 8 MiB. There is no timer: an idle store commits a lone change at once.
//!
//! The order of effects is *durable → published → acknowledged*. A failed precondition fails its
//! change, never its batch. The queue is bounded; at the bound callers get
//! [`StorageError::Overloaded`]. A subscriber that does not read holds up the writer, so it must read.
//!
//! The thread — *owns* the [`Writer`]; *receives* jobs from the [`Queue`]; *sends* commits to
//! subscribers and answers to callers; *stops when* the queue is closed and empty.

mod publisher;
mod queue;
mod writer;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{oneshot, watch};

use crate::change::Change;
use crate::error::StorageError;
use crate::failpoint;
use crate::key::TypeName;
use crate::metrics::Metrics;
use crate::push::{Push, Pushed};
use crate::resource_version::{Revision, Tag};
use crate::state::State;
use crate::store::{Health, Receipt, Subscription};

pub(crate) use publisher::Publisher;
pub(crate) use queue::Limits;
use queue::{Queue, Request, Taken};
use writer::Writer;
pub(crate) use writer::{Failure, Log};

/// The handle on a store's writer. Dropping it lets the writer finish what is queued and stop.
#[derive(Debug)]
pub(crate) struct Committer {
    queue: Arc<Queue>,
    publisher: Arc<Publisher>,
    ended: watch::Receiver<Ended>,
}

#[derive(Clone, Debug)]
enum Ended {
    NotYet,
    Cleanly,
    With(String),
}

impl Committer {
    /// Starts the writer thread over a log whose newest state is `state`.
    pub(crate) fn start<L: Log>(log: L, state: State, tag: Tag, limits: Limits, metrics: Metrics) -> Self {
        let queue = Arc::new(Queue::new(limits, metrics.queue_depth.clone()));
        let publisher = Arc::new(Publisher::new(state));
        let (end, ended) = watch::channel(Ended::NotYet);
        let guard = Guard { queue: Arc::clone(&queue), publisher: Arc::clone(&publisher), end };
        let writer = Writer::new(log, tag, Arc::clone(&publisher), metrics);
        std::thread::Builder::new()
            .name("shardcache-writer".to_owned())
            .spawn(move || run(writer, &guard))
            .expect("a thread can be started");
        Self { queue, publisher, ended }
    }

    /// See [`crate::Store::commit`]. The changes are queued before this returns.
    pub(crate) fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue.push(Request::Changes(changes, reply));
        failpoint::hit("after-enqueue");
        self.answer(queued, answer)
    }

    /// See [`crate::Store::push`]. The request is queued before this returns.
    pub(crate) fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue.push(Request::Push(push, reply));
        self.answer(queued, answer)
    }

    /// Forgets the history of a type up to its newest event at or below `to`; returns the new floor.
    pub(crate) fn compact(
        &self,
        type_name: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue.push_compact(type_name, to, reply);
        self.answer(queued, answer)
    }

    fn answer<T: Send + 'static>(
        &self,
        queued: Result<(), StorageError>,
        answer: oneshot::Receiver<Result<T, StorageError>>,
    ) -> BoxFuture<'static, Result<T, StorageError>> {
        let publisher = Arc::clone(&self.publisher);
        async move {
            queued?;
            // The writer answers every job; no answer means that it died.
            answer.await.unwrap_or_else(|_| match publisher.health() {
                Health::ReadOnly(problem) => Err(StorageError::ReadOnly(problem)),
                _ => Err(StorageError::Closed),
            })
        }
        .boxed()
    }

    /// See [`crate::Store::subscribe`].
    pub(crate) fn subscribe(&self) -> Subscription {
        self.publisher.subscribe()
    }

    /// The published state.
    pub(crate) fn state(&self) -> State {
        self.publisher.state()
    }

    /// See [`crate::Store::health`].
    pub(crate) fn health(&self) -> Health {
        self.publisher.health()
    }

    /// See [`crate::Store::close`].
    pub(crate) fn close(&self) -> BoxFuture<'static, Result<(), StorageError>> {
        self.queue.close();
        let mut ended = self.ended.clone();
        let publisher = Arc::clone(&self.publisher);
        async move {
            let end = ended.wait_for(|ended| !matches!(ended, Ended::NotYet)).await;
            // A writer that panicked has left that to us: its readers went on until now.
            publisher.close();
            match end.as_deref() {
                Ok(Ended::With(problem)) => Err(StorageError::ReadOnly(problem.clone())),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn run<L: Log>(mut writer: Writer<L>, guard: &Guard) {
    loop {
        match guard.queue.take(writer.pause()) {
            Taken::Job(job) => writer.step(job),
            Taken::Idle => writer.maintain(),
            Taken::Closed => break,
        }
    }
    let end = match writer.close() {
        Ok(()) => Ended::Cleanly,
        Err(error) => Ended::With(error.to_string()),
    };
    // The file must be free for the next opener when `close` resolves.
    drop(writer);
    guard.end.send_replace(end);
}

/// Leaves an honest store behind if the writer panics: read-only, nothing waits for ever.
struct Guard {
    queue: Arc<Queue>,
    publisher: Arc<Publisher>,
    end: watch::Sender<Ended>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let problem = "the writer stopped because of a bug; see the log".to_owned();
            self.publisher.set_health(Health::ReadOnly(problem.clone()));
            self.queue.close();
            while let Taken::Job(job) = self.queue.take(Some(std::time::Duration::ZERO)) {
                drop(job);
            }
            self.end.send_replace(Ended::With(problem));
        }
    }
}
