//! What is known of pushers on a disk that loses power, and on one that is full: a cell's row and its
//! objects share their fate (I4), and a batch that failed has changed no cell and ended every session.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shardcache_storage::{Health, Op, QuickRepair, RedbStore, StorageError, Store, Verdict};

use crate::disk::SimDisk;
use crate::objects::put_of;
use crate::objects::sheriffs;
use crate::options;
use crate::pushing::{attach, cell, connect, content, delete, frames, known, open, sync, upsert};

/// What the source has at each version: version `v` writes or removes one of four names.
fn event(version: u64, payload: &str) -> Op {
    let name = ["a", "b", "c", "d"][version as usize % 4];
    if version % 7 == 3 { delete(name, version) } else { upsert(name, version, payload) }
}

/// The source's objects at a version.
fn source(version: u64) -> Vec<(String, u64)> {
    let mut objects = std::collections::BTreeMap::new();
    for version in 1..=version {
        match event(version, "") {
            Op::Upsert { key, .. } => objects.insert(key.parts().name.to_owned(), version),
            Op::Delete { key, .. } => objects.remove(key.parts().name),
            _ => unreachable!("the source knows two events"),
        };
    }
    objects.into_iter().collect()
}

fn listed(version: u64) -> Vec<Op> {
    let objects = source(version);
    let objects: Vec<_> = objects.iter().map(|(name, version)| (name.as_str(), *version)).collect();
    sync(version, &objects)
}

/// Opens a session and syncs if need be; where it stands then.
async fn go_on(store: &dyn Store, head: u64) -> Result<(u64, u64, u64), StorageError> {
    let opened = connect(store, "one", head).await?;
    let (term, session) = (opened.tenure.term, opened.session);
    if opened.verdict == Verdict::Done {
        return Ok((term, session, opened.cell.expect("it was opened").position));
    }
    let synced = store.push(frames(term, session, listed(head))).await?;
    assert_eq!(synced.verdict, Verdict::Done);
    Ok((term, session, head))
}

/// Follows the source until something fails; the last version that was acknowledged.
async fn follow(store: &dyn Store, head: u64, random: &mut StdRng) -> (u64, StorageError) {
    let (term, session, mut position) = match go_on(store, head).await {
        Ok(begun) => begun,
        Err(error) => return (0, error),
    };
    loop {
        let next = position + random.random_range(1..5);
        let payload = "x".repeat(random.random_range(0..3000));
        let ops = (position + 1..=next).map(|version| event(version, &payload)).collect();
        match store.push(frames(term, session, ops)).await {
            Ok(pushed) => assert_eq!((pushed.verdict, pushed.tally.duplicate), (Verdict::Done, 0)),
            Err(error) => return (position, error),
        }
        position = next;
    }
}

/// A cell that is whole holds what the source had at its position.
fn is_whole(store: &dyn Store, context: &str) -> u64 {
    let state = store.subscribe().state;
    let cell = cell(&state);
    if cell.cut {
        assert_eq!(content(&state), source(cell.position), "{context}: {cell:?}");
    }
    if cell.cut { cell.position } else { 0 }
}

async fn lose_power_again_and_again(quick_repair: QuickRepair, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    let (mut acknowledged, mut term) = (0, 0);
    for round in 0..crate::power::rounds() {
        let context = format!("{quick_repair:?}, seed {seed}, round {round}");
        let store =
            RedbStore::open_with_backend(options(round, quick_repair), &disk.factory()).expect("opens");
        let state = store.subscribe().state;
        assert!(state.tenure("amber").map_or(0, |tenure| tenure.term) >= term, "{context}: a term is lost");
        if acknowledged > 0 {
            let position = is_whole(&*store, &context);
            assert!(
                position >= acknowledged,
                "{context}: {acknowledged} was acknowledged, {position} is left"
            );
        }
        disk.power_off_after(random.random_range(1..300));
        let replaces = random.random_bool(0.2).then_some(term);
        let claimed = async {
            store.push(attach("two", replaces)).await?;
            // And back, as after any takeover.
            let held = store.push(attach("one", None)).await?.tenure.term;
            Ok::<_, StorageError>(store.push(attach("one", Some(held))).await?.tenure.term)
        };
        if let Ok(claimed) = claimed.await {
            term = claimed;
            let (position, _) = follow(&*store, acknowledged + 5, &mut random).await;
            acknowledged = acknowledged.max(position);
        }
        disk.lose_power(random.random());
        drop(store.close().await);
    }
    assert!(acknowledged > 0 && term > 1, "some rounds got through");
}

#[tokio::test]
async fn i4_a_position_and_its_objects_share_their_fate_when_the_power_goes() {
    for seed in 0..3 {
        lose_power_again_and_again(QuickRepair::On, seed).await;
        lose_power_again_and_again(QuickRepair::Off, seed + 10).await;
    }
}

async fn fill(room: u64) {
    let context = format!("{room} bytes of room");
    let disk = SimDisk::default();
    let mut random = StdRng::seed_from_u64(room);
    let store = RedbStore::open_with_backend(options(0, QuickRepair::On), &disk.factory()).expect("opens");
    let (term, session, _) = go_on(&*store, 5).await.expect("there is space");
    disk.set_capacity(Some(disk.len() + room));
    let mut position = 5;
    let error = loop {
        // Four objects only, and history is short: they have to grow.
        let payload = "x".repeat(random.random_range(0..6000) + position as usize * 2000);
        match store.push(frames(term, session, vec![event(position + 1, &payload)])).await {
            Ok(pushed) => assert_eq!(pushed.verdict, Verdict::Done),
            Err(error) => break error,
        }
        position += 1;
    };
    assert!(matches!(error, StorageError::DiskFull), "{context}: {error}");
    let full = store.subscribe().state;
    assert_eq!((is_whole(&*store, &context), cell(&full).position), (position, position), "{context}");
    let refused = store.push(attach("two", Some(term))).await;
    if store.health() == Health::DiskFull {
        refused.expect_err("nothing can be written");
        assert_eq!(known(&store.subscribe().state), known(&full), "{context}");
    }
    disk.set_capacity(None);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while store.commit(vec![put_of(sheriffs(), "somebody else's", "x")]).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "{context}: the store recovers");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What the failed transaction wrote may be there after all, but then all of it is.
    let stands = is_whole(&*store, &context);
    assert!(stands == position || stands == position + 1, "{context}: {position}, then {stands}");
    let late = store.push(frames(term, session, vec![delete("a", position + 2)])).await.expect("writes");
    assert!(matches!(late.verdict, Verdict::Superseded | Verdict::Fenced), "{context}: {:?}", late.verdict);
    let term = store.subscribe().state.tenure("amber").expect("held").term;
    let term = store.push(attach("one", Some(term))).await.expect("writes").tenure.term;
    let opened = store.push(open(term, position + 9)).await.expect("writes");
    assert_eq!(opened.verdict, Verdict::Done, "{context}");
    let ops = (stands + 1..=position + 9).map(|version| event(version, "")).collect();
    store.push(frames(term, opened.session, ops)).await.expect("writes");
    assert_eq!(is_whole(&*store, &context), position + 9, "{context}");
    store.close().await.expect("closes");
    let store = RedbStore::open_with_backend(options(1, QuickRepair::On), &disk.factory()).expect("opens");
    assert_eq!(is_whole(&*store, &context), position + 9, "{context}");
    store.close().await.expect("closes");
}

#[tokio::test]
async fn b109_a_full_disk_ends_sessions_and_changes_no_cell() {
    for room in (0..25).map(|step| step * 13_000) {
        fill(room).await;
    }
}
