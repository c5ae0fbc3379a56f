//! Which types are served where.
//!
//! The served set is a function of the store (D45): the built-in table (`builtin`), then cached
//! CustomResourceDefinitions, then what pushers say, then the [configuration](config); for one type the
//! earlier source wins.
//! - Built-in and configured types are served everywhere. A CRD of a built-in type changes nothing about
//!   that: where it counts, it says what the type's schema, columns and selectable fields are. Of the
//!   server's own type nobody else says anything.
//! - A CRD's type is served in the CRD's own shard and logical cluster, and under the wildcards that
//!   include them; a CRD in the logical cluster `system:system-crds` of any shard, everywhere.
//! - A type that a shard pushes is served in all of that shard, and under the wildcards.
//! - Under a wildcard, definitions that differ are joined: each version that one of them serves is
//!   served.
//! - A type that lost its description is served wherever it still has objects, until the last is gone.
//!
//! A definition that cannot be understood is skipped with a log line and takes nothing else with it
//! (B107). [`Types`] is immutable: a request sees the set of its snapshot, and a type is served from
//! the very commit that stores its definition.
//!
//! Knows schemas as text to be shown and checks nothing against them. Does not serve types of an API identity yet: a request that names one
//! finds built-in types only (D46).

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use shardcache_storage::{Commit, State, TypeName};

use crate::scope::Part;

mod builtin;
mod columns;
pub mod config;
mod crd;
mod declared;
mod derive;
mod info;
mod schema;
mod version;

pub(crate) use builtin::{is_shardviews, shardviews};
pub use columns::{Column, ColumnSource, Computed};
use declared::Declared;
use derive::Derivation;
pub(crate) use derive::pushed_type;
pub use info::{TypeInfo, VersionInfo};
pub use schema::Schema;
pub(crate) use version::by_preference;

/// The set of served types as of one snapshot. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Types {
    fixed: Arc<Fixed>,
    declared: OrdMap<TypeName, Arc<Declared>>,
    /// Joined keys of the definitions that are skipped.
    broken: OrdMap<Box<str>, ()>,
}

/// The sources that do not change while the process runs.
#[derive(Debug, Default)]
struct Fixed {
    builtin: BTreeMap<TypeName, Arc<TypeInfo>>,
    config: BTreeMap<TypeName, Arc<TypeInfo>>,
}

/// How many types each source describes; one type may count for several clusters' definitions once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Built-in types.
    pub builtin: usize,
    /// Types with at least one CRD that are not built in.
    pub crd: usize,
    /// Types that a shard pushes and no CRD describes.
    pub pushed: usize,
    /// Configured types.
    pub config: usize,
    /// Types served only because they still have objects.
    pub leftover: usize,
    /// Definitions that are skipped.
    pub broken: usize,
}

impl Types {
    /// The built-in table plus configured types, before any store was read.
    pub fn builtin(extra: Vec<TypeInfo>) -> Arc<Self> {
        let by_name = |info: Arc<TypeInfo>| (info.name.clone(), info);
        let builtin: BTreeMap<_, _> = builtin::table().map(by_name).collect();
        let config = extra
            .into_iter()
            .map(|info| by_name(Arc::new(info)))
            .filter(|(name, _)| !builtin.contains_key(name))
            .collect();
        let fixed = Arc::new(Fixed { builtin, config });
        Arc::new(Self { fixed, declared: OrdMap::new(), broken: OrdMap::new() })
    }

    /// The set of types at a state, derived from scratch: what a server starts with.
    #[must_use]
    pub fn at(self: &Arc<Self>, state: &State) -> Arc<Self> {
        let fresh = Self { fixed: Arc::clone(&self.fixed), ..Self::default() };
        Derivation::from_scratch(&Arc::new(fresh), state)
    }

    /// The set after a commit; the same `Arc` if the commit changes nothing about types. For every type
    /// that has a description the result is the one that [`Types::at`] derives from the commit's state; a
    /// type that lost its description keeps the last one here, while `at` has to read it off the
    /// objects.
    #[must_use]
    pub fn after(self: &Arc<Self>, commit: &Commit) -> Arc<Self> {
        Derivation::after(self, commit)
    }

    /// The type served at a scope under group, version, plural name and, if the request names one, API
    /// identity (which built-in types ignore, D46). The pseudo group `core` is the core group (kcp's
    /// `/apis/core/v1`).
    pub fn resolve(
        &self,
        shard: &Part,
        cluster: &Part,
        group: &str,
        version: &str,
        resource: &str,
        identity: Option<&str>,
    ) -> Option<&Arc<TypeInfo>> {
        let group = if group == "core" { "" } else { group };
        let name = TypeName::new(group, resource);
        let info = match self.fixed.builtin.get(&name) {
            Some(info) => self.described(&name, shard, cluster).unwrap_or(info),
            None if identity.is_some() => return None,
            None => self.described(&name, shard, cluster)?,
        };
        info.version(version).map(|_| info)
    }

    /// Every type served at a scope, by group and name.
    pub fn in_scope<'a>(
        &'a self,
        shard: &'a Part,
        cluster: &'a Part,
    ) -> Box<dyn Iterator<Item = &'a Arc<TypeInfo>> + 'a> {
        let builtin = self.fixed.builtin.iter();
        let builtin =
            builtin.map(|(name, info)| (name, self.described(name, shard, cluster).unwrap_or(info)));
        let described = (self.declared.keys().chain(self.fixed.config.keys()))
            .filter(|name| !self.fixed.builtin.contains_key(name))
            .filter_map(|name| Some((name, self.described(name, shard, cluster)?)));
        let sorted: BTreeMap<_, _> = builtin.chain(described).collect();
        Box::new(sorted.into_values())
    }

    /// The type in some logical cluster of a shard, and whether it is the same everywhere, whatever the
    /// shard says.
    pub(crate) fn known_in(&self, shard: &str, name: &TypeName) -> Option<(&Arc<TypeInfo>, bool)> {
        let builtin = self.fixed.builtin.get(name);
        let info = builtin.or_else(|| self.described(name, &Part::One(shard.into()), &Part::Any))?;
        Some((info, builtin.is_some() || self.fixed.config.contains_key(name)))
    }

    /// How many types there are, by source.
    pub fn counts(&self) -> Counts {
        let described = |pick: fn(&Declared) -> bool| {
            let declared = self.declared.iter().filter(|(name, _)| !self.fixed.builtin.contains_key(name));
            declared.filter(|(_, declared)| pick(declared)).count()
        };
        Counts {
            builtin: self.fixed.builtin.len(),
            crd: described(Declared::has_crds),
            pushed: described(|declared| !declared.has_crds() && declared.has_pushers()),
            config: self.fixed.config.len(),
            leftover: described(|declared| !declared.has_crds() && !declared.has_pushers()),
            broken: self.broken.len(),
        }
    }

    /// The type at a scope by any source but the built-in table; of a built-in type, what CRDs say of it.
    fn described(&self, name: &TypeName, shard: &Part, cluster: &Part) -> Option<&Arc<TypeInfo>> {
        if is_shardviews(name) {
            return None;
        }
        let declared = self.declared.get(name).and_then(|declared| declared.at(shard, cluster));
        declared.or_else(|| self.fixed.config.get(name))
    }
}

#[cfg(test)]
pub(crate) mod tests;
