//! From a request's body to an object that may be stored there, or the error that kube-apiserver gives.

use std::fmt::Write as _;

use bytes::Bytes;
use shardcache_storage::TypeName;

use super::{Place, WriteRequest};
use crate::http::accept::{self, BodyFormat};
use crate::http::options::FieldValidation;
use crate::http::yaml;
use crate::ingest::{self, IngestError, Object, SHARD_ANNOTATION};
use crate::service::Api;
use crate::status::{ApiError, FieldError};
use crate::types::TypeInfo;

/// Bytes of a body that an error shows.
const SHOWN_MAX: usize = 1024;
/// Bytes of a body in the summary at the end of an error; kube-apiserver's bound.
const SUMMARY_MAX: usize = 30;

/// The body as JSON; 400 if it is YAML that cannot be read, or that has more bytes as JSON than a body
/// may have.
pub(super) fn json(api: &Api, request: &WriteRequest) -> Result<Bytes, ApiError> {
    match accept::body_format(&request.headers)? {
        BodyFormat::Json => Ok(request.body.clone()),
        BodyFormat::Yaml => yaml::to_json(&request.body, api.config.body_bytes_max)
            .map_err(|why| unrecognized(&request.type_info, &why, &request.body)),
    }
}

/// Reads the object of a POST or PUT and checks everything that concerns the body alone; duplicate
/// fields are refused, or become `warnings`, or pass, as the client chose.
pub(super) fn decode<'a>(
    request: &WriteRequest,
    json: &'a [u8],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Object<'a>, ApiError> {
    let wanted = &request.type_info;
    let object = ingest::read(json).map_err(|error| unreadable(&error, wanted, json))?;
    check_type(&object, wanted, &request.version, json)?;
    let found = object.duplicates();
    match validation {
        FieldValidation::Strict if !found.is_empty() => {
            let why = format!("strict decoding error: {}", duplicate_fields(found).join(", "));
            Err(cannot_handle(&object, wanted, &why))
        }
        FieldValidation::Warn => {
            warnings.extend(duplicate_fields(found));
            Ok(object)
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(object),
    }
}

/// kube's text for each duplicate key.
pub(super) fn duplicate_fields(paths: &[String]) -> Vec<String> {
    paths.iter().map(|path| format!("duplicate field \"{path}\"")).collect()
}

/// Refuses an object that is not of the type and version in the URL.
pub(super) fn check_type(
    object: &Object<'_>,
    wanted: &TypeInfo,
    version: &str,
    body: &[u8],
) -> Result<(), ApiError> {
    let missing = |field| format!("Object '{field}' is missing in '{}'", shown(body));
    if object.kind().is_empty() {
        return Err(unrecognized(wanted, &missing("Kind"), body));
    }
    let (found, expected) = (object.api_version(), wanted.api_version(version));
    if found != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({expected})"
        )));
    }
    if object.kind() != wanted.kind {
        let kind = object.kind();
        let error = FieldError::invalid("kind", &kind, format!("must be {}", wanted.kind));
        return Err(ApiError::invalid(wanted.name.group(), &kind, &object.name(), &[error]));
    }
    Ok(())
}

/// Refuses an object that says it belongs elsewhere: to another shard (D50), namespace or, if the URL
/// has one, name.
pub(super) fn check_place(
    object: &Object<'_>,
    place: &Place<'_>,
    name: Option<&str>,
) -> Result<(), ApiError> {
    if let Some(shard) = object.annotation(SHARD_ANNOTATION)
        && shard != place.shard
    {
        return Err(ApiError::bad_request(format!(
            "the {SHARD_ANNOTATION} annotation of the object ({shard}) does not match the shard on the request ({})",
            place.shard
        )));
    }
    // A namespace on a cluster-scoped object is dropped, as kube-apiserver does.
    let namespace = object.namespace();
    let elsewhere = !place.namespace.is_empty() && !namespace.is_empty() && namespace != place.namespace;
    let Some(name) = name else {
        return if elsewhere { Err(other_namespace()) } else { Ok(()) };
    };
    if object.name().is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if object.name() != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object.name()
        )));
    }
    if elsewhere { Err(other_namespace()) } else { Ok(()) }
}

fn other_namespace() -> ApiError {
    ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// 422 about the metadata of an object, if there are errors.
pub(super) fn invalid(type_info: &TypeInfo, name: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let group = TypeName::group(&type_info.name);
    Err(ApiError::invalid(group, &type_info.kind, name, errors))
}

fn unreadable(error: &IngestError, wanted: &TypeInfo, body: &[u8]) -> ApiError {
    unrecognized(wanted, &error.to_string(), body)
}

fn unrecognized(wanted: &TypeInfo, why: &str, body: &[u8]) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        wanted.kind,
        summary(body)
    ))
}

fn cannot_handle(object: &Object<'_>, wanted: &TypeInfo, why: &str) -> ApiError {
    let api_version = object.api_version();
    let version = api_version.rsplit('/').next().unwrap_or_default();
    ApiError::bad_request(format!(
        "{} in version \"{version}\" cannot be handled as a {}: {why}",
        object.kind(),
        wanted.kind
    ))
}

fn shown(body: &[u8]) -> String {
    let cut = &body[..body.len().min(SHOWN_MAX)];
    let dots = if cut.len() < body.len() { " ..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(cut).trim_end())
}

/// kube-apiserver's `summarizeData`: JSON as text, anything else in hexadecimal.
fn summary(body: &[u8]) -> String {
    let cut = &body[..body.len().min(SUMMARY_MAX)];
    let dots = if cut.len() < body.len() { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(cut)),
        Some(_) => {
            cut.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            }) + dots
        }
    }
}
