//! D3, row by row: what an opening, a kill, a restore, a wipe, a copy or a clock does to the versions
//! that clients hold. Also what survives a restart.

use std::path::Path;

use shardcache_storage::{
    Lineage, Opening, RedbStore, ResourceVersion, Revision, Standing, StorageError, Store,
};

use crate::objects::{
    START_MS, UNLIMITED, apply, contents, cowboys, create, delete, facts, opening, put, put_of, read_log,
    sheriffs,
};
use crate::{AnyStore, Engine, Rig};

/// Between two openings; short enough that no history is too old.
const STEP_MS: u64 = 60_000;

fn standing(store: &dyn Store, version: ResourceVersion) -> Standing {
    store.lineage().classify(version, store.subscribe().state.head())
}

fn at(ms: u64) -> Opening {
    // Every opening has bits of its own.
    opening(ms, ms.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Copies the file of a store that is closed, or as a snapshot of the volume would.
fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().expect("in a directory")).expect("a directory");
    std::fs::copy(from, to).expect("copied");
}

/// Every version a client can have seen: the list version at the start, and of every event.
async fn write_some(store: &dyn Store, count: usize, payload: &str) -> Vec<ResourceVersion> {
    let mut seen = vec![store.subscribe().state.resource_version()];
    for i in 0..count {
        seen.push(apply(store, put(&format!("o{}", i % 4), payload)).await.event.resource_version);
    }
    seen
}

fn all_issued(store: &dyn Store, versions: &[ResourceVersion]) {
    for version in versions {
        assert_eq!(standing(store, *version), Standing::Issued(version.revision()), "{version}");
    }
}

fn all_foreign(store: &dyn Store, versions: &[ResourceVersion]) {
    for version in versions {
        assert_eq!(standing(store, *version), Standing::Foreign, "{version}");
    }
}

#[tokio::test]
async fn d3_clean_restart_keeps_every_version_and_the_log() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    let mut seen = write_some(&*store, 10, "first").await;
    let before = (contents(&store.subscribe().state), store.lineage().store);
    let log = read_log(&*store, &cowboys(), Revision::ZERO, UNLIMITED).await.expect("readable");
    store.close().await.expect("closes");

    let store = rig.open_as(at(START_MS + STEP_MS)).expect("opens");
    assert_eq!((contents(&store.subscribe().state), store.lineage().store), before);
    all_issued(&*store, &seen);
    let again = read_log(&*store, &cowboys(), Revision::ZERO, UNLIMITED).await.expect("readable");
    let facts_of = |events: &[std::sync::Arc<shardcache_storage::Event>]| -> Vec<_> {
        events.iter().map(|event| facts(event)).collect()
    };
    assert_eq!(facts_of(&again), facts_of(&log), "the log reads the same after a restart");
    let newer = write_some(&*store, 10, "second").await;
    assert!(newer.iter().all(|version| Some(version) > seen.last()), "versions rise across openings");
    seen.extend(newer);
    all_issued(&*store, &seen);
    store.close().await.expect("closes");
    assert_eq!(store.lineage().incarnations.len(), 2);
}

#[tokio::test]
async fn d3_an_opening_without_events_keeps_its_list_version_valid() {
    let rig = Rig::new(Engine::Redb);
    let mut seen = Vec::new();
    for hour in 0..4 {
        let store = rig.open_as(at(START_MS + hour * STEP_MS)).expect("opens");
        all_issued(&*store, &seen);
        seen.push(store.subscribe().state.resource_version());
        store.close().await.expect("closes");
    }
}

