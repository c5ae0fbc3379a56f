//! Content negotiation: which representation a client can read, and which body it sent.

use ::http::HeaderMap;

use crate::status::ApiError;

/// What an answer would hold if nothing were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// One object: GET, writes.
    Object,
    /// A list.
    List,
    /// A stream of events, each with one object.
    Watch,
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// As stored.
    #[default]
    Object,
    /// `PartialObjectMetadata`, or `PartialObjectMetadataList` for lists.
    PartialMetadata,
    /// `Table`; never negotiated yet.
    Table,
}

/// The negotiated form of an answer. The encoding is JSON in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Representation {
    /// Shape of objects.
    pub shape: Shape,
    /// Indent the JSON (never on watches).
    pub pretty: bool,
    /// The client accepts gzip (never on watches).
    pub gzip: bool,
}

/// Chooses a representation by `Accept`, `Accept-Encoding`, `User-Agent` and `?pretty`; 406 if the
/// client accepts none.
pub fn negotiate(
    _headers: &HeaderMap,
    _query: &str,
    _expected: Expected,
) -> Result<Representation, ApiError> {
    todo!()
}

/// Form of `/api` and `/apis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// `APIGroupDiscoveryList` v2; the answer's content type is [`AGGREGATED_DISCOVERY`].
    Aggregated,
    /// `APIVersions`, `APIGroupList`.
    Legacy,
}

/// Content type of aggregated discovery; clients compare its parameters (R17).
pub const AGGREGATED_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Chooses the form of discovery documents; 406 if the client accepts none.
pub fn negotiate_discovery(_headers: &HeaderMap) -> Result<DiscoveryForm, ApiError> {
    todo!()
}

/// Encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/json`, or no `Content-Type`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// The format of a POST, PUT or DELETE body; 415 if it is none of ours.
pub fn body_format(_headers: &HeaderMap) -> Result<BodyFormat, ApiError> {
    todo!()
}

/// Kind of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFormat {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
}

/// The kind of a PATCH body; 415 if it is none of ours.
pub fn patch_format(_headers: &HeaderMap) -> Result<PatchFormat, ApiError> {
    todo!()
}
