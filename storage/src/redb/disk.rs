//! The file under redb: who makes it, and what went wrong with it.
//!
//! redb reports every failure after the first as "previous I/O error". [`Disk`] stands between redb
//! and the file and remembers the first one, because what may be done next depends on it: a full disk
//! that refused a *write* is recoverable, a failed *sync* is not: the kernel may have dropped the
//! dirty pages and marked them clean, so what can be read need not be what is on disk (D14).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

use crate::committer::Failure;

/// Makes the file; called at the opening and again for each reopening after a failure.
pub type BackendFactory = Arc<dyn Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync>;

/// What is known about the file, shared between redb's side and the store's.
#[derive(Clone, Default)]
pub(crate) struct DiskState(Arc<Known>);

#[derive(Default)]
struct Known {
    len: AtomicU64,
    failure: Mutex<Option<Failure>>,
}

impl DiskState {
    /// Length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.len.load(Ordering::Relaxed)
    }

    /// The worst failure so far.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.lock().clone()
    }

    /// Forgets that the disk was full; a final failure stays.
    pub(crate) fn forgive(&self) {
        let mut failure = self.lock();
        if *failure == Some(Failure::DiskFull) {
            *failure = None;
        }
    }

    fn note(&self, operation: &str, error: &io::Error, recoverable: bool) {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let mut failure = self.lock();
        if full && recoverable {
            failure.get_or_insert(Failure::DiskFull);
        } else if !matches!(*failure, Some(Failure::Fatal(_))) {
            *failure = Some(Failure::Fatal(format!("{operation}: {error}")));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failure>> {
        // Assignments do not panic.
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that tells [`DiskState`] what happens to it.
pub(crate) struct Disk {
    file: Box<dyn StorageBackend>,
    state: DiskState,
}

impl Disk {
    pub(crate) fn new(file: Box<dyn StorageBackend>, state: DiskState) -> io::Result<Self> {
        let len = file.len()?;
        state.0.len.store(len, Ordering::Relaxed);
        Ok(Self { file, state })
    }

    fn noted<T, E: Into<BackendError>>(
        &self,
        operation: &str,
        recoverable: bool,
        result: Result<T, E>,
    ) -> io::Result<T> {
        result.map_err(|error| {
            let error = io::Error::from(error.into());
            self.state.note(operation, &error, recoverable);
            error
        })
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.noted("reading the file's length", false, self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.noted("reading", false, self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.noted("resizing the file", true, self.file.set_len(len))?;
        self.state.0.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.noted("syncing", false, self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noted("writing", true, self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

const BLOCK: u64 = 4096;

/// A file whose changes stay in memory: lets redb repair and read a file that must not be written to.
#[derive(Debug)]
pub(crate) struct Overlay {
    file: Box<dyn StorageBackend>,
    changed: Mutex<Changed>,
}

#[derive(Debug)]
struct Changed {
    len: u64,
    /// Length up to which the file below still counts.
    file_len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(crate) fn new(file: Box<dyn StorageBackend>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, changed: Mutex::new(Changed { len, file_len: len, blocks: BTreeMap::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of the file below that lies in `[at, at + out.len())`; zeroes beyond its end.
    fn read_below(&self, file_len: u64, at: u64, out: &mut [u8]) -> io::Result<()> {
        let there = file_len.saturating_sub(at).min(out.len() as u64) as usize;
        out[there..].fill(0);
        if there == 0 { Ok(()) } else { self.file.read(at, &mut out[..there]) }
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = self.lock();
        if offset + out.len() as u64 > changed.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(changed.file_len, offset, out)?;
        let (first, last) = (offset / BLOCK, (offset + out.len() as u64).div_ceil(BLOCK));
        for (index, block) in changed.blocks.range(first..last) {
            let at = index * BLOCK;
            let from = at.max(offset);
            let to = (at + BLOCK).min(offset + out.len() as u64);
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&block[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changed = self.lock();
        changed.len = len;
        changed.file_len = changed.file_len.min(len);
        let beyond = changed.blocks.split_off(&len.div_ceil(BLOCK));
        drop(beyond);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changed = self.lock();
        let end = offset + data.len() as u64;
        for index in offset / BLOCK..end.div_ceil(BLOCK) {
            let at = index * BLOCK;
            if !changed.blocks.contains_key(&index) {
                let mut block = vec![0; BLOCK as usize].into_boxed_slice();
                self.read_below(changed.file_len, at, &mut block)?;
                changed.blocks.insert(index, block);
            }
            let block = changed.blocks.get_mut(&index).expect("it was just put there");
            let (from, to) = (at.max(offset), (at + BLOCK).min(end));
            block[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
