//! How complete and how old the objects in a scope are (D42, D43). Pure, but for the clock it is given.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use shardcache_storage::{CellName, Objects, ResourceVersion, Role, State, TypeName};

use super::clock::Instant;
use super::confirmation::Contact;
use super::keeper::{Began, Keeper};
use super::lease::{self, Lease};
use super::standing::{Condition, Standing, Synced};
use crate::cache::WatchCache;
use crate::scope::{Part, Scope};

/// How long a view is told again without looking anew.
const SEEN_MAX: Duration = Duration::from_secs(1);

/// Views that are kept though they are older.
const VIEWS_MAX: usize = 4096;

/// Whether a view can lack objects because a shard's are absent (not because they are old).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complete {
    /// Every shard that ought to be there has been synced.
    Yes,
    /// A shard that ought to be there has not.
    No,
    /// There are shards that cannot say so, or nobody has said which shards there ought to be.
    Unknown,
}

impl Complete {
    /// As it is written in answers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "true",
            Self::No => "false",
            Self::Unknown => "unknown",
        }
    }
}

/// A cell that is not confirmed, or not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubtful {
    pub(crate) shard: Box<str>,
    pub(crate) standing: Standing,
}

/// The objects of a type in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) complete: Complete,
    /// Of the oldest cell; `None`: nothing is known of one of them, or of what requests have written.
    pub(crate) age: Option<Duration>,
    /// Shards that ought to be there, those of them whose cell was synced or does not exist, and those of
    /// these that are being pushed and were confirmed not long ago.
    pub(crate) expected: usize,
    pub(crate) synced: usize,
    pub(crate) live: usize,
    /// Shards that are told of: those that push it, and those that ought to.
    pub(crate) shards: usize,
    /// Those that are neither live nor confirmed by their source itself not long ago, in name order.
    pub(crate) doubtful: Vec<Doubtful>,
}

impl View {
    /// Sums up a scope as a state has it.
    pub(crate) fn of(
        state: &State,
        keeper: &Keeper,
        type_name: &TypeName,
        scope: &Scope,
        now: Instant,
    ) -> Self {
        match &scope.shard {
            Part::One(shard) => Self::of_shard(state, keeper, type_name, shard, now),
            Part::Any => Self::of_all(state, keeper, type_name, now),
        }
    }

    fn of_shard(state: &State, keeper: &Keeper, type_name: &TypeName, shard: &str, now: Instant) -> Self {
        let standing = standing(state, keeper, &CellName::new(shard, type_name.clone()), now);
        let complete = match standing.condition {
            Condition::Unmanaged => Complete::Unknown,
            Condition::NeverSynced => Complete::No,
            _ => Complete::Yes,
        };
        let mut view = Self::nothing(complete);
        view.add(shard, standing, standing.condition != Condition::Unmanaged);
        view
    }

    fn of_all(state: &State, keeper: &Keeper, type_name: &TypeName, now: Instant) -> Self {
        let mut view = Self::nothing(Complete::Yes);
        let mut members = 0;
        // Whether somebody has objects and cannot say that they are all, nor how old they are.
        let mut is_unspoken = false;
        for (shard, member) in state.roster() {
            members += 1;
            let cell = CellName::new(shard, type_name.clone());
            let standing = standing(state, keeper, &cell, now);
            is_unspoken |= standing.condition == Condition::Unmanaged && has_objects(state, &cell);
            let is_absent = standing.condition == Condition::NeverSynced;
            match member.role {
                Role::Joining if is_absent => continue,
                // Excused ones too: whoever excuses a shard wants views without it, not views that pass for
                // the whole.
                _ if is_absent => view.complete = Complete::No,
                _ => {}
            }
            view.add(shard, standing, member.role == Role::Expected);
        }
        // Without a roster from outside, shards that have not come yet are missed by nobody.
        let is_known = state.is_seeded() && members > 0;
        for shard in others(state, type_name) {
            let cell = CellName::new(shard, type_name.clone());
            let standing = standing(state, keeper, &cell, now);
            if standing.is_vouched {
                view.add(shard, standing, true);
            } else {
                is_unspoken |= has_objects(state, &cell);
            }
        }
        if view.complete == Complete::Yes && (is_unspoken || !is_known) {
            view.complete = Complete::Unknown;
        }
        if is_unspoken {
            view.age = None;
        }
        view
    }

    fn nothing(complete: Complete) -> Self {
        Self {
            complete,
            age: Some(Duration::ZERO),
            expected: 0,
            synced: 0,
            live: 0,
            shards: 0,
            doubtful: vec![],
        }
    }

