//! The state of a type at an earlier revision: the newest state with later events undone (D26).

use std::collections::HashSet;
use std::sync::Arc;

use shardcache_storage::{Event, Object, Objects, Revision, StorageError, TypeName};
use tokio::time::Instant;

use super::history::Reading;
use super::{CacheError, Shared, log};

/// Events undone at a time.
const CHUNK_EVENTS: usize = 1024;

/// The objects of a type exactly at an issued revision.
pub(crate) async fn objects_at(
    shared: &Shared,
    type_name: &TypeName,
    at: Revision,
) -> Result<Objects, CacheError> {
    let snapshot = shared.published(at).await;
    let head = snapshot.state.head();
    let now = snapshot.state.objects(type_name).cloned().unwrap_or_default();
    if head == at {
        return Ok(now);
    }
    if let Some(objects) = shared.retained.lock().objects(type_name, at, Instant::now()) {
        return Ok(objects);
    }
    if at < now.floor() {
        return Err(CacheError::TooOld { floor: now.floor() });
    }
    // What is published is not yet in the history for a moment.
    shared.dispatched(head).await;
    let mut undo = Undo { objects: now, seen: HashSet::new(), bytes: 0 };
    let feed = shared.feed(type_name);
    let mut position = at;
    while position < head {
        let chunk = match feed.read(position, CHUNK_EVENTS) {
            Reading::Events { events, end } => {
                position = end.map_or_else(|| last_revision(&events, position), |_| head);
                events
            }
            Reading::Behind => match log::page(shared, &feed, position).await {
                Ok(None) => continue,
                Ok(Some(page)) => {
                    position = page.complete_to;
                    page.events
                }
                Err(StorageError::Compacted { floor, .. }) => return Err(CacheError::TooOld { floor }),
                Err(error) => return Err(error.into()),
            },
        };
        chunk.iter().filter(|event| event.revision <= head).for_each(|event| undo.event(event));
        tokio::task::consume_budget().await;
    }
    let Undo { objects, bytes, .. } = undo;
    shared.retained.lock().keep_objects(type_name, at, objects.clone(), bytes, Instant::now());
    shared.note_retained();
    Ok(objects)
}

fn last_revision(events: &[Arc<Event>], position: Revision) -> Revision {
    events.last().map_or(position, |event| event.revision)
}

/// A state being taken back in time, by its events from the oldest to undo on.
struct Undo {
    objects: Objects,
    /// Keys whose state is settled: the first event of a key tells what was before.
    seen: HashSet<Box<str>>,
    bytes: u64,
}

impl Undo {
    fn event(&mut self, event: &Event) {
        if self.seen.contains(event.key()) {
            return;
        }
        self.seen.insert(event.key().into());
        self.bytes += event.previous.as_ref().map_or(0, Object::size) as u64;
        match &event.previous {
            Some(previous) => self.objects.insert(previous.clone()),
            None => self.objects.remove(event.key()),
        };
    }
}

#[cfg(test)]
mod tests;
