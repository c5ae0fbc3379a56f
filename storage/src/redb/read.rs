//! Cold reads of the log: events that no ring in memory holds any more.
//!
//! Each page is one short redb read transaction (at most [`PAGE_EVENTS`] events or [`PAGE_TIME`]),
//! because a long one pins pages and makes the file grow. Never runs on the writer's thread.
//!
//! Consistent with the floors: the transaction begins before the index is asked, and whatever the
//! index still has then was not removed before the transaction began.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redb::ReadOnlyTable;

use crate::change::Event;
use crate::error::StorageError;
use crate::key::TypeName;
use crate::lineage::Lineage;
use crate::object::{Object, Record};
use crate::resource_version::Revision;
use crate::state::State;
use crate::store::{LogPage, ReadLimit};

use super::handle::unreadable;
use super::log::Shared;
use super::tables::{self, REVS};

/// Most events of one page, whatever the caller allows.
const PAGE_EVENTS: usize = 1000;
/// Longest a page's transaction stays open.
const PAGE_TIME: Duration = Duration::from_millis(250);

type Revs = ReadOnlyTable<u64, &'static [u8]>;

/// One page of the events of a type in `(after, up_to]`; `head` is what is published.
pub(crate) fn page(
    shared: &Shared,
    type_name: &TypeName,
    (after, up_to): (Revision, Revision),
    head: Revision,
    limit: ReadLimit,
) -> Result<LogPage, StorageError> {
    let began = Instant::now();
    // The log can be ahead of what is published for a moment; nobody may see that.
    let up_to = up_to.min(head);
    let txn = shared.handle.begin_read()?;
    let (revisions, more) = shared
        .history()
        .between(type_name, after, up_to, limit.events.clamp(1, PAGE_EVENTS))
        .map_err(|floor| StorageError::Compacted { requested: after, floor })?;
    let last_wanted = revisions.last().copied();
    let mut page = LogPage { events: Vec::with_capacity(revisions.len()), complete_to: up_to.max(after) };
    if more {
        page.complete_to = last_wanted.expect("there are more than none");
    }
    if revisions.is_empty() {
        return Ok(page);
    }
    let revs = txn.open_table(REVS).map_err(unreadable)?;
    let lineage = shared.lineage();
    let mut bytes = 0;
    for revision in revisions {
        let event = event(&revs, &lineage, head, type_name, revision)?;
        bytes += [&event.current, &event.previous]
            .into_iter()
            .flatten()
            .map(|object| object.body_bytes().len())
            .sum::<usize>();
        page.events.push(Arc::new(event));
        if (bytes >= limit.bytes || began.elapsed() >= PAGE_TIME) && last_wanted != Some(revision) {
            page.complete_to = revision;
            break;
        }
    }
    Ok(page)
}

/// The events above the head of `state` that are in the file, applied to `state`.
pub(crate) fn above(
    shared: &Shared,
    type_ids: &HashMap<TypeName, u32>,
    state: &mut State,
) -> Result<Vec<Arc<Event>>, StorageError> {
    let names: HashMap<u32, &TypeName> = type_ids.iter().map(|(name, id)| (*id, name)).collect();
    let lineage = shared.lineage();
    let txn = shared.handle.begin_read()?;
    let revs = txn.open_table(REVS).map_err(unreadable)?;
    let above = (Bound::Excluded(state.head().0), Bound::Unbounded);
    let mut events = Vec::new();
    for row in revs.range::<u64>(above).map_err(unreadable)? {
        let (key, value) = row.map_err(unreadable)?;
        let revision = Revision(key.value());
        let head = crate::object::RecordHead::peek(value.value())?;
        let name = names.get(&head.type_id).ok_or_else(|| missing(revision, "the name of its type"))?;
        let event = event(&revs, &lineage, revision, name, revision)?;
        match &event.current {
            Some(object) => drop(state.insert(name, object.clone())),
            None => drop(state.remove(name, event.key())),
        }
        state.set_head(event.resource_version);
        events.push(Arc::new(event));
    }
    Ok(events)
}

/// The newest floors in the file.
pub(crate) fn floors(shared: &Shared) -> Result<HashMap<u32, Revision>, StorageError> {
    let txn = shared.handle.begin_read()?;
    Ok(tables::rows(&txn, tables::FLOORS, |id, floor| Ok((id, Revision(floor))))?.into_iter().collect())
}

fn event(
    revs: &Revs,
    lineage: &Lineage,
    head: Revision,
    type_name: &TypeName,
    revision: Revision,
) -> Result<Event, StorageError> {
    let version = lineage
        .version_of(revision, head)
        .ok_or_else(|| missing(revision, "the incarnation that issued it"))?;
    match record(revs, revision)? {
        Record::Put(object) => {
            let previous = match object.previous_revision() {
                Revision::ZERO => None,
                previous => Some(put(revs, previous)?),
            };
            Ok(Event::new(version, type_name.clone(), previous, Some(object)))
        }
        Record::Delete(tombstone) => {
            Ok(Event::new(version, type_name.clone(), Some(put(revs, tombstone.previous)?), None))
        }
    }
}

fn put(revs: &Revs, revision: Revision) -> Result<Object, StorageError> {
    match record(revs, revision)? {
        Record::Put(object) => Ok(object),
        Record::Delete(_) => Err(missing(revision, "a state: it is a deletion")),
    }
}

fn record(revs: &Revs, revision: Revision) -> Result<Record, StorageError> {
    let row = revs.get(revision.0).map_err(unreadable)?.ok_or_else(|| missing(revision, "a record"))?;
    Ok(Record::decode(revision, Bytes::copy_from_slice(row.value()))?)
}

fn missing(revision: Revision, what: &str) -> StorageError {
    StorageError::Corrupt(format!("event {revision} lacks {what}"))
}
