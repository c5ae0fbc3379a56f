//! The open database, and its replacement after a failure.
//!
//! redb refuses everything after an I/O error, so the database is dropped then. Reads of history go on
//! through a copy-on-write [`Overlay`] that never writes to the file; writing goes on, after a full
//! disk, through a database opened anew on the same file.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redb::{
    Builder, Database, Durability, ReadTransaction, ReadableDatabase, StorageBackend, WriteTransaction,
};

use crate::error::StorageError;

use super::disk::{BackendFactory, Disk, DiskState, Overlay};
use super::options::QuickRepair;

/// Page cache of the database that serves reads after a failure.
const OVERLAY_CACHE_BYTES: usize = 16 << 20;

pub(crate) struct Handle {
    factory: BackendFactory,
    disk: DiskState,
    cache_bytes: usize,
    quick_repair: QuickRepair,
    slot: RwLock<Slot>,
    /// Changed only while the slot is locked for writing.
    generation: AtomicU64,
}

enum Slot {
    Writable(Database),
    /// Writing failed; nobody has read history since.
    Down,
    ReadOnly(Database),
    Closed,
}

impl Handle {
    /// Opens the file, or makes a database in an empty one. `verify` checks every page, repairing what
    /// can be.
    pub(crate) fn open(
        factory: BackendFactory,
        cache_bytes: usize,
        quick_repair: QuickRepair,
        verify: bool,
    ) -> Result<Self, redb::Error> {
        let disk = DiskState::default();
        let file = Disk::new(factory()?, disk.clone())?;
        let database = Builder::new()
            .set_cache_size(cache_bytes)
            .set_check_integrity_on_open(verify)
            .create_with_backend(file)?;
        let slot = RwLock::new(Slot::Writable(database));
        let generation = AtomicU64::new(0);
        Ok(Self { factory, disk, cache_bytes, quick_repair, slot, generation })
    }

    /// What is known about the file.
    pub(crate) fn disk(&self) -> &DiskState {
        &self.disk
    }

    /// A durable transaction.
    pub(crate) fn begin_write(&self) -> Result<WriteTransaction, redb::Error> {
        let Slot::Writable(database) = &*self.read_slot() else { return Err(redb::Error::PreviousIo) };
        let mut txn = database.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        txn.set_quick_repair(self.quick_repair.applies(self.disk.len()));
        Ok(txn)
    }

    /// A view of what is durable; pins pages of the file for as long as it lives.
    pub(crate) fn begin_read(&self) -> Result<ReadTransaction, StorageError> {
        match &*self.read_slot() {
            Slot::Writable(database) | Slot::ReadOnly(database) => {
                return database.begin_read().map_err(unreadable);
            }
            Slot::Closed => return Err(StorageError::Closed),
            Slot::Down => {}
        }
        let mut slot = self.write_slot();
        if matches!(*slot, Slot::Down) {
            *slot = Slot::ReadOnly(self.overlay().map_err(unreadable)?);
        }
        match &*slot {
            Slot::Writable(database) | Slot::ReadOnly(database) => database.begin_read().map_err(unreadable),
            Slot::Closed | Slot::Down => Err(StorageError::Closed),
        }
    }

    /// Which database is open: rises with each reopening.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Drops the database of a generation, which failed. Whoever finds the failure first does this,
    /// reader or writer; one that was opened since is left alone.
    pub(crate) fn take_down(&self, generation: u64) {
        let mut slot = self.write_slot();
        if matches!(*slot, Slot::Writable(_)) && self.generation() == generation {
            *slot = Slot::Down;
        }
    }

    /// Opens the file again for writing. What was written through the failed database is synced first:
    /// only then is what can be read there durable.
    pub(crate) fn reopen(&self) -> Result<(), redb::Error> {
        let mut slot = self.write_slot();
        if matches!(*slot, Slot::Closed) {
            return Err(redb::Error::DatabaseClosed);
        }
        *slot = Slot::Down;
        self.generation.fetch_add(1, Ordering::Release);
        self.disk.forgive();
        let file = Disk::new((self.factory)()?, self.disk.clone())?;
        file.sync_data()?;
        *slot = Slot::Writable(Builder::new().set_cache_size(self.cache_bytes).create_with_backend(file)?);
        Ok(())
    }

    /// Closes the database; the file is free afterwards.
    pub(crate) fn close(&self) -> Result<(), redb::Error> {
        match std::mem::replace(&mut *self.write_slot(), Slot::Closed) {
            Slot::Writable(database) => Ok(database.close()?),
            Slot::ReadOnly(_) | Slot::Down | Slot::Closed => Ok(()),
        }
    }

    fn overlay(&self) -> Result<Database, redb::Error> {
        let file = Overlay::new((self.factory)()?)?;
        Ok(Builder::new().set_cache_size(OVERLAY_CACHE_BYTES).create_with_backend(file)?)
    }

    fn read_slot(&self) -> RwLockReadGuard<'_, Slot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_slot(&self) -> RwLockWriteGuard<'_, Slot> {
        self.slot.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("bytes", &self.disk.len()).finish_non_exhaustive()
    }
}

/// A failed read: the file is there, but this database does not read it any more.
pub(crate) fn unreadable(error: impl Into<redb::Error>) -> StorageError {
    match error.into() {
        redb::Error::Corrupted(problem) => StorageError::Corrupt(problem),
        other => StorageError::ReadOnly(format!("history cannot be read: {other}")),
    }
}
