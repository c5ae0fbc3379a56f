//! The immutable view that every read works on: all objects, all served types, at one commit boundary.
//!
//! Reading takes no lock and delays nobody; a slow list keeps its snapshot as long as it likes (D19).

use std::fmt;
use std::sync::Arc;

use shardcache_storage::{Object, Objects, ResourceVersion, State, TypeName};

use super::label_index::{IndexRequests, LabelIndexes, OBJECTS_MIN};
use super::scan::{scan, selects_all};
use crate::filter::Filter;
use crate::types::Types;

/// Immutable view of everything at one commit boundary.
pub struct Snapshot {
    /// Objects.
    pub state: State,
    /// Served types.
    pub types: Arc<Types>,
    labels: LabelIndexes,
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
    /// A snapshot that stands alone: without label indexes, and nobody to make some.
    pub fn new(state: State, types: Arc<Types>) -> Self {
        Self { state, types, labels: LabelIndexes::default(), wanted: None }
    }

    /// A snapshot with indexes, whose lists ask for those that are missing.
    pub(crate) fn indexed(
        state: State,
        types: Arc<Types>,
        labels: LabelIndexes,
        wanted: IndexRequests,
    ) -> Self {
        Self { state, types, labels, wanted: Some(wanted) }
    }

    /// Version of the snapshot.
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.resource_version()
    }

    /// Selected objects of a type in key order, strictly after the joined key `after` if given. Touches
    /// few others: a label index serves `k=v` and `k in (…)` once the label was selected on before, and
    /// concrete levels of the key are seeked to.
    pub fn scan<'a>(
        &'a self,
        type_name: &TypeName,
        filter: &'a Filter,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Object> + Send + 'a> {
        let Some(objects) = self.state.objects(type_name) else { return Box::new(std::iter::empty()) };
        // A name is more selective than any label.
        if filter.labels.is_empty() || filter.fields.name().is_some() {
            return scan(objects, filter, after);
        }
        if let Some(indexed) = self.labels.scan(type_name, filter, after) {
            return indexed;
        }
        if objects.len() >= OBJECTS_MIN
            && let Some(requests) = &self.wanted
            && let Some(label) = self.labels.missing(type_name, filter)
        {
            requests.ask(type_name, label);
        }
        scan(objects, filter, after)
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

    pub(crate) fn labels(&self) -> &LabelIndexes {
        &self.labels
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("head", &self.state.head()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
