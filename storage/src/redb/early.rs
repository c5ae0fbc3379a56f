//! The load beside the check of every page, so that an opening takes as long as the longer of the two.
//!
//! redb checks a file in one thread before it lets anybody read it. Meanwhile a second, read-only view of
//! the file loads it. What the view loaded counts only if the check then finds the file sound and holding
//! the same rows; records carry checksums of their own. Whatever else happens to the view (a file
//! that needs repair, damage, a panic) is none of its business: the load is then made after the check.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Builder, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use crate::error::StorageError;
use crate::resource_version::Revision;

use super::disk::{BackendFactory, Overlay};
use super::handle::Handle;
use super::load::{self, Loaded};
use super::options::ProgressFn;
use super::tables::{self, damaged};

/// Page cache of the view, which reads each page once.
const CACHE_BYTES: usize = 16 << 20;

/// What a file held when it was loaded; two commits never look the same.
#[derive(PartialEq, Eq)]
struct Rows {
    records: u64,
    last: Option<Revision>,
    incarnations: u64,
    types: u64,
    floors: Vec<(u32, u64)>,
}

/// Checks the file by opening it, and loads it at the same time.
pub(super) fn load_beside(
    factory: &BackendFactory,
    progress: Option<&ProgressFn>,
    read_ahead: impl FnOnce() + Send,
    check: impl FnOnce() -> Result<Handle, redb::Error>,
) -> Result<(Handle, Option<Loaded>), redb::Error> {
    let stop = AtomicBool::new(false);
    let (handle, early) = std::thread::scope(|scope| {
        scope.spawn(read_ahead);
        let view = scope.spawn(|| load_view(factory, progress, &stop));
        let unwinding = StopOnDrop(&stop);
        let handle = check();
        if handle.is_ok() {
            std::mem::forget(unwinding);
        } else {
            drop(unwinding);
        }
        (handle, view.join().ok().and_then(Result::ok))
    });
    let handle = handle?;
    let same =
        |rows| handle.begin_read().and_then(|txn| Rows::read(&txn)).is_ok_and(|checked| checked == rows);
    let loaded = early.and_then(|(loaded, rows)| same(rows).then_some(loaded));
    Ok((handle, loaded))
}

/// A check that fails or panics makes the load pointless, and a damaged file may never end it.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn load_view(
    factory: &BackendFactory,
    progress: Option<&ProgressFn>,
    stop: &AtomicBool,
) -> Result<(Loaded, Rows), StorageError> {
    let file = factory().and_then(Overlay::new).map_err(unusable)?;
    let view =
        Builder::new().set_cache_size(CACHE_BYTES).open_read_only_with_backend(file).map_err(damaged)?;
    let txn = view.begin_read().map_err(damaged)?;
    let rows = Rows::read(&txn)?;
    Ok((load::load(&txn, progress, stop)?, rows))
}

fn unusable(error: io::Error) -> StorageError {
    damaged(redb::Error::Io(error))
}

impl Rows {
    fn read(txn: &ReadTransaction) -> Result<Self, StorageError> {
        let revs = txn.open_table(tables::REVS).map_err(damaged)?;
        let count = |len: Result<u64, redb::StorageError>| len.map_err(damaged);
        Ok(Self {
            records: count(revs.len())?,
            last: revs.last().map_err(damaged)?.map(|(revision, _)| Revision(revision.value())),
            incarnations: count(txn.open_table(tables::INCS).map_err(damaged)?.len())?,
            types: count(txn.open_table(tables::TYPES).map_err(damaged)?.len())?,
            floors: tables::rows(txn, tables::FLOORS, |id, floor| Ok((id, floor)))?,
        })
    }
}
