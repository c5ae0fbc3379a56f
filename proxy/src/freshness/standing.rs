//! In which state a cell is (D40), as the store and the keeper know it together. Pure.
//!
//! | state | condition | `resourceVersion=0` | unset, one shard | all shards |
//! |---|---|---|---|---|
//! | `Unmanaged` | only written by ordinary requests | 200 | 200, `unknown` | served, `unknown` |
//! | `NeverSynced` | is to be pushed, and no sync has ended in this lineage | error (GET of a present key: 200) | error | [gate](super::admit) |
//! | `Restored` | synced, and no stream since the server was opened | 200, warned | [direct probe](super::probe), else error at once | served, reported |
//! | `Syncing` | a stream, but the copy is between two states | 200, warned | waits for the end of the sync, else error | served, reported |
//! | `Live` | a stream, complete, confirmed not long ago | 200 | barrier | served |
//! | `Lagging` | a stream, complete, confirmed long ago or not yet | 200, warned | barrier | served, reported |
//! | `Disconnected` | no stream for a while | 200, warned | direct probe, else error at once | served, reported |
//!
//! A pusher that reconnects within [`FreshnessConfig::disconnected_after`] leaves its cells as they were.

use std::time::Duration;

use shardcache_storage::{Awaited, CellName, Member, Role, State, TypeName};

use super::FreshnessConfig;
use super::clock::Instant;
use super::confirmation::Contact;
use super::keeper::Shown;
use super::vouchers::Vouched;

/// The state of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Condition {
    Unmanaged,
    NeverSynced,
    Restored,
    Syncing,
    Live,
    Lagging,
    Disconnected,
}

impl Condition {
    /// As it is written in answers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unmanaged => "Unmanaged",
            Self::NeverSynced => "NeverSynced",
            Self::Restored => "Restored",
            Self::Syncing => "Syncing",
            Self::Live => "Live",
            Self::Lagging => "Lagging",
            Self::Disconnected => "Disconnected",
        }
    }
}

/// A cell at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) condition: Condition,
    /// Time since the instant up to which it is confirmed; `None`: nothing is known.
    pub(crate) age: Option<Duration>,
    /// Whether a stream is open.
    pub(crate) is_pushed: bool,
    /// Whether what is known is what the shard's Lease says: nobody can be asked.
    pub(crate) is_vouched: bool,
    /// Whether nobody pushes it, and its source itself has confirmed it since, not long ago.
    pub(crate) is_probed: bool,
}

impl Standing {
    /// Judges a cell. `synced` and `complete` are the store's.
    pub(crate) fn judge(synced: Synced, shown: &Shown, now: Instant, config: &FreshnessConfig) -> Self {
        let is_pushed = shown.contact == Contact::Open;
        let complete = matches!(synced, Synced::Once { complete: true });
        let age = shown.confirmed.filter(|_| complete).map(|confirmed| now.since(confirmed));
        let is_old = age.is_none_or(|age| age > config.lagging_after);
        let condition = match (synced, shown.contact) {
            // A first sync is under way.
            (Synced::NotPushed, Contact::Open) | (Synced::Never, _) => Condition::NeverSynced,
            (Synced::NotPushed, _) => Condition::Unmanaged,
            (Synced::Once { .. }, Contact::Never) => Condition::Restored,
            (Synced::Once { .. }, Contact::Lost(ago)) if ago > config.disconnected_after => {
                Condition::Disconnected
            }
            (Synced::Once { complete: false }, _) => Condition::Syncing,
            (Synced::Once { complete: true }, _) if is_old => Condition::Lagging,
            (Synced::Once { complete: true }, _) => Condition::Live,
        };
        let is_probed = !is_old
            && match shown.contact {
                Contact::Open => false,
                Contact::Never => true,
                Contact::Lost(ago) => age.is_some_and(|age| age < ago),
            };
        Self { condition, age, is_pushed, is_vouched: false, is_probed }
    }

    /// Judges a cell that its shard's Lease speaks for, and nobody pushes.
    pub(crate) fn judge_vouched(vouched: &Vouched, now: Instant, config: &FreshnessConfig) -> Self {
        let Vouched { confirmed, contact } = *vouched;
        let shown = Shown { confirmed, contact, evidence: None };
        let judged = Self::judge(Synced::Once { complete: true }, &shown, now, config);
        Self { is_pushed: false, is_vouched: true, is_probed: false, ..judged }
    }

    /// Whether its pusher is gone, so that only the source itself can say whether the copy is current.
    pub(crate) fn is_left(self) -> bool {
        matches!(self.condition, Condition::Restored | Condition::Disconnected)
    }

    /// Whether waiting for a pusher cannot help: none is there that could confirm the cell.
    pub(crate) fn is_hopeless(self) -> bool {
        match self.condition {
            Condition::Unmanaged | Condition::Restored | Condition::Disconnected => true,
            Condition::NeverSynced => !self.is_pushed,
            Condition::Syncing | Condition::Live | Condition::Lagging => false,
        }
    }
}

/// What the store says of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    /// Its shard does not push this type, as far as is known.
    NotPushed,
    /// It is to be pushed, and no sync has ended yet.
    Never,
    /// A sync has ended; `complete`: its position holds.
    Once { complete: bool },
}

impl Synced {
    /// Reads the state.
    pub(crate) fn of(state: &State, name: &CellName) -> Self {
        match state.cell(name).filter(|cell| cell.is_managed()) {
            Some(cell) => Self::Once { complete: cell.cut },
            None if is_to_be_pushed(state, name.shard(), name.type_name()) => Self::Never,
            None => Self::NotPushed,
        }
    }
}

/// Whether a shard has said that it pushes a type, or ought to be there and has said nothing yet.
fn is_to_be_pushed(state: &State, shard: &str, type_name: &TypeName) -> bool {
    let catalog = state.tenure(shard).and_then(|tenure| tenure.catalog.as_ref());
    let awaits = |member: &Member| member.role != Role::Joining && member.awaits == Awaited::Catalog;
    match catalog {
        Some(catalog) => catalog.binary_search(type_name).is_ok(),
        None => state.member(shard).is_some_and(awaits),
    }
}

#[cfg(test)]
#[path = "standing/tests.rs"]
mod tests;
