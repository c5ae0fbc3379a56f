//! DELETE on an object: immediate, whatever its finalizers and the grace period asked for (D29).

use ::http::{Response, StatusCode};
use serde_json::{Value, json};
use shardcache_storage::{Action, Change, Guard, Key, Object, Refusal, ResourceVersion, TypeName};

use super::commit::{Committer, push_managed};
use super::{WriteRequest, body};
use crate::body::Body;
use crate::http::accept::{self, Expected};
use crate::http::options::{DeleteOptions, Preconditions};
use crate::http::respond;
use crate::ingest;
use crate::service::Api;
use crate::status::ApiError;

/// Deletes an object. 200 with a `Status` that holds the uid, and the version of the deletion.
pub(super) async fn delete(api: &Api, request: &WriteRequest, key: &Key) -> Result<Response<Body>, ApiError> {
    let representation = accept::negotiate(&request.headers, &request.query, Expected::Object)?;
    let done = |status: &Value| {
        respond::encoded(respond::value(StatusCode::OK, status), representation, &api.config)
    };
    let options = options(api, request)?;
    let type_name = &request.type_info.name;
    let name = key.parts().name;
    let snapshot = api.cache.snapshot();
    let current = snapshot.state.get(type_name, key.as_str());
    let current = current.ok_or_else(|| ApiError::not_found(type_name, name))?;
    let wanted = &options.preconditions;
    if options.dry_run {
        check(type_name, wanted, current)?;
        return Ok(done(&success(type_name, current, None)));
    }
    let version = match wanted.resource_version.as_deref().map(ResourceVersion::parse) {
        None => None,
        Some(Ok(version)) => Some(version),
        // A text that is no version is the version of no object.
        Some(Err(_)) => {
            check(type_name, wanted, current)?;
            return Err(ApiError::modified(type_name, name));
        }
    };
    let guard =
        Guard { exists: Some(true), resource_version: version, uid: wanted.uid.as_deref().map(Box::from) };
    let change = Change { type_name: type_name.clone(), key: key.clone(), guard, action: Action::Delete };
    match Committer::new(api, options.timeout).commit(change).await? {
        Ok(applied) => {
            let deleted = applied.event.previous.as_ref();
            let deleted = deleted.ok_or_else(|| ApiError::internal("a deletion removed no object"))?;
            let version = applied.event.resource_version;
            Ok(done(&success(type_name, deleted, Some(version))))
        }
        Err(Refusal::UidMismatch(found) | Refusal::VersionMismatch(found)) => {
            check(type_name, wanted, &found)?;
            Err(ApiError::modified(type_name, name))
        }
        Err(Refusal::NotFound) => Err(ApiError::not_found(type_name, name)),
        Err(Refusal::PushManaged { holder }) => Err(push_managed(type_name, name, &holder)),
        Err(refusal @ Refusal::AlreadyExists(_)) => Err(ApiError::internal(refusal)),
    }
}

/// The options of a DELETE, from the body if there is one.
pub(super) fn options(api: &Api, request: &WriteRequest) -> Result<DeleteOptions, ApiError> {
    if request.body.is_empty() {
        return DeleteOptions::parse(&request.query, None);
    }
    let json = body::json(api, request)?;
    let text = std::str::from_utf8(&json).map_err(|why| ApiError::bad_request(why.to_string()))?;
    let sent = ingest::parse_value(text).map_err(|why| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    DeleteOptions::parse(&request.query, Some(&sent))
}

/// Refuses (409) if the object is not the one that is meant.
fn check(type_name: &TypeName, wanted: &Preconditions, found: &Object) -> Result<(), ApiError> {
    let name = found.parts().name;
    if let Some(uid) = wanted.uid.as_deref().filter(|uid| *uid != found.uid()) {
        return Err(ApiError::conflict(
            type_name,
            name,
            format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                found.uid()
            ),
        ));
    }
    let version = found.resource_version().to_string();
    if let Some(wanted) = wanted.resource_version.as_deref().filter(|wanted| **wanted != version) {
        return Err(ApiError::conflict(
            type_name,
            name,
            format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

/// The answer to a deletion. With the version at which the object is gone, a client can wait until
/// others have seen that (kubernetes#138724); older clients ignore it.
fn success(type_name: &TypeName, deleted: &Object, version: Option<ResourceVersion>) -> Value {
    let mut details = json!({ "name": deleted.parts().name, "kind": type_name.resource() });
    for (field, text) in [("group", type_name.group()), ("uid", deleted.uid())] {
        if !text.is_empty() {
            details[field] = text.into();
        }
    }
    let metadata = version.map_or(json!({}), |version| json!({ "resourceVersion": version.to_string() }));
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Success", "details": details,
    })
}
