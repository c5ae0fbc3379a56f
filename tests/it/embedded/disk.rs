//! A disk in memory, shared by every opening of it, that can be broken in the middle of a run.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use shardcache_storage::{BackendFactory, RedbOptions, RedbStore, StorageError, Store};

/// How a disk behaves towards whoever changes something on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Healthy,
    /// Every write and sync fails.
    Broken,
    /// Nothing more fits.
    Full,
    /// Every sync waits until the mood changes.
    Stalled,
    /// The code that writes panics, once.
    Panicking,
}

/// A disk with one file. Clones are the same disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    file: Arc<InMemoryBackend>,
    mood: Arc<(Mutex<Mood>, Condvar)>,
    /// Syncs that wait.
    stalled: tokio::sync::watch::Sender<usize>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let mood = Arc::new((Mutex::new(Mood::Healthy), Condvar::new()));
        Self { file: Arc::new(InMemoryBackend::new()), mood, stalled: tokio::sync::watch::Sender::new(0) }
    }

    pub(super) fn set(&self, mood: Mood) {
        *self.lock() = mood;
        self.mood.1.notify_all();
    }

    /// Waits until somebody waits for a sync.
    pub(super) async fn has_stalled(&self) {
        let mut stalled = self.stalled.subscribe();
        stalled.wait_for(|waiting| *waiting > 0).await.expect("the sender is here");
    }

    /// Opens a store on the disk.
    pub(super) fn open(&self) -> Result<Arc<dyn Store>, StorageError> {
        let mut options = RedbOptions::new("in memory");
        options.cache_bytes = 1 << 20;
        let disk = self.clone();
        let factory: BackendFactory = Arc::new(move || Ok(Box::new(disk.clone())));
        RedbStore::open_with_backend(options, &factory).map(|store| store as Arc<dyn Store>)
    }

    fn lock(&self) -> MutexGuard<'_, Mood> {
        self.mood.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before something is changed.
    fn change(&self) -> io::Result<()> {
        let mut mood = self.lock();
        match *mood {
            Mood::Healthy | Mood::Stalled | Mood::Full => Ok(()),
            Mood::Broken => Err(io::Error::other("the disk did not answer")),
            Mood::Panicking => {
                *mood = Mood::Healthy;
                drop(mood);
                panic!("a planted bug in the component that writes");
            }
        }
    }

    fn grow(&self) -> io::Result<()> {
        if *self.lock() == Mood::Full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change()?;
        if len > self.file.len()? {
            self.grow()?;
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change()?;
        self.stalled.send_modify(|waiting| *waiting += 1);
        let mood = self.mood.1.wait_while(self.lock(), |mood| *mood == Mood::Stalled);
        drop(mood.unwrap_or_else(PoisonError::into_inner));
        self.stalled.send_modify(|waiting| *waiting -= 1);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change()?;
        self.grow()?;
        self.file.write(offset, data)
    }
}
