//! The classes of one type, and which of them an event concerns.
//!
//! An event is judged by the classes in the buckets it names (see [`super::anchor`]), each once; those
//! it matters to get it into their rings. Cost: labels of the object, plus classes judged, whatever the
//! number of classes and watchers.
//!
//! Also remembers which rings hold an event, to take it out of them when the history drops it.
//! Pure: the feed brings the lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shardcache_storage::{Event, Revision};
use smallvec::SmallVec;

use super::anchor::{Choice, Shapes};
use super::class::{ByFilter, Class, Delivery, transition};
use crate::filter::Filter;
use crate::selector::Requirement;

/// What one slot of a ring and its entry here cost.
const SLOT_BYTES: u64 = 32;

/// Index of a class in its registry; used again when the class is gone.
pub(crate) type ClassId = u32;

/// The classes of one type.
#[derive(Debug)]
pub(crate) struct Registry {
    entries: Vec<Option<Entry>>,
    free: Vec<ClassId>,
    by_filter: HashMap<ByFilter, ClassId>,
    buckets: HashMap<u64, Bucket>,
    shapes: Shapes,
    /// Every event at or below was judged.
    dispatched: Revision,
    /// Which classes hold which event, oldest first; a part of the history.
    pushed: VecDeque<Pushed>,
    slots: u64,
    /// Marks the classes that the event at hand met already.
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    class: Arc<Class>,
    choice: Choice,
    watchers: usize,
    /// Epoch of the last event judged, and of the first event of the last round that was pushed.
    judged: u64,
    woken: u64,
}

/// Classes in one bucket, sorted.
type Bucket = SmallVec<[ClassId; 4]>;

#[derive(Debug)]
struct Pushed {
    revision: Revision,
    classes: SmallVec<[ClassId; 4]>,
}

/// What a round of dispatch did.
#[derive(Debug, Default)]
pub(crate) struct Dispatched {
    /// Classes with new events, each once; the caller wakes them.
    pub(crate) woken: Vec<Arc<Class>>,
    /// How often a class judged an event.
    pub(crate) judged: u64,
}

impl Registry {
    /// No classes; those that come get every event after `dispatched`.
    pub(crate) fn new(dispatched: Revision) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_filter: HashMap::new(),
            buckets: HashMap::new(),
            shapes: Shapes::default(),
            dispatched,
            pushed: VecDeque::new(),
            slots: 0,
            epoch: 0,
        }
    }

    /// Classes with at least one watcher.
    pub(crate) fn len(&self) -> usize {
        self.by_filter.len()
    }

    /// What the rings cost, beside the history whose events they share.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots * SLOT_BYTES
    }

    /// Every class.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &Arc<Class>> {
        self.entries.iter().flatten().map(|entry| &entry.class)
    }

    /// Adds a watcher to the class of its filter, which is made if there is none yet.
    pub(crate) fn join(
        &mut self,
        filter: Filter,
        count: impl Fn(&Requirement) -> Option<usize>,
    ) -> (ClassId, Arc<Class>) {
        if let Some(&id) = self.by_filter.get(&filter) {
            let entry = self.entries[id as usize].as_mut().expect("a filter leads to a live class");
            entry.watchers += 1;
            return (id, Arc::clone(&entry.class));
        }
        let choice = Choice::of(&filter, count);
        let class = Arc::new(Class::new(filter, self.dispatched));
        let entry = Entry { class: Arc::clone(&class), choice, watchers: 1, judged: 0, woken: 0 };
        let id = if let Some(id) = self.free.pop() {
            self.entries[id as usize] = Some(entry);
            id
        } else {
            self.entries.push(Some(entry));
            (self.entries.len() - 1) as ClassId
        };
        for anchor in self.shapes.anchors(class.filter(), choice) {
            self.shapes.add(&anchor);
            let bucket = self.buckets.entry(anchor.bucket).or_default();
            if let Err(at) = bucket.binary_search(&id) {
                bucket.insert(at, id);
            }
        }
        self.by_filter.insert(ByFilter(Arc::clone(&class)), id);
        (id, class)
    }

    /// Takes a watcher from its class; the last one takes the class along.
    pub(crate) fn leave(&mut self, id: ClassId) {
        let slot = &mut self.entries[id as usize];
        let entry = slot.as_mut().expect("a watcher leaves the class it joined, once");
        entry.watchers -= 1;
        if entry.watchers > 0 {
            return;
        }
        let Entry { class, choice, .. } = slot.take().expect("seen above");
        for anchor in self.shapes.anchors(class.filter(), choice) {
            self.shapes.remove(&anchor);
            let Some(bucket) = self.buckets.get_mut(&anchor.bucket) else { continue };
            if let Ok(at) = bucket.binary_search(&id) {
                bucket.remove(at);
            }
            if bucket.is_empty() {
                self.buckets.remove(&anchor.bucket);
            }
        }
        self.by_filter.remove(class.filter());
        self.free.push(id);
        if self.by_filter.is_empty() {
            // A fleet that left should not leave its tables behind.
            *self = Self {
                pushed: std::mem::take(&mut self.pushed),
                slots: self.slots,
                ..Self::new(self.dispatched)
            };
        }
    }

    /// Judges the next events, in order, and pushes them where they matter.
    pub(crate) fn dispatch(&mut self, events: &[Arc<Event>]) -> Dispatched {
        let mut done = Dispatched::default();
        let mut buckets = Vec::new();
        let round = self.epoch + 1;
        for event in events {
            self.epoch += 1;
            self.dispatched = event.revision;
            if self.by_filter.is_empty() {
                continue;
            }
            self.shapes.buckets(event, &mut buckets);
            let mut classes = SmallVec::new();
            for id in buckets.iter().filter_map(|bucket| self.buckets.get(bucket)).flatten() {
                let entry = self.entries[*id as usize].as_mut().expect("buckets hold live classes");
                if entry.judged == self.epoch {
                    continue;
                }
                entry.judged = self.epoch;
                done.judged += 1;
                let Some(kind) = transition(entry.class.filter(), event) else { continue };
                entry.class.push(Delivery { kind, event: Arc::clone(event) });
                classes.push(*id);
                if entry.woken < round {
                    entry.woken = round;
                    done.woken.push(Arc::clone(&entry.class));
                }
            }
            if !classes.is_empty() {
                self.slots += classes.len() as u64;
                self.pushed.push_back(Pushed { revision: event.revision, classes });
            }
        }
        done
    }

    /// Takes the events at or below a revision out of the rings: the history dropped them.
    pub(crate) fn forget_through(&mut self, revision: Revision) {
        while let Some(oldest) = self.pushed.pop_front_if(|oldest| oldest.revision <= revision) {
            self.slots -= oldest.classes.len() as u64;
            // A class that took over the id of one that left has no older event than it should have.
            for id in oldest.classes {
                if let Some(Some(entry)) = self.entries.get(id as usize) {
                    entry.class.forget_through(revision);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
