//! The direct probe (D38, D40): where a shard's pusher is gone, its API is asked instead, by whoever knows
//! how ([`DirectProbe`]); this crate has no client.
//!
//! The server notes an instant of its own clock, then has the source's newest state compared with the copy.
//! If they are the same, every write that the source had completed before the instant is in the cache. The
//! copy itself is neither changed nor moved on by it.
//!
//! At most one probe of a cell runs and one waits, whatever the number of readers (`Turns`, pure): who
//! comes while one runs waits for the next, and a probe that fails has failed for everybody who had come
//! before it began. At most `PROBES_MAX` run in the process; the others wait for room.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use shardcache_storage::{CellName, State};
use tokio::sync::Semaphore;

use super::clock::Instant;
use super::keeper::{Entry, Keeper};
use crate::metrics::labels::ProbeOutcome;
use crate::push::client::Sum;
use crate::service::Api;

/// Probes that run at once.
const PROBES_MAX: usize = 32;
/// Longest time of one. Readers give up before; what it comes to counts for those who have come meanwhile.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// Asks the API of a shard whether the copy of a type is what the shard has.
pub trait DirectProbe: std::fmt::Debug + Send + Sync {
    /// Whether a shard can be asked.
    fn covers(&self, shard: &str) -> bool;

    /// Resolves to `Ok` only if everything that the shard had completed of the type when this was called is
    /// in the copy; reads that it does must begin afterwards, and be quorum reads. Changes nothing.
    ///
    /// At most one runs for a cell at a time. Dropped after 10 s.
    fn probe<'a>(&'a self, copy: &'a Copied) -> BoxFuture<'a, Result<(), Unproven>>;
}

/// What the cache has of a type of a shard, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Shard and type.
    pub cell: CellName,
    /// API version of the objects, such as `v1`.
    pub version: Box<str>,
    /// What the source calls itself.
    pub source: Box<str>,
    /// Counts lineages of the source.
    pub generation: u64,
    /// Every event up to this version of the source is in the copy.
    pub position: u64,
    /// Number and digest of the objects.
    pub sum: Sum,
}

/// Why a probe confirms nothing. The texts are for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// The source has something else than the copy.
    #[error("{0}")]
    Behind(String),
    /// It is not known to be the source that was copied, or is known not to be.
    #[error("{0}")]
    Foreign(String),
    /// It does not say.
    #[error("{0}")]
    Failed(String),
}

impl Unproven {
    fn outcome(&self) -> ProbeOutcome {
        match self {
            Self::Behind(_) => ProbeOutcome::Behind,
            Self::Foreign(_) => ProbeOutcome::Foreign,
            Self::Failed(_) => ProbeOutcome::Failed,
        }
    }
}

impl Copied {
    /// The copy of a cell as a state has it; `None` where it is not complete.
    pub(crate) fn of(state: &State, name: &CellName) -> Option<Self> {
        let cell = state.cell(name).filter(|cell| cell.is_managed() && cell.cut)?;
        Some(Self {
            cell: name.clone(),
            version: cell.described.version.clone(),
            source: cell.source.clone(),
            generation: cell.generation,
            position: cell.position,
            sum: Sum { count: cell.count, digest: cell.digest },
        })
    }
}

/// Whose turn it is at one cell. Pure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    running: Option<Running>,
    failed: Option<(Instant, Arc<str>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    /// Whether what it shows still counts.
    counts: bool,
}

impl Turns {
    /// Takes a turn; `false` while one is taken.
    pub(crate) fn begin(&mut self) -> bool {
        let is_free = self.running.is_none();
        if is_free {
            self.running = Some(Running { counts: true });
        }
        is_free
    }

    /// Why a probe failed that began after this.
    pub(crate) fn refusal(&self, arrived: Instant) -> Option<Arc<str>> {
        self.failed.as_ref().filter(|(began, _)| *began >= arrived).map(|(_, why)| Arc::clone(why))
    }

    /// The turn is over. The instant up to which the cell is confirmed, if it is; without an outcome
    /// nothing was learnt.
    pub(crate) fn end(&mut self, began: Instant, outcome: Option<Result<(), Arc<str>>>) -> Option<Instant> {
        let counts = self.running.take().is_some_and(|running| running.counts);
        match outcome {
            Some(Ok(())) if counts => {
                self.failed = None;
                Some(began)
            }
            Some(Err(why)) => {
                self.failed = Some((began, why));
                None
            }
            _ => None,
        }
    }

    /// What a probe that runs will show does not count: the copy it is about is not any more, or the clock
    /// cannot be believed.
    pub(crate) fn doubt(&mut self) {
        if let Some(running) = &mut self.running {
            running.counts = false;
        }
    }
}

