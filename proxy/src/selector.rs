//! Selectors: label, field and shard (hash range), with Kubernetes' grammar and error texts.
//!
//! All three are values: equal selectors compare and hash equal however they were written, so watchers
//! with the same question can share one answer. Parsing happens at the edge; matching never fails.

mod field;
mod label;
pub(crate) mod rules;
mod shard;

pub use field::{FieldSelector, FieldTerm};
pub use label::{LabelSelector, Operator, Requirement};
pub use shard::{HashField, ShardSelector, fnv1a64};
