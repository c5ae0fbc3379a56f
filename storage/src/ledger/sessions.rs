//! Sessions of pushers: what the writer remembers of them between batches and nobody else needs.
//!
//! Nothing here outlives the process, nor a failed write: a pusher without a session opens another one,
//! and the durable cell says where it goes on.

use std::collections::{HashMap, HashSet};

use tokio::sync::watch;

use crate::push::{CellName, SessionEnd};
use crate::resource_version::Revision;

/// The open sessions of a store's writer.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    last: u64,
    open: HashMap<CellName, Session>,
}

/// One pusher's stream of one cell.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) phase: Phase,
    /// Goes with the session: its stream learns of the end though it has nothing to ask.
    _alive: watch::Sender<()>,
}

/// Where a session is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing but the start of a sync has an effect. Where the pusher was told so in the middle of the
    /// session, other frames were on their way and are void; else they break the rules.
    AwaitsSync { told: bool },
    /// Between the two ends of a list.
    Syncing(Sync),
    /// Following the source's events.
    Following,
}

/// A sync under way.
#[derive(Debug)]
pub(super) struct Sync {
    pub(super) number: u64,
    /// States of the cell's objects that the list has confirmed. Bound: one per object of the cell.
    pub(super) seen: HashSet<Revision>,
    /// Count and digest were compared; what is not confirmed is being removed. Events that follow the
    /// list may arrive meanwhile.
    pub(super) sweeping: bool,
}

impl Phase {
    /// Whether frames are events after the position, and not items of a list.
    pub(super) fn has_position(&self) -> bool {
        match self {
            Self::AwaitsSync { .. } => false,
            Self::Syncing(sync) => sync.sweeping,
            Self::Following => true,
        }
    }
}

impl Sessions {
    /// Begins a session; an earlier one of the cell ends.
    pub(super) fn begin(&mut self, cell: CellName, phase: Phase) -> (u64, SessionEnd) {
        self.last += 1;
        let (alive, end) = SessionEnd::new();
        self.open.insert(cell, Session { number: self.last, phase, _alive: alive });
        (self.last, end)
    }

    /// Takes the session of this number out; `None`, and all stays, if another one is the cell's.
    pub(super) fn take(&mut self, cell: &CellName, number: u64) -> Option<Session> {
        let found = self.open.get(cell).is_some_and(|session| session.number == number);
        if found { self.open.remove(cell) } else { None }
    }

    /// Puts back what was taken.
    pub(super) fn put_back(&mut self, cell: &CellName, session: Session) {
        self.open.insert(cell.clone(), session);
    }

    /// Whether a sync of the cell is under way.
    pub(super) fn is_syncing(&self, cell: &CellName) -> bool {
        self.open.get(cell).is_some_and(|session| matches!(session.phase, Phase::Syncing(_)))
    }

    /// Ends the session of a cell.
    pub(super) fn end(&mut self, cell: &CellName) {
        self.open.remove(cell);
    }

    /// Ends every session of a shard.
    pub(super) fn end_shard(&mut self, shard: &str) {
        self.open.retain(|cell, _| cell.shard() != shard);
    }

    /// Ends all sessions: what they remember is of a batch that was not written.
    pub(crate) fn end_all(&mut self) {
        self.open.clear();
    }
}
