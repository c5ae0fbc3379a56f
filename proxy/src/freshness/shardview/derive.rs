//! What views are to say. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use shardcache_storage::{CellName, Role, State, TypeName};

use super::object::{Status, TypeStatus, Written};
use crate::freshness::FreshnessConfig;
use crate::freshness::lease::Lease;
use crate::freshness::standing::{Condition, Standing};
use crate::types;

const EXPECTED: &str = "Expected";
const EXCUSED: &str = "Excused";
const JOINING: &str = "Joining";
/// Roles, beginning with the one of which most is asked.
const ROLES_BY_WEIGHT: [&str; 3] = [EXPECTED, EXCUSED, JOINING];

/// Conditions of a cell that is pushed, the gravest first.
const BY_GRAVITY: [Condition; 6] = [
    Condition::NeverSynced,
    Condition::Disconnected,
    Condition::Restored,
    Condition::Syncing,
    Condition::Lagging,
    Condition::Live,
];

/// Everything that views are made of.
pub(super) struct Observed<'a, S, L> {
    /// The newest state.
    pub(super) state: &'a State,
    /// How a cell stands.
    pub(super) standing: S,
    /// What a shard that is not pushed says of itself.
    pub(super) lease: L,
    /// Time since the server was opened.
    pub(super) uptime: Duration,
    pub(super) config: &'a FreshnessConfig,
}

/// Views that are to be written, or removed (`None`), by shard, in two steps.
///
/// Readers see one object change after the other. So first comes everything that lets views be less
/// complete, and only when all of that is there, what lets them be more complete: in between no reader finds
/// something complete that never was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) first: Vec<(Box<str>, Option<Status>)>,
    pub(super) then: Vec<(Box<str>, Option<Status>)>,
}

impl<S: Fn(&CellName) -> Standing, L: Fn(&str) -> Option<Arc<Lease>>> Observed<'_, S, L> {
    /// Adds what is to be changed of these shards.
    pub(super) fn changes(
        &self,
        shards: &[&str],
        written: &BTreeMap<Box<str>, Written>,
        changes: &mut Changes,
    ) {
        let was_expected = written.values().any(|written| written.status.role == EXPECTED);
        let is_expected = self.state.roster().any(|(_, member)| member.role == Role::Expected);
        for shard in shards {
            let before = written.get(*shard).map(|written| &written.status);
            let after = self.view(shard, before);
            let guarded = guarded(before, after.as_ref(), was_expected && is_expected);
            if guarded.as_ref() != before {
                changes.first.push(((*shard).into(), guarded.clone()));
            }
            if after != guarded {
                changes.then.push(((*shard).into(), after));
            }
        }
    }

    /// The view of a shard; `None` if it is to have none.
    pub(super) fn view(&self, shard: &str, before: Option<&Status>) -> Option<Status> {
        let role = match self.state.member(shard)?.role {
            Role::Expected => EXPECTED,
            Role::Excused => EXCUSED,
            Role::Joining => JOINING,
        };
        let catalog = self.state.tenure(shard).and_then(|tenure| tenure.catalog.as_deref());
        let announced = catalog.unwrap_or_default().iter().filter(|name| !types::is_shardviews(name));
        let managed = self.state.cells_of(shard).filter(|(_, cell)| cell.is_managed());
        let lease = (self.lease)(shard);
        let spoken_for = lease.iter().flat_map(|lease| lease.claim.written.keys());
        // What is synced is said whether it is announced or not: another holder may have announced it.
        let names = announced.chain(managed.map(|(name, _)| name.type_name())).chain(spoken_for);
        let names: BTreeSet<&TypeName> = names.collect();
        let of_type = |name: &TypeName| {
            let before = before.and_then(|before| before.types.iter().find(|of_type| of_type.is_of(name)));
            self.of_type(&CellName::new(shard, name.clone()), lease.as_deref(), before)
        };
        let types: Vec<_> = names.into_iter().map(of_type).collect();
        Some(Status {
            role: role.into(),
            seeded: self.state.is_seeded(),
            catalogued: catalog.is_some(),
            state: gravest(&types),
            types,
        })
    }

    fn of_type(&self, name: &CellName, lease: Option<&Lease>, before: Option<&TypeStatus>) -> TypeStatus {
        let (cell, type_name) = (self.state.cell(name), name.type_name());
        let synced = cell.filter(|cell| cell.is_managed());
        let synced_generation = synced.map_or(0, |cell| cell.synced_generation);
        let standing = (self.standing)(name);
        // Nobody has pushed what a Lease speaks for: it has no lineage, but another Lease is another sync.
        let vouched_by = lease.filter(|_| standing.is_vouched).map(|lease| lease.uid.clone());
        let is_same = |before: &&TypeStatus| {
            before.synced_generation == synced_generation && before.vouched_by == vouched_by
        };
        let before = before.filter(is_same);
        let is_synced = synced.is_some() || standing.is_vouched;
        let cut = standing.is_vouched || synced.is_some_and(|cell| cell.cut);
        let held = before.filter(|before| before.cut == cut && is_synced && self.is_settling(standing));
        TypeStatus {
            group: type_name.group().into(),
            resource: type_name.resource().into(),
            identity: type_name.identity().into(),
            state: held.map_or(standing.condition.as_str().into(), |before| before.state.clone()),
            generation: cell.map_or(0, |cell| cell.generation),
            cut,
            synced_generation,
            vouched_by,
            synced_at: is_synced.then(|| self.synced_at(before)),
        }
    }

    /// A version at which the lineage that was synced last was synced. A lineage's first sync counts: later
    /// ones of it only move its objects forward, so that none is absent in between. Where it is not known
    /// when that was, now is not too early: the state at hand contains it.
    fn synced_at(&self, before: Option<&TypeStatus>) -> Box<str> {
        // A release sets the lineage to none, and what is synced after it is a new one: equal numbers are
        // of one sync.
        let known = before.and_then(|before| before.synced_at.clone());
        known.unwrap_or_else(|| self.state.resource_version().to_string().into())
    }

    /// Whether a cell stands so because the server has not been open for long, and nothing else has happened:
    /// its pusher has the time to come back, and to show how far it is.
    fn is_settling(&self, standing: Standing) -> bool {
        match standing.condition {
            Condition::Restored => self.uptime <= self.config.disconnected_after,
            Condition::Lagging => standing.age.is_none() && self.uptime <= self.config.lagging_after,
            _ => false,
        }
    }
}

