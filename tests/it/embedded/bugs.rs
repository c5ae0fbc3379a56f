//! A store through which bugs of the cache's own components can be brought about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use shardcache_storage::{Change, Receipt, StorageError, Store, Subscription};
use tokio::sync::mpsc;

/// Which bugs are planted; each strikes once.
#[derive(Clone, Debug, Default)]
pub(super) struct Bugs {
    /// The reflector gets a commit a second time, which breaks its invariant.
    pub(super) in_the_reflector: Arc<AtomicBool>,
    /// The task of a request panics.
    pub(super) in_a_request: Arc<AtomicBool>,
}

/// A store with [`Bugs`].
pub(super) struct Buggy {
    pub(super) store: Arc<dyn Store>,
    pub(super) bugs: Bugs,
}

impl Store for Buggy {
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        assert!(!self.bugs.in_a_request.swap(false, Ordering::Relaxed), "a planted bug in a request");
        self.store.commit(changes)
    }

    fn subscribe(&self) -> Subscription {
        let Subscription { state, commits: mut from } = self.store.subscribe();
        let (to, commits) = mpsc::channel(4);
        let bug = Arc::clone(&self.bugs.in_the_reflector);
        tokio::spawn(async move {
            while let Some(commit) = from.recv().await {
                let twice = bug.swap(false, Ordering::Relaxed);
                for _ in 0..=usize::from(twice) {
                    if to.send(commit.clone()).await.is_err() {
                        return;
                    }
                }
            }
        });
        Subscription { state, commits }
    }

    shardcache_storage::delegate_store!(store: push, lineage, events, backup, health, close);
}
