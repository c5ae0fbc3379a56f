//! Field selectors (skeleton).
use std::sync::Arc;

use shardcache_storage::Object;

/// One term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// Field path, such as `metadata.name`.
    pub field: Arc<str>,
    /// Value.
    pub value: Arc<str>,
    /// `=` or `==` if true, `!=` if false.
    pub equal: bool,
}

/// A conjunction of terms. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector(Box<[FieldTerm]>);

impl FieldSelector {
    /// Parses Kubernetes' grammar; the error is the message kube-apiserver gives (400).
    pub fn parse(_text: &str) -> Result<Self, String> {
        todo!()
    }
    /// Refuses fields that are not selectable: `metadata.name`, `metadata.namespace` if `namespaced`, and
    /// `selectable` (such as `spec.color`) are. The error is kube's `field label not supported: …`.
    pub fn check(&self, _namespaced: bool, _selectable: &[impl AsRef<str>]) -> Result<(), String> {
        todo!()
    }
    /// Whether the object is selected.
    pub fn matches(&self, _object: &Object) -> bool {
        todo!()
    }
    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The name an equal `metadata.name` term demands.
    pub fn name(&self) -> Option<&str> {
        todo!()
    }
    /// The terms.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.0
    }
}