/// As much of a change as does not let anything be more complete than it was or will be. `somebody_expected`:
/// before and after.
fn guarded(before: Option<&Status>, after: Option<&Status>, somebody_expected: bool) -> Option<Status> {
    // Where nobody is expected nobody can say what is complete: then the first one who is, or the last one who
    // was, must not be who makes it so.
    let must_not_say = |status: &Status| !somebody_expected && status.role == EXPECTED;
    if let Some(alone) = before.into_iter().chain(after).find(|status| must_not_say(status)) {
        return Some(silent(alone));
    }
    match (before, after) {
        // A reader who knows nothing of the shard must not learn that there is nothing to wait for.
        (None, after) => after.map(silent),
        (before, None) => before.cloned(),
        (Some(before), Some(after)) => Some(lesser(before, after)),
    }
}

/// A view of a shard that has said nothing.
fn silent(status: &Status) -> Status {
    Status { catalogued: false, state: None, types: vec![], ..status.clone() }
}

/// What a view before and a view after a change both allow.
fn lesser(before: &Status, after: &Status) -> Status {
    let was =
        |of_type: &&TypeStatus| before.types.iter().find(|before| before.is_same_type(of_type)).cloned();
    let is_gone = |before: &&TypeStatus| !after.types.iter().any(|of_type| of_type.is_same_type(before));
    // Of a shard that has not said which types it has, a type that is known is more than one that is not.
    let is_more = |of_type: &TypeStatus, catalogued: bool| of_type.synced_at.is_some() && !catalogued;
    let kept = after.types.iter().filter_map(|of_type| match was(&of_type) {
        Some(was) if was.synced_at.is_none() => Some(was),
        None if is_more(of_type, before.catalogued) => None,
        _ => Some(of_type.clone()),
    });
    let gone = before.types.iter().filter(is_gone).filter(|of_type| !is_more(of_type, after.catalogued));
    let mut types: Vec<_> = kept.chain(gone.cloned()).collect();
    types.sort_by(|one, other| one.name().cmp(&other.name()));
    let weight = |status: &Status| ROLES_BY_WEIGHT.iter().position(|role| status.role == *role);
    let role = if weight(before) < weight(after) { &before.role } else { &after.role };
    Status {
        role: role.clone(),
        seeded: before.seeded && after.seeded,
        catalogued: before.catalogued && after.catalogued,
        state: gravest(&types),
        types,
    }
}

impl TypeStatus {
    fn name(&self) -> (&str, &str, &str) {
        (&self.group, &self.resource, &self.identity)
    }

    fn is_same_type(&self, other: &Self) -> bool {
        self.name() == other.name()
    }

    fn is_of(&self, name: &TypeName) -> bool {
        self.name() == (name.group(), name.resource(), name.identity())
    }
}

/// The gravest state of a shard's types; `None` if it has none.
fn gravest(types: &[TypeStatus]) -> Option<Cow<'static, str>> {
    let states = BY_GRAVITY.iter().map(|condition| condition.as_str());
    states.map(Cow::Borrowed).find(|state| types.iter().any(|of_type| of_type.state == *state))
}

#[cfg(test)]
#[path = "derive/tests.rs"]
mod tests;
