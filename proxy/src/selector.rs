//! Selectors: label, field and shard (hash range), with Kubernetes' grammar and error texts.

mod field;
mod label;
mod shard;

pub use field::{FieldSelector, FieldTerm};
pub use label::{LabelSelector, Operator, Requirement};
pub use shard::{HashField, ShardSelector, fnv1a64};
