//! The writer: batches in; durable, published and acknowledged commits out, in exactly that order.
//!
//! Synchronous and steppable: the thread in [`super`] calls it with what it takes from the queue, a
//! test calls it by hand. Owns the newest state and the engine's log; nothing else writes either.
//!
//! ```text
//! stage (ledger) ─► Log::append (durable) ─► Publisher::publish ─► acknowledge
//!                        └ failed: nothing published, nothing acknowledged, health says why
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::change::{Applied, Commit, Event};
use crate::error::StorageError;
use crate::failpoint;
use crate::key::TypeName;
use crate::ledger::{self, Staged};
use crate::metrics::Metrics;
use crate::resource_version::{Revision, Tag};
use crate::state::State;
use crate::store::{Health, Receipt};

use super::publisher::Publisher;
use super::queue::{Job, Reply, Request};

/// Shortest pause between two attempts to write again on a disk that was full.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two such attempts while nobody asks for a commit.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What an engine does for the writer. Called from one thread only.
pub(crate) trait Log: Send + 'static {
    /// The id that records of a type carry; a new one becomes durable with the next [`Log::append`].
    fn type_id(&mut self, type_name: &TypeName) -> u32;

    /// Makes the events durable, all or nothing. May raise floors of `state` in the same step.
    fn append(&mut self, events: &[Arc<Event>], state: &mut State) -> Result<(), Failure>;

    /// Forgets the history of a type up to its newest event at or below `to`, and raises its floor.
    fn compact(&mut self, type_name: &TypeName, to: Revision, state: &mut State) -> Result<(), Failure>;

    /// Forgets a bounded amount of history that is due; `true` if floors of `state` were raised.
    fn maintain(&mut self, state: &mut State) -> Result<bool, Failure>;

    /// How long [`Log::maintain`] will have nothing to do; `None` if only a commit can change that.
    fn pause(&mut self) -> Option<Duration>;

    /// Tries to make writing possible again after [`Failure::DiskFull`]. Returns the events above the
    /// head of `state` that turn out to be durable after all.
    fn recover(&mut self, state: &mut State) -> Result<Vec<Arc<Event>>, Failure>;

    /// Closes the log; nothing is called afterwards.
    fn close(&mut self) -> Result<(), Failure>;
}

/// Why an engine could not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No space; [`Log::recover`] may help later.
    DiskFull,
    /// Final: whether what was written is on disk cannot be known without opening the store again.
    Fatal(String),
}

/// The single writer of a store.
pub(crate) struct Writer<L> {
    log: L,
    state: State,
    tag: Tag,
    publisher: Arc<Publisher>,
    metrics: Metrics,
    health: Health,
    last_retry: Option<Instant>,
    retry_pause: Duration,
}

impl<L: Log> Writer<L> {
    pub(crate) fn new(log: L, tag: Tag, publisher: Arc<Publisher>, metrics: Metrics) -> Self {
        let state = publisher.state();
        metrics.head(state.head());
        Self {
            log,
            state,
            tag,
            publisher,
            metrics,
            health: Health::Writable,
            last_retry: None,
            retry_pause: RETRY_MIN,
        }
    }

    /// Does one job, whole.
    pub(crate) fn step(&mut self, job: Job) {
        match job {
            Job::Commit(requests) => self.commit(requests),
            Job::Compact { type_name, to, reply } => {
                let result = self.compact(&type_name, to);
                answer(reply, result);
            }
        }
    }

    /// Does what is due when no job comes.
    pub(crate) fn maintain(&mut self) {
        if self.health == Health::DiskFull {
            self.recover();
            self.retry_pause = (self.retry_pause * 2).min(RETRY_MAX);
        }
        if self.health != Health::Writable {
            return;
        }
        let mut state = self.state.clone();
        match self.log.maintain(&mut state) {
            Ok(true) => self.publish(state, Vec::new()),
            Ok(false) => {}
            Err(failure) => self.fail(failure),
        }
    }