#[tokio::test]
async fn d3_restore_from_a_cold_backup_accepts_the_shared_past_only() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    let shared = write_some(&*store, 10, "shared").await;
    store.close().await.expect("closes");
    copy_store(&rig.file(), &rig.beside("cold"));

    let store = rig.open_as(at(START_MS + STEP_MS)).expect("opens");
    let lost = write_some(&*store, 10, "lost").await;
    store.close().await.expect("closes");
    copy_store(&rig.beside("cold"), &rig.file());

    let store = rig.open_as(at(START_MS + 2 * STEP_MS)).expect("opens");
    all_issued(&*store, &shared);
    all_foreign(&*store, &lost);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d3_restore_from_a_hot_backup_accepts_up_to_its_head() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    let shared = write_some(&*store, 10, "shared").await;
    let report = store.backup(rig.beside("hot")).await.expect("backs up");
    assert_eq!(report.head, shared.last().expect("some").revision());
    assert_eq!(report.objects, 4);
    let lost = write_some(&*store, 10, "lost").await;
    store.close().await.expect("closes");
    copy_store(&rig.beside("hot"), &rig.file());

    let store = rig.open_as(at(START_MS + STEP_MS)).expect("opens");
    all_issued(&*store, &shared);
    // The first of the lost was the list version at the backup's head; it is shared.
    all_foreign(&*store, &lost[1..]);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn b014_after_a_restore_no_version_is_issued_twice() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    write_some(&*store, 500, "shared").await;
    store.close().await.expect("closes");
    copy_store(&rig.file(), &rig.beside("copy"));
    let store = rig.open_as(at(START_MS + 1000)).expect("opens");
    let lost = write_some(&*store, 400, "lost").await;
    store.close().await.expect("closes");
    copy_store(&rig.beside("copy"), &rig.file());

    let store = rig.open_as(at(START_MS + 2000)).expect("opens");
    let new = write_some(&*store, 400, "other content").await;
    assert!(new.iter().all(|version| !lost.contains(version)), "no version names two things");
    all_foreign(&*store, &lost);
    assert!(new.iter().min() > lost.iter().max(), "old clients are below everything new");
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d3_a_wiped_store_knows_nobody() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    let before = write_some(&*store, 10, "gone").await;
    let identity = store.lineage().store;
    store.close().await.expect("closes");
    std::fs::remove_dir_all(rig.path()).expect("wiped");
    let store = rig.open_as(at(START_MS + STEP_MS)).expect("opens");
    all_foreign(&*store, &before);
    assert_ne!(store.lineage().store, identity);
    assert!(store.subscribe().state.is_empty());
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d3_a_copied_volume_and_its_original_refuse_each_other() {
    let (rig, other) = (Rig::new(Engine::Redb), Rig::new(Engine::Redb));
    let store = rig.open_as(at(START_MS)).expect("opens");
    let shared = write_some(&*store, 10, "shared").await;
    store.close().await.expect("closes");
    copy_store(&rig.file(), &other.file());

    let original = rig.open_as(at(START_MS + STEP_MS)).expect("opens");
    let copy = other.open_as(at(START_MS + STEP_MS + 7)).expect("opens");
    let of_original = write_some(&*original, 10, "original").await;
    let of_copy = write_some(&*copy, 10, "copy").await;
    for store in [&original, &copy] {
        all_issued(&**store, &shared);
    }
    let refused = |store: &dyn Store, versions: &[ResourceVersion]| {
        for version in versions {
            let standing = standing(store, *version);
            assert!(matches!(standing, Standing::Foreign | Standing::Future), "{version}: {standing:?}");
        }
    };
    refused(&*original, &of_copy);
    refused(&*copy, &of_original);
    original.close().await.expect("closes");
    copy.close().await.expect("closes");
}

