//! Power losses (C2, C3, C4, C8, C9, C10).

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shardcache_storage::{QuickRepair, RedbStore, Store};

use crate::disk::SimDisk;
use crate::options;
use crate::witness::{Witness, random_batch};

/// Power losses per quick-repair setting.
pub(crate) fn rounds() -> u64 {
    std::env::var("CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(60)
}

async fn lose_power_again_and_again(quick_repair: QuickRepair, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    let mut witness: Option<Witness> = None;
    for round in 0..rounds() {
        let context = format!("{quick_repair:?}, seed {seed}, round {round}");
        // Sometimes the power goes during the opening (C9).
        if random.random_bool(0.3) {
            disk.power_off_after(random.random_range(0..40));
        }
        let store = match RedbStore::open_with_backend(options(round, quick_repair), &disk.factory()) {
            Ok(store) => store,
            Err(error) => {
                assert!(!matches!(error, shardcache_storage::StorageError::Corrupt(_)), "{context}: {error}");
                disk.lose_power(random.random());
                continue;
            }
        };
        if let Some(witness) = &witness {
            witness.check(&*store, &context).await;
        }
        let mut now = Witness::of(&*store);
        disk.power_off_after(random.random_range(1..400));
        while now.commit(&*store, random_batch(&mut random)).await.is_ok() {}
        witness = Some(now);
        // The store's own closing finds a dead disk; that is part of the test.
        disk.lose_power(random.random());
        drop(store.close().await);
    }
    let store =
        RedbStore::open_with_backend(options(rounds() + 1, quick_repair), &disk.factory()).expect("opens");
    witness.expect("some round wrote").check(&*store, "at the end").await;
    store.close().await.expect("closes");
}

#[tokio::test]
async fn i1_i3_i5_hold_after_every_power_loss_with_quick_repair() {
    for seed in 0..3 {
        lose_power_again_and_again(QuickRepair::On, seed).await;
    }
}

#[tokio::test]
async fn i1_i3_i5_hold_after_every_power_loss_without_quick_repair() {
    for seed in 10..13 {
        lose_power_again_and_again(QuickRepair::Off, seed).await;
    }
}

#[tokio::test]
async fn i1_i3_i5_hold_when_the_power_goes_at_each_single_operation() {
    for at in 0..150 {
        let disk = SimDisk::default();
        let mut random = StdRng::seed_from_u64(7);
        let store =
            RedbStore::open_with_backend(options(0, QuickRepair::On), &disk.factory()).expect("opens");
        let mut witness = Witness::of(&*store);
        witness.commit(&*store, random_batch(&mut random)).await.expect("writes");
        disk.power_off_after(at);
        while witness.commit(&*store, random_batch(&mut random)).await.is_ok() {}
        disk.lose_power(at);
        drop(store.close().await);
        let store =
            RedbStore::open_with_backend(options(1, QuickRepair::On), &disk.factory()).expect("opens");
        witness.check(&*store, &format!("after {at} operations")).await;
        store.close().await.expect("closes");
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_wrote() {
    let disk = SimDisk::default();
    let mut random = StdRng::seed_from_u64(3);
    for round in 0..20 {
        let store =
            RedbStore::open_with_backend(options(round, QuickRepair::On), &disk.factory()).expect("opens");
        let mut witness = Witness::of(&*store);
        for _ in 0..10 {
            witness.commit(&*store, random_batch(&mut random)).await.expect("writes");
        }
        disk.kill_process();
        drop(store.close().await);
        let again =
            RedbStore::open_with_backend(options(round, QuickRepair::On), &disk.factory()).expect("opens");
        witness.check(&*again, &format!("round {round}")).await;
        again.close().await.expect("closes");
    }
}
