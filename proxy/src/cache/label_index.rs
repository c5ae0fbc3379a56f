//! Label indexes of a snapshot: for some labels of some types, the objects by value.
//!
//! Persistent maps like the objects themselves: readers keep theirs, the reflector maintains the next.
//! An index is made when its label is first selected on, beside the reflector (a large type takes
//! seconds), and caught up with the events of the meantime. At most [`INDEXES_MAX`] labels per type are
//! indexed; the one not used for longest gives way.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::{OrdMap, OrdSet};
use shardcache_storage::{Event, Object, Objects, TypeName};
use tokio::sync::mpsc;

use super::scan::{Scan, select};
use crate::filter::Filter;
use crate::selector::{LabelSelector, Operator, Requirement};

/// Indexed labels per type.
pub(crate) const INDEXES_MAX: usize = 16;
/// Types with fewer objects are scanned.
pub(crate) const OBJECTS_MIN: usize = 512;
/// Values of one requirement above which merging their objects is not worth it.
const VALUES_MAX: usize = 256;

/// The label indexes of one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelIndexes {
    types: OrdMap<TypeName, Vec<LabelIndex>>,
    /// Ticks at each use of an index, so that the least recently used one is known.
    clock: Arc<AtomicU64>,
}

/// One indexed label of one type.
#[derive(Clone, Debug)]
pub(crate) struct LabelIndex {
    label: Arc<str>,
    postings: OrdMap<Arc<str>, OrdSet<Object>>,
    used: Arc<AtomicU64>,
}

/// A label that was selected on and is not indexed.
pub(crate) type Wanted = (TypeName, Arc<str>);

/// Where readers ask for indexes. They never wait: when the queue is full, the next list asks again.
#[derive(Clone, Debug)]
pub(crate) struct IndexRequests(pub(crate) mpsc::Sender<Wanted>);

impl IndexRequests {
    pub(crate) fn ask(&self, type_name: &TypeName, label: &Arc<str>) {
        // Full, or nobody builds any more: this list scans either way.
        let _ = self.0.try_send((type_name.clone(), Arc::clone(label)));
    }
}

impl LabelIndex {
    /// An index of objects as they are; takes about a microsecond per labelled object.
    pub(crate) fn build(label: Arc<str>, objects: &Objects) -> Self {
        let mut index = Self { label, postings: OrdMap::new(), used: Arc::default() };
        for object in objects.iter() {
            if let Some(value) = object.label(&index.label) {
                index.postings.entry(value.into()).or_default().insert(object.clone());
            }
        }
        index
    }

    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Follows one event of the type.
    pub(crate) fn apply(&mut self, event: &Event) {
        let before = event.previous.as_ref().and_then(|object| Some((object, object.label(&self.label)?)));
        let after = event.current.as_ref().and_then(|object| Some((object, object.label(&self.label)?)));
        if let Some((object, value)) = before
            && after.is_none_or(|(_, new)| new != value)
            && let Some(posting) = self.postings.get_mut(value)
        {
            posting.remove(object.key().as_bytes());
            if posting.is_empty() {
                self.postings.remove(value);
            }
        }
        if let Some((object, value)) = after {
            self.postings.entry(value.into()).or_default().insert(object.clone());
        }
    }

    /// Objects that have one of the values.
    fn count(&self, requirement: &Requirement) -> usize {
        self.postings_of(requirement).map(OrdSet::len).sum()
    }

    fn postings_of<'a>(&'a self, requirement: &'a Requirement) -> impl Iterator<Item = &'a OrdSet<Object>> {
        requirement.values.iter().filter_map(|value| self.postings.get(&**value))
    }
}

impl LabelIndexes {
    /// Follows the events of a commit.
    pub(crate) fn apply(&mut self, events: &[Arc<Event>]) {
        if self.types.is_empty() {
            return;
        }
        for event in events {
            if let Some(indexes) = self.types.get_mut(&event.type_name) {
                for index in indexes {
                    index.apply(event);
                }
            }
        }
    }

