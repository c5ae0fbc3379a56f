//! The task that writes views.
//!
//! *Owns* what was written last; *receives* the cache's snapshots, and looks at all shards now and then,
//! because pushers and time change how a cell stands without a commit; *sends* changes to the store, as any
//! writer does; *stops when* it is told to.
//!
//! What changes within [`COALESCE`] makes one change of a shard's view, so that a shard that flaps makes a
//! few events a second at most. A write that fails is made up for at the next sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shardcache_storage::{Action, Change, Guard, Objects, Refusal, StorageError};
use tokio::time::{Instant as Timer, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::derive::{Changes, Observed};
use super::object::{Status, Written, key};
use crate::cache::Snapshot;
use crate::freshness::clock::Instant;
use crate::freshness::view;
use crate::ingest::rfc3339;
use crate::service::Api;
use crate::types;

/// How long is waited for more before something is written.
const COALESCE: Duration = Duration::from_millis(300);
/// How often all shards are looked at. A thousand shards with twenty types each cost about 20 ms of it.
const SWEEP: Duration = Duration::from_secs(5);
/// Shards that are looked at before others get a turn on the thread.
const TURN: usize = 32;
/// Changes in one commit.
const CHANGES_MAX: usize = 256;

/// Which shards to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Those of which the store has something new.
    Changed,
    /// All of them.
    Everywhere,
}

/// The writer of views.
pub struct Scribe {
    api: Arc<Api>,
    began: Instant,
    /// The snapshot whose changes are all written; `None`: all shards are to be looked at.
    seen: Option<Arc<Snapshot>>,
    /// The views in the store, by shard.
    written: BTreeMap<Box<str>, Written>,
}

impl Scribe {
    /// Begins with what an earlier life of the server has written.
    pub fn new(api: Arc<Api>) -> Self {
        let began = api.freshness.now();
        let written = load(&api.cache.snapshot());
        Self { api, began, seen: None, written }
    }

    /// Writes views until it is told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        let mut published = self.api.cache.changes();
        let mut sweep_at = Timer::now();
        let mut fails = false;
        loop {
            let look = if Timer::now() >= sweep_at { Look::Everywhere } else { Look::Changed };
            if look == Look::Everywhere {
                sweep_at = Timer::now() + SWEEP;
            }
            match self.step(look).await {
                Ok(_) => fails = false,
                Err(error) => {
                    if !fails {
                        tracing::warn!(%error, "views of shards cannot be written");
                    }
                    fails = true;
                    sleep_until(sweep_at).await;
                    continue;
                }
            }
            tokio::select! {
                news = published.changed() => {
                    news.expect("the sender lives in the cache");
                    sleep(COALESCE).await;
                    // What came meanwhile is looked at now.
                    published.mark_unchanged();
                }
                () = sleep_until(sweep_at) => {}
            }
        }
    }

    /// Writes what views are to say now; how many were changed. They are published when this resolves. After
    /// an error some may have been, and the next step looks at all shards.
    pub async fn step(&mut self, look: Look) -> Result<usize, StorageError> {
        let snapshot = self.api.cache.snapshot();
        let shards = match &self.seen {
            Some(seen) if look == Look::Changed => snapshot.state.shards_changed_since(&seen.state),
            _ => self.every_shard(&snapshot),
        };
        let shards: Vec<&str> = shards.iter().map(|shard| &**shard).collect();
        let mut changes = Changes::default();
        for turn in shards.chunks(TURN) {
            self.look_at(&snapshot, turn, &mut changes);
            tokio::task::yield_now().await;
        }
        let mut count = 0;
        for step in [changes.first, changes.then] {
            for some in step.chunks(CHANGES_MAX) {
                if let Err(error) = self.write(some).await {
                    self.seen = None;
                    self.written = load(&self.api.cache.snapshot());
                    return Err(error);
                }
                count += some.len();
            }
        }
        self.seen = Some(snapshot);
        Ok(count)
    }

    fn every_shard(&self, snapshot: &Snapshot) -> BTreeSet<Box<str>> {
        let members = snapshot.state.roster().map(|(shard, _)| Box::from(shard));
        members.chain(self.written.keys().cloned()).collect()
    }

    fn look_at(&self, snapshot: &Snapshot, shards: &[&str], changes: &mut Changes) {
        let (state, keeper) = (&snapshot.state, &self.api.freshness);
        let now = keeper.now();
        let observed = Observed {
            state,
            standing: |cell: &_| view::standing(state, keeper, cell, now),
            lease: |shard: &_| keeper.vouchers().lease(state, shard),
            uptime: now.since(self.began),
            config: keeper.config(),
        };
        observed.changes(shards, &self.written, changes);
    }

    async fn write(&mut self, changes: &[(Box<str>, Option<Status>)]) -> Result<(), StorageError> {
        let next: Vec<_> =
            changes.iter().map(|(shard, status)| (shard, self.next(shard, status.as_ref()))).collect();
        let asked = next.iter().map(|(shard, written)| change(shard, written.as_ref())).collect();
        let receipt = self.api.store.commit(asked).await?;
        let mut head = None;
        for ((shard, written), result) in next.into_iter().zip(receipt) {
            match result {
                Ok(applied) => head = head.max(Some(applied.head)),
                // Whoever removed it was before us.
                Err(Refusal::NotFound) => {}
                Err(refusal) => {
                    tracing::warn!(%shard, %refusal, "the view of a shard cannot be written");
                    continue;
                }
            }
            match written {
                Some(written) => self.written.insert(shard.clone(), written),
                None => self.written.remove(shard),
            };
        }
        if let Some(head) = head {
            self.api.cache.published(head).await;
        }
        Ok(())
    }

    /// A view as it is to be after a change: a new object, or the one that is there.
    fn next(&self, shard: &str, status: Option<&Status>) -> Option<Written> {
        let status = status?.clone();
        Some(match self.written.get(shard) {
            Some(known) => Written { status, ..known.clone() },
            None => Written { uid: uuid::Uuid::new_v4().to_string(), created: now(), status },
        })
    }
}

/// What was written before, as far as it can be read: what cannot is written anew.
fn load(snapshot: &Snapshot) -> BTreeMap<Box<str>, Written> {
    let objects = snapshot.state.objects(&types::shardviews().name);
    let objects = objects.into_iter().flat_map(Objects::iter);
    objects
        .filter(|object| object.key() == key(object.parts().shard).as_str())
        .filter_map(|object| Some((Box::from(object.parts().shard), Written::read(object)?)))
        .collect()
}

fn change(shard: &str, written: Option<&Written>) -> Change {
    let key = key(shard);
    let action = written.map_or(Action::Delete, |written| Action::Put(written.draft(&key)));
    Change { type_name: types::shardviews().name.clone(), key, guard: Guard::default(), action }
}

fn now() -> String {
    #[expect(clippy::disallowed_methods, reason = "creationTimestamp is the wall clock's, in whole seconds")]
    let now = SystemTime::now();
    rfc3339(now)
}
