//! Reading the store's log for those whom memory cannot serve: bounded readers, bounded pages.
//!
//! After a restart the history grows backwards to the oldest position a watcher resumes from, as far as
//! its budget goes, so that ten thousand resuming watchers read the disk once (D17). Beyond the budget
//! everyone reads for themselves, a bounded number at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shardcache_storage::{Event, LogPage, ReadLimit, Revision, StorageError};
use tokio::sync::SemaphorePermit;

use super::Shared;
use super::feed::Feed;
use super::history::event_bytes;

/// One read of the log; D17 bounds how long the engine's reader lives.
const PAGE: ReadLimit = ReadLimit { events: 1000, bytes: 1 << 20 };

/// The next page of a type's log after a position, up to where its history begins. `None` if the history
/// reaches the position by the time it is the reader's turn.
pub(crate) async fn page(
    shared: &Shared,
    feed: &Feed,
    after: Revision,
) -> Result<Option<LogPage>, StorageError> {
    let _turn = turn(shared).await;
    let start = feed.start();
    if after >= start {
        return Ok(None);
    }
    read(shared, feed, after, start).await.map(Some)
}

/// Lets the history of a type grow back to a position. `false` if it does not reach that far: it was
/// trimmed before, or the budget is used up.
pub(crate) async fn grow(shared: &Shared, feed: &Feed, after: Revision) -> Result<bool, StorageError> {
    if !feed.growable() {
        return Ok(false);
    }
    let _growing = feed.growing.lock().await;
    let start = feed.start();
    if after >= start || !feed.growable() {
        return Ok(after >= start);
    }
    let mut grown = Grown { shared, events: VecDeque::new(), start: after, bytes: 0 };
    let mut position = after;
    while position < start {
        let turn = turn(shared).await;
        let page = read(shared, feed, position, start).await?;
        drop(turn);
        position = page.complete_to;
        let rest = shared.config.history_bytes.saturating_sub(shared.history_bytes());
        for event in page.events {
            grown.push(event, rest);
        }
    }
    let whole = grown.start == after;
    feed.grow(grown.start, start, std::mem::take(&mut grown.events).into(), whole);
    drop(grown);
    shared.note_history();
    Ok(whole)
}

/// The newest part of what was read for a history, within what the budget leaves.
struct Grown<'a> {
    shared: &'a Shared,
    events: VecDeque<Arc<Event>>,
    start: Revision,
    bytes: u64,
}

impl Grown<'_> {
    fn push(&mut self, event: Arc<Event>, rest: u64) {
        let growing = &self.shared.growing;
        self.bytes += event_bytes(&event);
        growing.fetch_add(event_bytes(&event), Ordering::Relaxed);
        self.events.push_back(event);
        // What other types are growing by counts too.
        while growing.load(Ordering::Relaxed) > rest
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= event_bytes(&oldest);
            growing.fetch_sub(event_bytes(&oldest), Ordering::Relaxed);
            self.start = oldest.revision;
        }
    }
}

impl Drop for Grown<'_> {
    fn drop(&mut self) {
        self.shared.growing.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

async fn turn(shared: &Shared) -> SemaphorePermit<'_> {
    shared.readers.acquire().await.expect("the semaphore is never closed")
}

async fn read(
    shared: &Shared,
    feed: &Feed,
    after: Revision,
    up_to: Revision,
) -> Result<LogPage, StorageError> {
    let page = shared.store.events(feed.type_name(), after, up_to, PAGE).await?;
    if page.complete_to <= after {
        // An engine that answers so would make its reader spin.
        return Err(StorageError::Corrupt(format!("the log after {after} up to {up_to} does not advance")));
    }
    Ok(page)
}