    /// Adds an index; the one of the type that was not used for longest makes room.
    pub(crate) fn add(&mut self, type_name: TypeName, index: LabelIndex) {
        index.used.store(self.tick(), Ordering::Relaxed);
        let indexes = self.types.entry(type_name).or_default();
        indexes.retain(|old| old.label != index.label);
        if indexes.len() >= INDEXES_MAX {
            let oldest = (0..indexes.len()).min_by_key(|at| indexes[*at].used.load(Ordering::Relaxed));
            indexes.swap_remove(oldest.expect("there are some"));
        }
        indexes.push(index);
    }

    /// Whether a label of a type is indexed.
    pub(crate) fn has(&self, type_name: &TypeName, label: &str) -> bool {
        self.types.get(type_name).is_some_and(|indexes| indexes.iter().any(|index| &*index.label == label))
    }

    /// Labels indexed, over all types.
    pub(crate) fn len(&self) -> usize {
        self.types.values().map(Vec::len).sum()
    }

    /// Live objects that fulfil a requirement, if its label is indexed.
    pub(crate) fn count(&self, type_name: &TypeName, requirement: &Requirement) -> Option<usize> {
        Some(self.find(type_name, &requirement.key)?.count(requirement))
    }

    /// The most selective index for a filter, if one serves it.
    pub(crate) fn scan<'a>(
        &'a self,
        type_name: &TypeName,
        filter: &'a Filter,
        after: Option<&str>,
    ) -> Option<Scan<'a>> {
        let candidates = indexable(&filter.labels).filter_map(|requirement| {
            let index = self.find(type_name, &requirement.key)?;
            Some((index.count(requirement), index, requirement))
        });
        let (_, index, requirement) = candidates.min_by_key(|(count, ..)| *count)?;
        index.used.store(self.tick(), Ordering::Relaxed);
        let posting = |posting: &'a OrdSet<Object>| {
            select(
                move |from| posting.range::<_, [u8]>((from.map(str::as_bytes), Bound::Unbounded)),
                filter,
                after,
            )
        };
        let mut scans: Vec<Scan<'a>> = index.postings_of(requirement).map(posting).collect();
        if scans.len() == 1 {
            return scans.pop();
        }
        Some(Box::new(Merge::new(scans)))
    }

    /// The first label an index would help a filter with, if no index serves it yet.
    pub(crate) fn missing<'a>(&self, type_name: &TypeName, filter: &'a Filter) -> Option<&'a Arc<str>> {
        let mut wanted = indexable(&filter.labels).map(|requirement| &requirement.key);
        if wanted.clone().any(|label| self.has(type_name, label)) {
            return None;
        }
        wanted.next()
    }

    fn find(&self, type_name: &TypeName, label: &str) -> Option<&LabelIndex> {
        self.types.get(type_name)?.iter().find(|index| &*index.label == label)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

/// Requirements that an index can answer.
fn indexable(labels: &LabelSelector) -> impl Iterator<Item = &Requirement> + Clone {
    let serves = |requirement: &&Requirement| {
        requirement.operator == Operator::In && requirement.values.len() <= VALUES_MAX
    };
    labels.requirements().iter().filter(serves)
}

/// Several scans as one, in key order. An object has one value per label, so none comes twice.
struct Merge<'a> {
    scans: Vec<Scan<'a>>,
    /// The next object of each scan that has one, smallest key first.
    heads: std::collections::BinaryHeap<std::cmp::Reverse<(&'a Object, usize)>>,
}

impl<'a> Merge<'a> {
    fn new(mut scans: Vec<Scan<'a>>) -> Self {
        let first = |(at, scan): (usize, &mut Scan<'a>)| Some(std::cmp::Reverse((scan.next()?, at)));
        let heads = scans.iter_mut().enumerate().filter_map(first).collect();
        Self { scans, heads }
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = &'a Object;

    fn next(&mut self) -> Option<&'a Object> {
        let std::cmp::Reverse((object, at)) = self.heads.pop()?;
        if let Some(next) = self.scans[at].next() {
            self.heads.push(std::cmp::Reverse((next, at)));
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests;
