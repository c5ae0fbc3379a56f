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

use crate::change::{Applied, Commit, Event, Refusal};
use crate::error::StorageError;
use crate::failpoint;
use crate::key::TypeName;
use crate::ledger::{Sessions, Stage, Staged, Touched};
use crate::metrics::Metrics;
use crate::push::Pushed;
use crate::resource_version::{Revision, Tag};
use crate::state::State;
use crate::store::{Health, Receipt};

use super::publisher::Publisher;
use super::queue::{Job, Reply, Request};

/// Shortest pause between two attempts to write again on a disk that was full.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two such attempts while nobody asks for a commit.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long a cell's position may be ahead of the one in the file when there is nothing else to write.
/// After a crash its pusher goes on from the one in the file.
const POSITION_LAG_MAX: Duration = Duration::from_secs(10);

/// What an engine does for the writer. Called from one thread only.
pub(crate) trait Log: Send + 'static {
    /// The id that records of a type carry; a new one becomes durable with the next [`Log::append`].
    fn type_id(&mut self, type_name: &TypeName) -> u32;

    /// Makes the events durable, and what is `touched` of pushing and the roster, as `state` has it; all or
    /// nothing. May raise floors of `state` in the same step.
    fn append(&mut self, events: &[Arc<Event>], touched: &Touched, state: &mut State) -> Result<(), Failure>;

    /// Forgets the history of a type up to its newest event at or below `to`, and raises its floor.
    fn compact(&mut self, type_name: &TypeName, to: Revision, state: &mut State) -> Result<(), Failure>;

    /// Forgets a bounded amount of history that is due; `true` if floors of `state` were raised.
    fn maintain(&mut self, state: &mut State) -> Result<bool, Failure>;

    /// How long [`Log::maintain`] will have nothing to do; `None` if only a commit can change that.
    fn pause(&mut self) -> Option<Duration>;

    /// Tries to make writing possible again after [`Failure::DiskFull`]. Returns the events above the
    /// head of `state` that turn out to be durable after all; cells, tenures and the roster become those of the file.
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
    sessions: Sessions,
    /// What the file does not have yet, and since when.
    unwritten: Touched,
    unwritten_since: Option<Instant>,
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
            sessions: Sessions::default(),
            unwritten: Touched::default(),
            unwritten_since: None,
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
        if self.unwritten_age().is_some_and(|age| age >= POSITION_LAG_MAX)
            && let Err(failure) = self.write_positions()
        {
            return self.fail(failure);
        }
        let mut state = self.state.clone();
        match self.log.maintain(&mut state) {
            Ok(true) => self.publish(state, Vec::new(), &Touched::default()),
            Ok(false) => {}
            Err(failure) => self.fail(failure),
        }
    }

    /// How long [`Writer::maintain`] will have nothing to do; `None` if only a job can change that.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        match self.health {
            Health::Writable => {
                let positions = self.unwritten_age().map(|age| POSITION_LAG_MAX.saturating_sub(age));
                [self.log.pause(), positions].into_iter().flatten().min()
            }
            Health::DiskFull => Some(self.retry_pause),
            Health::ReadOnly(_) | Health::Closed => None,
        }
    }

    /// Closes the log and ends every subscription.
    pub(crate) fn close(&mut self) -> Result<(), StorageError> {
        let written = if self.health == Health::Writable { self.write_positions() } else { Ok(()) };
        let closed = written.and(self.log.close());
        self.publisher.close();
        closed.map_err(Failure::into_error)
    }

    fn commit(&mut self, requests: Vec<Request>) {
        if let Err(health) = self.ready() {
            return requests.into_iter().for_each(|request| refuse(request, &health));
        }
        let began = Instant::now();
        let mut stage = Stage::new(&self.state, self.tag, &mut self.sessions, |name| self.log.type_id(name));
        let answers: Vec<_> =
            requests.into_iter().map(|request| Answer::stage(request, &mut stage)).collect();
        self.metrics.batch(answers.iter().map(Answer::len).sum());
        let Staged { mut state, events, touched } = stage.finish();
        if !events.is_empty() || touched.must_be_durable {
            let told = touched.clone();
            let mut rows = self.unwritten.clone();
            rows.merge(touched);
            if let Err(failure) = self.log.append(&events, &rows, &mut state) {
                self.fail(failure);
                return answers.into_iter().for_each(|answer| answer.refuse(&self.health));
            }
            self.written();
            failpoint::hit("after-sync");
            self.metrics.committed(began.elapsed());
            self.publish(state, events, &told);
            failpoint::hit("after-publish");
        } else if !touched.is_empty() {
            let told = touched.clone();
            self.unwritten.merge(touched);
            self.unwritten_since.get_or_insert(began);
            self.publish(state, events, &told);
        }
        for answer in answers {
            answer.give(&self.state);
            failpoint::hit("after-first-ack");
        }
    }

    /// How long the oldest of the positions that are not in the file has waited for that.
    fn unwritten_age(&self) -> Option<Duration> {
        self.unwritten_since.map(|since| since.elapsed())
    }

    fn written(&mut self) {
        self.unwritten = Touched::default();
        self.unwritten_since = None;
    }

    fn write_positions(&mut self) -> Result<(), Failure> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let mut state = self.state.clone();
        self.log.append(&[], &self.unwritten, &mut state)?;
        self.written();
        // Floors may have been raised along the way.
        self.publish(state, Vec::new(), &Touched::default());
        Ok(())
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
            self.publish(state, Vec::new(), &Touched::default());
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

    fn publish(&mut self, state: State, events: Vec<Arc<Event>>, told: &Touched) {
        self.state = state.clone();
        self.metrics.head(state.head());
        let (cells, shards) = (told.cells.iter().cloned().collect(), told.shards().into());
        self.publisher.publish(&Commit { state, events: events.into(), cells, shards });
    }

    fn fail(&mut self, failure: Failure) {
        self.metrics.write_failed();
        // What sessions remember is of a batch that nobody saw; their pushers go on from the cells.
        self.sessions.end_all();
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
                self.written();
                // Had the transaction that failed reached the disk, it happened (C4): its callers were
                // told that this may be so, and everybody else learns of it here.
                let told = everything_in(&self.state, &state);
                if !adopted.is_empty() || !told.is_empty() {
                    self.publish(state, adopted, &told);
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

/// All cells, tenures and members of one state or the other.
fn everything_in(before: &State, after: &State) -> Touched {
    let mut all = Touched { seeded: before.is_seeded() != after.is_seeded(), ..Touched::default() };
    for state in [before, after] {
        all.cells.extend(state.cells().map(|(name, _)| name.clone()));
        all.tenures.extend(state.tenures().map(|(shard, _)| shard.into()));
        all.members.extend(state.roster().map(|(shard, _)| shard.into()));
    }
    all
}

impl Failure {
    fn into_error(self) -> StorageError {
        match self {
            Self::DiskFull => StorageError::DiskFull,
            Self::Fatal(problem) => StorageError::ReadOnly(problem),
        }
    }
}

/// What a caller will be told, unless the batch fails.
enum Answer {
    Changes(Vec<Result<Arc<Event>, Refusal>>, Reply<Receipt>),
    Push(Box<Pushed>, Reply<Pushed>),
}

impl Answer {
    fn stage<I: FnMut(&TypeName) -> u32>(request: Request, stage: &mut Stage<'_, I>) -> Self {
        match request {
            Request::Changes(changes, reply) => {
                Self::Changes(changes.into_iter().map(|change| stage.change(change)).collect(), reply)
            }
            Request::Push(push, reply) => Self::Push(Box::new(stage.push(push)), reply),
        }
    }

    /// Number of changes that were asked for.
    fn len(&self) -> usize {
        match self {
            Self::Changes(results, _) => results.len(),
            Self::Push(pushed, _) => pushed.tally.frames() as usize,
        }
    }

    fn give(self, state: &State) {
        match self {
            Self::Changes(results, reply) => {
                let head = state.head();
                let applied = |event| Applied { event, head };
                answer(reply, Ok(results.into_iter().map(|result| result.map(applied)).collect()));
            }
            Self::Push(mut pushed, reply) => {
                pushed.version = state.resource_version();
                answer(reply, Ok(*pushed));
            }
        }
    }

    fn refuse(self, health: &Health) {
        match self {
            Self::Changes(_, reply) => answer(reply, Err(refusal(health))),
            Self::Push(_, reply) => answer(reply, Err(refusal(health))),
        }
    }
}

fn refuse(request: Request, health: &Health) {
    match request {
        Request::Changes(_, reply) => answer(reply, Err(refusal(health))),
        Request::Push(_, reply) => answer(reply, Err(refusal(health))),
    }
}

fn refusal(health: &Health) -> StorageError {
    match health {
        Health::DiskFull => StorageError::DiskFull,
        Health::ReadOnly(problem) => StorageError::ReadOnly(problem.clone()),
        Health::Closed | Health::Writable => StorageError::Closed,
    }
}

fn answer<T>(reply: Reply<T>, result: Result<T, StorageError>) {
    // The caller may have stopped waiting; what it asked for happened all the same.
    drop(reply.send(result));
}

#[cfg(test)]
mod tests;
