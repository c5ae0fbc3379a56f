//! The durable truth of shardcache: an append-only, versioned log of objects and its fold.
//!
//! A write is *committed* when its event is in the log and the log is synced to disk. Every engine
//! keeps one order: **durable → published → acknowledged**. What a client was ever shown, a crash
//! cannot take back; what was acknowledged, it cannot lose.
//!
//! ```text
//! Change ──► committer ──► ledger (pure: guards, events) ──► engine (redb, memory) ──► Commit ──► subscribers
//!                                                                                        └────► Receipt
//! ```
//!
//! This crate knows nothing of HTTP, selectors or watchers, and parses no JSON.

#![cfg_attr(
    not(feature = "redb"),
    expect(
        dead_code,
        reason = "what only engines on disk use; a build without one is for those who bring theirs"
    )
)]

mod change;
mod committer;
mod error;
mod failpoint;
mod key;
mod ledger;
mod lineage;
mod memory;
mod metrics;
mod object;
mod push;
#[cfg(feature = "redb")]
mod redb;
mod resource_version;
#[cfg(feature = "redb")]
mod retention;
mod roster;
mod state;
mod store;

pub use change::{Action, Applied, Change, Commit, Event, Guard, Refusal};
pub use error::{ErrorKind, StorageError};
pub use key::{Key, KeyParts, NulInName, OWN_GROUP, SEPARATOR, TypeName};
pub use lineage::{Incarnation, Lineage, Opening, Standing};
pub use memory::MemoryStore;
pub use metrics::Metrics;
pub use object::{
    BODY_MAX, Draft, Labels, Object, Piece, Record, RecordError, Source, Span, Spans, Tombstone,
};
pub use push::{
    Attach, Cell, CellName, Digest, Election, Frames, Op, Open, Push, Pushed, PushedType, SessionEnd, Tally,
    Tenure, Verdict, entry_digest,
};
#[cfg(feature = "redb")]
pub use redb::{BackendFactory, Progress, ProgressFn, QuickRepair, RedbOptions, RedbStore};
pub use resource_version::{
    DIGITS, PLACEHOLDER, ParseError, REVISION_MAX, ResourceVersion, Revision, TAG_BITS, TAG_MAX, Tag,
};
pub use roster::{Awaited, Member, Role, RosterChange};
pub use state::{Objects, Sizes, State};
pub use store::{BackupReport, Health, LogPage, ReadLimit, Receipt, Store, Subscription};
