//! Query strings: from parameters to what they mean.
//!
//! The combinations of `resourceVersion`, `resourceVersionMatch`, `continue`, `limit` and
//! `sendInitialEvents` are judged here, once, with kube-apiserver's answers; what comes out cannot be
//! contradictory. Whether a version was ever issued, and whether a continue token belongs to the
//! request's scope, is for whoever knows the store and the scope.

mod delete;
mod query;
mod read;
mod write;

pub use delete::{DeleteOptions, Preconditions, Propagation};
pub use query::Query;
pub use read::{Freshness, GetOptions, ListAt, ListOptions, WatchFrom, WatchOptions};
pub use write::{FieldValidation, WriteKind, WriteOptions};

/// Whether a GET on a collection is a watch (`?watch=true`, also `1`, `True` and empty).
pub fn wants_watch(query: &str) -> bool {
    Query::parse(query).flag("watch")
}
