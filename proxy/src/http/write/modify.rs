//! What PUT and PATCH have in common: one object becomes another under the same key.

use std::borrow::Cow;

use serde::Deserialize;
use shardcache_storage::{
    Action, Applied, Change, Draft, Guard, Key, Object as Stored, RecordError, Refusal, ResourceVersion,
};

use super::WriteRequest;
use super::commit::{Committer, push_managed};
use super::heartbeat::Heartbeat;
use super::unchanged::is_unchanged;
use crate::cache::Snapshot;
use crate::ingest::{Assigned, Object};
use crate::service::Api;
use crate::status::{ApiError, FieldError};
use crate::types::TypeInfo;

/// What came of a modification.
pub(super) enum Outcome {
    /// The object as it stands now, changed or not.
    Stands(Stored),
    /// The version it was based on is not the object's; this is its state.
    Outdated(Stored),
}

/// Puts `object` in the place of `current`, which is the newest published state of it, if the version
/// it names is still the newest one. `uid`, `creationTimestamp` and `generation` are carried over if it has
/// none, so that an object sent without them is not a change.
pub(super) async fn modify(
    api: &Api,
    request: &WriteRequest,
    key: &Key,
    object: &Object<'_>,
    current: &Stored,
    dry_run: bool,
    committer: &Committer<'_>,
) -> Result<Outcome, ApiError> {
    let type_info = &request.type_info;
    let name = key.parts().name;
    let version = based_on(object, type_info, name)?;
    let Before { creation_timestamp: created, generation, .. } = Before::of(current);
    let assigned = Assigned {
        uid: object.uid().is_empty().then(|| current.uid()).filter(|uid| !uid.is_empty()),
        creation_timestamp: created.as_deref().filter(|_| object.creation_timestamp().is_empty()),
        generation: generation.filter(|_| !object.has_generation()),
        original: None,
    };
    let draft = object.encode(key, assigned).map_err(|error| too_large(&error, type_info, key))?;
    // What it replaces may be newer than `current`; then it is outdated all the same.
    let heartbeat = Heartbeat::judge(api, request, key, object, Some(current))?;
    if version == current.resource_version() {
        if is_unchanged(&draft, current) {
            api.metrics.write.unchanged.inc();
            return Ok(Outcome::Stands(current.clone()));
        }
        if dry_run {
            return Ok(Outcome::Stands(draft.preview(version)));
        }
    } else if dry_run {
        return Ok(Outcome::Outdated(current.clone()));
    }
    let outcome = submit(request, key, object, draft, version, committer).await?;
    if let (Some(heartbeat), Outcome::Stands(stored)) = (heartbeat, &outcome) {
        heartbeat.stored(api, stored.resource_version());
    }
    Ok(outcome)
}

async fn submit(
    request: &WriteRequest,
    key: &Key,
    object: &Object<'_>,
    draft: Draft,
    version: ResourceVersion,
    committer: &Committer<'_>,
) -> Result<Outcome, ApiError> {
    let type_name = &request.type_info.name;
    let name = key.parts().name;
    let uid = object.uid();
    let guard = Guard {
        exists: Some(true),
        resource_version: Some(version),
        uid: (!uid.is_empty()).then(|| Box::from(&*uid)),
    };
    let change = Change { type_name: type_name.clone(), key: key.clone(), guard, action: Action::Put(draft) };
    match committer.commit(change).await? {
        Ok(applied) => written(&applied).cloned().map(Outcome::Stands),
        Err(Refusal::VersionMismatch(newer)) => Ok(Outcome::Outdated(newer)),
        Err(Refusal::UidMismatch(other)) => {
            Err(ApiError::uid_precondition(type_name, name, &uid, other.uid()))
        }
        Err(Refusal::NotFound) => Err(ApiError::not_found(type_name, name)),
        Err(Refusal::PushManaged { holder }) => Err(push_managed(type_name, name, &holder)),
        Err(refusal @ Refusal::AlreadyExists(_)) => Err(ApiError::internal(refusal)),
    }
}

/// The version an update is based on; custom resources cannot be updated without.
fn based_on(object: &Object<'_>, type_info: &TypeInfo, name: &str) -> Result<ResourceVersion, ApiError> {
    let sent = object.resource_version();
    if matches!(&*sent, "" | "0") {
        let error =
            FieldError::invalid_bare("metadata.resourceVersion", 0, "must be specified for an update");
        // kube-apiserver names the resource here, where all other errors about metadata name the kind.
        return Err(ApiError::invalid(type_info.name.group(), type_info.name.resource(), name, &[error]));
    }
    ResourceVersion::parse(&sent)
        .map_err(|why| ApiError::bad_request(format!("invalid resourceVersion {sent:?}: {why}")))
}

/// What writes want to know of a stored object's metadata, beyond what the record holds.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Before<'a> {
    #[serde(borrow)]
    pub(super) creation_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Cow<'a, str>>,
    pub(super) generation: Option<i64>,
    finalizers: Option<Vec<String>>,
}

impl<'a> Before<'a> {
    pub(super) fn of(object: &'a Stored) -> Self {
        let metadata = &object.body_bytes()[object.spans().metadata.range()];
        serde_json::from_slice(metadata).unwrap_or_default()
    }

    /// The finalizers of a stored object.
    pub(super) fn finalizers(object: &Stored) -> Vec<String> {
        Before::of(object).finalizers.unwrap_or_default()
    }
}

/// The state that a put made.
pub(super) fn written(applied: &Applied) -> Result<&Stored, ApiError> {
    applied.event.current.as_ref().ok_or_else(|| ApiError::internal("a write left no object"))
}

/// Refuses (507) what would make the objects larger in sum than the server may hold.
pub(super) fn check_capacity(api: &Api, snapshot: &Snapshot, bytes: usize) -> Result<(), ApiError> {
    let Some(max) = api.config.object_bytes_max else { return Ok(()) };
    if snapshot.state.body_bytes() + bytes as u64 <= max {
        return Ok(());
    }
    Err(ApiError::insufficient_storage(format!(
        "the objects of this server may have {max} bytes in all; deletions and updates are still possible"
    )))
}

/// An object that a record cannot hold: 413 for the whole, 422 for a field.
pub(super) fn too_large(error: &RecordError, type_info: &TypeInfo, key: &Key) -> ApiError {
    let RecordError::TooLarge { what, max, .. } = error else { return ApiError::internal(error) };
    let field = match *what {
        "object" => return ApiError::too_large(*max as u64),
        "key" => "metadata.name",
        "label key" | "label value" => "metadata.labels",
        field => field,
    };
    let error = FieldError::too_long(field, *max);
    ApiError::invalid(type_info.name.group(), &type_info.kind, key.parts().name, &[error])
}
