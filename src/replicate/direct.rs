//! Sources that say on demand how far their events are.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::sleep;

use super::selection::Resource;

/// How long a bookmark may take that was asked for.
const BOOKMARK_TIME: Duration = Duration::from_secs(1);

/// A source that can be made to tell its watches how far they are, as etcd can by a progress request.
///
/// No kube-apiserver passes such a request on, and asking its etcd would say how far a watch of etcd is, not
/// how far ours is. So this is for a control plane that serves its API itself, in the process of the
/// replicator or with a request of its own for it: see [`super::Replicator::with_progress`].
pub trait RequestProgress: Send + Sync {
    /// Has every watch of a type that is open now, and allows bookmarks, send one: of the newest version that
    /// the source has when this is called, or a later one, and after all events up to it.
    ///
    /// Resolves when that is under way. An error is logged, and what waits for the bookmark gets on by other
    /// ways, as it does when none comes within 1 s. Dropped when it is not needed any more.
    fn request_progress<'a>(&'a self, resource: &'a Resource) -> BoxFuture<'a, Result<(), String>>;
}

/// Asks for a bookmark; resolves when it should have come.
pub(super) fn ask(source: &Arc<dyn RequestProgress>, resource: &Resource) -> BoxFuture<'static, ()> {
    let (source, resource) = (Arc::clone(source), resource.clone());
    async move {
        match tokio::time::timeout(BOOKMARK_TIME, source.request_progress(&resource)).await {
            Ok(Ok(())) => sleep(BOOKMARK_TIME).await,
            Ok(Err(error)) => {
                tracing::warn!(%resource, error, "the source does not say how far its watches are");
            }
            Err(_) => {}
        }
    }
    .boxed()
}
