//! A class: everyone who watches one type through one filter, and the events they share.
//!
//! Each matching event is judged once per class and put into the class's ring, from which every
//! watcher of the class reads at its own pace. The ring holds *every* matching event after
//! `complete_after`; it is short, and what it drops is still in the history or in the store's log, so
//! dropping is never a gap. It holds no event that the in-memory history does not hold: a stalled
//! watcher pins nothing (D23, D28).
//!
//! Does not decide who is woken when (the feed does), does not know where a watcher stands.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::RwLock;
use shardcache_storage::{Event, Object, Revision};
use tokio::sync::Notify;

use super::watcher::{BATCH_BYTES, BATCH_EVENTS};
use crate::filter::Filter;

/// Slots of a ring. A watcher further behind reads the history and filters for itself.
const RING_MAX: usize = 4096;
/// A ring that shrank to nothing keeps at most this many slots allocated.
const RING_KEPT: usize = 16;

/// One event as a watcher of one class sees it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// ADDED, MODIFIED or DELETED for this watcher.
    pub kind: Transition,
    /// What happened.
    pub event: Arc<Event>,
}

/// What an event is to a watcher, by whether its filter selects the states before and after (D24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Did not match, matches now.
    Added,
    /// Matched and matches.
    Modified,
    /// Matched, does not match now (or is gone): the previous object under the event's version.
    Deleted,
}

impl Transition {
    /// Kubernetes' table: kube-apiserver's watch cache decides alike.
    pub(crate) fn of(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (false, true) => Some(Self::Added),
            (true, true) => Some(Self::Modified),
            (true, false) => Some(Self::Deleted),
            (false, false) => None,
        }
    }
}

/// How a filter sees an event; `None` if it does not.
pub(crate) fn transition(filter: &Filter, event: &Event) -> Option<Transition> {
    let selected = |state: &Option<Object>| state.as_ref().is_some_and(|object| filter.matches(object));
    Transition::of(selected(&event.previous), selected(&event.current))
}

/// About how many bytes a delivery puts on the wire.
pub(crate) fn delivery_bytes(event: &Event) -> usize {
    event.current.as_ref().or(event.previous.as_ref()).map_or(0, Object::size)
}

/// Everyone who watches one type through one filter.
#[derive(Debug)]
pub(crate) struct Class {
    filter: Filter,
    ring: RwLock<Ring>,
    /// Wakes the watchers that wait at the ring's tail.
    wake: Notify,
}

#[derive(Debug)]
struct Ring {
    /// With the event's revision beside it: a search should not touch the events.
    slots: VecDeque<(Revision, Delivery)>,
    complete_after: Revision,
}

/// What a ring has after a position.
#[derive(Debug)]
pub(crate) enum Pending {
    /// These come next; there may be more.
    Events(Vec<Delivery>),
    /// Nothing: the position is at the tail.
    Nothing,
    /// The ring does not reach back to the position.
    Behind,
}

impl Class {
    /// A class whose ring gets every matching event after `complete_after`.
    pub(crate) fn new(filter: Filter, complete_after: Revision) -> Self {
        let ring = Ring { slots: VecDeque::new(), complete_after };
        Self { filter, ring: RwLock::new(ring), wake: Notify::new() }
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Wakes everyone who waits for events of the class.
    pub(crate) fn wake(&self) {
        self.wake.notify_waiters();
    }

    /// Register with this *before* looking at the ring; see [`Notify::notified`].
    pub(crate) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.wake.notified()
    }

    /// Appends an event; the caller wakes. Revisions only rise.
    pub(crate) fn push(&self, delivery: Delivery) {
        let mut ring = self.ring.write();
        let revision = delivery.event.revision;
        debug_assert!(ring.slots.back().is_none_or(|(last, _)| *last < revision));
        if ring.slots.len() == RING_MAX {
            ring.drop_oldest();
        }
        ring.slots.push_back((revision, delivery));
    }

    /// Drops the slots at or below a revision, because the history no longer holds their events.
    pub(crate) fn forget_through(&self, revision: Revision) {
        let mut ring = self.ring.write();
        while ring.slots.front().is_some_and(|(oldest, _)| *oldest <= revision) {
            ring.drop_oldest();
        }
        if ring.slots.is_empty() {
            ring.slots.shrink_to(RING_KEPT);
        }
    }

    /// The next deliveries after a position, a bounded number of them.
    pub(crate) fn read(&self, after: Revision) -> Pending {
        let ring = self.ring.read();
        if after < ring.complete_after {
            return Pending::Behind;
        }
        let from = ring.slots.partition_point(|(revision, _)| *revision <= after);
        if from == ring.slots.len() {
            return Pending::Nothing;
        }
        let mut bytes = 0;
        let pending = ring.slots.range(from..).take(BATCH_EVENTS).take_while(|(_, delivery)| {
            let first = bytes == 0;
            bytes += delivery_bytes(&delivery.event);
            first || bytes <= BATCH_BYTES
        });
        Pending::Events(pending.map(|(_, delivery)| delivery.clone()).collect())
    }

    /// Whether nothing in the ring comes after the position, and nothing can be missing from it.
    pub(crate) fn at_tail(&self, position: Revision) -> bool {
        let ring = self.ring.read();
        position >= ring.complete_after && ring.slots.back().is_none_or(|(last, _)| *last <= position)
    }
}

impl Ring {
    fn drop_oldest(&mut self) {
        if let Some((oldest, _)) = self.slots.pop_front() {
            self.complete_after = oldest;
        }
    }
}

/// A class in a map from filters: hashed and compared as its filter.
#[derive(Debug)]
pub(crate) struct ByFilter(pub(crate) Arc<Class>);

impl Borrow<Filter> for ByFilter {
    fn borrow(&self) -> &Filter {
        self.0.filter()
    }
}
impl Hash for ByFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.filter().hash(state);
    }
}
impl PartialEq for ByFilter {
    fn eq(&self, other: &Self) -> bool {
        self.0.filter() == other.0.filter()
    }
}
impl Eq for ByFilter {}

#[cfg(test)]
mod tests;
