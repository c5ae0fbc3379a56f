//! Content negotiation: which representation a client can read, and which body it sent.
//!
//! We write JSON, and YAML where there is no stream. Clauses that ask for protobuf are passed over for
//! the next one, as every client lists JSON somewhere; a client that lists none gets 406. Typed Go clients
//! ask for protobuf; what they cannot see in it is left out of the JSON they get ([`Shape::UntypedItems`]).

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName};

use super::options::Query;
use crate::status::{ApiError, FieldError};

const META_GROUP: &str = "meta.k8s.io";
/// What everything but a stream can be written as.
const DOCUMENTS: &str = "application/json, application/yaml";

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
    /// As stored, in a list whose items do without `kind` and `apiVersion` if their type has protobuf: for
    /// who takes that too, in which they have none.
    UntypedItems,
    /// `PartialObjectMetadata`, or `PartialObjectMetadataList` for lists.
    PartialMetadata(MetaVersion),
    /// `Table`, and what its rows hold beside the cells.
    Table(MetaVersion, IncludeObject),
}

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, which differs in name only.
    V1Beta1,
}

/// What the rows of a `Table` hold of their objects: `?includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    #[default]
    Json,
    /// `application/yaml`; never on watches.
    Yaml,
}

/// The negotiated form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Representation {
    /// Shape of objects.
    pub shape: Shape,
    /// How it is written.
    pub encoding: Encoding,
    /// Indent the JSON (never on watches).
    pub pretty: bool,
    /// The client accepts gzip (never on watches).
    pub gzip: bool,
}

/// Chooses a representation by `Accept`, `Accept-Encoding`, `User-Agent` and `?pretty`; 406 if the
/// client accepts none.
pub fn negotiate(headers: &HeaderMap, query: &str, expected: Expected) -> Result<Representation, ApiError> {
    let document = expected != Expected::Watch;
    let (shape, encoding, pretty) = choose(headers, query, expected)?;
    Ok(Representation {
        shape,
        encoding,
        pretty: document && (pretty || wants_pretty(headers, query)),
        gzip: document && accepts_gzip(headers),
    })
}

/// How an error is written: as the client would have had its answer, or else as JSON.
pub fn negotiate_error(headers: &HeaderMap, query: &str) -> Representation {
    let (encoding, pretty) =
        choose(headers, query, Expected::Object).map_or_else(|_| Default::default(), |(_, e, p)| (e, p));
    let pretty = pretty || wants_pretty(headers, query);
    Representation { encoding, pretty, ..Representation::default() }
}

/// Shape, encoding, and whether the clause asks for indentation.
fn choose(headers: &HeaderMap, query: &str, expected: Expected) -> Result<(Shape, Encoding, bool), ApiError> {
    let accept = joined(headers, &ACCEPT);
    if accept.trim().is_empty() {
        return Ok(Default::default());
    }
    let clauses = clauses(&accept);
    for clause in &clauses {
        let encoding = match clause.encoding() {
            Some(Encoding::Yaml) if expected == Expected::Watch => continue,
            Some(encoding) => encoding,
            None => continue,
        };
        if let Some(mut shape) = clause.shape(expected, query)? {
            let protobuf = || clauses.iter().any(|clause| clause.is_protobuf() && clause.target().is_none());
            if (shape, expected) == (Shape::Object, Expected::List) && protobuf() {
                shape = Shape::UntypedItems;
            }
            return Ok((shape, encoding, clause.get("pretty") == Some("1")));
        }
    }
    Err(not_acceptable(match expected {
        Expected::Watch => "application/json;stream=watch",
        Expected::Object | Expected::List => DOCUMENTS,
    }))
}

/// Form of discovery documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// `APIGroupDiscoveryList` v2, of `/api` and `/apis`; the answer's content type is
    /// [`AGGREGATED_DISCOVERY`] or [`AGGREGATED_DISCOVERY_YAML`].
    Aggregated,
    /// `APIVersions`, `APIGroupList` and all others.
    Legacy,
}

