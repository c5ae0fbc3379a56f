//! The task that follows the store: the only writer of the cache.
//!
//! Owns the next snapshot's types and indexes. Receives commits, requests for indexes, and the request
//! to drain. Sends snapshots, then events. Stops when the store closes; watchers then yield what is left
//! and drain.
//!
//! One commit is one synchronous step, in this order: publish the snapshot, append to the histories,
//! push into the rings and wake, publish progress. So a list never lacks what a watch has shown, and
//! whoever sees progress finds the events (D12, D25).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shardcache_storage::{Commit, Event, Revision, State, TypeName};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Shared;
use super::index::{Index, IndexBy, IndexRequests, Indexes, Wanted};
use super::snapshot::Snapshot;
use crate::types::Types;

/// Events that an index being built may fall behind; beyond, it is given up and asked for again.
const BUILD_LAG_MAX: usize = 1 << 17;

/// The task that follows the store; the only writer of the cache.
#[derive(Debug)]
pub struct Reflector {
    shared: Arc<Shared>,
    commits: mpsc::Receiver<Commit>,
    wanted: mpsc::Receiver<Wanted>,
    requests: IndexRequests,
    types: Arc<Types>,
    indexes: Indexes,
    build: Option<Build>,
}

/// An index on its way.
#[derive(Debug)]
struct Build {
    type_name: TypeName,
    task: JoinHandle<Index>,
    /// The type's events since the snapshot that the index is built of.
    since: Vec<Arc<Event>>,
}

enum Input {
    Drain,
    Commit(Option<Commit>),
    Built(Index),
    BuildFailed,
    Wanted(Wanted),
}

impl Reflector {
    pub(super) fn new(
        shared: Arc<Shared>,
        commits: mpsc::Receiver<Commit>,
        requests: IndexRequests,
        wanted: mpsc::Receiver<Wanted>,
    ) -> Self {
        let snapshot = shared.snapshot();
        snapshot.state.roster().for_each(|(_, member)| shared.metrics.roster.count(member, 1));
        let types = Arc::clone(&snapshot.types);
        Self { shared, commits, wanted, requests, types, indexes: Indexes::default(), build: None }
    }

    /// Follows the store until it closes.
    pub async fn run(mut self) {
        while self.step().await {}
    }

    /// Takes one input, waiting for it; `false` when the store has closed. For tests and benches, which
    /// move the cache by hand. Cancel safe.
    pub async fn step(&mut self) -> bool {
        match self.input().await {
            Input::Drain => self.shared.begin_draining(),
            Input::Commit(Some(commit)) => self.apply(&commit),
            Input::Commit(None) => return false,
            Input::Built(index) => self.adopt(index),
            Input::BuildFailed => self.build = None,
            Input::Wanted((type_name, by)) => self.start_build(type_name, by),
        }
        true
    }

    async fn input(&mut self) -> Input {
        let idle = self.build.is_none();
        let building = async {
            match &mut self.build {
                Some(build) => (&mut build.task).await.map_or(Input::BuildFailed, Input::Built),
                None => std::future::pending().await,
            }
        };
        // Cancel safe: a lost race leaves each input where it was.
        tokio::select! {
            biased;
            () = self.shared.drain.notified() => Input::Drain,
            built = building => built,
            commit = self.commits.recv() => Input::Commit(commit),
            Some(wanted) = self.wanted.recv(), if idle => Input::Wanted(wanted),
        }
    }

    fn apply(&mut self, commit: &Commit) {
        let arrived = Instant::now();
        self.types = self.types.after(commit);
        self.indexes.apply(&commit.events);
        self.note_for_build(&commit.events);
        self.count_roster(commit);
        self.publish(commit.state.clone());
        self.shared.metrics.cache.publish_lag.observe(arrived.elapsed().as_secs_f64());

        for (type_name, events) in by_type(&commit.events) {
            let feed = self.shared.feed(&type_name);
            let judged = feed.apply(&events);
            self.shared.metrics.watch.judgements.inc_by(judged);
        }
        self.shared.dispatched.send_replace(commit.state.resource_version());

        if commit.events.is_empty() {
            self.follow_floors(commit);
        }
        let superseded = commit.events.iter().filter_map(|event| event.previous.as_ref());
        let superseded = superseded.map(|object| object.size() as u64).sum();
        self.shared.retained.lock().superseded(superseded, Instant::now());
        self.shared.note_retained();
        self.shared.trim_history();
    }

    /// To be called before the commit is published.
    fn count_roster(&self, commit: &Commit) {
        let before = self.shared.snapshot();
        for shard in commit.shards.iter() {
            if let Some(member) = before.state.member(shard) {
                self.shared.metrics.roster.count(member, -1);
            }
            if let Some(member) = commit.state.member(shard) {
                self.shared.metrics.roster.count(member, 1);
            }
        }
    }

    /// Compaction: what the store forgot, nobody may start from, so memory need not keep it.
    fn follow_floors(&self, commit: &Commit) {
        for feed in self.shared.feeds() {
            let floor = commit.state.floor(feed.type_name());
            if floor > Revision::ZERO {
                feed.forget_through(floor);
            }
        }
    }

    fn publish(&self, state: State) {
        let snapshot =
            Snapshot::indexed(state, Arc::clone(&self.types), self.indexes.clone(), self.requests.clone());
        self.shared.publish(Arc::new(snapshot));
    }

    fn start_build(&mut self, type_name: TypeName, by: IndexBy) {
        let snapshot = self.shared.snapshot();
        let Some(objects) = snapshot.state.objects(&type_name) else { return };
        if self.indexes.has(&type_name, &by) {
            return;
        }
        let objects = objects.clone();
        let task = tokio::task::spawn_blocking(move || Index::build(by, &objects));
        self.build = Some(Build { type_name, task, since: Vec::new() });
    }

    fn note_for_build(&mut self, events: &[Arc<Event>]) {
        let Some(build) = &mut self.build else { return };
        build.since.extend(events.iter().filter(|event| event.type_name == build.type_name).cloned());
        if build.since.len() > BUILD_LAG_MAX {
            self.build = None;
        }
    }

    fn adopt(&mut self, mut index: Index) {
        let Some(build) = self.build.take() else { return };
        build.since.iter().for_each(|event| index.apply(event));
        tracing::debug!(resource = ?build.type_name, by = ?index.by(), "indexed a type");
        self.indexes.add(build.type_name, index);
        self.shared.metrics.cache.indexes.set(self.indexes.len() as i64);
        self.publish(self.shared.snapshot().state.clone());
    }
}

impl Drop for Reflector {
    /// However the reflector ends: nothing more will come, and no watcher may wait for it.
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.begin_draining();
    }
}

/// The events of a commit by type, each type's in order.
fn by_type(events: &[Arc<Event>]) -> Vec<(TypeName, Vec<Arc<Event>>)> {
    let mut places = HashMap::new();
    let mut by_type: Vec<(TypeName, Vec<_>)> = Vec::new();
    for event in events {
        let at = *places.entry(&event.type_name).or_insert_with(|| {
            by_type.push((event.type_name.clone(), Vec::new()));
            by_type.len() - 1
        });
        by_type[at].1.push(Arc::clone(event));
    }
    by_type
}

#[cfg(test)]
mod tests;
