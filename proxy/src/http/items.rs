//! The objects of one request in key order, in portions that fit a frame.
//!
//! Where a filter has selectors, or few objects are wanted, the objects are picked at once: eight bytes
//! each, and nothing else of the snapshot is held. Everything in a scope is walked portion by portion
//! instead, each portion sought by key, so that memory does not depend on the number of objects.

use std::sync::Arc;

use shardcache_storage::{Object, Objects, Sizes, TypeName};

use crate::cache::{self, Snapshot};
use crate::filter::Filter;
use crate::scope::{Part, Scope};
use crate::status::ApiError;

/// Selecting among more objects than this is done off the async threads.
const INLINE_MAX: usize = 20_000;

/// The objects of a type at one version.
#[derive(Clone)]
pub(crate) enum Source {
    /// The newest state, with its indexes.
    Newest(Arc<Snapshot>),
    /// An earlier state.
    Earlier(Arc<Objects>),
}

/// What a request is about: a type's objects at one version, and a filter.
pub(crate) struct Collection {
    pub(crate) source: Source,
    pub(crate) type_name: TypeName,
    pub(crate) filter: Filter,
}

impl Collection {
    fn scan<'a>(&'a self, after: Option<&str>) -> Box<dyn Iterator<Item = &'a Object> + Send + 'a> {
        match &self.source {
            Source::Newest(snapshot) => snapshot.scan(&self.type_name, &self.filter, after),
            Source::Earlier(objects) => cache::scan(objects, &self.filter, after),
        }
    }

    fn objects(&self) -> Option<&Objects> {
        match &self.source {
            Source::Newest(snapshot) => snapshot.state.objects(&self.type_name),
            Source::Earlier(objects) => Some(objects),
        }
    }

    /// Objects of the type, selected or not.
    pub(crate) fn candidates(&self) -> usize {
        self.objects().map_or(0, Objects::len)
    }

    /// Number and sums of what is selected, where that is everything.
    pub(crate) fn sizes(&self) -> Option<(u64, Sizes)> {
        let Scope { shard, cluster, namespace } = &self.filter.scope;
        let everything = *shard == Part::Any && *cluster == Part::Any && namespace.is_none();
        let objects = self.objects().filter(|_| everything && !self.filter.has_selectors())?;
        Some((objects.len() as u64, objects.sizes()))
    }

    /// Number of objects in the scope after a key; `None` where selectors hide it.
    pub(crate) fn remaining(&self, after: Option<&str>) -> Option<usize> {
        match &self.source {
            Source::Newest(snapshot) => snapshot.remaining(&self.type_name, &self.filter, after),
            Source::Earlier(objects) => cache::remaining(objects, &self.filter, after),
        }
    }

    /// The first `limit` selected objects after a key.
    pub(crate) async fn pick(
        self: &Arc<Self>,
        after: Option<Box<str>>,
        limit: usize,
    ) -> Result<Vec<Object>, ApiError> {
        let work = self.candidates().min(if self.filter.has_selectors() { usize::MAX } else { limit });
        if work <= INLINE_MAX {
            return Ok(self.scan(after.as_deref()).take(limit).cloned().collect());
        }
        let collection = Arc::clone(self);
        tokio::task::spawn_blocking(move || collection.scan(after.as_deref()).take(limit).cloned().collect())
            .await
            .map_err(ApiError::internal)
    }
}

/// What is left to send.
pub(crate) enum Items {
    /// These.
    Picked(std::vec::IntoIter<Object>),
    /// All that a collection selects after the key.
    Walked {
        /// Where from; has no selectors.
        collection: Arc<Collection>,
        /// Key of the last object taken.
        after: Option<Box<str>>,
    },
}

impl Items {
    /// Gives objects to `each`, which is told of the last one and says whether it wants another; whether
    /// more are left.
    pub(crate) fn portion(&mut self, mut each: impl FnMut(&Object, bool) -> bool) -> bool {
        match self {
            Self::Picked(objects) => {
                while let Some(object) = objects.next() {
                    if !each(&object, objects.len() == 0) {
                        break;
                    }
                }
                objects.len() > 0
            }
            Self::Walked { collection, after } => {
                let mut stopped_at = None;
                let mut objects = collection.scan(after.as_deref()).peekable();
                while let Some(object) = objects.next() {
                    let last = objects.peek().is_none();
                    if !each(object, last) && !last {
                        stopped_at = Some(object.key().into());
                        break;
                    }
                }
                drop(objects);
                let more = stopped_at.is_some();
                *after = stopped_at.or_else(|| after.take());
                more
            }
        }
    }
}
