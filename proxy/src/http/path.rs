//! URL paths: from bytes of the request line to shard, logical cluster and resource.
//!
//! Pure. Segments are split first and percent-decoded once afterwards, so `%2A` is the wildcard,
//! `%3A` a colon, and an encoded slash can neither end a segment nor reach another shard's data.
//! Does not know which types are served, nor whether a method is allowed.

use crate::scope::Part;
use crate::status::ApiError;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/healthz`, `/livez`, `/readyz`, in a scope or not.
    Health {
        /// Which of the three.
        endpoint: HealthEndpoint,
        /// The single check of `/readyz/<check>`.
        check: Option<String>,
    },
    /// `/version`, in a scope or not.
    Version,
    /// `/metrics` without a scope.
    Metrics,
    /// `/metrics` below a shard or cluster: 501, plain text [`SHARD_LEVEL_ONLY`].
    ScopedMetrics,
    /// Everything of the Kubernetes API. Discovery and OpenAPI without shard or cluster have the
    /// wildcard there; a resource always names both.
    Scoped {
        /// Shard, or all of them.
        shard: Part,
        /// Logical cluster, or all of them.
        cluster: Part,
        /// The rest of the path.
        path: ScopedPath,
    },
    /// `/services/cache/admin/…`: the segments after `admin`, decoded.
    Admin(Vec<String>),
}

/// A health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthEndpoint {
    /// `/healthz`
    Healthz,
    /// `/livez`
    Livez,
    /// `/readyz`
    Readyz,
}

/// A path of the Kubernetes API below a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopedPath {
    /// `/`: the list of paths.
    Root,
    /// `/api`: versions of the core group.
    Api,
    /// `/apis`: all named groups.
    Apis,
    /// `/apis/<group>`
    Group(String),
    /// `/apis/<group>/<version>`, `/api/v1` (group `""`)
    GroupVersion {
        /// API group; `""` is the core group.
        group: String,
        /// Version.
        version: String,
    },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3` (`None`), or one document of it: `api/v1`, `apis/<group>/<version>`, …
    OpenApiV3(Option<String>),
    /// A collection, an object or a subresource.
    Resource(ResourcePath),
}

/// A collection, an object or a subresource of an object. Names are decoded but not validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; `""` is the core group (also when addressed as kcp's pseudo group `core`).
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Identity of `resource:identity`; never empty.
    pub identity: Option<String>,
    /// Namespace of the path.
    pub namespace: Option<String>,
    /// Object name; `None` is the collection.
    pub name: Option<String>,
    /// Subresource, such as `status`; further segments are joined by `/`.
    pub subresource: Option<String>,
    /// The deprecated prefix `/watch/`: the request is a watch whatever the query says; with `name`,
    /// a watch on that one object.
    pub legacy_watch: bool,
}

/// Body of the 501 at [`Target::ScopedMetrics`], as kcp writes it.
pub const SHARD_LEVEL_ONLY: &str = "shard-level endpoint not available at shard or workspace scope";

/// Parses the path of a request as it stands on the wire: percent-encoded, without the query.
pub fn parse(_path: &str) -> Result<Target, ApiError> {
    todo!()
}
