//! URL paths: from bytes of the request line to shard, logical cluster and resource.
//!
//! Pure. Segments are split first and percent-decoded once afterwards, so `%2A` is the wildcard,
//! `%3A` a colon, and an encoded slash can neither end a segment nor reach another shard's data.
//! Does not know which types are served, nor whether a method is allowed.

use std::borrow::Cow;

use crate::freshness::level::Level;
use crate::scope::Part;
use crate::status::{ApiError, quote};

/// Bytes of a shard name.
const SHARD_MAX: usize = 61;
/// Bytes of one word of a logical cluster name.
const CLUSTER_WORD_MAX: usize = 63;

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
    /// Everything of the Kubernetes API. Discovery and `OpenAPI` without shard or cluster have the
    /// wildcard there; a resource always names both.
    Scoped {
        /// Shard, or all of them.
        shard: Part,
        /// Logical cluster, or all of them.
        cluster: Part,
        /// The rest of the path.
        path: ScopedPath,
    },
    /// `/services/cache/shards/<shard>/push`.
    Push {
        /// The shard.
        shard: Part,
    },
    /// `/services/cache/freshness`.
    Freshness,
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

/// Takes the level out of `/services/cache/profile/<level>/…`, and what is left as if it were not there; 400
/// if there is no such level.
pub fn split_profile(path: &str) -> Result<(Option<Level>, Cow<'_, str>), ApiError> {
    let Some(rest) = path.strip_prefix("/services/cache/profile/") else {
        return Ok((None, Cow::Borrowed(path)));
    };
    let (level, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let level = decode(level)?.parse().map_err(|why| ApiError::bad_request(format!("profile: {why}")))?;
    Ok((Some(level), Cow::Owned(format!("/services/cache/{rest}"))))
}

/// Parses the path of a request as it stands on the wire: percent-encoded, without the query.
pub fn parse(path: &str) -> Result<Target, ApiError> {
    let trimmed = path.strip_prefix('/').ok_or_else(ApiError::no_such_path)?;
    let trailing_slash = trimmed.ends_with('/');
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    let decoded = if trimmed.is_empty() {
        Vec::new()
    } else {
        trimmed.split('/').map(decode).collect::<Result<Vec<_>, _>>()?
    };
    let mut segments = decoded.as_slice();
    if let [services, cache, rest @ ..] = segments
        && services == "services"
        && cache == "cache"
    {
        segments = rest;
    }
    match segments {
        [admin, rest @ ..] if admin == "admin" => {
            refuse_dots_and_gaps(rest)?;
            Ok(Target::Admin(rest.to_vec()))
        }
        [freshness] if freshness == "freshness" => Ok(Target::Freshness),
        [shards, rest @ ..] if shards == "shards" => below_shards(rest, trailing_slash),
        [clusters, ..] if clusters == "clusters" => Err(shard_required()),
        rest => within(&Reach { shard: Part::Any, cluster: Part::Any, named: Named::Nothing }, rest),
    }
}

/// How much of the scope the path named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Nothing,
    Shard,
    Both,
}

struct Reach {
    shard: Part,
    cluster: Part,
    named: Named,
}

fn below_shards(segments: &[String], trailing_slash: bool) -> Result<Target, ApiError> {
    let [shard, rest @ ..] = segments else { return Err(shard_required()) };
    if shard.is_empty() {
        return Err(shard_required());
    }
    if rest.is_empty() && !trailing_slash {
        return Err(ApiError::bad_request(format!("unable to parse shard: no `/` found in path {shard}")));
    }
    let shard = shard_part(shard)?;
    match rest {
        [clusters, rest @ ..] if clusters == "clusters" => {
            let [cluster, rest @ ..] = rest else { return Err(cluster_required()) };
            let cluster = cluster_part(cluster)?;
            within(&Reach { shard, cluster, named: Named::Both }, rest)
        }
        [push] if push == "push" => Ok(Target::Push { shard }),
        rest => within(&Reach { shard, cluster: Part::Any, named: Named::Shard }, rest),
    }
}

fn shard_part(shard: &str) -> Result<Part, ApiError> {
    if shard == "*" {
        return Ok(Part::Any);
    }
    if !is_shard_name(shard) {
        return Err(ApiError::bad_request(format!(
            "invalid shard: {} does not match the regex",
            quote(shard)
        )));
    }
    Ok(Part::One(shard.into()))
}

/// Whether a shard can have this name: 1 to 61 of lower-case letters, digits, `-` and `:`, as kcp has it.
pub fn is_shard_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b':');
    (1..=SHARD_MAX).contains(&name.len()) && name.bytes().all(legal)
}

fn cluster_part(cluster: &str) -> Result<Part, ApiError> {
    if cluster == "*" {
        return Ok(Part::Any);
    }
    if cluster.is_empty() {
        return Err(cluster_required());
    }
    if !is_cluster_path(cluster) {
        let quoted = quote(cluster);
        return Err(ApiError::bad_request(format!("invalid cluster: {quoted} does not match the regex")));
    }
    // A colon makes it a workspace path, which only kcp's front proxy can resolve.
    if !is_cluster(cluster) {
        let quoted = quote(cluster);
        return Err(ApiError::bad_request(format!(
            "invalid cluster: {quoted} is not a logical cluster name"
        )));
    }
    Ok(Part::One(cluster.into()))
}

/// Whether a text names one logical cluster.
pub(crate) fn is_cluster(text: &str) -> bool {
    is_cluster_path(text) && (!text.contains(':') || text.starts_with("system:"))
}

fn is_cluster_path(text: &str) -> bool {
    text.split(':').all(is_cluster_word)
}

