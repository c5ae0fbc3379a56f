//! Handing changes to the store, and waiting until what came of them is published.

use std::time::Duration;

use shardcache_storage::{Applied, Change, Object, Refusal, Revision, StorageError, TypeName};
use tokio::time::{Instant, timeout_at};

use crate::service::Api;
use crate::status::ApiError;

/// How long kube-apiserver gives its storage.
const STORE_TIMEOUT: Duration = Duration::from_secs(34);

/// One request's way to the store, with its deadline.
pub(super) struct Committer<'a> {
    api: &'a Api,
    deadline: Instant,
}

impl<'a> Committer<'a> {
    /// `timeout` is what the client asked for; it can only shorten.
    pub(super) fn new(api: &'a Api, timeout: Option<Duration>) -> Self {
        let allowed = timeout.unwrap_or(STORE_TIMEOUT).min(STORE_TIMEOUT);
        Self { api, deadline: Instant::now() + allowed }
    }

    /// Commits one change. Whatever the answer, the state it tells of is published.
    pub(super) async fn commit(&self, change: Change) -> Result<Result<Applied, Refusal>, ApiError> {
        let (type_name, key) = (change.type_name.clone(), change.key.clone());
        let seen = self.api.cache.snapshot().state.get(&type_name, key.as_str()).map(Object::revision);
        let results = self.commit_all(vec![change]).await?;
        let result =
            results.into_iter().next().ok_or_else(|| ApiError::internal("the store lost a change"))?;
        if let Err(Refusal::NotFound) = &result {
            self.gone(&type_name, key.as_str(), seen).await?;
        }
        Ok(result)
    }

    /// Commits changes together, each judged alone; the results are in their order and published.
    pub(super) async fn commit_all(
        &self,
        changes: Vec<Change>,
    ) -> Result<Vec<Result<Applied, Refusal>>, ApiError> {
        let started = Instant::now();
        let committed = timeout_at(self.deadline, self.api.store.commit(changes)).await;
        let results = committed.map_err(|_| timed_out())?.map_err(|error| store_error(&error))?;
        if let Some(newest) = results.iter().filter_map(told_of).max() {
            timeout_at(self.deadline, self.api.cache.published(newest)).await.map_err(|_| timed_out())?;
        }
        self.api.metrics.write.duration.observe(started.elapsed().as_secs_f64());
        Ok(results)
    }

    /// Waits until the published state no longer has the state of an object that the store says is gone,
    /// so that who is told "not found" does not find it.
    async fn gone(&self, type_name: &TypeName, key: &str, seen: Option<Revision>) -> Result<(), ApiError> {
        let Some(seen) = seen else { return Ok(()) };
        let mut snapshot = self.api.cache.snapshot();
        while snapshot.state.get(type_name, key).is_some_and(|object| object.revision() == seen) {
            let next = self.api.cache.published(snapshot.state.head().next());
            snapshot = timeout_at(self.deadline, next).await.map_err(|_| timed_out())?;
        }
        Ok(())
    }
}

/// The revision that a snapshot must have so that the result is no news.
fn told_of(result: &Result<Applied, Refusal>) -> Option<Revision> {
    match result {
        Ok(applied) => Some(applied.head),
        Err(
            Refusal::AlreadyExists(object) | Refusal::UidMismatch(object) | Refusal::VersionMismatch(object),
        ) => Some(object.revision()),
        Err(Refusal::NotFound | Refusal::PushManaged { .. }) => None,
    }
}

/// 409 for an ordinary write to what only a pusher writes (D30).
pub(super) fn push_managed(type_name: &TypeName, name: &str, holder: &str) -> ApiError {
    ApiError::conflict(type_name, name, format!("cell is push-managed by {holder}"))
}

fn timed_out() -> ApiError {
    ApiError::timeout("request did not complete within the allotted timeout", 1)
}

/// What a client is told of a batch that failed as a whole.
pub(crate) fn store_error(error: &StorageError) -> ApiError {
    match error {
        StorageError::Overloaded => {
            ApiError::too_many_requests("Too many requests, please try again later.", 1)
        }
        StorageError::DiskFull | StorageError::ReadOnly(_) => ApiError::unavailable(error.to_string(), 5),
        StorageError::Closed => ApiError::unavailable("the server is shutting down", 1),
        StorageError::Open { .. }
        | StorageError::NewerFormat { .. }
        | StorageError::Corrupt(_)
        | StorageError::Compacted { .. }
        | StorageError::Backup(_) => ApiError::internal(error),
    }
}
