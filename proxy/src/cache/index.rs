//! Indexes of a snapshot: for some types, the objects by the value of a label, or by cluster (D20).
//!
//! Persistent maps like the objects themselves: readers keep theirs, the reflector maintains the next.
//! An index is made when its label is first selected on, or when looking for one cluster in every shard
//! has cost much; beside the reflector (a large type takes seconds), and caught up with the events of the
//! meantime. At most [`INDEXES_MAX`] per type are kept; the one not used for longest gives way.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::{OrdMap, OrdSet};
use shardcache_storage::{Event, Object, Objects, TypeName};
use tokio::sync::mpsc;

use super::scan::{Scan, cluster_across_shards, select};
use crate::filter::Filter;
use crate::selector::{Operator, Requirement};

/// Indexes per type.
pub(crate) const INDEXES_MAX: usize = 16;
/// Labels of types with fewer objects are not indexed.
pub(crate) const OBJECTS_MIN: usize = 512;
/// Values of one requirement above which merging their objects is not worth it.
const VALUES_MAX: usize = 256;

/// The indexes of one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    types: OrdMap<TypeName, Vec<Index>>,
    /// Ticks at each use of an index, so that the least recently used one is known.
    clock: Arc<AtomicU64>,
}

/// What the objects of a type are indexed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexBy {
    /// The value of a label; objects without it are left out.
    Label(Arc<str>),
    /// Their logical cluster, whatever the shard.
    Cluster,
}

/// One index of one type: its objects by value, those of a value in key order.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    by: IndexBy,
    postings: OrdMap<Arc<str>, OrdSet<Object>>,
    used: Arc<AtomicU64>,
}

/// An index that would have helped and is not there.
pub(crate) type Wanted = (TypeName, IndexBy);

/// Where readers ask for indexes. They never wait: when the queue is full, the next list asks again.
#[derive(Clone, Debug)]
pub(crate) struct IndexRequests(pub(crate) mpsc::Sender<Wanted>);

impl IndexRequests {
    pub(crate) fn ask(&self, wanted: Wanted) {
        // Full, or nobody builds any more: this list scans either way.
        let _ = self.0.try_send(wanted);
    }
}

/// A request that a scan makes if it turns out to be costly.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) requests: &'a IndexRequests,
    pub(crate) wanted: Wanted,
}

impl Request<'_> {
    pub(crate) fn send(self) {
        self.requests.ask(self.wanted);
    }
}

impl IndexBy {
    fn value_of<'o>(&self, object: &'o Object) -> Option<&'o str> {
        match self {
            Self::Label(label) => object.label(label),
            Self::Cluster => Some(object.parts().cluster),
        }
    }
}

impl Index {
    /// An index of objects as they are; takes about a microsecond per object that has a value.
    pub(crate) fn build(by: IndexBy, objects: &Objects) -> Self {
        let mut index = Self { by, postings: OrdMap::new(), used: Arc::default() };
        for object in objects.iter() {
            if let Some(value) = index.by.value_of(object) {
                index.postings.entry(value.into()).or_default().insert(object.clone());
            }
        }
        index
    }

    pub(crate) fn by(&self) -> &IndexBy {
        &self.by
    }

    /// Follows one event of the type.
    pub(crate) fn apply(&mut self, event: &Event) {
        let valued = |object| Some((object, self.by.value_of(object)?));
        let before = event.previous.as_ref().and_then(valued);
        let after = event.current.as_ref().and_then(valued);
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

    /// The objects of each value that has some.
    fn postings_of<'a>(&'a self, values: impl IntoIterator<Item = &'a str>) -> Vec<&'a OrdSet<Object>> {
        values.into_iter().filter_map(|value| self.postings.get(value)).collect()
    }
}

impl Indexes {
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
    pub(crate) fn add(&mut self, type_name: TypeName, index: Index) {
        index.used.store(self.tick(), Ordering::Relaxed);
        let indexes = self.types.entry(type_name).or_default();
        indexes.retain(|old| old.by != index.by);
        if indexes.len() >= INDEXES_MAX {
            let oldest = (0..indexes.len()).min_by_key(|at| indexes[*at].used.load(Ordering::Relaxed));
            indexes.swap_remove(oldest.expect("there are some"));
        }
        indexes.push(index);
    }

