//! The load at opening: one scan of `revs`, newest record first, gives the state and the history index.
//!
//! Every record names the one it supersedes, so going backwards a record is the newest of its key
//! unless a later one named it: no key is looked up, and superseded bodies are never copied. Two
//! threads: one scans, one checks, decodes and sorts.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata};

use crate::error::StorageError;
use crate::key::TypeName;
use crate::object::{RecordHead, Unchecked};
use crate::resource_version::{ResourceVersion, Revision};
use crate::retention::{Entry, History};
use crate::state::State;

use super::load_order::InOrder;
use super::options::{Progress, ProgressFn};
use super::tables::{self, damaged};

/// Records handed to the decoder at a time.
const CHUNK_RECORDS: usize = 1024;
/// Chunks that may wait for the decoder.
const CHUNKS_WAITING: usize = 8;
/// How often the progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What a store's file holds, read into memory.
pub(crate) struct Loaded {
    /// Every live object; its head is a placeholder.
    pub(crate) state: State,
    /// Every event that can be replayed.
    pub(crate) history: History,
    /// Ids of the types.
    pub(crate) type_ids: HashMap<TypeName, u32>,
    /// The newest record or floor: the last durable event is not above it, unless none was ever made.
    pub(crate) last: Revision,
}

/// One type while its records are being read.
struct TypeLoad {
    name: TypeName,
    floor: Revision,
    /// Newest first until the end.
    entries: VecDeque<Entry>,
}

type Chunk = Vec<Unchecked>;

/// Reads everything.
///
/// # Errors
/// [`StorageError::Corrupt`] if the rows do not fit together; [`StorageError::Closed`] once `stop` is set.
pub(crate) fn load(
    txn: &ReadTransaction,
    progress: Option<&ProgressFn>,
    stop: &AtomicBool,
) -> Result<Loaded, StorageError> {
    let mut types = types(txn)?;
    let newest_floor = types.values().map(|load| load.floor).max().unwrap_or_default();
    let (chunks, received) = sync_channel(CHUNKS_WAITING);
    let (last, objects) = std::thread::scope(|scope| {
        let decoder = scope.spawn(move || decode(&received));
        let last = scan(txn, &mut types, &chunks, progress, stop);
        drop(chunks);
        let objects = decoder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<_, StorageError>((last?, objects))
    })?;
    let mut state = State::empty(ResourceVersion::ZERO);
    let mut history = History::default();
    let mut type_ids = HashMap::new();
    let mut objects = objects;
    for (id, load) in types {
        if let Some(objects) = objects.remove(&id) {
            state.load(load.name.clone(), objects.sums(), objects.sorted())?;
        }
        state.set_floor(&load.name, load.floor);
        type_ids.insert(load.name.clone(), id);
        history.load(load.name, load.floor, load.entries);
    }
    Ok(Loaded { state, history, type_ids, last: last.max(newest_floor) })
}

fn types(txn: &ReadTransaction) -> Result<HashMap<u32, TypeLoad>, StorageError> {
    let floors: HashMap<u32, Revision> =
        tables::rows(txn, tables::FLOORS, |id, floor| Ok((id, Revision(floor))))?.into_iter().collect();
    let types = tables::rows(txn, tables::TYPES, |id, value| {
        let floor = floors.get(&id).copied().unwrap_or_default();
        Ok((id, TypeLoad { name: tables::decode_type(value)?, floor, entries: VecDeque::new() }))
    })?;
    Ok(types.into_iter().collect())
}

/// Walks `revs` backwards; sends live records to the decoder. Returns the newest revision.
fn scan(
    txn: &ReadTransaction,
    types: &mut HashMap<u32, TypeLoad>,
    chunks: &SyncSender<Chunk>,
    progress: Option<&ProgressFn>,
    stop: &AtomicBool,
) -> Result<Revision, StorageError> {
    let began = Instant::now();
    let table = txn.open_table(tables::REVS).map_err(damaged)?;
    let total = table.len().map_err(damaged)?;
    // Superseded revision → where its size is still to be added: type and index in its entries.
    let mut superseded: HashMap<Revision, (u32, usize)> = HashMap::new();
    let mut last = Revision::ZERO;
    let mut chunk = Vec::with_capacity(CHUNK_RECORDS);
    let mut buffer = Vec::new();
    let mut told = began;
    for (records, row) in (1..).zip(table.iter().map_err(damaged)?.rev()) {
        let (key, value) = row.map_err(damaged)?;
        let (revision, record) = (Revision(key.value()), value.value());
        last = last.max(revision);
        let head = RecordHead::peek(record)?;
        let load = types.get_mut(&head.type_id).ok_or_else(|| {
            StorageError::Corrupt(format!("event {revision} is of the unknown type {}", head.type_id))
        })?;
        let newer = superseded.remove(&revision);
        if revision > load.floor {
            if head.previous != Revision::ZERO {
                superseded.insert(head.previous, (head.type_id, load.entries.len()));
            }
            let frees = if head.deletion { record.len() as u32 } else { 0 };
            let entry = Entry { revision, previous: head.previous, frees, deletion: head.deletion };
            load.entries.push_back(entry);
        }
        match newer {
            Some((id, index)) => {
                let entry = types.get_mut(&id).and_then(|load| load.entries.get_mut(index));
                entry.expect("it was pushed when the newer record was read").frees += record.len() as u32;
            }
            None if !head.deletion => chunk.push(Unchecked::copy(revision, record, &mut buffer)),
            None => {}
        }
        if chunk.len() == CHUNK_RECORDS
            && chunks.send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK_RECORDS))).is_err()
        {
            // The decoder stopped at a damaged record; its error is the answer.
            return Ok(last);
        }
        if records % 1024 == 0 {
            if stop.load(Ordering::Relaxed) {
                return Err(StorageError::Closed);
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                tell(progress, Progress { records, total, elapsed: began.elapsed() });
            }
        }
    }
    if !superseded.is_empty() {
        return Err(StorageError::Corrupt(format!("{} superseded states are missing", superseded.len())));
    }
    drop(chunks.send(chunk));
    for load in types.values_mut() {
        load.entries.make_contiguous().reverse();
        load.entries.shrink_to_fit();
    }
    tell(progress, Progress { records: total, total, elapsed: began.elapsed() });
    Ok(last)
}

fn tell(progress: Option<&ProgressFn>, at: Progress) {
    if let Some(progress) = progress {
        progress(at);
    }
}

/// Checks and decodes live records; gives them by type.
fn decode(chunks: &Receiver<Chunk>) -> Result<HashMap<u32, InOrder>, StorageError> {
    let mut objects: HashMap<u32, InOrder> = HashMap::new();
    for chunk in chunks {
        for record in chunk {
            let object = record.check()?;
            objects.entry(object.type_id()).or_default().push(object);
        }
    }
    for objects in objects.values_mut() {
        objects.sort();
    }
    Ok(objects)
}