    fn add(&mut self, shard: &str, standing: Standing, is_expected: bool) {
        let is_pushed = standing.condition != Condition::Unmanaged;
        let is_live = standing.condition == Condition::Live;
        if is_pushed {
            self.age = self.age.zip(standing.age).map(|(one, other)| one.max(other));
            if !is_live && !standing.is_probed {
                self.doubtful.push(Doubtful { shard: shard.into(), standing });
            }
        }
        self.shards += usize::from(is_pushed || is_expected);
        if is_expected {
            self.expected += 1;
            self.synced += usize::from(standing.condition != Condition::NeverSynced);
            self.live += usize::from(is_live || !is_pushed);
        }
    }

    /// Whether a shard pushes anything of it, or speaks for it.
    pub(crate) fn is_known(&self) -> bool {
        self.expected > 0 || !self.doubtful.is_empty()
    }
}

/// Views of a moment ago: watchers are many, and each is told at every bookmark. Above [`VIEWS_MAX`] only those
/// that may be told again: shards in paths may have any name.
#[derive(Debug, Default)]
pub(crate) struct Views(DashMap<(TypeName, Part), Arc<Seen>>);

/// A view, when it was taken and of which state.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) view: View,
    /// A state at this version, or a later one, contains what the view says.
    pub(crate) version: ResourceVersion,
    pub(crate) at: Instant,
    began: Began,
}

impl Views {
    /// The view of a scope, at most [`SEEN_MAX`] old.
    pub(crate) fn of(
        &self,
        cache: &WatchCache,
        keeper: &Keeper,
        type_name: &TypeName,
        scope: &Scope,
    ) -> Arc<Seen> {
        let (began, key) = (keeper.begin(), (type_name.clone(), scope.shard.clone()));
        let now = began.at();
        let is_new = |seen: &Seen| now.since(seen.at) < SEEN_MAX && seen.began.is_comparable(began);
        if let Some(seen) = self.0.get(&key)
            && is_new(&seen)
        {
            return Arc::clone(&seen);
        }
        let snapshot = cache.snapshot();
        let view = View::of(&snapshot.state, keeper, type_name, scope, now);
        // Afterwards: what counts as confirmed in the view is in this state, not always in the one before.
        let version = cache.snapshot().resource_version();
        let seen = Arc::new(Seen { view, version, at: now, began });
        if self.0.len() >= VIEWS_MAX {
            self.0.retain(|_, seen| is_new(seen));
        }
        self.0.insert(key, Arc::clone(&seen));
        seen
    }
}

/// The standing of a cell.
pub(crate) fn standing(state: &State, keeper: &Keeper, cell: &CellName, now: Instant) -> Standing {
    let (synced, shown) = (Synced::of(state, cell), keeper.of(cell, now));
    if !matches!(synced, Synced::Once { .. })
        && shown.contact != Contact::Open
        && let Some(vouched) = keeper.vouchers().of(state, cell, now)
    {
        return Standing::judge_vouched(&vouched, now, keeper.config());
    }
    Standing::judge(synced, &shown, now, keeper.config())
}

/// Shards that are no members, and have objects of a type or speak for themselves: they write by ordinary
/// requests.
pub(crate) fn others<'a>(state: &'a State, type_name: &TypeName) -> BTreeSet<&'a str> {
    let with_objects = state.objects(type_name).into_iter().flat_map(shards_of);
    with_objects.chain(vouching(state)).filter(|shard| state.member(shard).is_none()).collect()
}

/// Shards with a Lease that may speak for them.
pub(crate) fn vouching(state: &State) -> impl Iterator<Item = &str> {
    let with_leases = state.objects(lease::type_name()).into_iter().flat_map(shards_of);
    with_leases.filter(|shard| Lease::find(state, shard).is_some())
}

/// Whether a cell has objects.
pub(crate) fn has_objects(state: &State, cell: &CellName) -> bool {
    let (from, to) = (format!("{}\0", cell.shard()), format!("{}\u{1}", cell.shard()));
    let bounds = (Bound::Included(from.as_str()), Bound::Excluded(to.as_str()));
    state.objects(cell.type_name()).is_some_and(|objects| objects.range(bounds.0, bounds.1).next().is_some())
}

/// The shards that have objects of a type; O(log n) for each.
pub(crate) fn shards_of(objects: &Objects) -> impl Iterator<Item = &str> {
    let mut from = String::new();
    std::iter::from_fn(move || {
        let object = objects.range(Bound::Included(&from), Bound::Unbounded).next()?;
        let shard = object.parts().shard;
        // NUL separates the parts of a key: U+0001 is above every key of the shard and below the next.
        from = format!("{shard}\u{1}");
        Some(shard)
    })
}