fn is_cluster_word(word: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = word.as_bytes();
    bytes.len() <= CLUSTER_WORD_MAX
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// The part of the path after shard and cluster.
fn within(reach: &Reach, segments: &[String]) -> Result<Target, ApiError> {
    refuse_dots_and_gaps(segments)?;
    let scoped = |path| {
        let (shard, cluster) = (reach.shard.clone(), reach.cluster.clone());
        Ok(Target::Scoped { shard, cluster, path })
    };
    let Some((first, rest)) = segments.split_first() else { return scoped(ScopedPath::Root) };
    match (first.as_str(), rest) {
        ("healthz" | "livez" | "readyz", [] | [_]) => {
            let endpoint = match first.as_str() {
                "healthz" => HealthEndpoint::Healthz,
                "livez" => HealthEndpoint::Livez,
                _ => HealthEndpoint::Readyz,
            };
            Ok(Target::Health { endpoint, check: rest.first().cloned() })
        }
        ("version", []) => Ok(Target::Version),
        ("metrics", []) if reach.named == Named::Nothing => Ok(Target::Metrics),
        ("metrics", []) => Ok(Target::ScopedMetrics),
        ("openapi", [v2]) if v2 == "v2" => scoped(ScopedPath::OpenApiV2),
        ("openapi", [v3]) if v3 == "v3" => scoped(ScopedPath::OpenApiV3(None)),
        ("openapi", [v3, document @ ..]) if v3 == "v3" => {
            scoped(ScopedPath::OpenApiV3(Some(document.join("/"))))
        }
        ("api", []) => scoped(ScopedPath::Api),
        ("apis", []) => scoped(ScopedPath::Apis),
        ("apis", [group]) => scoped(ScopedPath::Group(group_name(group))),
        ("api", [version, rest @ ..]) => below_version(reach, "", version, rest).and_then(scoped),
        ("apis", [group, version, rest @ ..]) => {
            below_version(reach, &group_name(group), version, rest).and_then(scoped)
        }
        _ if reach.named == Named::Nothing => Err(shard_required()),
        _ => Err(ApiError::no_such_path()),
    }
}

/// kcp addresses the core group below `/apis` as well, under this name.
fn group_name(group: &str) -> String {
    if group == "core" { String::new() } else { group.to_owned() }
}

fn below_version(
    reach: &Reach,
    group: &str,
    version: &str,
    segments: &[String],
) -> Result<ScopedPath, ApiError> {
    let (group, version) = (group.to_owned(), version.to_owned());
    match (segments, reach.named) {
        ([], _) => Ok(ScopedPath::GroupVersion { group, version }),
        (_, Named::Nothing) => Err(shard_required()),
        (_, Named::Shard) => Err(cluster_required()),
        (_, Named::Both) => Ok(ScopedPath::Resource(resource(group, version, segments)?)),
    }
}

fn resource(group: String, version: String, segments: &[String]) -> Result<ResourcePath, ApiError> {
    let mut path = ResourcePath { group, version, ..ResourcePath::default() };
    let mut segments = segments;
    if let [watch, rest @ ..] = segments
        && watch == "watch"
        && !rest.is_empty()
    {
        path.legacy_watch = true;
        segments = rest;
    }
    if let [namespaces, namespace, rest @ ..] = segments
        && namespaces == "namespaces"
        && let Some(next) = rest.first()
        // `/api/v1/namespaces/<name>/status` is a part of the namespace, not a type in it.
        && !(path.group.is_empty() && matches!(next.as_str(), "status" | "finalize"))
    {
        path.namespace = Some(namespace.clone());
        segments = rest;
    }
    let Some((resource, rest)) = segments.split_first() else { return Err(ApiError::no_such_path()) };
    match resource.split_once(':') {
        None => path.resource.clone_from(resource),
        Some((name, identity)) if !name.is_empty() && !identity.is_empty() => {
            name.clone_into(&mut path.resource);
            path.identity = Some(identity.to_owned());
        }
        Some((name, _)) => {
            let quoted = quote(name);
            return Err(ApiError::bad_request(format!("invalid resource {quoted}: missing identity")));
        }
    }
    if let Some((name, subresource)) = rest.split_first() {
        path.name = Some(name.clone());
        path.subresource = (!subresource.is_empty()).then(|| subresource.join("/"));
    }
    Ok(path)
}

fn shard_required() -> ApiError {
    ApiError::bad_request("a shard name is required")
}

fn cluster_required() -> ApiError {
    ApiError::bad_request("a logical cluster name is required")
}

fn refuse_dots_and_gaps(segments: &[String]) -> Result<(), ApiError> {
    match segments.iter().find(|segment| matches!(segment.as_str(), "" | "." | "..")) {
        None => Ok(()),
        Some(segment) => Err(ApiError::bad_request(format!("invalid path segment {}", quote(segment)))),
    }
}

/// Decodes one segment once. A slash or control character that was encoded is refused: no name has one.
fn decode(segment: &str) -> Result<String, ApiError> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let escaped = tail.split_first_chunk::<2>().and_then(|(digits, tail)| {
            rest = tail;
            let hex = |digit: u8| char::from(digit).to_digit(16);
            Some((hex(digits[0])? << 4 | hex(digits[1])?) as u8)
        });
        let escaped = escaped
            .ok_or_else(|| ApiError::bad_request(format!("invalid URL escape in {}", quote(segment))))?;
        bytes.push(escaped);
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| ApiError::bad_request(format!("path segment {} is not UTF-8", quote(segment))))?;
    if text.chars().any(|char| char == '/' || char.is_control()) {
        return Err(ApiError::bad_request(format!("invalid path segment {}", quote(&text))));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