    /// How long [`Writer::maintain`] will have nothing to do; `None` if only a job can change that.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        match self.health {
            Health::Writable => self.log.pause(),
            Health::DiskFull => Some(self.retry_pause),
            Health::ReadOnly(_) | Health::Closed => None,
        }
    }

    /// Closes the log and ends every subscription.
    pub(crate) fn close(&mut self) -> Result<(), StorageError> {
        let closed = self.log.close();
        self.publisher.close();
        closed.map_err(Failure::into_error)
    }

    fn commit(&mut self, requests: Vec<Request>) {
        let (lengths, replies, changes) = flatten(requests);
        if let Err(health) = self.ready() {
            return refuse_all(replies, &health);
        }
        let began = Instant::now();
        self.metrics.batch(changes.len());
        let staged = ledger::stage(&self.state, self.tag, changes, |name| self.log.type_id(name));
        let Staged { mut state, events, results } = staged;
        if !events.is_empty() {
            if let Err(failure) = self.log.append(&events, &mut state) {
                self.fail(failure);
                return refuse_all(replies, &self.health);
            }
            failpoint::hit("after-sync");
            self.metrics.committed(began.elapsed());
            self.publish(state, events);
            failpoint::hit("after-publish");
        }
        let head = self.state.head();
        let mut results = results.into_iter();
        for (length, reply) in lengths.into_iter().zip(replies) {
            let receipt: Receipt = results
                .by_ref()
                .take(length)
                .map(|result| result.map(|event| Applied { event, head }))
                .collect();
            answer(reply, Ok(receipt));
            failpoint::hit("after-first-ack");
        }
    }

    fn compact(&mut self, type_name: &TypeName, to: Revision) -> Result<Revision, StorageError> {
        self.ready().map_err(|health| refusal(&health))?;
        let mut state = self.state.clone();
        if let Err(failure) = self.log.compact(type_name, to, &mut state) {
            self.fail(failure);
            return Err(refusal(&self.health));
        }
        let floor = state.floor(type_name);
        if floor != self.state.floor(type_name) {
            self.publish(state, Vec::new());
        }
        Ok(floor)
    }

    /// Whether a write can be tried now; a full disk is tried again first.
    fn ready(&mut self) -> Result<(), Health> {
        if self.health == Health::DiskFull && self.last_retry.is_none_or(|last| last.elapsed() >= RETRY_MIN) {
            self.recover();
        }
        if self.health == Health::Writable { Ok(()) } else { Err(self.health.clone()) }
    }

    fn publish(&mut self, state: State, events: Vec<Arc<Event>>) {
        self.state = state.clone();
        self.metrics.head(state.head());
        self.publisher.publish(&Commit { state, events: events.into() });
    }

    fn fail(&mut self, failure: Failure) {
        self.metrics.write_failed();
        match failure {
            Failure::DiskFull => {
                if self.health != Health::DiskFull {
                    tracing::error!("the disk is full: writes are refused until space is free");
                    self.retry_pause = RETRY_MIN;
                }
                self.set_health(Health::DiskFull);
            }
            Failure::Fatal(problem) => {
                tracing::error!(problem, "writing failed: the store is read-only until a restart");
                self.set_health(Health::ReadOnly(problem));
            }
        }
    }

    fn recover(&mut self) {
        let mut state = self.state.clone();
        match self.log.recover(&mut state) {
            Ok(adopted) => {
                tracing::info!(adopted = adopted.len(), "the disk has space again: writes are accepted");
                self.set_health(Health::Writable);
                if !adopted.is_empty() {
                    // The transaction that failed had reached the disk: it happened (C4), its
                    // callers were told that this may be so, and everybody else learns of it here.
                    self.publish(state, adopted);
                }
            }
            Err(failure) => self.fail(failure),
        }
        self.last_retry = Some(Instant::now());
    }

    fn set_health(&mut self, health: Health) {
        self.metrics.health(&health);
        self.publisher.set_health(health.clone());
        self.health = health;
    }
}

impl Failure {
    fn into_error(self) -> StorageError {
        match self {
            Self::DiskFull => StorageError::DiskFull,
            Self::Fatal(problem) => StorageError::ReadOnly(problem),
        }
    }
}

type Flat = (Vec<usize>, Vec<Reply<Receipt>>, Vec<crate::change::Change>);

fn flatten(requests: Vec<Request>) -> Flat {
    let mut lengths = Vec::with_capacity(requests.len());
    let mut replies = Vec::with_capacity(requests.len());
    let mut changes = Vec::with_capacity(requests.iter().map(|request| request.changes.len()).sum());
    for request in requests {
        lengths.push(request.changes.len());
        replies.push(request.reply);
        changes.extend(request.changes);
    }
    (lengths, replies, changes)
}

fn refusal(health: &Health) -> StorageError {
    match health {
        Health::DiskFull => StorageError::DiskFull,
        Health::ReadOnly(problem) => StorageError::ReadOnly(problem.clone()),
        Health::Closed | Health::Writable => StorageError::Closed,
    }
}

fn refuse_all(replies: Vec<Reply<Receipt>>, health: &Health) {
    for reply in replies {
        answer(reply, Err(refusal(health)));
    }
}

fn answer<T>(reply: Reply<T>, result: Result<T, StorageError>) {
    // The caller may have stopped waiting; what it asked for happened all the same.
    drop(reply.send(result));
}

#[cfg(test)]
mod tests;
