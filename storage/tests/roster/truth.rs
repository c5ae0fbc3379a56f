//! What the roster of a lineage has to be, said from all that has happened in it: no state is carried from
//! one fact to the next, so nothing here is how the store does it.

use std::collections::{BTreeMap, BTreeSet};

use shardcache_storage::{Awaited, Member, Role, TypeName};

/// Something that happened in this lineage and counts.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// `first`: in a store that had seen nothing.
    Seeded {
        first: bool,
        shards: BTreeSet<&'static str>,
    },
    Expected(&'static str),
    Excused(&'static str),
    Forgotten(&'static str),
    Attached(&'static str),
    Catalog(&'static str, BTreeSet<TypeName>),
    Synced(&'static str, TypeName),
    Released(&'static str, TypeName),
}

/// All of it, in order.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    facts: Vec<Fact>,
}

impl Truth {
    pub(crate) fn add(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    pub(crate) fn is_seeded(&self) -> bool {
        self.facts.iter().any(|fact| matches!(fact, Fact::Seeded { .. }))
    }

    pub(crate) fn was_pushed(&self, shard: &str) -> bool {
        self.facts.iter().any(|fact| matches!(fact, Fact::Attached(of) if *of == shard))
    }

    /// Whether anybody pushed.
    pub(crate) fn is_pushed(&self) -> bool {
        self.facts.iter().any(|fact| matches!(fact, Fact::Attached(_)))
    }

    /// What happened since the shard was forgotten last.
    fn since_forgotten(&self, shard: &str) -> &[Fact] {
        let forgotten = |fact: &Fact| matches!(fact, Fact::Forgotten(of) if *of == shard);
        &self.facts[self.facts.iter().rposition(forgotten).map_or(0, |at| at + 1)..]
    }

    pub(crate) fn is_member(&self, shard: &str) -> bool {
        self.since_forgotten(shard).iter().any(|fact| match fact {
            Fact::Seeded { shards, .. } => shards.contains(shard),
            Fact::Expected(of) | Fact::Attached(of) => *of == shard,
            _ => false,
        })
    }

    /// Whether a catalog of a shard is there.
    fn first_catalog(&self, shard: &str) -> Option<usize> {
        self.facts.iter().position(|fact| matches!(fact, Fact::Catalog(of, _) if *of == shard))
    }

    /// Whether a type of a shard is awaited: every catalog has it, it was not managed when the first one
    /// came, and it was not synced since.
    fn awaits(&self, shard: &str, type_name: &TypeName) -> bool {
        let Some(first) = self.first_catalog(shard) else { return true };
        let is_synced =
            |fact: &Fact| matches!(fact, Fact::Synced(of, name) if *of == shard && name == type_name);
        let is_released =
            |fact: &Fact| matches!(fact, Fact::Released(of, name) if *of == shard && name == type_name);
        let (before, after) = self.facts.split_at(first);
        let was_managed = before.iter().rposition(is_synced) > before.iter().rposition(is_released);
        let lacks = |fact: &Fact| matches!(fact, Fact::Catalog(of, types) if *of == shard && !types.contains(type_name));
        !was_managed && !after.iter().any(is_synced) && !after.iter().any(lacks)
    }

    /// A shard's place in the roster.
    pub(crate) fn member(&self, shard: &str, types: &[TypeName]) -> Option<Member> {
        if !self.is_member(shard) {
            return None;
        }
        let awaits = if self.first_catalog(shard).is_some() {
            let mut awaited: Vec<_> = types.iter().filter(|name| self.awaits(shard, name)).cloned().collect();
            awaited.sort();
            Awaited::Types(awaited.into())
        } else {
            Awaited::Catalog
        };
        let role = if awaits == Awaited::Types([].into()) { Role::Expected } else { self.word(shard) };
        Some(Member { role, awaits })
    }

    /// The last word of an operator, or else how the shard came in.
    fn word(&self, shard: &str) -> Role {
        let facts = self.since_forgotten(shard);
        let word = |fact: &Fact| match fact {
            Fact::Expected(of) if *of == shard => Some(Role::Expected),
            Fact::Excused(of) if *of == shard => Some(Role::Excused),
            _ => None,
        };
        let named = |fact: &Fact| match fact {
            Fact::Seeded { first, shards } if shards.contains(shard) => {
                Some(if *first { Role::Expected } else { Role::Joining })
            }
            Fact::Attached(of) if *of == shard => Some(Role::Joining),
            _ => None,
        };
        let said = facts.iter().rev().find_map(word).or_else(|| facts.iter().find_map(named));
        said.expect("a member was named")
    }

    /// The whole roster.
    pub(crate) fn roster(&self, shards: &[&'static str], types: &[TypeName]) -> BTreeMap<String, Member> {
        let place = |shard: &&str| Some(((*shard).to_owned(), self.member(shard, types)?));
        shards.iter().filter_map(place).collect()
    }

    /// D42's gate, said once more and only from what was sent: of the shards that the first seed named, those
    /// that are settled for a type or were let go.
    pub(crate) fn unsettled(&self, type_name: &TypeName) -> Vec<&'static str> {
        let Some(Fact::Seeded { first: true, shards }) =
            self.facts.iter().find(|fact| matches!(fact, Fact::Seeded { .. }))
        else {
            return Vec::new();
        };
        let settled = |shard: &str| {
            let mut catalogs = self.facts.iter().filter_map(|fact| match fact {
                Fact::Catalog(of, types) if *of == shard => Some(types),
                _ => None,
            });
            let has_sent = catalogs.clone().next().is_some();
            let lacks = catalogs.any(|types| !types.contains(type_name));
            let synced = self
                .facts
                .iter()
                .any(|fact| matches!(fact, Fact::Synced(of, name) if *of == shard && name == type_name));
            has_sent && (lacks || synced)
        };
        let let_go = |shard: &str| {
            self.facts
                .iter()
                .any(|fact| matches!(fact, Fact::Excused(of) | Fact::Forgotten(of) if *of == shard))
        };
        shards.iter().filter(|shard| !settled(shard) && !let_go(shard)).copied().collect()
    }
}
