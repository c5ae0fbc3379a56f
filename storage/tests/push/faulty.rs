//! Stores with one planted fault each, as wrappers that rewrite what is asked of a right one: the checks
//! must notice every one of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use shardcache_storage::{
    Attach, Cell, Change, Digest, Draft, Frames, Key, MemoryStore, Object, Op, Open, Opening, Push, Pushed,
    Receipt, State, StorageError, Store, TypeName, Verdict, entry_digest,
};

use crate::SHARD;
use crate::inspector::members;
use crate::world::{Engine, main_cell};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What a holder sends that was replaced counts (row 8).
    NoFence,
    /// What an earlier session of the holder sends counts.
    NoSessions,
    /// The last connection wins (row 8).
    AnyoneTakesOver,
    /// A leader that was replaced may claim anything.
    NoElections,
    /// A sync removes everything first (row 7).
    DeleteFirst,
    /// A sync's end removes what was not listed without comparing first.
    SweepUncompared,
    /// The position counts as holding while a sync is under way.
    CutKept,
    /// A sync that was cut counts as whole.
    HalfSyncIsWhole,
    /// A restored source goes unnoticed (row 7: generations).
    OneGeneration,
    /// The position runs ahead of what was sent.
    PositionAhead,
    /// Some frames are lost.
    LostFrames,
    /// Removals are told apart from updates only.
    NoRemovals,
    /// Ordinary writes go where somebody pushes.
    OpenDoor,
    /// A cell is never given back.
    NeverReleased,
    /// Whoever sends a catalog is taken for the holder.
    AnyonesCatalog,
    /// A type that went from the catalog stays in it.
    GrowingCatalog,
}

pub(crate) const FAULTS: [Fault; 16] = [
    Fault::NoFence,
    Fault::NoSessions,
    Fault::AnyoneTakesOver,
    Fault::NoElections,
    Fault::DeleteFirst,
    Fault::SweepUncompared,
    Fault::CutKept,
    Fault::HalfSyncIsWhole,
    Fault::OneGeneration,
    Fault::PositionAhead,
    Fault::LostFrames,
    Fault::NoRemovals,
    Fault::OpenDoor,
    Fault::NeverReleased,
    Fault::AnyonesCatalog,
    Fault::GrowingCatalog,
];

/// A store in memory with the `N`th of [`FAULTS`].
pub(crate) struct Faulty<const N: usize> {
    inner: Arc<MemoryStore>,
    memory: Arc<Mutex<Memory>>,
}

/// What faults need to know of earlier requests.
#[derive(Default)]
struct Memory {
    /// Term and number of the newest session.
    newest: (u64, u64),
    /// The sync under way, from its start.
    sync: Vec<Op>,
}

impl<const N: usize> Faulty<N> {
    const FAULT: Fault = FAULTS[N];
}

impl<const N: usize> Engine for Faulty<N> {
    type Store = Self;
    const DURABLE: bool = false;

    fn open(_dir: &Path, opening: Opening) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(opening), memory: Arc::default() })
    }

    fn file(_dir: &Path) -> PathBuf {
        unreachable!("a store in memory has no file")
    }
}

type Answer = BoxFuture<'static, Result<Pushed, StorageError>>;

impl<const N: usize> Faulty<N> {
    fn state(&self) -> State {
        self.inner.subscribe().state
    }

    fn cell(&self) -> Cell {
        self.state().cell(&main_cell()).cloned().unwrap_or_default()
    }

    fn attach(&self, mut attach: Attach) -> Push {
        match Self::FAULT {
            Fault::AnyoneTakesOver => {
                attach.replaces = self.state().tenure(SHARD).map(|tenure| tenure.term);
            }
            Fault::NoElections => attach.election = None,
            _ => {}
        }
        Push::Attach(attach)
    }

    fn catalog(&self, mut term: u64, mut types: Vec<TypeName>) -> Push {
        let tenure = self.state().tenure(SHARD).cloned().unwrap_or_default();
        match Self::FAULT {
            Fault::AnyonesCatalog => term = tenure.term,
            Fault::GrowingCatalog => {
                types.extend(tenure.catalog.iter().flat_map(|known| known.iter().cloned()));
            }
            _ => {}
        }
        Push::Catalog { shard: SHARD.into(), term, types }
    }

    fn open(&self, mut open: Open) -> Answer {
        if Self::FAULT == Fault::OneGeneration {
            (open.source, open.source_head) = ("the".into(), u64::MAX);
        }
        let (cell, memory, inner) = (self.cell(), Arc::clone(&self.memory), Arc::clone(&self.inner));
        async move {
            let mut pushed = inner.push(Push::Open(open)).await?;
            let newest = (pushed.tenure.term, pushed.session);
            *memory.lock().expect("whole") = Memory { newest, sync: Vec::new() };
            if Self::FAULT == Fault::HalfSyncIsWhole
                && pushed.verdict == Verdict::Resync("SyncIncomplete".into())
            {
                let ops = whole_sync(&inner.subscribe().state, cell.position);
                let frames = Frames { cell: main_cell(), term: newest.0, session: newest.1, ops, now_ms: 1 };
                pushed = inner.push(Push::Frames(frames)).await?;
            }
            Ok(pushed)
        }
        .boxed()
    }

