//! One type's way from the reflector to its watchers: history first, then classes.
//!
//! Owned by the cache, written by the reflector alone. Each of its two locks is held for a bounded
//! number of events and never across an await; no list ever takes them.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shardcache_storage::{Event, ResourceVersion, Revision, TypeName};

use super::class::Class;
use super::history::{History, Reading};
use super::registry::{ClassId, Registry};
use crate::filter::Filter;
use crate::selector::Requirement;

/// Events appended and judged under one hold of the locks.
const CHUNK_EVENTS: usize = 128;

/// The history and the classes of one type.
#[derive(Debug)]
pub(crate) struct Feed {
    type_name: TypeName,
    history: RwLock<History>,
    registry: Mutex<Registry>,
    /// Held by the one who lets the history grow backwards; the others wait for what it brings.
    pub(crate) growing: tokio::sync::Mutex<()>,
}

impl Feed {
    /// A feed of a type that has had no event since `opened`.
    pub(crate) fn new(type_name: TypeName, opened: ResourceVersion) -> Self {
        Self {
            type_name,
            history: RwLock::new(History::new(opened)),
            registry: Mutex::new(Registry::new(opened.revision())),
            growing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn type_name(&self) -> &TypeName {
        &self.type_name
    }

    /// Takes the next events of the type, in order. Returns how often a class judged an event.
    pub(crate) fn apply(&self, events: &[Arc<Event>]) -> u64 {
        let mut judged = 0;
        for chunk in events.chunks(CHUNK_EVENTS) {
            // The history comes first: a watcher that finds its class's ring too short looks there.
            let mut history = self.history.write();
            for event in chunk {
                history.append(Arc::clone(event));
            }
            drop(history);
            let dispatched = self.registry.lock().dispatch(chunk);
            dispatched.woken.iter().for_each(|class| class.wake());
            judged += dispatched.judged;
        }
        judged
    }

    /// What history and rings cost.
    pub(crate) fn bytes(&self) -> u64 {
        self.history.read().bytes() + self.registry.lock().bytes()
    }

    /// Events in the history.
    pub(crate) fn events(&self) -> usize {
        self.history.read().len()
    }

    /// Drops the oldest part of the history: at least `bytes` of it, if it has as many.
    pub(crate) fn shrink_by(&self, bytes: u64) {
        let mut history = self.history.write();
        let rest = history.bytes().saturating_sub(bytes);
        let start = history.shrink_to(rest);
        drop(history);
        self.registry.lock().forget_through(start);
    }

    /// Drops what lies at or below the floor of the type.
    pub(crate) fn forget_through(&self, floor: Revision) {
        if floor > self.history.read().start() {
            self.history.write().forget_through(floor);
            self.registry.lock().forget_through(floor);
        }
    }

    /// The history after a position; see [`History::read`].
    pub(crate) fn read(&self, after: Revision, max: usize) -> Reading {
        self.history.read().read(after, max)
    }

    /// The revision after which the history is complete.
    pub(crate) fn start(&self) -> Revision {
        self.history.read().start()
    }

    /// Whether older events may be put before the history's.
    pub(crate) fn growable(&self) -> bool {
        self.history.read().growable()
    }

    /// Puts the events in `(start, at]` before a history that begins at `at`; nothing happens if it no
    /// longer begins there. `more` says whether still older events may follow.
    pub(crate) fn grow(&self, start: Revision, at: Revision, events: Vec<Arc<Event>>, more: bool) {
        let mut history = self.history.write();
        if history.start() == at && history.growable() {
            history.prepend(start, events);
        }
        if !more {
            history.stop_growing();
        }
    }

    /// Adds a watcher; see [`Registry::join`].
    pub(crate) fn join(
        &self,
        filter: Filter,
        count: impl Fn(&Requirement) -> Option<usize>,
    ) -> (ClassId, Arc<Class>) {
        self.registry.lock().join(filter, count)
    }

    /// Removes a watcher.
    pub(crate) fn leave(&self, id: ClassId) {
        self.registry.lock().leave(id);
    }

    /// Classes with watchers.
    pub(crate) fn classes(&self) -> usize {
        self.registry.lock().len()
    }

    /// Wakes every watcher, so that it looks again.
    pub(crate) fn wake_all(&self) {
        self.registry.lock().classes().for_each(|class| class.wake());
    }
}