#[tokio::test]
async fn d3_d9_a_clock_that_jumped_back_does_not_bring_back_old_versions() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    let shared = write_some(&*store, 10, "shared").await;
    store.close().await.expect("closes");
    copy_store(&rig.file(), &rig.beside("cold"));
    let store = rig.open_as(at(1000)).expect("opens at 1970");
    let lost = write_some(&*store, 10, "lost").await;
    assert!(lost[0] > shared[10], "versions rise although the clock fell");
    store.close().await.expect("closes");
    copy_store(&rig.beside("cold"), &rig.file());

    // The same wrong clock again: only tag and jitter tell the two futures apart.
    let store = rig.open_as(at(1001)).expect("opens");
    write_some(&*store, 20, "new").await;
    all_issued(&*store, &shared);
    for version in lost {
        assert!(!matches!(standing(&*store, version), Standing::Issued(_)), "{version}");
    }
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d3_what_was_issued_is_foreign_under_another_tag() {
    let rig = Rig::new(Engine::Redb);
    let (mut seen, mut tags) = (Vec::new(), Vec::new());
    for opening in 0..3 {
        let store = rig.open_as(at(START_MS + opening * STEP_MS)).expect("opens");
        tags.push(store.lineage().current().tag);
        seen.extend(write_some(&*store, 3, "some").await);
        // In every interval, the current one included: the tag of each other opening, and a stranger's.
        let stranger = (1..=1023).filter_map(shardcache_storage::Tag::new).find(|tag| !tags.contains(tag));
        for version in &seen {
            for tag in tags.iter().copied().chain(stranger).filter(|tag| Some(*tag) != version.tag()) {
                let retold = ResourceVersion::new(version.revision(), tag);
                assert_eq!(standing(&*store, retold), Standing::Foreign, "{version} as {retold}");
            }
        }
        all_issued(&*store, &seen);
        store.close().await.expect("closes");
    }
    tags.dedup();
    assert_eq!(tags.len(), 3, "neighbours differ");
}

#[tokio::test]
async fn d3_a_store_in_memory_forgets_its_versions_at_a_restart() {
    let rig = Rig::new(Engine::Memory);
    let store = rig.open_as(at(START_MS)).expect("opens");
    let before = write_some(&*store, 10, "gone").await;
    store.close().await.expect("closes");
    let store = rig.open_as(at(START_MS + STEP_MS)).expect("opens");
    all_foreign(&*store, &before);
}

#[tokio::test]
async fn d4_a_version_above_the_head_is_the_future_whoever_issued_it() {
    for engine in [Engine::Memory, Engine::Redb] {
        let rig = Rig::new(engine);
        let store = rig.open();
        let head = store.subscribe().state.head();
        let tag = store.lineage().current().tag;
        let next = ResourceVersion::new(head.next(), tag);
        assert_eq!(standing(&*store, next), Standing::Future);
        let other = shardcache_storage::Tag::new(tag.value() % 1000 + 1).expect("legal");
        assert_eq!(standing(&*store, ResourceVersion::new(Revision(head.0 + 9), other)), Standing::Future);
        assert_eq!(standing(&*store, ResourceVersion::new(head, other)), Standing::Foreign);
        store.close().await.expect("closes");
    }
}

#[tokio::test]
async fn b017_an_event_from_before_a_restart_is_still_in_the_log() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    apply(&*store, create("a", "10")).await;
    let listed = store.subscribe().state.head();
    let event = apply(&*store, put("a", "11")).await.event.revision;
    store.close().await.expect("closes");
    let store = rig.open_as(at(START_MS + 1000)).expect("opens");
    let events = read_log(&*store, &cowboys(), listed, UNLIMITED).await.expect("readable");
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [event]);
    assert!(events[0].previous.is_some());
    store.close().await.expect("closes");
}

#[tokio::test]
async fn floors_survive_and_the_head_does_not_fall_when_its_record_was_removed() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    apply(&*store, create("a", "1")).await;
    let last = apply(&*store, delete("a")).await.event.resource_version;
    // The deletion at the head is forgotten, record and all.
    assert_eq!(store.compact(cowboys(), last.revision()).await.expect("compacts"), last.revision());
    store.close().await.expect("closes");

    let store = rig.open_as(at(START_MS)).expect("opens with the clock standing still");
    assert_eq!(standing(&*store, last), Standing::Issued(last.revision()), "it was issued");
    assert!(store.subscribe().state.resource_version() > last);
    assert_eq!(store.subscribe().state.floor(&cowboys()), last.revision());
    let old = store.events(&cowboys(), Revision::ZERO, last.revision(), UNLIMITED).await;
    assert!(matches!(old, Err(StorageError::Compacted { .. })));
    store.close().await.expect("closes");
}

