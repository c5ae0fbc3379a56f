//! What a pusher's handler asks of the writer, and what it is told.

use tokio::sync::watch;

use crate::key::{Key, TypeName};
use crate::object::Draft;
use crate::resource_version::ResourceVersion;
use crate::roster::RosterChange;

use super::{Cell, CellName, Digest, Election, PushedType, Tenure};

/// One request to the writer, whole or not at all.
#[derive(Clone)]
pub enum Push {
    /// Somebody wants to write for a shard.
    Attach(Attach),
    /// The holder's list of every type it pushes.
    Catalog {
        /// The shard.
        shard: Box<str>,
        /// The holder's term.
        term: u64,
        /// The types, in any order.
        types: Vec<TypeName>,
    },
    /// The holder begins a session on a cell; an earlier one of the cell ends.
    Open(Open),
    /// Frames of a session, in order.
    Frames(Frames),
    /// A session is over; a sync that is under way is given up.
    Close {
        /// The cell.
        cell: CellName,
        /// Number of the session; another one of the cell goes on.
        session: u64,
    },
    /// An administrator gives a cell, or all cells of a shard, back to ordinary writers.
    Release {
        /// The shard.
        shard: Box<str>,
        /// The type, or all of them.
        type_name: Option<TypeName>,
    },
    /// A change of the roster of shards.
    Roster(RosterChange),
}

/// A claim to write for a shard.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The shard.
    pub shard: Box<str>,
    /// Name of who claims, for people.
    pub holder: Box<str>,
    /// Identity of its process.
    pub instance: Box<str>,
    /// The election it has won, if there is one.
    pub election: Option<Election>,
    /// The term whose holder was judged to be replaceable (silent, gone, or to be taken over from);
    /// `None` if the holder may not be replaced. Does not count if the term has changed since.
    pub replaces: Option<u64>,
}

/// The begin of a session.
#[derive(Clone, Debug)]
pub struct Open {
    /// The cell.
    pub cell: CellName,
    /// The holder's term.
    pub term: u64,
    /// What the source calls itself; another name is another lineage.
    pub source: Box<str>,
    /// The source's newest version, by a quorum read.
    pub source_head: u64,
    /// The type as the pusher describes it.
    pub described: PushedType,
}

/// Frames of one session.
#[derive(Clone)]
pub struct Frames {
    /// The cell.
    pub cell: CellName,
    /// Term and number of the session, as [`Pushed`] told when it began.
    pub term: u64,
    /// Number of the session.
    pub session: u64,
    /// The frames, in order.
    pub ops: Vec<Op>,
    /// Wall clock, milliseconds since 1970; only noted.
    pub now_ms: u64,
}

/// One frame of a session.
#[derive(Clone)]
pub enum Op {
    /// A complete list of the source begins.
    SyncStart {
        /// Number of the sync, chosen by the pusher.
        sync: u64,
    },
    /// The list was complete.
    SyncEnd {
        /// Number of the sync.
        sync: u64,
        /// Source version of the list.
        version: u64,
        /// Objects in the list.
        count: u64,
        /// Sum of [`super::entry_digest`] over them.
        digest: Digest,
        /// Whether an empty list may empty a cell that has objects.
        allow_empty: bool,
    },
    /// An object as it is in the source.
    Upsert {
        /// Its key.
        key: Key,
        /// Its source version.
        version: u64,
        /// What to store.
        draft: Draft,
    },
    /// An object was removed from the source.
    Delete {
        /// Its key.
        key: Key,
        /// Source version of the removal.
        version: u64,
        /// The uid it had; empty if it had none.
        uid: Box<str>,
    },
    /// Every event of the source up to this version was sent.
    Progress {
        /// The source version.
        version: u64,
        /// Objects the pusher has sent and not deleted.
        count: u64,
        /// Their digest.
        digest: Digest,
    },
}

/// How a request ended, and the state after it. Durable, except for positions that were moved by
/// [`Op::Progress`] alone.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// What came of it.
    pub verdict: Verdict,
    /// The shard's holder.
    pub tenure: Tenure,
    /// The cell, where one was named and exists.
    pub cell: Option<Cell>,
    /// The session that began, or is going on; 0: none.
    pub session: u64,
    /// Of a session that began: how to learn that it is over.
    pub ended: Option<SessionEnd>,
    /// Frames of the request that are done, those without effect included: all of them, but for what
    /// follows a [`Verdict::Broken`].
    pub done: usize,
    /// What frames came to, up to the one that ended the session.
    pub tally: Tally,
    /// The store's version after it: a list at or after it contains everything that was applied.
    pub version: ResourceVersion,
}

/// Waits for the end of a session at the writer, whatever it was: a later session of the cell, another
/// holder, a release, a frame that broke the rules, or a write that failed. Which it was, the session's next
/// request is told, once that is durable; it may be one without a frame.
#[derive(Clone, Debug)]
pub struct SessionEnd(watch::Receiver<()>);

impl SessionEnd {
    /// Whoever drops the sender ends the session.
    pub(crate) fn new() -> (watch::Sender<()>, Self) {
        let (alive, end) = watch::channel(());
        (alive, Self(end))
    }

    /// Resolves when the session is over. Cancel safe.
    pub async fn ended(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it was done; frames without effect count as done.
    Done,
    /// The last sync's end removed as much as one commit may; the same [`Op::SyncEnd`] is to be asked for
    /// again, alone, until it is done.
    Sweeping,
    /// The cell needs a sync: at the begin of a session, or since a frame showed that the copy is not the
    /// source. Later frames are dropped until a sync starts.
    Resync(Box<str>),
    /// Somebody else holds the shard and may not be replaced.
    Held,
    /// Somebody else holds the shard; what was asked under an older term is void.
    Fenced,
    /// A later session of the cell began; this one is void.
    Superseded,
    /// A frame breaks the rules; the session has ended, frames before it were applied. Or a change of the
    /// roster that may not be made: nothing was changed.
    Broken(Box<str>),
}

/// What frames came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Objects created or changed.
    pub put: u64,
    /// Objects removed, those of a sync's end included.
    pub deleted: u64,
    /// Upserts of what is there already.
    pub unchanged: u64,
    /// Frames at or below the position.
    pub duplicate: u64,
    /// Upserts and deletions that a newer state of the object overtook, and deletions of nothing.
    pub stale: u64,
    /// Frames dropped because a sync is awaited.
    pub ignored: u64,
}

impl Tally {
    /// Number of objects and frames counted.
    pub fn frames(&self) -> u64 {
        self.put + self.deleted + self.unchanged + self.duplicate + self.stale + self.ignored
    }
}
