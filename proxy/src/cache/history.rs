//! The newest events of one type, in memory: where a watcher that is behind its class reads.
//!
//! Complete: every event of the type in `(start, end]` is here. The old end gives way, to a budget
//! (the store's log takes over) or to compaction; at a restart it can also grow backwards from the log,
//! so that many resuming watchers read the disk once (D17).
//!
//! Pure: no lock, no I/O; the feed brings both.

use std::collections::VecDeque;
use std::sync::Arc;

use shardcache_storage::{Event, Object, ResourceVersion, Revision};

/// What an event costs besides bodies: the event, its two object headers, its slot.
const EVENT_BYTES: u64 = 320;

/// The newest events of one type.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    start: Revision,
    end: ResourceVersion,
    bytes: u64,
    /// Whether nothing was ever dropped, so that growing backwards is not a fight with the budget.
    growable: bool,
}

/// What a history has after a position.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The next events; with the history's end if there are none after them.
    Events { events: Vec<Arc<Event>>, end: Option<ResourceVersion> },
    /// The position is older than the history.
    Behind,
}

impl History {
    /// Nothing, complete from `at` on.
    pub(crate) fn new(at: ResourceVersion) -> Self {
        let start = at.revision();
        Self { events: VecDeque::new(), start, end: at, bytes: 0, growable: true }
    }

    /// The revision after which every event is here.
    pub(crate) fn start(&self) -> Revision {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// What the events cost, as [`event_bytes`] counts.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn growable(&self) -> bool {
        self.growable
    }

    /// Gives up growing backwards for good.
    pub(crate) fn stop_growing(&mut self) {
        self.growable = false;
    }

    /// Adds the next event.
    pub(crate) fn append(&mut self, event: Arc<Event>) {
        debug_assert!(event.revision > self.end.revision(), "events come in order");
        self.end = event.resource_version;
        self.bytes += event_bytes(&event);
        self.events.push_back(event);
    }

    /// Adds the events before the oldest: all of the type in `(start, self.start()]`.
    pub(crate) fn prepend(&mut self, start: Revision, events: Vec<Arc<Event>>) {
        debug_assert!(start <= self.start && events.last().is_none_or(|last| last.revision <= self.start));
        self.start = start;
        for event in events.into_iter().rev() {
            self.bytes += event_bytes(&event);
            self.events.push_front(event);
        }
    }

    /// At most `max` events after a position, in order.
    pub(crate) fn read(&self, after: Revision, max: usize) -> Reading {
        if after < self.start {
            return Reading::Behind;
        }
        let from = self.events.partition_point(|event| event.revision <= after);
        let to = self.events.len().min(from + max);
        let events = self.events.range(from..to).cloned().collect();
        Reading::Events { events, end: (to == self.events.len()).then_some(self.end) }
    }

    /// Drops the oldest events until at most `bytes` are left. Returns the new start.
    pub(crate) fn shrink_to(&mut self, bytes: u64) -> Revision {
        while self.bytes > bytes && self.drop_oldest() {}
        self.growable = false;
        self.events.shrink_to(self.events.len() * 2);
        self.start
    }

    /// Drops the events at or below a floor: nobody may start there any more.
    pub(crate) fn forget_through(&mut self, floor: Revision) {
        while self.events.front().is_some_and(|event| event.revision <= floor) {
            self.drop_oldest();
        }
        self.start = self.start.max(floor.min(self.end.revision()));
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(event) = self.events.pop_front() else { return false };
        self.start = event.revision;
        self.bytes -= event_bytes(&event);
        true
    }
}

/// What keeping an event costs: the body it superseded, which nothing else keeps, and overhead. The
/// state after it is shared with the live objects until a later event, which then counts it.
pub(crate) fn event_bytes(event: &Event) -> u64 {
    let superseded = event.previous.as_ref().map_or(0, Object::size) as u64;
    // A deletion is sent with the previous body encoded once more.
    let again = if event.current.is_none() { superseded } else { 0 };
    superseded + again + EVENT_BYTES
}

#[cfg(test)]
mod tests;
