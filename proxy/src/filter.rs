//! Which objects of a type a request is about: scope and the three selectors, all of which must hold.

use shardcache_storage::Object;

use crate::scope::Scope;
use crate::selector::{FieldSelector, LabelSelector, ShardSelector};

/// A scope and selectors. Two watchers with equal filters on one type form one class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Where to look.
    pub scope: Scope,
    /// Labels; the empty selector selects everything.
    pub labels: LabelSelector,
    /// Fields; the empty selector selects everything.
    pub fields: FieldSelector,
    /// Hash ranges (KEP-5866), if asked for.
    pub shards: Option<ShardSelector>,
}

impl Filter {
    /// Everything in a scope.
    pub fn scope(scope: Scope) -> Self {
        Self { scope, labels: LabelSelector::default(), fields: FieldSelector::default(), shards: None }
    }

    /// Whether the object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.scope.contains(object.parts())
            && self.labels.matches(object.labels())
            && self.fields.matches(object)
            && self.shards.as_ref().is_none_or(|shards| shards.matches(object))
    }

    /// Whether the filter selects by anything but scope (then lists carry no `remainingItemCount`).
    pub fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty() || self.shards.is_some()
    }
}