/// Content type of aggregated discovery; clients compare its parameters (R17).
pub const AGGREGATED_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The same in YAML.
pub const AGGREGATED_DISCOVERY_YAML: &str =
    "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Chooses the form of a discovery document, which may be aggregated or not, and how it is written; 406 if
/// the client accepts none.
pub fn negotiate_discovery(
    headers: &HeaderMap,
    query: &str,
    may_aggregate: bool,
) -> Result<(DiscoveryForm, Representation), ApiError> {
    let accept = joined(headers, &ACCEPT);
    let (form, encoding, pretty) = if accept.trim().is_empty() {
        (DiscoveryForm::Legacy, Encoding::Json, false)
    } else {
        let chosen = clauses(&accept).iter().find_map(|clause| {
            let form = match clause.target() {
                None => DiscoveryForm::Legacy,
                Some(("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")) if may_aggregate => {
                    DiscoveryForm::Aggregated
                }
                Some(_) => return None,
            };
            Some((form, clause.encoding()?, clause.get("pretty") == Some("1")))
        });
        chosen.ok_or_else(|| not_acceptable(DOCUMENTS))?
    };
    let pretty = pretty || wants_pretty(headers, query);
    Ok((form, Representation { encoding, pretty, ..Representation::default() }))
}

/// 406 for who cannot read JSON, where there is nothing else.
pub fn negotiate_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let accept = joined(headers, &ACCEPT);
    let readable = accept.trim().is_empty() || clauses(&accept).iter().any(Clause::is_json);
    if readable { Ok(()) } else { Err(not_acceptable("application/json")) }
}

/// Encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/json`, or no `Content-Type`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// The format of a POST, PUT or DELETE body; 415 if it is none of ours. Protobuf has been turned into JSON
/// before, where it can be.
pub fn body_format(headers: &HeaderMap) -> Result<BodyFormat, ApiError> {
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(BodyFormat::Json),
        "application/yaml" => Ok(BodyFormat::Yaml),
        _ => Err(ApiError::unsupported_media_type(&["application/json", "application/yaml"])),
    }
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
pub fn patch_format(headers: &HeaderMap) -> Result<PatchFormat, ApiError> {
    match media_type(headers).as_str() {
        "application/json-patch+json" => Ok(PatchFormat::Json),
        "application/merge-patch+json" => Ok(PatchFormat::Merge),
        _ => {
            let accepted = ["application/json-patch+json", "application/merge-patch+json"];
            Err(ApiError::unsupported_media_type(&accepted))
        }
    }
}