    fn frames(&self, mut frames: Frames) -> Answer {
        let mut memory = self.memory.lock().expect("whole");
        let holds = self.state().tenure(SHARD).is_some_and(|tenure| tenure.term == frames.term);
        match Self::FAULT {
            Fault::NoFence => (frames.term, frames.session) = memory.newest,
            Fault::NoSessions if holds => frames.session = memory.newest.1,
            Fault::LostFrames => {
                frames.ops.retain(|op| !matches!(op, Op::Upsert { version, .. } if version % 7 == 3));
            }
            Fault::NoRemovals => frames.ops.retain(|op| !matches!(op, Op::Delete { .. })),
            Fault::PositionAhead => {
                for op in &mut frames.ops {
                    if let Op::Progress { version, .. } = op {
                        *version += 1000;
                    }
                }
            }
            Fault::DeleteFirst => {
                let version = self.cell().position;
                let (count, digest, allow_empty) = (0, Digest::default(), true);
                let twice = |op| match op {
                    Op::SyncStart { sync } => {
                        vec![
                            op,
                            Op::SyncEnd { sync, version, count, digest, allow_empty },
                            Op::SyncStart { sync },
                        ]
                    }
                    other => vec![other],
                };
                frames.ops = frames.ops.into_iter().flat_map(twice).collect();
            }
            Fault::CutKept => {
                let cut = self.cell().cut;
                frames.ops = frames.ops.into_iter().flat_map(|op| memory.as_events(op, cut)).collect();
            }
            Fault::SweepUncompared => {
                memory.sync.extend(frames.ops.iter().filter(|op| matches!(op, Op::Upsert { .. })).cloned());
                let end = frames.ops.iter().position(|op| matches!(op, Op::SyncEnd { .. }));
                if let Some(end) = end {
                    return self.uncompared(frames, end, std::mem::take(&mut memory.sync));
                }
            }
            _ => {}
        }
        self.inner.push(Push::Frames(frames))
    }

    /// Has the `end`th frame claim what the store has of the list.
    fn uncompared(&self, mut frames: Frames, end: usize, list: Vec<Op>) -> Answer {
        let rest = frames.ops.split_off(end);
        let (first, inner) = (frames.clone(), Arc::clone(&self.inner));
        async move {
            inner.push(Push::Frames(first)).await?;
            let state = inner.subscribe().state;
            let name = main_cell();
            let listed = |object: &&Object| {
                list.iter().any(|op| matches!(op, Op::Upsert { key, .. } if key.as_str() == object.key()))
            };
            let left: Vec<_> = members(&state, &name).filter(listed).collect();
            frames.ops = rest;
            if let Op::SyncEnd { count, digest, .. } = &mut frames.ops[0] {
                *count = left.len() as u64;
                *digest = left
                    .iter()
                    .map(|o| entry_digest(o.parts(), o.uid(), o.source().version))
                    .fold(Digest::default(), Digest::with);
            }
            inner.push(Push::Frames(frames)).await
        }
        .boxed()
    }
}

impl Memory {
    /// A sync's frames as if they were events; the sync itself when it is whole.
    fn as_events(&mut self, op: Op, cut: bool) -> Vec<Op> {
        match &op {
            Op::SyncStart { .. } if cut => {
                self.sync = vec![op];
                Vec::new()
            }
            Op::Upsert { .. } if !self.sync.is_empty() => {
                self.sync.push(op.clone());
                vec![op]
            }
            Op::SyncEnd { .. } if !self.sync.is_empty() => {
                self.sync.push(op);
                std::mem::take(&mut self.sync)
            }
            _ => vec![op],
        }
    }
}

/// A sync of what a store has.
fn whole_sync(state: &State, version: u64) -> Vec<Op> {
    let (name, mut count, mut digest) = (main_cell(), 0, Digest::default());
    let mut ops = vec![Op::SyncStart { sync: 1 }];
    for object in members(state, &name) {
        let (parts, version) = (object.parts(), object.source().version);
        let key = Key::new(parts.shard, parts.cluster, parts.namespace, parts.name).expect("legal");
        let labels: Vec<_> = object.labels().collect();
        let draft = Draft::new(&key, &labels, object.body_bytes(), object.spans()).expect("it fitted");
        (count, digest) = (count + 1, digest.with(entry_digest(parts, object.uid(), version)));
        ops.push(Op::Upsert { key, version, draft });
    }
    ops.push(Op::SyncEnd { sync: 1, version, count, digest, allow_empty: true });
    ops
}

impl<const N: usize> Store for Faulty<N> {
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        if Self::FAULT == Fault::OpenDoor {
            drop(self.inner.push(Push::Release { shard: SHARD.into(), type_name: None }));
        }
        self.inner.commit(changes)
    }

    fn push(&self, push: Push) -> Answer {
        match push {
            Push::Attach(attach) => self.inner.push(self.attach(attach)),
            Push::Open(open) => self.open(open),
            Push::Frames(frames) => self.frames(frames),
            Push::Catalog { term, types, .. } => self.inner.push(self.catalog(term, types)),
            Push::Release { .. } if Self::FAULT == Fault::NeverReleased => {
                self.inner.push(Push::Release { shard: "another".into(), type_name: None })
            }
            other => self.inner.push(other),
        }
    }

    shardcache_storage::delegate_store!(inner: subscribe, lineage, events, backup, health, close);
}
