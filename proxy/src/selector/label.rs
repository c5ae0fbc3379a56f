//! Label selectors: which labels an object must, may and must not have.
//!
//! Equal selectors compare equal however they were written: requirements are sorted and without
//! duplicates, and `k=v`, `k==v` and `k in (v)` are one. Matching walks the sorted labels of an object
//! and the sorted requirements side by side and allocates nothing.

mod parse;

use std::fmt;
use std::sync::Arc;

use shardcache_storage::Labels;

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = parse::requirements(text)?;
        requirements.sort();
        requirements.dedup();
        Ok(Self(requirements.into()))
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: Labels<'_>) -> bool {
        self.matches_sorted(labels)
    }

    /// Whether labels in key order are selected.
    pub(crate) fn matches_sorted<'a>(&self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        let mut labels = labels.into_iter().peekable();
        self.0.iter().all(|requirement| {
            while labels.next_if(|(key, _)| *key < &*requirement.key).is_some() {}
            // Not taken: the next requirement may be about the same key.
            let value = labels.peek().filter(|(key, _)| *key == &*requirement.key).map(|(_, value)| *value);
            requirement.matches(value)
        })
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

impl Requirement {
    /// Whether the value of the label with this key, `None` if absent, satisfies the requirement.
    fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In => value.is_some_and(|value| self.has(value)),
            Operator::NotIn => !value.is_some_and(|value| self.has(value)),
            Operator::GreaterThan => self.compare(value, |value, bound| value > bound),
            Operator::LessThan => self.compare(value, |value, bound| value < bound),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.binary_search_by(|candidate| (**candidate).cmp(value)).is_ok()
    }

    fn compare(&self, value: Option<&str>, satisfies: impl Fn(i64, i64) -> bool) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        match (value.and_then(number), self.values.first().and_then(|bound| number(bound))) {
            (Some(value), Some(bound)) => satisfies(value, bound),
            _ => false,
        }
    }
}

/// The canonical text: parses to an equal selector.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match (self.operator, &*self.values) {
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
            (Operator::In, [one]) => write!(f, "{key}={one}"),
            (Operator::NotIn, [one]) => write!(f, "{key}!={one}"),
            (Operator::In, values) => write!(f, "{key} in ({})", values.join(",")),
            (Operator::NotIn, values) => write!(f, "{key} notin ({})", values.join(",")),
            (Operator::GreaterThan, values) => write!(f, "{key}>{}", values.join(",")),
            (Operator::LessThan, values) => write!(f, "{key}<{}", values.join(",")),
        }
    }
}

#[cfg(test)]
mod tests;
