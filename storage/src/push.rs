//! What the store knows of shards that push: who may write for one ([`Tenure`]), and how far the copy of
//! each of its types has come ([`Cell`]).
//!
//! Both are durable, part of the [`crate::State`] and published with the commit that changed them, so a
//! reader's snapshot says which source version its objects are complete up to. Rules for changing them
//! are in `ledger/push.rs`; they are judged by the single writer in log order, so what was in flight
//! when somebody else took over cannot be applied afterwards.
//!
//! A cell is *push-managed* from the end of its first sync on: then nobody but its pusher writes it,
//! until an administrator releases it.

mod digest;
mod request;

use std::fmt;
use std::sync::Arc;

use crate::key::TypeName;

pub use digest::{Digest, entry_digest};
pub use request::{Attach, Frames, Op, Open, Push, Pushed, SessionEnd, Tally, Verdict};

/// One type of one shard: the unit of pushing, syncing and freshness. Ordered by shard, then type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName(Arc<(Box<str>, TypeName)>);

impl CellName {
    /// The cell of a type in a shard.
    pub fn new(shard: &str, type_name: TypeName) -> Self {
        Self(Arc::new((shard.into(), type_name)))
    }

    /// The shard.
    pub fn shard(&self) -> &str {
        &self.0.0
    }

    /// The type.
    pub fn type_name(&self) -> &TypeName {
        &self.0.1
    }
}

impl fmt::Debug for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.shard(), self.type_name())
    }
}

/// How the pusher describes the type of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushedType {
    /// Version of the objects, such as `v1`.
    pub version: Box<str>,
    /// Kind, such as `APIExport`.
    pub kind: Box<str>,
    /// Whether objects have namespaces.
    pub namespaced: bool,
}

/// How far the copy of a cell has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Counts lineages of the source, from 1: source versions compare inside one generation only.
    pub generation: u64,
    /// Every event of the source up to this version, of this generation, is in the store; 0: none.
    pub position: u64,
    /// Whether `position` holds: a sync of this generation has ended and none is under way.
    pub cut: bool,
    /// Generation of the last sync that ended; 0: none did, the cell is not push-managed. Every object
    /// of the cell was confirmed in this generation or a later one.
    pub synced_generation: u64,
    /// Wall clock of the end of the last sync, milliseconds since 1970.
    pub synced_ms: u64,
    /// Objects in the cell. Kept from the begin of the first sync on.
    pub count: u64,
    /// Sum of [`entry_digest`] over the objects. Kept as `count` is.
    pub digest: Digest,
    /// What the source of this generation calls itself.
    pub source: Box<str>,
    /// The type as the pusher describes it.
    pub described: PushedType,
}

impl Cell {
    /// Whether only its pusher may write the cell.
    pub fn is_managed(&self) -> bool {
        self.synced_generation > 0
    }
}

/// The pusher's standing in an election at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Identity of the election: the uid of the Lease. A Lease that was made anew is another election.
    pub uid: Box<str>,
    /// Rises with every hand-over; transitions of the Lease.
    pub term: u64,
}

/// Who writes for a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenure {
    /// Rises with every new holder; issued here, durable before the holder learns of it. 0: nobody yet.
    pub term: u64,
    /// Name of the holder, for people.
    pub holder: Box<str>,
    /// Identity of the holder's process: one that comes back is the same holder.
    pub instance: Box<str>,
    /// The election that made it the holder.
    pub election: Option<Election>,
    /// Every type the shard pushes, in name order; `None` until a holder has said so.
    pub catalog: Option<Arc<[TypeName]>>,
}
