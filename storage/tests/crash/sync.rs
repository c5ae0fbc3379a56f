//! D14: a failed sync is final. Nothing is acknowledged or shown after it, reads go on.

use rand::SeedableRng;
use rand::rngs::StdRng;
use shardcache_storage::{Health, QuickRepair, RedbStore, StorageError, Store};

use crate::disk::{FailedPages, SimDisk};
use crate::objects::put;
use crate::options;
use crate::witness::{Witness, random_batch};

const SYNCS: u64 = 200;

async fn fail_the_sync(k: u64, pages: FailedPages) {
    let context = format!("sync {k}, {pages:?}");
    let disk = SimDisk::default();
    let mut random = StdRng::seed_from_u64(k);
    disk.fail_sync(k);
    let opened = RedbStore::open_with_backend(options(0, QuickRepair::On), &disk.factory());
    let Ok(store) = opened else {
        // The opening itself needs a few syncs; it fails, and the next one finds nothing or a store.
        assert!(k < 20, "{context}");
        disk.after_failed_sync(pages);
        disk.kill_process();
        let store =
            RedbStore::open_with_backend(options(1, QuickRepair::On), &disk.factory()).expect("opens");
        assert!(store.subscribe().state.is_empty());
        store.close().await.expect("closes");
        return;
    };
    let mut witness = Witness::of(&*store);
    let error = loop {
        if let Err(error) = witness.commit(&*store, random_batch(&mut random)).await {
            break error;
        }
        assert!(disk.syncs() < k + 2, "{context}: the sync failed and nobody noticed");
    };
    assert!(matches!(error, StorageError::ReadOnly(_)), "{context}: {error}");
    assert!(matches!(store.health(), Health::ReadOnly(_)), "{context}");
    disk.after_failed_sync(pages);
    let again = store.commit(vec![put("late", "x")]).await;
    assert!(matches!(again, Err(StorageError::ReadOnly(_))), "{context}: it stays so");
    // What was shown can still be read, from memory and from the log.
    witness.check_log(&*store, &context).await;
    disk.kill_process();
    drop(store.close().await);
    let store = RedbStore::open_with_backend(options(1, QuickRepair::On), &disk.factory()).expect("opens");
    witness.check(&*store, &context).await;
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d14_no_sync_failure_is_acknowledged_or_loses_what_was() {
    for k in 1..=SYNCS {
        fail_the_sync(k, if k % 2 == 0 { FailedPages::Kept } else { FailedPages::Dropped }).await;
    }
}

#[tokio::test]
async fn d14_a_failed_sync_is_followed_by_a_power_loss() {
    for k in (21..=SYNCS).step_by(6) {
        let disk = SimDisk::default();
        let mut random = StdRng::seed_from_u64(k);
        let store =
            RedbStore::open_with_backend(options(0, QuickRepair::Off), &disk.factory()).expect("opens");
        let mut witness = Witness::of(&*store);
        disk.fail_sync(k);
        while witness.commit(&*store, random_batch(&mut random)).await.is_ok() {}
        disk.lose_power(k);
        drop(store.close().await);
        let store =
            RedbStore::open_with_backend(options(1, QuickRepair::Off), &disk.factory()).expect("opens");
        witness.check(&*store, &format!("sync {k}")).await;
        store.close().await.expect("closes");
    }
}
