//! Which shards ought to exist, and what is still awaited of them before a view over all shards may be
//! shown (D42: absent is not empty).
//!
//! A view over all shards that lacks a shard's objects tells its readers that they are gone. So the store
//! keeps a roster: durable, part of the [`crate::State`], published with the commit that changed it. Rules
//! for changing it are in `ledger/roster.rs`. What is awaited of a shard only ever becomes less, and a shard
//! that comes later is awaited by nobody: a view that could be shown once can be shown for ever, unless an
//! operator says otherwise.

use std::sync::Arc;

use crate::key::TypeName;

/// A shard's place in the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Whether views wait for it.
    pub role: Role,
    /// What they wait for, if they do.
    pub awaits: Awaited,
}

/// What a shard is to views over all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It ought to be in them: they are not shown before what it awaits is there.
    Expected,
    /// It came later than the roster, so that no earlier view can have contained it; becomes expected once
    /// nothing is awaited.
    Joining,
    /// An operator said that views may be shown without it; becomes expected once nothing is awaited.
    Excused,
}

/// What must still be synced before a view over all shards may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// No catalog was sent in this lineage: every type.
    Catalog,
    /// Types of the first catalog that have not been synced, in name order; may be empty.
    Types(Arc<[TypeName]>),
}

/// A change of the roster from outside the push protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterChange {
    /// From outside the store: the shards that ought to exist. Expected of a store that has seen nothing
    /// yet; of any other one, those it does not know are joining. Names nobody else: nobody leaves by it.
    Seed {
        /// Their names, in any order.
        shards: Vec<Box<str>>,
    },
    /// An operator: this shard ought to exist. Views wait for it from now on, those that have been shown
    /// without it included.
    Expect {
        /// Its name.
        shard: Box<str>,
    },
    /// An operator: views may be shown without it.
    Excuse {
        /// Its name.
        shard: Box<str>,
    },
    /// An operator: it never ought to have been there. Only of a shard that nobody ever pushed.
    Forget {
        /// Its name.
        shard: Box<str>,
    },
}

impl Member {
    /// Whether some views are not shown because of it.
    pub fn gates(&self) -> bool {
        self.role == Role::Expected && !self.awaits.is_nothing()
    }
}

impl Awaited {
    /// Whether everything is there.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Types(types) if types.is_empty())
    }

    /// Whether this type is awaited.
    pub fn includes(&self, type_name: &TypeName) -> bool {
        match self {
            Self::Catalog => true,
            Self::Types(types) => types.binary_search(type_name).is_ok(),
        }
    }
}
