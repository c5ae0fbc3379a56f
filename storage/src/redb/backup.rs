//! Online backup: a consistent copy of the store in a fresh file, while writes go on.
//!
//! Everything is read through one read transaction, so the copy is the store at one commit boundary.
//! It is written under a temporary name, synced, and only then gets its name: a file with the final
//! name is a whole copy. Opened in a data directory, it is a new incarnation of the same lineage.
//!
//! While it runs, the read transaction keeps pages that the writer would reuse: the store's file may
//! grow by about what is written meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Builder, Database, Durability, Key, ReadTransaction, ReadableTable, TableDefinition, Value};

use crate::error::StorageError;
use crate::failpoint;
use crate::object::RecordHead;
use crate::resource_version::Revision;
use crate::store::BackupReport;

use super::handle::Handle;
use super::tables::{
    self, CELLS, FLOORS, INCS, META, REVS, ROSTER, TENURES, TIMES, TYPES, decode_incarnation,
};

/// Bytes of records copied in one transaction.
const BATCH_BYTES: usize = 8 << 20;
/// Page cache of the copy.
const CACHE_BYTES: usize = 32 << 20;

/// Copies the store to `to`.
pub(crate) fn backup(handle: &Handle, to: &Path) -> Result<BackupReport, StorageError> {
    if to.exists() {
        return Err(failed(to, "exists already: choose another name"));
    }
    let partial = Partial::create(to)?;
    let txn = handle.begin_read()?;
    let mut report = copy(&txn, &partial.file).map_err(|error| failed(to, error))?;
    drop(txn);
    report.bytes = partial.finish(to).map_err(|error| failed(to, error))?;
    Ok(report)
}

fn failed(to: &Path, problem: impl std::fmt::Display) -> StorageError {
    StorageError::Backup(format!("{}: {problem}", to.display()))
}

/// The copy under its temporary name; removed if it is not finished.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn create(to: &Path) -> Result<Self, StorageError> {
        let mut path = to.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&path, error)),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        Ok(Self { file: file.map_err(|error| failed(&path, error))?, path })
    }

    /// Makes the copy durable under its name; returns its size.
    fn finish(self, to: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        // A link, unlike a rename, does not replace a file that came into being meanwhile.
        match std::fs::hard_link(&self.path, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => std::fs::rename(&self.path, to)?,
            Ok(()) => std::fs::remove_file(&self.path)?,
        }
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(self.file.metadata()?.len())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `finish` there is nothing of that name any more.
        drop(std::fs::remove_file(&self.path));
    }
}

fn copy(txn: &ReadTransaction, file: &File) -> Result<BackupReport, StorageError> {
    let write = |error: redb::Error| StorageError::Backup(error.to_string());
    let backend = FileBackend::new(file.try_clone().map_err(|error| write(error.into()))?);
    let backend = backend.map_err(|error| write(error.into()))?;
    let copy = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend);
    let copy = copy.map_err(|error| write(error.into()))?;
    let mut report = copy_revs(txn, &copy)?;
    failpoint::hit("in-backup");
    for incarnation in tables::rows(txn, INCS, |_, row| decode_incarnation(row))? {
        report.head = report.head.max(incarnation.start);
    }
    for floor in tables::rows(txn, FLOORS, |_, floor| Ok(Revision(floor)))? {
        report.head = report.head.max(floor);
    }
    copy_small(txn, &copy).map_err(write)?;
    copy.close().map_err(|error| write(error.into()))?;
    Ok(report)
}

/// Copies the records; counts the live objects on the way.
fn copy_revs(txn: &ReadTransaction, copy: &Database) -> Result<BackupReport, StorageError> {
    let floors: std::collections::HashMap<u32, Revision> =
        tables::rows(txn, FLOORS, |id, floor| Ok((id, Revision(floor))))?.into_iter().collect();
    let mut report = BackupReport { head: Revision::ZERO, objects: 0, bytes: 0 };
    let source = txn.open_table(REVS).map_err(tables::damaged)?;
    let mut rows = source.iter().map_err(tables::damaged)?;
    let mut done = false;
    while !done {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let Some(row) = rows.next() else {
                done = true;
                break;
            };
            let (key, value) = row.map_err(tables::damaged)?;
            let head = RecordHead::peek(value.value())?;
            let floor = floors.get(&head.type_id).copied().unwrap_or_default();
            // A state stays in the log after it was superseded while the event that did it can be replayed.
            let keeps_its_previous = head.previous != Revision::ZERO && Revision(key.value()) > floor;
            report.objects = (report.objects + u64::from(!head.deletion)) - u64::from(keeps_its_previous);
            report.head = Revision(key.value());
            bytes += value.value().len();
            batch.push((key, value));
        }
        insert_all(copy, &batch).map_err(|error| StorageError::Backup(error.to_string()))?;
    }
    Ok(report)
}

type Row<'a> = (redb::AccessGuard<'a, u64>, redb::AccessGuard<'a, &'static [u8]>);

fn insert_all(copy: &Database, batch: &[Row<'_>]) -> Result<(), redb::Error> {
    let mut txn = copy.begin_write()?;
    // The last transaction of the copy is durable, and with it all before it.
    txn.set_durability(Durability::None)?;
    {
        let mut revs = txn.open_table(REVS)?;
        let mut end = revs.upper_bound_mut(Bound::<u64>::Unbounded)?;
        for (key, value) in batch {
            end.insert_before(key.value(), value.value())?;
        }
        end.close()?;
    }
    Ok(txn.commit()?)
}

fn copy_small(txn: &ReadTransaction, copy: &Database) -> Result<(), redb::Error> {
    let mut write = copy.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    copy_table(txn, &write, TYPES)?;
    copy_table(txn, &write, FLOORS)?;
    copy_table(txn, &write, INCS)?;
    copy_table(txn, &write, META)?;
    copy_table(txn, &write, TIMES)?;
    copy_table(txn, &write, CELLS)?;
    copy_table(txn, &write, TENURES)?;
    copy_table(txn, &write, ROSTER)?;
    Ok(write.commit()?)
}

fn copy_table<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &redb::WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<(), redb::Error> {
    let (source, mut target) = (from.open_table(table)?, to.open_table(table)?);
    for row in source.iter()? {
        let (key, value) = row?;
        target.insert(key.value(), value.value())?;
    }
    Ok(())
}