    /// Whether there is an index of a type.
    pub(crate) fn has(&self, type_name: &TypeName, by: &IndexBy) -> bool {
        self.find(type_name, by).is_some()
    }

    /// Indexes over all types.
    pub(crate) fn len(&self) -> usize {
        self.types.values().map(Vec::len).sum()
    }

    /// Live objects that fulfil a requirement, if its label is indexed.
    pub(crate) fn count(&self, type_name: &TypeName, requirement: &Requirement) -> Option<usize> {
        Some(objects_in(&self.fulfilling(type_name, requirement)?.1))
    }

    /// A scan of the most selective index for a filter, if one serves it; see [`select`].
    pub(crate) fn scan<'a>(
        &'a self,
        type_name: &TypeName,
        filter: &'a Filter,
        after: Option<&str>,
        if_costly: Option<&Request<'a>>,
    ) -> Option<Scan<'a>> {
        let by_label = indexable(filter).filter_map(|requirement| self.fulfilling(type_name, requirement));
        let by_cluster = cluster_across_shards(filter).and_then(|cluster| {
            let index = self.find(type_name, &IndexBy::Cluster)?;
            Some((index, index.postings_of([cluster])))
        });
        let candidates = by_label.chain(by_cluster);
        let (index, postings) = candidates.min_by_key(|(_, postings)| objects_in(postings))?;
        index.used.store(self.tick(), Ordering::Relaxed);
        let scan = |posting: &'a OrdSet<Object>| {
            select(
                move |from| posting.range::<_, [u8]>((from.map(str::as_bytes), Bound::Unbounded)),
                filter,
                after,
                if_costly.cloned(),
            )
        };
        let mut scans: Vec<Scan<'a>> = postings.into_iter().map(scan).collect();
        if scans.len() == 1 {
            return scans.pop();
        }
        Some(Box::new(Merge::new(scans)))
    }

    /// The first label an index would help a filter with, if no label's index serves it yet.
    pub(crate) fn missing(&self, type_name: &TypeName, filter: &Filter) -> Option<IndexBy> {
        let mut wanted = indexable(filter).map(|requirement| IndexBy::Label(Arc::clone(&requirement.key)));
        if wanted.clone().any(|by| self.has(type_name, &by)) {
            return None;
        }
        wanted.next()
    }

    fn find(&self, type_name: &TypeName, by: &IndexBy) -> Option<&Index> {
        self.types.get(type_name)?.iter().find(|index| index.by == *by)
    }

    /// The index of a requirement's label, and the objects that have one of its values.
    fn fulfilling<'a>(
        &'a self,
        type_name: &TypeName,
        requirement: &'a Requirement,
    ) -> Option<(&'a Index, Vec<&'a OrdSet<Object>>)> {
        let index = self.find(type_name, &IndexBy::Label(Arc::clone(&requirement.key)))?;
        Some((index, index.postings_of(requirement.values.iter().map(|value| &**value))))
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

fn objects_in(postings: &[&OrdSet<Object>]) -> usize {
    postings.iter().map(|posting| posting.len()).sum()
}

/// Requirements that a label's index can answer better than the keys: none beside a name, which is more
/// selective than any label.
fn indexable(filter: &Filter) -> impl Iterator<Item = &Requirement> + Clone {
    let by_name = filter.fields.name().is_some();
    let serves = move |requirement: &&Requirement| {
        !by_name && requirement.operator == Operator::In && requirement.values.len() <= VALUES_MAX
    };
    filter.labels.requirements().iter().filter(serves)
}

/// Several scans as one, in key order. An object has one value per index, so none comes twice.
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
