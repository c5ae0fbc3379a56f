//! The durable store: one redb file, one writer, everything live in memory.
//!
//! `revs` (revision → record) is the truth and is only appended to; the state in memory is its fold,
//! rebuilt by one scan at each opening. A commit is one redb transaction with one sync. Objects are
//! served from memory; the file is read again only for history older than what the caches hold.
//!
//! Guarantees that an acknowledged or shown event survives `kill -9` and power loss, that an opening
//! is a durable incarnation before anybody is served, and that after a failed write nothing is
//! acknowledged: reads go on, [`Store::health`] says what happened, a full disk is recovered from.
//! Single process: a second one on the same directory is refused.

mod backup;
mod disk;
mod early;
mod handle;
mod load;
mod load_order;
mod log;
mod open;
mod options;
mod push_rows;
mod read;
mod roster_rows;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::change::Change;
use crate::committer::{Committer, Limits};
use crate::error::StorageError;
use crate::key::TypeName;
use crate::lineage::Lineage;
use crate::metrics::Metrics;
use crate::push::{Push, Pushed};
use crate::resource_version::Revision;
use crate::store::{BackupReport, Health, LogPage, ReadLimit, Receipt, Store, Subscription};

pub use disk::BackendFactory;
pub use options::{Progress, ProgressFn, QuickRepair, RedbOptions};

/// Cold reads that run at the same time; more wait.
const COLD_READS_MAX: usize = 4;

/// A durable store in a directory.
#[derive(Debug)]
pub struct RedbStore {
    committer: Committer,
    shared: Arc<log::Shared>,
    readers: Arc<Semaphore>,
    metrics: Metrics,
}

impl RedbStore {
    /// Opens the store in a directory, or makes one in an empty directory. Blocks for as long as the
    /// load takes: call it from `spawn_blocking`.
    ///
    /// Errors are [`StorageError::Open`], [`StorageError::NewerFormat`] and [`StorageError::Corrupt`],
    /// each one line that says what is wrong.
    pub fn open(options: RedbOptions) -> Result<Arc<Self>, StorageError> {
        let directory = open::Directory::enter(&options.path)?;
        let factory = directory.factory();
        // redb trusts the allocator state of a file that was closed or synced in order; were it damaged,
        // live pages would be handed out again. Records carry checksums of their own, this does not.
        let opened = guarded(&options, &factory, Some(&directory))?;
        directory.settle().map_err(|error| StorageError::Open {
            path: options.path.clone(),
            problem: format!("the new store cannot get its name: {error}"),
        })?;
        Ok(Self::start(options, opened, Some(directory)))
    }

    /// As [`RedbStore::open`], on files that the caller makes. For tests that lose, tear and refuse
    /// writes; nothing is locked, and an empty file is a new store.
    pub fn open_with_backend(
        options: RedbOptions,
        factory: &BackendFactory,
    ) -> Result<Arc<Self>, StorageError> {
        let opened = guarded(&options, factory, None)?;
        Ok(Self::start(options, opened, None))
    }

    fn start(options: RedbOptions, opened: open::Opened, directory: Option<open::Directory>) -> Arc<Self> {
        let open::Opened { shared, mut log, state } = opened;
        log.directory = directory;
        let tag = shared.lineage().current().tag;
        let metrics = options.metrics;
        let committer = Committer::start(log, state, tag, Limits::default(), metrics.clone());
        Arc::new(Self { committer, shared, readers: Arc::new(Semaphore::new(COLD_READS_MAX)), metrics })
    }

    /// Forgets the history of a type up to its newest event at or below `to`; returns the new floor.
    pub fn compact(
        &self,
        type_name: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>> {
        self.committer.compact(type_name, to)
    }

    /// The store's metrics, to be registered where they are served.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// redb trusts the structure of a file that was closed cleanly and can panic on one that was altered
/// since; for whoever opens a store that is one more way of being damaged.
fn guarded(
    options: &RedbOptions,
    factory: &BackendFactory,
    directory: Option<&open::Directory>,
) -> Result<open::Opened, StorageError> {
    catch_unwind(AssertUnwindSafe(|| open::open(options, factory, directory))).unwrap_or_else(|_| {
        Err(StorageError::Corrupt("its structure is broken: restore a backup".to_owned()))
    })
}

impl Store for RedbStore {
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        self.committer.commit(changes)
    }

    fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>> {
        self.committer.push(push)
    }

    fn subscribe(&self) -> Subscription {
        self.committer.subscribe()
    }

    fn lineage(&self) -> Arc<Lineage> {
        self.shared.lineage()
    }

    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>> {
        let (shared, readers) = (Arc::clone(&self.shared), Arc::clone(&self.readers));
        let head = self.committer.state().head();
        let wanted = read::Wanted { type_name: type_name.clone(), after, up_to, head, limit };
        async move {
            let _permit = readers.acquire_owned().await.map_err(|_| StorageError::Closed)?;
            blocking(move || read::page(&shared, &wanted)).await
        }
        .boxed()
    }

    fn backup(&self, to: PathBuf) -> BoxFuture<'static, Result<BackupReport, StorageError>> {
        let shared = Arc::clone(&self.shared);
        blocking(move || backup::backup(&shared.handle, &to)).boxed()
    }

    fn health(&self) -> Health {
        self.committer.health()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StorageError>> {
        self.committer.close()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => {
            Err(StorageError::Corrupt("reading the log failed; its structure is broken".to_owned()))
        }
        Err(_) => Err(StorageError::Closed),
    }
}