/// Room for the probes of a server.
#[derive(Debug)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PROBES_MAX)))
    }
}

/// A turn that was taken; over when it is dropped.
struct Turn {
    entry: Arc<Entry>,
    began: Instant,
    outcome: Option<Result<(), Arc<str>>>,
}

impl Turn {
    /// Everybody who has come so far is served by it.
    fn begins(&mut self, now: Instant) {
        self.began = now;
    }

    fn ends(mut self, outcome: Result<(), Arc<str>>) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.entry.probed(self.began, self.outcome.take());
    }
}

/// The copy of a cell that can be probed; `None` if nobody can, or the copy is between two states.
pub(crate) fn probed(
    keeper: &Keeper,
    state: &State,
    cell: &CellName,
) -> Option<(Arc<dyn DirectProbe>, Copied)> {
    let probe = keeper.config().direct_probe.as_ref().filter(|probe| probe.covers(cell.shard()))?;
    Some((Arc::clone(probe), Copied::of(state, cell)?))
}

/// Has a cell probed for a reader that arrived at some time and needs everything before `since`: at once,
/// or not at all if a probe runs, or if it is not needed any more. Returns at once; the entry changes when
/// the probe is over.
///
/// The task — *owns* the turn; *receives* room among all probes; *sends* the outcome to the entry; *stops
/// when* it is known, 10 s after it began at the latest.
pub(crate) fn start(
    api: &Api,
    entry: &Arc<Entry>,
    (probe, copy): (Arc<dyn DirectProbe>, Copied),
    since: Instant,
    arrived: Instant,
) {
    if !entry.begin_probe(since, arrived) {
        return;
    }
    let clock = api.freshness.config().clock.clone();
    let mut turn = Turn { entry: Arc::clone(entry), began: arrived, outcome: None };
    let room = Arc::clone(&api.freshness.room().0);
    let outcomes = api.metrics.freshness.probes.clone();
    tokio::spawn(async move {
        let _room = room.acquire().await.expect("it is never closed");
        turn.begins(clock.read().boot);
        let answer = tokio::time::timeout(PROBE_TIME, probe.probe(&copy)).await;
        let answer = answer.unwrap_or_else(|_| Err(Unproven::Failed("it does not answer".to_owned())));
        let outcome = answer.as_ref().map_or_else(Unproven::outcome, |()| ProbeOutcome::Confirmed);
        outcomes.get_or_create(&outcome.into()).inc();
        if let Err(why) = &answer {
            tracing::debug!(cell = ?copy.cell, outcome = outcome.as_str(), %why, "a direct probe");
        }
        turn.ends(answer.map_err(|why| why.to_string().into()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_boot(Duration::from_secs(seconds))
    }

    fn failure(why: &str) -> Result<(), Arc<str>> {
        Err(why.into())
    }

    #[test]
    fn d38_one_probe_runs_and_serves_who_came_before_it_began() {
        let mut turns = Turns::default();
        assert!(turns.begin());
        assert!(!turns.begin(), "one runs");
        assert_eq!(turns.end(at(10), Some(Ok(()))), Some(at(10)));
        assert!(turns.begin(), "the next one");
        assert_eq!(turns.end(at(12), Some(Ok(()))), Some(at(12)));
    }

    #[test]
    fn d38_a_probe_that_fails_has_failed_for_who_came_before_it_began_and_for_nobody_else() {
        let mut turns = Turns::default();
        assert!(turns.begin());
        assert_eq!(turns.refusal(at(9)), None, "nothing is known yet");
        assert_eq!(turns.end(at(10), Some(failure("gone"))), None);
        let refused = |turns: &Turns, arrived| turns.refusal(arrived).as_deref().map(str::to_owned);
        assert_eq!(refused(&turns, at(9)).as_deref(), Some("gone"));
        assert_eq!(refused(&turns, at(10)).as_deref(), Some("gone"));
        assert_eq!(refused(&turns, at(11)), None, "the source may have come back");
        assert!(turns.begin());
        assert_eq!(turns.end(at(12), Some(Ok(()))), Some(at(12)));
        assert_eq!(refused(&turns, at(9)), None);
    }

    #[test]
    fn what_is_doubted_while_a_probe_runs_is_not_confirmed_by_it() {
        let mut turns = Turns::default();
        assert!(turns.begin());
        turns.doubt();
        assert!(!turns.begin(), "it still runs");
        assert_eq!(turns.end(at(10), Some(Ok(()))), None);
        assert!(turns.begin(), "whoever waits asks again");
        // One that broke has learnt nothing, and keeps nobody from asking.
        assert_eq!(turns.end(at(11), None), None);
        assert_eq!(turns.refusal(at(1)), None);
        assert!(turns.begin());
    }
}
