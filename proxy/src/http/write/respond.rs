//! The answer to a write: the stored object as the client wants it, and warnings.

use ::http::header::{HeaderName, HeaderValue};
use ::http::{Response, StatusCode};
use serde_json::Value;
use shardcache_storage::Object;

use super::WriteRequest;
use crate::body::Body;
use crate::http::accept::Representation;
use crate::http::respond;
use crate::ingest;
use crate::represent::Form;
use crate::service::Api;
use crate::status::ApiError;

const WARNING: HeaderName = HeaderName::from_static("warning");
/// Characters of all warnings of one answer, and of each once that is exceeded; kube-apiserver's.
const WARNINGS_MAX: usize = 4096;
const WARNING_CUT: usize = 256;

/// An object, stored or previewed.
pub(super) fn object(
    api: &Api,
    request: &WriteRequest,
    representation: Representation,
    code: StatusCode,
    object: &Object,
    warnings: &[String],
) -> Response<Body> {
    let mut form = Form::new(&request.type_info, &request.version, representation.shape);
    let mut response = respond::json(code, form.bytes(object));
    warn(&mut response, warnings);
    respond::encoded(response, representation, &api.config)
}

/// The object that a dry-run creation would have made: it has no resourceVersion.
pub(super) fn never_created(
    api: &Api,
    request: &WriteRequest,
    representation: Representation,
    object: &Object,
    warnings: &[String],
) -> Result<Response<Body>, ApiError> {
    let mut form = Form::new(&request.type_info, &request.version, representation.shape);
    let text = form.bytes(object);
    let text = std::str::from_utf8(&text).map_err(ApiError::internal)?;
    let mut value = ingest::parse_value(text).map_err(ApiError::internal)?;
    forget_version(&mut value);
    // A table has the version in its own metadata, and in that of the row's object.
    if let Some(object) = value.pointer_mut("/rows/0/object") {
        forget_version(object);
    }
    let mut response = respond::value(StatusCode::CREATED, &value);
    warn(&mut response, warnings);
    Ok(respond::encoded(response, representation, &api.config))
}

fn forget_version(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("resourceVersion");
    }
}

/// Adds a `Warning` header for each distinct warning, within kube-apiserver's budget.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let total: usize = warnings.iter().map(|text| text.chars().count()).sum();
    let mut sent = 0;
    for (at, text) in warnings.iter().enumerate() {
        if warnings[..at].contains(text) {
            continue;
        }
        let cut = if total > WARNINGS_MAX { WARNING_CUT } else { WARNINGS_MAX };
        let text: String = text.chars().take(cut).collect();
        sent += text.chars().count();
        if sent > WARNINGS_MAX {
            return;
        }
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{}\"", escaped(&text))) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The inside of an RFC 7234 quoted string; what a header cannot hold becomes `?`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            ' '..='~' => escaped.push(char),
            _ if char.is_control() => escaped.push('?'),
            _ => escaped.push(char),
        }
    }
    escaped
}
