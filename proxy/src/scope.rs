//! The part of a request that says where to look: shard, logical cluster, namespace.

use std::fmt;
use std::sync::Arc;

use shardcache_storage::KeyParts;

/// One level of a scope: everything (`*`), or one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The wildcard `*`.
    Any,
    /// Exactly this one.
    One(Arc<str>),
}

impl Part {
    /// Whether the part covers `name`.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => &**one == name,
        }
    }

    /// The single name; `None` for the wildcard.
    pub fn one(&self) -> Option<&str> {
        match self {
            Self::Any => None,
            Self::One(one) => Some(one),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.one().unwrap_or("*"))
    }
}

/// Where a request looks. `shards/*` with a concrete cluster means that cluster in every shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Shard, or all of them.
    pub shard: Part,
    /// Logical cluster, or all of them.
    pub cluster: Part,
    /// Namespace; `None` is all of them, and cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
}

impl Scope {
    /// Every cluster of every shard.
    pub fn wildcard() -> Self {
        Self { shard: Part::Any, cluster: Part::Any, namespace: None }
    }

    /// Every cluster of one shard.
    pub fn shard(name: &str) -> Self {
        Self { shard: Part::One(name.into()), ..Self::wildcard() }
    }

    /// The same, in one logical cluster.
    #[must_use]
    pub fn cluster(self, name: &str) -> Self {
        Self { cluster: Part::One(name.into()), ..self }
    }

    /// Whether an object with this key lies in the scope.
    pub fn contains(&self, key: KeyParts<'_>) -> bool {
        self.shard.contains(key.shard)
            && self.cluster.contains(key.cluster)
            && self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace)
    }

    /// Whether shard or cluster is the wildcard.
    pub fn is_wildcard(&self) -> bool {
        self.shard == Part::Any || self.cluster == Part::Any
    }
}
