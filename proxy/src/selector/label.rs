//! Label selectors (skeleton).
use std::sync::Arc;

use shardcache_storage::Labels;

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `k in (…)`, `k=v`, `k==v`
    In,
    /// `k notin (…)`, `k!=v`: also true where the label is absent
    NotIn,
    /// `k`
    Exists,
    /// `!k`
    DoesNotExist,
    /// `k>5`
    GreaterThan,
    /// `k<5`
    LessThan,
}

/// One requirement on one label key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Label key.
    pub key: Arc<str>,
    /// Operator.
    pub operator: Operator,
    /// Sorted, without duplicates.
    pub values: Box<[Arc<str>]>,
}

/// A conjunction of requirements, sorted by key. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector(Box<[Requirement]>);

impl LabelSelector {
    /// Parses Kubernetes' grammar; the error is the message kube-apiserver gives (400).
    pub fn parse(_text: &str) -> Result<Self, String> {
        todo!()
    }
    /// Whether an object with these labels is selected.
    pub fn matches(&self, _labels: Labels<'_>) -> bool {
        todo!()
    }
    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }
}