#[tokio::test]
async fn incarnations_below_every_floor_are_forgotten_but_not_while_a_live_object_carries_their_version() {
    let rig = Rig::new(Engine::Redb);
    let open = |hour: u64| rig.open_as(at(START_MS + hour * STEP_MS)).expect("opens");
    let lineage = |store: &AnyStore| -> usize { Lineage::clone(&store.lineage()).incarnations.len() };
    let store = open(0);
    apply(&*store, put("old", "written by the first incarnation")).await;
    store.close().await.expect("closes");
    let store = open(1);
    let head = apply(&*store, put("young", "written by the second")).await.head;
    store.compact(cowboys(), head).await.expect("compacts");
    store.close().await.expect("closes");
    let store = open(2);
    let head = apply(&*store, put("young", "by the third")).await.head;
    store.compact(cowboys(), head).await.expect("compacts");
    assert_eq!(lineage(&store), 3, "the first one's object is still served with its version");
    let head = apply(&*store, delete("old")).await.head;
    store.compact(cowboys(), head).await.expect("compacts");
    assert_eq!(lineage(&store), 1, "nobody can hold a usable version of the first two");
    store.close().await.expect("closes");
    let store = open(3);
    assert_eq!(lineage(&store), 2, "it is durable");
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d18_a_backup_under_load_is_the_state_at_one_commit_boundary() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(at(START_MS)).expect("opens");
    write_some(&*store, 50, "before").await;
    let mut following = store.subscribe();
    let writing = store.shared();
    let writer = tokio::spawn(async move {
        for i in 0..200 {
            let batch =
                vec![put(&format!("o{}", i % 9), &i.to_string()), put_of(sheriffs(), "s", &i.to_string())];
            writing.commit(batch).await.expect("writes");
        }
    });
    let copy = Rig::new(Engine::Redb);
    std::fs::create_dir_all(copy.path()).expect("a directory");
    let mut boundaries = vec![(following.state.head(), contents(&following.state))];
    for _ in 0..20 {
        let commit = following.commits.recv().await.expect("a commit");
        boundaries.push((commit.state.head(), contents(&commit.state)));
    }
    let reader = tokio::spawn(async move {
        while let Some(commit) = following.commits.recv().await {
            boundaries.push((commit.state.head(), contents(&commit.state)));
        }
        boundaries
    });
    let report = store.backup(copy.file()).await.expect("backs up");
    assert!(!copy.path().join("store.redb.partial").exists());
    writer.await.expect("the writer");
    let again = store.backup(copy.file()).await;
    assert!(matches!(again, Err(StorageError::Backup(_))), "an existing file is not replaced");
    store.close().await.expect("closes");
    let boundaries = reader.await.expect("the reader");

    assert_eq!(std::fs::metadata(copy.file()).expect("there").len(), report.bytes);
    let restored = copy.open_as(at(START_MS + STEP_MS)).expect("opens");
    let found = contents(&restored.subscribe().state);
    let boundary = boundaries.iter().find(|(head, _)| *head == report.head).expect("a commit boundary");
    assert_eq!(found, boundary.1);
    assert_eq!(restored.subscribe().state.len() as u64, report.objects);
    assert_eq!(restored.lineage().store, store.lineage().store, "one lineage");
    restored.close().await.expect("closes");
}

#[tokio::test]
async fn a_copy_of_a_running_store_opens_or_says_why_not() {
    // Documented as not a backup; it must still never be taken for what it is not.
    let (rig, copy) = (Rig::new(Engine::Redb), Rig::new(Engine::Redb));
    let store = rig.open_as(at(START_MS)).expect("opens");
    let seen = write_some(&*store, 20, "x").await;
    copy_store(&rig.file(), &copy.file());
    let head = seen.last().expect("some").revision();
    match RedbStore::open(copy.options(at(START_MS + STEP_MS))) {
        Ok(opened) => {
            assert_eq!(standing(&*opened, seen[20]), Standing::Issued(head), "nothing was written meanwhile");
            opened.close().await.expect("closes");
        }
        Err(error) => {
            assert!(matches!(error, StorageError::Open { .. } | StorageError::Corrupt(_)), "{error}");
        }
    }
    store.close().await.expect("closes");
}
