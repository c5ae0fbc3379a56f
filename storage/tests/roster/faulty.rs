//! Stores with one planted fault each: wrappers that ask something else of a right one, and files that
//! have forgotten something. The checks must notice every one of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use redb::{Database, TableDefinition};
use shardcache_storage::{
    BackupReport, Change, Digest, Health, Lineage, LogPage, MemoryStore, Op, Opening, Push, Pushed,
    ReadLimit, Receipt, RedbStore, Revision, RosterChange, State, StorageError, Store, Subscription,
    TypeName,
};

use crate::Redb;
use crate::script::SHARDS;
use crate::world::Engine;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A store that was lost shows whoever comes first (row 6: absent is taken for empty).
    NoSeed,
    /// A seed only makes its shards known.
    SeedJoins,
    /// A shard that is seeded later is waited for, by views that were shown before.
    LateSeedGates,
    /// A shard that comes later is waited for.
    NewcomerGates,
    /// A shard whose pusher is there counts as whole.
    AttachedIsEnough,
    /// A shard that has sent its catalog counts as whole.
    CatalogIsEnough,
    /// Types of the catalog are not noted.
    CatalogLost,
    /// A catalog of a holder that was replaced counts.
    CatalogUnfenced,
    /// A type counts as synced when its list begins.
    StartIsEnough,
    /// A type counts as synced whatever the list was.
    AnyEndIsEnough,
    /// A cell that was released is waited for again.
    ReleaseGates,
    /// Nobody can be excused.
    NoExcuse,
    /// Who is excused is forgotten.
    ExcuseForgets,
    /// One excuse is for all.
    ExcusesAll,
    /// An operator cannot have a shard waited for.
    NoExpect,
    /// Nobody is forgotten.
    NoForget,
}

pub(crate) const FAULTS: [Fault; 16] = [
    Fault::NoSeed,
    Fault::SeedJoins,
    Fault::LateSeedGates,
    Fault::NewcomerGates,
    Fault::AttachedIsEnough,
    Fault::CatalogIsEnough,
    Fault::CatalogLost,
    Fault::CatalogUnfenced,
    Fault::StartIsEnough,
    Fault::AnyEndIsEnough,
    Fault::ReleaseGates,
    Fault::NoExcuse,
    Fault::ExcuseForgets,
    Fault::ExcusesAll,
    Fault::NoExpect,
    Fault::NoForget,
];

/// A store in memory with the `N`th of [`FAULTS`].
pub(crate) struct Faulty<const N: usize>(Arc<MemoryStore>);

impl<const N: usize> Engine for Faulty<N> {
    type Store = Self;
    const DURABLE: bool = false;

    fn open(_dir: &Path, opening: Opening) -> Arc<Self> {
        Arc::new(Self(MemoryStore::new(opening)))
    }
}

/// Something without effect that ends well.
fn nothing() -> Push {
    Push::Release { shard: "nobody".into(), type_name: None }
}

fn expect(shard: &str) -> Push {
    Push::Roster(RosterChange::Expect { shard: shard.into() })
}

fn excuse(shard: &str) -> Push {
    Push::Roster(RosterChange::Excuse { shard: shard.into() })
}

impl<const N: usize> Faulty<N> {
    const FAULT: Fault = FAULTS[N];

    fn state(&self) -> State {
        self.0.subscribe().state
    }

