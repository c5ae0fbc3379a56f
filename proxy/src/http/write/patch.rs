//! PATCH on an object.

use ::http::{Response, StatusCode};
use serde_json::Value;
use shardcache_storage::{Key, Object as Stored};

use super::commit::Committer;
use super::heartbeat::is_heartbeat;
use super::modify::{Before, Outcome, modify};
use super::{Place, WriteRequest, body, respond};
use crate::body::Body;
use crate::http::accept::{self, Expected};
use crate::http::names;
use crate::http::options::{FieldValidation, WriteKind, WriteOptions};
use crate::http::patch::Patch;
use crate::ingest::{self, Object};
use crate::service::Api;
use crate::status::{ApiError, FieldError};

/// How often a patch is applied anew because the object changed meanwhile; kube-apiserver's bound.
const RETRIES_MAX: usize = 5;
/// Bytes of a patched object that an error shows.
const SHOWN_MAX: usize = 1024;

/// Changes an object as the patch says. 200 with the object, 404, 409 Conflict.
pub(super) async fn patch(api: &Api, request: &WriteRequest, key: &Key) -> Result<Response<Body>, ApiError> {
    let representation = accept::negotiate(&request.headers, &request.query, Expected::Object)?;
    let format = accept::patch_format(&request.headers)?;
    let options = WriteOptions::parse(&request.query, WriteKind::Patch)?;
    let (patch, duplicates) = Patch::decode(format, &request.body)?;
    let mut warnings = match options.field_validation {
        FieldValidation::Strict if !duplicates.is_empty() => {
            let why = format!("strict decoding error: {}", body::duplicate_fields(&duplicates).join(", "));
            return Err(unusable(&String::from_utf8_lossy(&request.body), &why));
        }
        FieldValidation::Warn => body::duplicate_fields(&duplicates),
        FieldValidation::Strict | FieldValidation::Ignore => Vec::new(),
    };
    let type_name = &request.type_info.name;
    let name = key.parts().name;
    if is_heartbeat(type_name, key) && !patch.names_version() {
        // It would renew whatever Lease is there, one of a restored backup too.
        return Err(ApiError::bad_request(
            "metadata.resourceVersion: must be in a patch of the Lease by which a shard speaks",
        ));
    }
    let snapshot = api.cache.snapshot();
    let current = snapshot.state.get(type_name, key.as_str());
    let mut current = current.cloned().ok_or_else(|| ApiError::not_found(type_name, name))?;
    let committer = Committer::new(api, options.timeout);
    for attempt in 0..=RETRIES_MAX {
        let object = patched(request, key, &patch, &current)?;
        // Who puts a version into the patch means that version and no other.
        let conditional = object.resource_version() != current.resource_version().to_string();
        warnings.extend(names::finalizer_warnings(&object, &Before::finalizers(&current)));
        match modify(api, request, key, &object, &current, options.dry_run, &committer).await? {
            Outcome::Stands(object) => {
                return Ok(respond::object(api, request, representation, StatusCode::OK, &object, &warnings));
            }
            Outcome::Outdated(newer) if !conditional && attempt < RETRIES_MAX => current = newer,
            Outcome::Outdated(_) => break,
        }
    }
    Err(ApiError::modified(type_name, name))
}

/// The object that the patch makes of the stored one, as shown in the version of the URL.
fn patched(
    request: &WriteRequest,
    key: &Key,
    patch: &Patch,
    current: &Stored,
) -> Result<Object<'static>, ApiError> {
    let type_info = &request.type_info;
    let name = key.parts().name;
    let text = std::str::from_utf8(current.body_bytes()).map_err(ApiError::internal)?;
    let mut value = ingest::parse_value(text).map_err(ApiError::internal)?;
    value["apiVersion"] = Value::String(type_info.api_version(&request.version));
    patch.apply(&mut value)?;
    let object = ingest::read_value(&value).map_err(|why| unusable(&value.to_string(), &why.to_string()))?;
    body::check_type(&object, type_info, &request.version, object.text())?;
    let place = Place::of(request)?;
    body::check_place(&object, &place, Some(name))?;
    let mut errors = names::validate(&object, &type_info.name, place.namespace, name);
    if !object.uid().is_empty() && object.uid() != current.uid() {
        errors.push(FieldError::invalid("metadata.uid", &object.uid(), "field is immutable"));
    }
    body::invalid(type_info, name, &errors)?;
    Ok(object)
}

/// 422 for a patch whose result cannot be read; kube-apiserver names no object in it.
fn unusable(text: &str, why: &str) -> ApiError {
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    ApiError::invalid("", "", "", &[FieldError::invalid("patch", &shown, why)])
}