/// One clause of `Accept`: a media range with parameters.
struct Clause<'a> {
    /// Lower case.
    kind: String,
    /// Lower case.
    subkind: String,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut pieces = text.split(';').map(str::trim);
        let range = pieces.next().unwrap_or_default().to_ascii_lowercase();
        let (kind, subkind) = range.split_once('/').unwrap_or((&range, "*"));
        let parameters: Vec<_> = pieces
            .filter_map(|piece| piece.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q").map(|(_, value)| value.parse());
        Self {
            kind: kind.into(),
            subkind: subkind.into(),
            quality: quality.map_or(1.0, |quality| quality.unwrap_or(0.0)),
            parameters,
        }
    }

    /// How many wildcards the range has.
    fn wildcards(&self) -> usize {
        usize::from(self.kind == "*") + usize::from(self.subkind == "*")
    }

    fn is_json(&self) -> bool {
        matches!((self.kind.as_str(), self.subkind.as_str()), ("application", "json" | "*") | ("*", "*"))
    }

    /// The encoding of ours that the range means.
    fn encoding(&self) -> Option<Encoding> {
        let is_yaml = (self.kind.as_str(), self.subkind.as_str()) == ("application", "yaml");
        if self.is_json() { Some(Encoding::Json) } else { is_yaml.then_some(Encoding::Yaml) }
    }

    fn is_protobuf(&self) -> bool {
        (self.kind.as_str(), self.subkind.as_str()) == ("application", "vnd.kubernetes.protobuf")
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The kind, group and version the object is to be converted to, if to any.
    fn target(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let (kind, group, version) = (self.get("as"), self.get("g"), self.get("v"));
        kind.or(group).or(version)?;
        Some((kind.unwrap_or_default(), group.unwrap_or_default(), version.unwrap_or_default()))
    }

    /// The shape the clause asks for; `None` passes it over.
    fn shape(&self, expected: Expected, query: &str) -> Result<Option<Shape>, ApiError> {
        let stream = self.get("stream").unwrap_or_default();
        let version = self.get("sv").unwrap_or_default();
        if !matches!(stream, "" | "watch") || !matches!(version, "" | "v1") {
            return Ok(None);
        }
        let Some((kind, group, version)) = self.target() else { return Ok(Some(Shape::Object)) };
        let version = match (group, version) {
            (META_GROUP, "v1") => MetaVersion::V1,
            (META_GROUP, "v1beta1") => MetaVersion::V1Beta1,
            _ => return Ok(None),
        };
        match (kind, expected) {
            ("PartialObjectMetadata", Expected::List) => Err(ApiError::not_acceptable(
                "you requested PartialObjectMetadata, but the requested object is a list",
            )),
            ("PartialObjectMetadataList", Expected::Object) => Err(ApiError::not_acceptable(
                "you requested PartialObjectMetadataList, but the requested object is not a list",
            )),
            // A watch has both a list and objects; clients send either.
            ("PartialObjectMetadata" | "PartialObjectMetadataList", _) => {
                Ok(Some(Shape::PartialMetadata(version)))
            }
            ("Table", _) => Ok(Some(Shape::Table(version, include_object(query)?))),
            _ => Ok(None),
        }
    }
}

/// What the rows of a table shall hold; 400 if the query asks for something else.
fn include_object(query: &str) -> Result<IncludeObject, ApiError> {
    match Query::parse(query).get("includeObject").unwrap_or_default() {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "Object" => Ok(IncludeObject::Object),
        "None" => Ok(IncludeObject::None),
        other => {
            let why = "must be 'Metadata', 'Object', 'None', or empty";
            let error = FieldError::invalid("includeObject", other, why);
            Err(ApiError::bad_request(format!("Unable to convert to Table as requested: {error}")))
        }
    }
}

/// The acceptable clauses, best first: by quality, then by precision, then as written.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> =
        accept.split(',').map(Clause::parse).filter(|clause| clause.quality > 0.0).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
    clauses
}

fn not_acceptable(accepted: &str) -> ApiError {
    ApiError::not_acceptable(format!("only the following media types are accepted: {accepted}"))
}

/// Repeated headers are one list.
fn joined(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect::<Vec<_>>().join(",")
}

/// The media type of the body without parameters, in lower case; empty if not given.
fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let value = value.unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// `?pretty` decides if it is there, else whether a human seems to look.
fn wants_pretty(headers: &HeaderMap, query: &str) -> bool {
    match Query::parse(query).get("pretty") {
        Some(value) if !value.is_empty() => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        _ => {
            let agent = joined(headers, &USER_AGENT);
            ["curl/", "Wget/", "Mozilla/5.0"].iter().any(|human| agent.starts_with(human))
        }
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    joined(headers, &ACCEPT_ENCODING).split(',').any(|coding| {
        let mut pieces = coding.split(';').map(str::trim);
        pieces.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"))
            && pieces.all(|parameter| {
                parameter.strip_prefix("q=").is_none_or(|quality| quality.parse().is_ok_and(|q: f32| q > 0.0))
            })
    })
}

#[cfg(test)]
mod tests;