    /// What is asked in place of a request; the answer is the one to the request at the index.
    fn instead(&self, push: Push) -> (Vec<Push>, usize) {
        let shard = match &push {
            Push::Attach(attach) => attach.shard.clone(),
            Push::Catalog { shard, .. }
            | Push::Release { shard, .. }
            | Push::Roster(
                RosterChange::Expect { shard }
                | RosterChange::Excuse { shard }
                | RosterChange::Forget { shard },
            ) => shard.clone(),
            _ => Box::default(),
        };
        match (Self::FAULT, push) {
            (Fault::SeedJoins, push @ Push::Roster(RosterChange::Seed { .. })) => {
                (vec![Push::Roster(RosterChange::Seed { shards: Vec::new() }), push], 1)
            }
            (Fault::LateSeedGates, Push::Roster(RosterChange::Seed { shards })) => {
                let gates: Vec<_> = shards.iter().map(|shard| expect(shard)).collect();
                let mut all = vec![Push::Roster(RosterChange::Seed { shards })];
                all.extend(gates);
                (all, 0)
            }
            (Fault::NewcomerGates, push @ Push::Attach(_))
            | (Fault::ReleaseGates, push @ Push::Release { .. }) => (vec![push, expect(&shard)], 0),
            (Fault::AttachedIsEnough, push @ Push::Attach(_)) => (vec![push, excuse(&shard)], 0),
            (Fault::CatalogIsEnough, Push::Catalog { shard, term, .. }) => {
                (vec![Push::Catalog { shard, term, types: Vec::new() }], 0)
            }
            (Fault::CatalogLost, push @ Push::Catalog { term, .. }) => {
                let holds = self.state().tenure(&shard).is_some_and(|tenure| tenure.term == term);
                (vec![if holds { nothing() } else { push }], 0)
            }
            (Fault::CatalogUnfenced, Push::Catalog { shard, types, .. }) => {
                let term = self.state().tenure(&shard).map_or(0, |tenure| tenure.term);
                (vec![Push::Catalog { shard, term, types }], 0)
            }
            (Fault::StartIsEnough | Fault::AnyEndIsEnough, Push::Frames(mut frames)) => {
                frames.ops = frames.ops.into_iter().flat_map(Self::ops).collect();
                (vec![Push::Frames(frames)], 0)
            }
            (Fault::ExcuseForgets, Push::Roster(RosterChange::Excuse { .. })) => {
                (vec![Push::Roster(RosterChange::Forget { shard })], 0)
            }
            (Fault::ExcusesAll, push @ Push::Roster(RosterChange::Excuse { .. })) => {
                let mut all = vec![push];
                all.extend(SHARDS.map(excuse));
                (all, 0)
            }
            (Fault::NoSeed, Push::Roster(RosterChange::Seed { .. }))
            | (Fault::NoExcuse, Push::Roster(RosterChange::Excuse { .. }))
            | (Fault::NoExpect, Push::Roster(RosterChange::Expect { .. }))
            | (Fault::NoForget, Push::Roster(RosterChange::Forget { .. })) => (vec![nothing()], 0),
            (_, push) => (vec![push], 0),
        }
    }

    fn ops(op: Op) -> Vec<Op> {
        let (version, count, digest, allow_empty) = (100, 0, Digest::default(), true);
        let ends = |sync| Op::SyncEnd { sync, version, count, digest, allow_empty };
        match op {
            Op::SyncStart { sync } if Self::FAULT == Fault::StartIsEnough => {
                vec![op, ends(sync), Op::SyncStart { sync }]
            }
            Op::SyncEnd { sync, .. } if Self::FAULT == Fault::AnyEndIsEnough => vec![ends(sync)],
            other => vec![other],
        }
    }
}

impl<const N: usize> Store for Faulty<N> {
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        self.0.commit(changes)
    }

    fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>> {
        let (pushes, which) = self.instead(push);
        let answers: Vec<_> = pushes.into_iter().map(|push| self.0.push(push)).collect();
        async move { futures::future::join_all(answers).await.swap_remove(which) }.boxed()
    }

    fn subscribe(&self) -> Subscription {
        self.0.subscribe()
    }

    fn lineage(&self) -> Arc<Lineage> {
        self.0.lineage()
    }

    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>> {
        self.0.events(type_name, after, up_to, limit)
    }

    fn backup(&self, to: PathBuf) -> BoxFuture<'static, Result<BackupReport, StorageError>> {
        self.0.backup(to)
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StorageError>> {
        self.0.close()
    }
}

const ROSTER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("roster");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// A store on disk that forgets at each opening: the roster, or else that it was seeded.
pub(crate) struct Forgetful<const ROSTER: bool>;

impl<const FORGETS_ROSTER: bool> Engine for Forgetful<FORGETS_ROSTER> {
    type Store = RedbStore;
    const DURABLE: bool = true;

    fn open(dir: &Path, opening: Opening) -> Arc<RedbStore> {
        let file = dir.join("store.redb");
        if file.exists() {
            let database = Database::open(file).expect("a database");
            let txn = database.begin_write().expect("a transaction");
            if FORGETS_ROSTER {
                txn.delete_table(ROSTER).expect("deleted");
            } else {
                txn.open_table(META).expect("meta").remove("seeded").expect("removed");
            }
            txn.commit().expect("committed");
        }
        Redb::open(dir, opening)
    }
}
