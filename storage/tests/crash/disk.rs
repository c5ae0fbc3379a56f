//! A disk in memory that keeps what was written apart from what is durable.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use redb::StorageBackend;
use shardcache_storage::BackendFactory;

const SECTOR: usize = 512;

/// A simulated disk with one file. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimDisk(Arc<Mutex<Platters>>);

#[derive(Debug, Default)]
struct Platters {
    /// What a reader sees.
    live: Vec<u8>,
    /// What survives a power loss for certain.
    durable: Vec<u8>,
    /// What may survive, in part and in any order.
    unsynced: Vec<Unsynced>,
    /// Rises at each power loss; handles from before are dead.
    generation: u64,
    /// Operations that change something, so far.
    operations: u64,
    syncs: u64,
    /// After so many operations the power goes.
    power_until: Option<u64>,
    fail_sync: Option<u64>,
    /// Writes that end beyond this fail.
    capacity: Option<u64>,
}

#[derive(Debug)]
enum Unsynced {
    Write { at: usize, data: Vec<u8> },
    Len(usize),
}

/// What the kernel does with dirty pages whose sync failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FailedPages {
    /// They stay readable until the machine stops.
    Kept,
    /// They are dropped at once; what was durable before is read again.
    Dropped,
}

impl SimDisk {
    pub(crate) fn factory(&self) -> BackendFactory {
        let disk = self.clone();
        Arc::new(move || {
            let generation = disk.lock().generation;
            Ok(Box::new(Handle { disk: disk.clone(), generation }) as Box<dyn StorageBackend>)
        })
    }

    /// The power goes after so many more changing operations.
    pub(crate) fn power_off_after(&self, operations: u64) {
        let mut platters = self.lock();
        platters.power_until = Some(platters.operations + operations);
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The `k`-th sync from now fails, `k` from 1.
    pub(crate) fn fail_sync(&self, k: u64) {
        let mut platters = self.lock();
        platters.fail_sync = Some(platters.syncs + k);
    }

    /// Writes that end beyond so many bytes fail with "no space"; `None`: none do.
    pub(crate) fn set_capacity(&self, capacity: Option<u64>) {
        self.lock().capacity = capacity;
    }

    pub(crate) fn len(&self) -> u64 {
        self.lock().live.len() as u64
    }

    /// Power loss: each unsynced write survives in part, in any order, or not at all. Everything that
    /// has the file open is dead afterwards.
    pub(crate) fn lose_power(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut platters = self.lock();
        let mut image = std::mem::take(&mut platters.durable);
        let mut unsynced = std::mem::take(&mut platters.unsynced);
        unsynced.shuffle(&mut random);
        // From "nothing got there" to "all of it did".
        let survival = [0.0, 0.1, 0.5, 0.9, 1.0][random.random_range(0..5)];
        for operation in unsynced {
            match operation {
                Unsynced::Write { at, data } => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if random.random_bool(survival) {
                            overwrite(&mut image, at + index * SECTOR, sector);
                        }
                    }
                }
                Unsynced::Len(len) => {
                    // Growing is metadata, which reaches the disk when it likes.
                    if len > image.len() && random.random_bool(survival) {
                        image.resize(len, 0);
                    }
                }
            }
        }
        platters.live.clone_from(&image);
        platters.durable = image;
        platters.restart();
    }

    /// The process ends, the machine goes on: everything written is still there.
    pub(crate) fn kill_process(&self) {
        self.lock().restart();
    }

    fn lock(&self) -> MutexGuard<'_, Platters> {
        self.0.lock().expect("no operation panics")
    }
}

impl Platters {
    fn restart(&mut self) {
        self.generation += 1;
        self.power_until = None;
        self.fail_sync = None;
    }

    /// Counts a changing operation; fails it if the power is gone.
    fn change(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.power_until {
            Some(until) if self.operations > until => Err(io::Error::other("the power is gone")),
            _ => Ok(()),
        }
    }

    fn has_space(&self, end: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if end > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

fn overwrite(image: &mut Vec<u8>, at: usize, data: &[u8]) {
    if image.len() < at + data.len() {
        image.resize(at + data.len(), 0);
    }
    image[at..at + data.len()].copy_from_slice(data);
}

/// An open file.
#[derive(Debug)]
struct Handle {
    disk: SimDisk,
    generation: u64,
}

impl Handle {
    fn platters(&self) -> io::Result<MutexGuard<'_, Platters>> {
        let platters = self.disk.lock();
        if platters.generation == self.generation {
            Ok(platters)
        } else {
            Err(io::Error::other("dead handle"))
        }
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platters()?.live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platters = self.platters()?;
        let at = offset as usize;
        let part = platters.live.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platters = self.platters()?;
        platters.change()?;
        if len > platters.live.len() as u64 {
            platters.has_space(len)?;
        }
        platters.live.resize(len as usize, 0);
        platters.unsynced.push(Unsynced::Len(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platters = self.platters()?;
        platters.change()?;
        platters.syncs += 1;
        if platters.fail_sync == Some(platters.syncs) {
            return Err(io::Error::other("the disk did not answer"));
        }
        let Platters { durable, unsynced, .. } = &mut *platters;
        for operation in unsynced.drain(..) {
            match operation {
                Unsynced::Write { at, data } => overwrite(durable, at, &data),
                Unsynced::Len(len) => durable.resize(len, 0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platters = self.platters()?;
        platters.change()?;
        platters.has_space(offset + data.len() as u64)?;
        overwrite(&mut platters.live, offset as usize, data);
        platters.unsynced.push(Unsynced::Write { at: offset as usize, data: data.to_vec() });
        Ok(())
    }
}

impl SimDisk {
    /// Makes a sync that failed look as the kernel would leave it.
    pub(crate) fn after_failed_sync(&self, pages: FailedPages) {
        let mut platters = self.lock();
        if pages == FailedPages::Dropped {
            let Platters { live, durable, unsynced, .. } = &mut *platters;
            live.clone_from(durable);
            unsynced.clear();
        }
    }
}
