//! PUT on an object.

use ::http::{Response, StatusCode};
use shardcache_storage::Key;

use super::commit::Committer;
use super::modify::{Before, Outcome, modify};
use super::{Place, WriteRequest, body, respond};
use crate::body::Body;
use crate::http::accept::{self, Expected};
use crate::http::names;
use crate::http::options::{WriteKind, WriteOptions};
use crate::service::Api;
use crate::status::ApiError;

/// Replaces an object. 200 with the object, 404 (there is no create on update), 409 Conflict.
pub(super) async fn update(api: &Api, request: &WriteRequest, key: &Key) -> Result<Response<Body>, ApiError> {
    let representation = accept::negotiate(&request.headers, &request.query, Expected::Object)?;
    accept::body_format(&request.headers)?;
    let options = WriteOptions::parse(&request.query, WriteKind::Update)?;
    let mut warnings = Vec::new();
    let json = body::json(api, request)?;
    let object = body::decode(request, &json, options.field_validation, &mut warnings)?;
    let place = Place::of(request)?;
    let name = key.parts().name;
    let type_info = &request.type_info;
    body::check_place(&object, &place, Some(name))?;
    body::invalid(type_info, name, &names::validate(&object, &type_info.name, place.namespace, name))?;
    let snapshot = api.cache.snapshot();
    let current = snapshot.state.get(&type_info.name, key.as_str());
    let current = current.ok_or_else(|| ApiError::not_found(&type_info.name, name))?;
    if !object.uid().is_empty() && object.uid() != current.uid() {
        return Err(ApiError::uid_precondition(&type_info.name, name, &object.uid(), current.uid()));
    }
    warnings.extend(names::finalizer_warnings(&object, &Before::finalizers(current)));
    let committer = Committer::new(api, options.timeout);
    match modify(api, request, key, &object, current, options.dry_run, &committer).await? {
        Outcome::Stands(object) => {
            Ok(respond::object(api, request, representation, StatusCode::OK, &object, &warnings))
        }
        Outcome::Outdated(_) => Err(ApiError::modified(&type_info.name, name)),
    }
}
