//! The immutable view that every read works on: all objects, all served types, at one commit boundary.
//!
//! Reading takes no lock and delays nobody; a slow list keeps its snapshot as long as it likes (D19).

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use shardcache_storage::{Object, Objects, ResourceVersion, State, TypeName};

use super::index::{IndexBy, IndexRequests, Indexes, OBJECTS_MIN, Request};
use super::scan::{cluster_across_shards, select, selects_all};
use crate::filter::Filter;
use crate::types::Types;

/// Immutable view of everything at one commit boundary.
pub struct Snapshot {
    /// Objects.
    pub state: State,
    /// Served types.
    pub types: Arc<Types>,
    indexes: Indexes,
    wanted: Option<IndexRequests>,
}

/// Size of a set of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of objects.
    pub objects: usize,
    /// Sum of their encoded bodies, in bytes.
    pub body_bytes: u64,
}

impl Snapshot {
    /// A snapshot that stands alone: without indexes, and nobody to make some.
    pub fn new(state: State, types: Arc<Types>) -> Self {
        Self { state, types, indexes: Indexes::default(), wanted: None }
    }

    /// A snapshot with indexes, whose lists ask for those that are missing.
    pub(crate) fn indexed(state: State, types: Arc<Types>, indexes: Indexes, wanted: IndexRequests) -> Self {
        Self { state, types, indexes, wanted: Some(wanted) }
    }

    /// Version of the snapshot.
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.resource_version()
    }

    /// Selected objects of a type in key order, strictly after the joined key `after` if given. Touches
    /// few others: an index serves `k=v` and `k in (…)` once the label was selected on before, and one
    /// cluster of every shard once that was costly; concrete levels of the key are seeked to.
    pub fn scan<'a>(
        &'a self,
        type_name: &TypeName,
        filter: &'a Filter,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Object> + Send + 'a> {
        let Some(objects) = self.state.objects(type_name) else { return Box::new(std::iter::empty()) };
        if objects.len() >= OBJECTS_MIN
            && let Some(requests) = &self.wanted
            && let Some(label) = self.indexes.missing(type_name, filter)
        {
            requests.ask((type_name.clone(), label));
        }
        let if_costly = self.request_by_cluster(type_name, filter);
        if let Some(indexed) = self.indexes.scan(type_name, filter, after, if_costly.as_ref()) {
            return indexed;
        }
        select(move |from| objects.range(from, Bound::Unbounded), filter, after, if_costly)
    }

    /// The request for an index by cluster, where it would serve a filter and is not there.
    fn request_by_cluster(&self, type_name: &TypeName, filter: &Filter) -> Option<Request<'_>> {
        let requests = self.wanted.as_ref()?;
        cluster_across_shards(filter)?;
        let wanted = (type_name.clone(), IndexBy::Cluster);
        (!self.indexes.has(type_name, &IndexBy::Cluster)).then_some(Request { requests, wanted })
    }

    /// As [`super::remaining`], through the indexes.
    pub fn remaining(&self, type_name: &TypeName, filter: &Filter, after: Option<&str>) -> Option<usize> {
        if filter.has_selectors() {
            return None;
        }
        let all = self.totals(type_name, filter).filter(|_| after.is_none());
        Some(all.map_or_else(|| self.scan(type_name, filter, after).count(), |totals| totals.objects))
    }

    /// Number and bytes of what a filter selects of a type, where that is known without looking at each
    /// object: all of a type, unfiltered.
    pub fn totals(&self, type_name: &TypeName, filter: &Filter) -> Option<Totals> {
        if !selects_all(filter) {
            return None;
        }
        let objects = self.state.objects(type_name);
        Some(Totals {
            objects: objects.map_or(0, Objects::len),
            body_bytes: objects.map_or(0, Objects::body_bytes),
        })
    }

    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("head", &self.state.head()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
