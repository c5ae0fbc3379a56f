//! Options of DELETE and DELETECOLLECTION, from the query and the body.

use std::time::Duration;

use crate::status::ApiError;

/// What becomes of dependents. Recorded, not acted upon: the source's garbage collector does that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Delete dependents afterwards.
    Background,
    /// Delete dependents first.
    Foreground,
    /// Leave dependents.
    Orphan,
}

/// What must hold of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`, compared as text.
    pub resource_version: Option<String>,
}

/// Options of DELETE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Validate and answer, remove nothing.
    pub dry_run: bool,
    /// `gracePeriodSeconds`, not negative.
    pub grace_period_seconds: Option<u64>,
    /// `propagationPolicy`, or what `orphanDependents` says in its place.
    pub propagation: Option<Propagation>,
    /// What must hold.
    pub preconditions: Preconditions,
    /// The client's deadline (`timeout=`), uncapped.
    pub timeout: Option<Duration>,
}

impl DeleteOptions {
    /// Parses and validates; a body that is not empty wins over the query (except for `timeout`).
    /// `body` is JSON, decoded from whatever the `Content-Type` said. 400 or 422 as kube-apiserver.
    pub fn parse(_query: &str, _body: Option<&serde_json::Value>) -> Result<Self, ApiError> {
        todo!()
    }
}
