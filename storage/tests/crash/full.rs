//! A disk that is full in the middle of a run, and has space again later (B109, D14).

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use shardcache_storage::{Health, QuickRepair, RedbStore, StorageError, Store};

use crate::disk::SimDisk;
use crate::objects::put;
use crate::options;
use crate::witness::{Witness, holds, random_batch};

/// Tries again as a client does, until the store writes.
async fn commit_when_possible(store: &dyn Store, name: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match store.commit(vec![put(name, "after")]).await {
            Ok(receipt) => return assert!(receipt[0].is_ok()),
            Err(StorageError::DiskFull) => {
                assert!(tokio::time::Instant::now() < deadline, "the store recovers");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn fill_and_free(room: u64, quick_repair: QuickRepair) {
    let context = format!("{room} bytes of room, {quick_repair:?}");
    let disk = SimDisk::default();
    let mut random = StdRng::seed_from_u64(room);
    let store = RedbStore::open_with_backend(options(0, quick_repair), &disk.factory()).expect("opens");
    let mut following = store.subscribe();
    let mut witness = Witness::of(&*store);
    disk.set_capacity(Some(disk.len() + room));
    let error = loop {
        if let Err(error) = witness.commit(&*store, random_batch(&mut random)).await {
            break error;
        }
        while following.commits.try_recv().is_ok() {}
    };
    assert!(matches!(error, StorageError::DiskFull), "{context}: {error}");
    assert_eq!(store.health(), Health::DiskFull, "{context}");
    // Reads go on, from memory and from the log.
    witness.check_log(&*store, &context).await;
    assert!(store.commit(vec![put("refused", "x")]).await.is_err() || store.health() == Health::Writable);

    disk.set_capacity(None);
    commit_when_possible(&*store, "first").await;
    assert_eq!(store.health(), Health::Writable, "{context}");
    assert!(holds(&*store, "first", "after"));
    for _ in 0..10 {
        witness.commit(&*store, random_batch(&mut random)).await.expect("it writes again");
    }
    disk.lose_power(room);
    drop(store.close().await);
    let store = RedbStore::open_with_backend(options(1, quick_repair), &disk.factory()).expect("opens");
    witness.check(&*store, &context).await;
    store.close().await.expect("closes");
}

#[tokio::test]
async fn b109_a_full_disk_refuses_writes_and_recovers_when_space_is_free() {
    for room in (0..40).map(|step| step * 13_000) {
        fill_and_free(room, QuickRepair::On).await;
    }
}

#[tokio::test]
async fn b109_a_full_disk_recovers_without_quick_repair_too() {
    for room in (0..10).map(|step| step * 50_000) {
        fill_and_free(room, QuickRepair::Off).await;
    }
}

#[tokio::test]
async fn b109_an_idle_store_notices_by_itself_that_there_is_space() {
    let disk = SimDisk::default();
    let store = RedbStore::open_with_backend(options(0, QuickRepair::On), &disk.factory()).expect("opens");
    let mut random = StdRng::seed_from_u64(1);
    disk.set_capacity(Some(disk.len()));
    while store.commit(random_batch(&mut random)).await.is_ok() {}
    disk.set_capacity(None);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while store.health() != Health::Writable {
        assert!(tokio::time::Instant::now() < deadline, "nobody writes, it recovers all the same");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.close().await.expect("closes");
}
