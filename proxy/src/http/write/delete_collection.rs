//! DELETE on a collection: lists, then deletes what it listed. Not atomic, as in kube-apiserver; but
//! each deletion is of exactly the state that was listed, so nothing newer is ever taken away.

use std::num::NonZeroU64;
use std::sync::Arc;

use ::http::Response;
use shardcache_storage::{Action, Change, Guard, Key, Object, Refusal, ResourceVersion};

use super::commit::{Committer, push_managed};
use super::{WriteRequest, delete};
use crate::body::Body;
use crate::http::accept::{self, Expected};
use crate::http::items::Collection;
use crate::http::locate::Located;
use crate::http::options::ListOptions;
use crate::http::{list, respond};
use crate::service::Api;
use crate::status::ApiError;

/// Deletions in one commit: large enough to share the sync, small enough to let others in between.
const BATCH_MAX: usize = 500;

/// Deletes what the selectors select, at most `limit` objects. 200 with the list of what was deleted, as
/// it was, at the version of the last deletion.
pub(super) async fn delete_collection(api: &Api, request: &WriteRequest) -> Result<Response<Body>, ApiError> {
    let representation = accept::negotiate(&request.headers, &request.query, Expected::List)?;
    let options = delete::options(api, request)?;
    let listed = ListOptions::parse(&request.query)?;
    let located = Located {
        snapshot: api.cache.snapshot(),
        type_info: Arc::clone(&request.type_info),
        scope: request.scope.clone(),
        path: request.path.clone(),
    };
    let filter = located.filter(listed.labels, listed.fields, listed.shards)?;
    let shown = list::show(api, &located, listed.at).await?;
    let type_name = request.type_info.name.clone();
    let collection = Arc::new(Collection { source: shown.source, type_name, filter });
    let limit = listed
        .limit
        .map_or(usize::MAX, |limit: NonZeroU64| usize::try_from(limit.get()).unwrap_or(usize::MAX));
    let mut objects = collection.pick(shown.after, limit).await?;
    let wanted = &options.preconditions;
    objects.retain(|object| {
        wanted.uid.as_deref().is_none_or(|uid| uid == object.uid())
            && wanted.resource_version.as_deref().is_none_or(|v| v == object.resource_version().to_string())
    });
    // Before anything is deleted: the answer must not be refused afterwards.
    let share = list::reserve(api)?;
    let mut version = shown.version;
    if !options.dry_run {
        let committer = Committer::new(api, options.timeout);
        let mut deleted = Vec::with_capacity(objects.len());
        for batch in objects.chunks(BATCH_MAX) {
            version = version.max(delete_batch(&committer, request, batch, &mut deleted).await?);
        }
        objects = deleted;
    }
    let response = list::of_objects(api, share, &located, objects, version, representation.shape);
    Ok(respond::encoded(response, representation, &api.config))
}

/// Deletes a batch; adds what was deleted, and returns the last deletion's version.
async fn delete_batch(
    committer: &Committer<'_>,
    request: &WriteRequest,
    batch: &[Object],
    deleted: &mut Vec<Object>,
) -> Result<ResourceVersion, ApiError> {
    let changes = batch.iter().map(|object| deletion(request, object)).collect::<Result<_, _>>()?;
    let mut newest = None;
    for result in committer.commit_all(changes).await? {
        match result {
            Ok(applied) => {
                deleted.extend(applied.event.previous.clone());
                newest = newest.max(Some(applied.event.resource_version));
            }
            // It changed or went away since it was listed: it is not what was meant any more.
            Err(Refusal::NotFound | Refusal::UidMismatch(_) | Refusal::VersionMismatch(_)) => {}
            Err(Refusal::PushManaged { holder }) => {
                return Err(push_managed(&request.type_info.name, "", &holder));
            }
            Err(refusal @ Refusal::AlreadyExists(_)) => {
                return Err(ApiError::internal(refusal));
            }
        }
    }
    Ok(newest.unwrap_or_else(|| batch[0].resource_version()))
}

fn deletion(request: &WriteRequest, object: &Object) -> Result<Change, ApiError> {
    let parts = object.parts();
    let key =
        Key::new(parts.shard, parts.cluster, parts.namespace, parts.name).map_err(ApiError::internal)?;
    let guard = Guard {
        exists: Some(true),
        resource_version: Some(object.resource_version()),
        uid: Some(object.uid().into()),
    };
    Ok(Change { type_name: request.type_info.name.clone(), key, guard, action: Action::Delete })
}
