//! Somebody who follows the store and checks every commit: what must hold of cells and terms whatever
//! happens. Panics at the first thing that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shardcache_storage::{
    Cell, CellName, Digest, Event, Object, Revision, State, Store, Subscription, Tenure, TypeName,
    entry_digest,
};

use crate::SHARD;
use crate::source::{NAMES, Source, Thing, Things};
use crate::world::main_cell;

/// What commits are judged by.
pub(crate) struct Truth<'a> {
    pub(crate) source: &'a Source,
    /// Every source version that some pusher has named.
    pub(crate) sent: &'a BTreeSet<u64>,
}

pub(crate) struct Inspector {
    subscription: Subscription,
    pub(crate) state: State,
}

/// Every object's newest revision.
type Objects = BTreeMap<(TypeName, String), Revision>;

fn objects(state: &State) -> Objects {
    let of = |(name, objects): (&TypeName, &shardcache_storage::Objects)| -> Vec<_> {
        objects.iter().map(|o| ((name.clone(), o.key().to_owned()), o.revision())).collect()
    };
    state.types().flat_map(of).collect()
}

fn cells(state: &State) -> BTreeMap<CellName, Cell> {
    state.cells().map(|(name, cell)| (name.clone(), cell.clone())).collect()
}

fn tenures(state: &State) -> BTreeMap<String, Tenure> {
    state.tenures().map(|(shard, tenure)| (shard.to_owned(), tenure.clone())).collect()
}

/// The objects of a cell.
pub(crate) fn members<'a>(state: &'a State, cell: &'a CellName) -> impl Iterator<Item = &'a Object> {
    let objects = state.objects(cell.type_name()).into_iter().flat_map(shardcache_storage::Objects::iter);
    objects.filter(|object| object.parts().shard == cell.shard())
}

/// The main cell's objects in the source's terms.
pub(crate) fn content(state: &State) -> Things {
    let cell = main_cell();
    let thing = |object: &Object| {
        let thing = Thing { uid: object.uid().to_owned(), version: object.source().version };
        if thing.version > 0 {
            let body = String::from_utf8_lossy(object.body_bytes());
            assert!(body.contains(&format!("\"{}\"", thing.payload())), "{thing:?} is not in {body}");
        }
        let name = NAMES.iter().find(|name| **name == object.parts().name);
        (*name.expect("one of the names"), thing)
    };
    members(state, &cell).map(thing).collect()
}

impl Inspector {
    pub(crate) fn new(store: &impl Store, truth: &Truth<'_>) -> Self {
        let subscription = store.subscribe();
        let state = subscription.state.clone();
        holds(&state, truth);
        Self { subscription, state }
    }

    /// Checks what was published since, and returns its events.
    pub(crate) fn catch_up(&mut self, truth: &Truth<'_>) -> Vec<Arc<Event>> {
        let mut all = Vec::new();
        while let Ok(commit) = self.subscription.commits.try_recv() {
            let mut folded = objects(&self.state);
            for event in commit.events.iter() {
                let at = (event.type_name.clone(), event.key().to_owned());
                match &event.current {
                    Some(object) => folded.insert(at, object.revision()),
                    None => folded.remove(&at),
                };
            }
            assert_eq!(objects(&commit.state), folded, "a commit's objects are not those of its events");
            let (before, after) = (cells(&self.state), cells(&commit.state));
            let changed: Vec<_> =
                after.iter().filter(|(name, cell)| before.get(name) != Some(cell)).collect();
            for (name, _) in changed {
                assert!(commit.cells.contains(name), "{name:?} changed and nobody was told");
            }
            let place = |state: &State| (state.member(SHARD).cloned(), state.tenure(SHARD).cloned());
            let told = commit.shards.iter().any(|shard| &**shard == SHARD);
            assert!(
                told || place(&self.state) == place(&commit.state),
                "{SHARD} changed and nobody was told"
            );
            for (shard, tenure) in tenures(&self.state) {
                let term = commit.state.tenure(&shard).map_or(0, |tenure| tenure.term);
                assert!(term >= tenure.term, "the term of {shard} went from {} to {term}", tenure.term);
            }
            holds(&commit.state, truth);
            self.state = commit.state;
            all.extend(commit.events.iter().cloned());
        }
        all
    }

    /// What another opening of the store must still have; after a crash, positions may lag.
    pub(crate) fn survives(&self, after: &State, crashed: bool) {
        assert_eq!(objects(after), objects(&self.state), "objects did not survive");
        assert_eq!(tenures(after), tenures(&self.state), "tenures did not survive");
        assert_eq!(after.member(SHARD), self.state.member(SHARD), "the roster did not survive");
        let (before, after) = (cells(&self.state), cells(after));
        if !crashed {
            return assert_eq!(after, before, "cells did not survive");
        }
        assert_eq!(after.len(), before.len(), "cells did not survive");
        for ((name, after), before) in after.into_iter().zip(before.into_values()) {
            let Cell { position, cut, count, digest, .. } = after.clone();
            assert!(position <= before.position, "{name:?}: a crash moved the position on");
            // The start of a sync is durable with its first event.
            assert!(cut || !before.cut, "{name:?}: a crash undid a sync");
            if before.is_managed() {
                assert_eq!((count, digest), (before.count, before.digest));
            }
            let expected = Cell { position, cut, count, digest, ..before };
            assert_eq!(after, expected, "{name:?} did not survive");
        }
    }
}

/// What must hold of every published state.
fn holds(state: &State, truth: &Truth<'_>) {
    for (name, cell) in state.cells() {
        if cell.is_managed() {
            let entry = |o: &Object| entry_digest(o.parts(), o.uid(), o.source().version);
            let digest = members(state, name).map(entry).fold(Digest::default(), Digest::with);
            let count = members(state, name).count() as u64;
            assert_eq!((cell.count, cell.digest), (count, digest), "count and digest of {name:?}");
        }
        assert_eq!(name, &main_cell(), "nobody pushes {name:?}");
        let Cell { position, generation, synced_generation, .. } = *cell;
        assert!(synced_generation <= generation);
        assert!(position == 0 || truth.sent.contains(&position), "nobody has sent {position}");
        if cell.cut {
            assert!(cell.is_managed() && synced_generation == generation, "cut without a sync: {cell:?}");
            let things = content(state);
            let had = truth.source.ever_had(&things, position);
            assert!(had, "I4: the source never had {things:?} at {position}");
        }
        let holder = state.tenure(SHARD).expect("a cell is opened by a holder");
        assert!(holder.term > 0);
        assert!(state.member(SHARD).is_some(), "whoever pushes is in the roster");
    }
}
