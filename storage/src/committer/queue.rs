//! The bounded queue in front of the writer.
//!
//! Bounded in changes and in bytes: at the bound a push is refused with
//! [`StorageError::Overloaded`] and nothing is queued. A job larger than the whole queue is let in when
//! the queue is empty, because a job is one transaction and is never split.
//!
//! A pusher's requests are never refused: they are applied in the order they were sent, and one that was
//! left out would be a gap that the next one's position claims to be filled. Their handlers bound them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

use crate::change::{Action, Change};
use crate::error::StorageError;
use crate::key::TypeName;
use crate::push::{Op, Push, Pushed};
use crate::resource_version::Revision;
use crate::store::Receipt;

/// Bounds of the queue and of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most changes waiting.
    pub(crate) queue_changes: usize,
    /// Most bytes waiting.
    pub(crate) queue_bytes: usize,
    /// Most changes in one transaction.
    pub(crate) batch_changes: usize,
    /// Bytes after which a transaction is full.
    pub(crate) batch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_changes: 32_768, queue_bytes: 64 << 20, batch_changes: 4096, batch_bytes: 8 << 20 }
    }
}

/// Where the answer to a job goes. The receiver may be gone: nobody has to wait.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

/// What one caller asks for.
pub(crate) enum Request {
    /// Ordinary writes.
    Changes(Vec<Change>, Reply<Receipt>),
    /// A request of a pusher's handler.
    Push(Push, Reply<Pushed>),
}

impl Request {
    /// Number of changes, at least one.
    fn len(&self) -> usize {
        let len = match self {
            Self::Changes(changes, _) => changes.len(),
            Self::Push(Push::Frames(frames), _) => frames.ops.len(),
            Self::Push(..) => 1,
        };
        len.max(1)
    }

    /// About what it occupies, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Changes(changes, _) => changes.iter().map(size).sum(),
            Self::Push(Push::Frames(frames), _) => frames.ops.iter().map(size_of_op).sum(),
            Self::Push(..) => SMALL,
        }
    }
}

/// What the writer is asked to do.
pub(crate) enum Job {
    /// What several callers ask for, in order, to become durable together.
    Commit(Vec<Request>),
    /// Forget the history of a type up to a revision.
    Compact { type_name: TypeName, to: Revision, reply: Reply<Revision> },
}

/// What waiting for a job ended with.
pub(crate) enum Taken {
    Job(Job),
    /// Nothing came in time.
    Idle,
    /// The queue is closed and empty.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Queue {
    limits: Limits,
    depth: Gauge,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Entry>,
    changes: usize,
    bytes: usize,
    closed: bool,
}

struct Entry {
    changes: usize,
    bytes: usize,
    job: Single,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} changes, {} bytes", self.changes, self.bytes)
    }
}

enum Single {
    Request(Request),
    Compact { type_name: TypeName, to: Revision, reply: Reply<Revision> },
}

impl Queue {
    pub(crate) fn new(limits: Limits, depth: Gauge) -> Self {
        Self { limits, depth, waiting: Mutex::default(), arrived: Condvar::new() }
    }

    /// Queues what one caller asks for.
    pub(crate) fn push(&self, request: Request) -> Result<(), StorageError> {
        let (changes, bytes) = (request.len(), request.bytes());
        self.enter(Entry { changes, bytes, job: Single::Request(request) })
    }

    /// Queues a compaction.
    pub(crate) fn push_compact(
        &self,
        type_name: TypeName,
        to: Revision,
        reply: Reply<Revision>,
    ) -> Result<(), StorageError> {
        self.enter(Entry { changes: 1, bytes: 0, job: Single::Compact { type_name, to, reply } })
    }

    fn enter(&self, entry: Entry) -> Result<(), StorageError> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(StorageError::Closed);
        }
        let changes = waiting.changes + entry.changes;
        let bytes = waiting.bytes + entry.bytes;
        let full = changes > self.limits.queue_changes || bytes > self.limits.queue_bytes;
        let in_sequence = matches!(entry.job, Single::Request(Request::Push(..)));
        if full && !waiting.jobs.is_empty() && !in_sequence {
            return Err(StorageError::Overloaded);
        }
        (waiting.changes, waiting.bytes) = (changes, bytes);
        waiting.jobs.push_back(entry);
        self.depth.set(changes as i64);
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes what waits, up to the limits of a batch; waits for the first job for as long as `timeout`.
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Taken {
        let waiting = self.lock();
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.closed;
        let mut waiting = match timeout {
            None => self.arrived.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                self.arrived
                    .wait_timeout_while(waiting, timeout, idle)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        if waiting.jobs.is_empty() {
            return if waiting.closed { Taken::Closed } else { Taken::Idle };
        }
        Taken::Job(self.batch(&mut waiting))
    }

    fn batch(&self, waiting: &mut Waiting) -> Job {
        let (mut changes, mut bytes, mut requests) = (0, 0, Vec::new());
        while let Some(next) = waiting.jobs.front() {
            let fits = changes + next.changes <= self.limits.batch_changes
                && bytes + next.bytes <= self.limits.batch_bytes;
            if !requests.is_empty() && (!fits || matches!(next.job, Single::Compact { .. })) {
                break;
            }
            let entry = waiting.jobs.pop_front().expect("it was at the front");
            waiting.changes -= entry.changes;
            waiting.bytes -= entry.bytes;
            changes += entry.changes;
            bytes += entry.bytes;
            match entry.job {
                Single::Request(request) => requests.push(request),
                Single::Compact { type_name, to, reply } => return Job::Compact { type_name, to, reply },
            }
        }
        self.depth.set(waiting.changes as i64);
        Job::Commit(requests)
    }

    /// Refuses everything from now on; what is queued stays.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The queue is consistent between any two statements that can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About what a request without an object occupies, in bytes.
const SMALL: usize = 128;

/// About what a change occupies, in bytes.
fn size(change: &Change) -> usize {
    match &change.action {
        Action::Put(draft) => draft.size(),
        Action::Delete => SMALL + change.key.as_str().len(),
    }
}

/// About what a frame occupies, in bytes.
fn size_of_op(op: &Op) -> usize {
    match op {
        Op::Upsert { draft, .. } => draft.size(),
        _ => SMALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Request {
        Request::Changes(Vec::new(), oneshot::channel().0)
    }

    fn push() -> Request {
        let push = Push::Release { shard: "amber".into(), type_name: None };
        Request::Push(push, oneshot::channel().0)
    }

    #[test]
    fn d31_a_full_queue_refuses_ordinary_writes_and_no_pusher() {
        let limits = Limits { queue_changes: 1, ..Limits::default() };
        let queue = Queue::new(limits, Gauge::default());
        queue.push(changes()).expect("it is empty");
        assert!(matches!(queue.push(changes()), Err(StorageError::Overloaded)));
        queue.push(push()).expect("what follows it may be queued already");
        let Taken::Job(Job::Commit(requests)) = queue.take(None) else { panic!("two requests wait") };
        assert_eq!(requests.len(), 2);
    }
}
