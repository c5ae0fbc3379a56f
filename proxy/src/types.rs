//! Which types are served where (skeleton).
use std::sync::Arc;

use shardcache_storage::{Commit, State, TypeName};

use crate::scope::Part;

/// The set of served types as of one snapshot.
#[derive(Debug, Default)]
pub struct Types {}

/// One served type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeInfo {
    /// Group, resource, identity.
    pub name: TypeName,
    /// Kind of one object.
    pub kind: String,
    /// Kind of a list.
    pub list_kind: String,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Served versions, most preferred first.
    pub versions: Vec<VersionInfo>,
    /// Version whose `apiVersion` stored objects carry by default.
    pub storage_version: String,
}

/// One served version of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionInfo {
    /// Such as `v1alpha1`.
    pub name: String,
    /// Selectable fields of a CRD, as dotted paths without the leading dot (`spec.color`).
    pub selectable_fields: Vec<String>,
}

impl Types {
    /// The built-in table plus configured types.
    pub fn builtin(_extra: Vec<TypeInfo>) -> Arc<Self> {
        todo!()
    }
    /// The set of types at a state, derived from scratch: what a server starts with.
    pub fn at(self: &Arc<Self>, _state: &State) -> Arc<Self> {
        todo!()
    }
    /// The set after a commit; the same Arc if the commit changes nothing about types.
    pub fn after(self: &Arc<Self>, _commit: &Commit) -> Arc<Self> {
        todo!()
    }
    /// The type served at a scope under group, version, plural name and, if the request names one, API
    /// identity (which built-in types ignore, D46).
    pub fn resolve(
        &self,
        _shard: &Part,
        _cluster: &Part,
        _group: &str,
        _version: &str,
        _resource: &str,
        _identity: Option<&str>,
    ) -> Option<&Arc<TypeInfo>> {
        todo!()
    }
    /// Every type served at a scope, by group and name.
    pub fn in_scope<'a>(
        &'a self,
        _shard: &'a Part,
        _cluster: &'a Part,
    ) -> Box<dyn Iterator<Item = &'a Arc<TypeInfo>> + 'a> {
        todo!()
    }
}
