//! One client's stream: a cursor, not a queue (D23).
//!
//! A watcher knows how far it has come and nothing else. It reads, in this order of nearness, the ring
//! of its class, the in-memory history of its type, the store's log; when the log no longer reaches its
//! position it is expired. No path skips an event, and a watcher that does not read costs nothing.

use std::pin::pin;
use std::sync::Arc;

use shardcache_storage::{Event, ResourceVersion, Revision, StorageError};

use super::class::{Class, Delivery, Pending, delivery_bytes, transition};
use super::feed::Feed;
use super::history::Reading;
use super::registry::ClassId;
use super::{Shared, log};
use crate::metrics::labels::State;

/// Deliveries of one step.
pub(crate) const BATCH_EVENTS: usize = 256;
/// About how many bytes of bodies one step holds; a single event may be larger.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
/// Events of the history that are judged at a time.
const SCAN_EVENTS: usize = 512;

/// What a watcher yields.
#[derive(Debug)]
pub enum WatchStep {
    /// Events for this watcher, in order, at least one, a bounded number of them.
    Events(Vec<Delivery>),
    /// The history after the watcher's position is gone: 410.
    Expired,
    /// Everything published was yielded and nothing more will come: the server is shutting down, or the
    /// store has closed. Send a last bookmark and end.
    Draining,
    /// The store's log could not be read: an in-stream 500, then the end. The client may resume.
    Failed(StorageError),
}

/// One client's stream position.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    class: Arc<Class>,
    id: ClassId,
    /// Every matching event at or below was yielded.
    position: Revision,
    /// An issued version at or below the position: the newest one known.
    version: ResourceVersion,
    state: State,
}

impl Watcher {
    /// A watcher of a class it has joined, from a position on.
    pub(crate) fn new(
        shared: Arc<Shared>,
        feed: Arc<Feed>,
        (id, class): (ClassId, Arc<Class>),
        version: ResourceVersion,
    ) -> Self {
        shared.watchers(State::Active).inc();
        let position = version.revision();
        Self { shared, feed, class, id, position, version, state: State::Active }
    }

    /// Waits for the next events. Cancel safe: what was not returned is returned by the next call.
    pub async fn next(&mut self) -> WatchStep {
        loop {
            // Most steps find something; waiting for a wake-up costs a lock, so it is set up after a look.
            if let Some(step) = self.look(false) {
                return step;
            }
            let class = Arc::clone(&self.class);
            let mut woken = pin!(class.woken());
            woken.as_mut().enable();
            // In this order: who sees the flag sees everything that was pushed before it was set.
            let draining = self.shared.is_draining();
            if let Some(step) = self.look(draining) {
                return step;
            }
            if !self.is_behind() {
                woken.await;
            } else if let Some(step) = self.catch_up().await {
                return step;
            }
        }
    }

    /// The newest version up to which every matching event has been yielded: what a bookmark may say (D25:
    /// never overtakes an event). Always a boundary of commits (D2), so nothing while the watcher is in
    /// the middle of one, or behind; its events are on their way then. Never falls; also moves while
    /// nothing matches.
    pub fn bookmark(&mut self) -> Option<ResourceVersion> {
        // Progress first, then the ring: everything up to `progress` is in the ring by now.
        let progress = self.shared.progress();
        if !self.class.at_tail(self.position) || progress.revision() < self.position {
            return None;
        }
        self.pass(progress);
        Some(progress)
    }

    /// What the ring has to say, if anything.
    fn look(&mut self, draining: bool) -> Option<WatchStep> {
        match self.class.read(self.position) {
            Pending::Events(deliveries) => {
                self.enter(State::Active);
                let last = deliveries.last().expect("pending events are not empty");
                self.pass(last.event.resource_version);
                Some(WatchStep::Events(deliveries))
            }
            Pending::Nothing => {
                self.enter(State::Active);
                draining.then_some(WatchStep::Draining)
            }
            Pending::Behind => {
                self.enter(State::Lagging);
                None
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.state != State::Active
    }

    /// Reads what the ring no longer holds, until it finds something for the client (or why there is
    /// nothing), or has come to where the ring begins.
    async fn catch_up(&mut self) -> Option<WatchStep> {
        loop {
            match self.feed.read(self.position, SCAN_EVENTS) {
                Reading::Events { events, end } => {
                    self.enter(State::Lagging);
                    let (deliveries, all) = self.select(&events);
                    if let Some(end) = end.filter(|_| all) {
                        self.pass(end);
                    }
                    if !deliveries.is_empty() {
                        return Some(WatchStep::Events(deliveries));
                    }
                    if end.is_some() {
                        return None;
                    }
                }
                Reading::Behind => {
                    self.enter(State::Cold);
                    if let Some(step) = self.read_log().await {
                        return Some(step);
                    }
                }
            }
            tokio::task::consume_budget().await;
        }
    }

    /// One page of the log, unless the history grows to reach the position.
    async fn read_log(&mut self) -> Option<WatchStep> {
        if self.position < self.shared.snapshot().state.floor(self.feed.type_name()) {
            return Some(WatchStep::Expired);
        }
        let page = match log::grow(&self.shared, &self.feed, self.position).await {
            Ok(true) => return None,
            Ok(false) => log::page(&self.shared, &self.feed, self.position).await,
            Err(error) => Err(error),
        };
        match page {
            Ok(None) => None,
            Ok(Some(page)) => {
                let (deliveries, all) = self.select(&page.events);
                if all {
                    self.position = self.position.max(page.complete_to);
                }
                (!deliveries.is_empty()).then_some(WatchStep::Events(deliveries))
            }
            Err(StorageError::Compacted { .. }) => Some(WatchStep::Expired),
            Err(error) => Some(WatchStep::Failed(error)),
        }
    }

    /// Judges events in order, as far as one step may go, and moves past them. Also tells whether all of
    /// them were judged.
    fn select(&mut self, events: &[Arc<Event>]) -> (Vec<Delivery>, bool) {
        let mut deliveries = Vec::new();
        let mut bytes = 0;
        for event in events {
            if let Some(kind) = transition(self.class.filter(), event) {
                bytes += delivery_bytes(event);
                let full = deliveries.len() == BATCH_EVENTS || bytes > BATCH_BYTES;
                if full && !deliveries.is_empty() {
                    return (deliveries, false);
                }
                deliveries.push(Delivery { kind, event: Arc::clone(event) });
            }
            self.pass(event.resource_version);
        }
        (deliveries, true)
    }

    fn pass(&mut self, version: ResourceVersion) {
        self.version = self.version.max(version);
        self.position = self.position.max(version.revision());
    }

    fn enter(&mut self, state: State) {
        if self.state != state {
            self.shared.watchers(self.state).dec();
            self.shared.watchers(state).inc();
            if state == State::Cold {
                self.shared.metrics.watch.cold_starts.inc();
            }
            self.state = state;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.feed.leave(self.id);
        self.shared.watchers(self.state).dec();
    }
}

#[cfg(test)]
mod tests;
