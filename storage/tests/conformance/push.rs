//! What is known of pushers: published with the objects it speaks of, and as durable as they are.

use std::path::Path;

use ::redb::{Database, ReadableDatabase, TableDefinition};
use shardcache_storage::{Push, RedbStore, Refusal, Store, TypeName, Verdict};

use crate::objects::{apply, commit_one, contents, cowboys, opening_now, put, put_of, sheriffs};
use crate::pushing::{
    SHARD, attach, cell, cell_name, connect, content, delete, frames, known, open, progress, sync, upsert,
};
use crate::{Engine, Rig, on_every_engine};

const OBJECTS: [(&str, u64); 2] = [("a", 5), ("b", 7)];

/// A pusher whose cell is whole as of version 10; term and session.
async fn following(store: &dyn Store) -> (u64, u64) {
    let opened = connect(store, "one", 10).await.expect("the store can write");
    let (term, session) = (opened.tenure.term, opened.session);
    let pushed = store.push(frames(term, session, sync(10, &OBJECTS))).await.expect("the store can write");
    assert_eq!((pushed.verdict, pushed.tally.put), (Verdict::Done, 2));
    (term, session)
}

async fn d34_a_cell_is_published_with_the_objects_it_speaks_of(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let mut follower = store.subscribe();
    let (term, session) = following(&*store).await;
    // The claim, the session, the sync: what was answered has been published before.
    let mut commits = Vec::new();
    while let Ok(commit) = follower.commits.try_recv() {
        commits.push(commit);
    }
    assert_eq!(commits.iter().map(|commit| commit.events.len()).collect::<Vec<_>>(), [0, 0, 2]);
    assert_eq!(commits.iter().map(|commit| commit.cells.len()).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(commits[0].state.tenure(SHARD).map(|tenure| tenure.term), Some(1));
    assert_eq!((cell(&commits[2].state).position, cell(&commits[2].state).cut), (10, true));
    let ops = vec![upsert("c", 11, "x"), delete("a", 12), progress(20, &[("b", 7), ("c", 11)])];
    let pushed = store.push(frames(term, session, ops)).await.expect("writes");
    let commit = follower.commits.try_recv().expect("published before it was answered");
    assert_eq!((&*commit.cells, commit.events.len()), ([cell_name()].as_slice(), 2));
    assert_eq!(Some(cell(&commit.state)), pushed.cell);
    assert_eq!((cell(&commit.state).position, pushed.version), (20, commit.state.resource_version()));
    // An idle cell: no event, no new version, and yet everybody learns of it.
    let pushed = store.push(frames(term, session, vec![progress(30, &[("b", 7), ("c", 11)])])).await;
    let commit = follower.commits.try_recv().expect("published");
    assert_eq!((cell(&commit.state).position, commit.events.len()), (30, 0));
    assert_eq!(pushed.expect("writes").version, commit.state.resource_version());
    store.close().await.expect("closes");
}

async fn d30_only_the_cell_is_closed_to_ordinary_writers(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    following(&*store).await;
    let refused = commit_one(&*store, put("z", "x")).await;
    assert!(matches!(refused, Err(Refusal::PushManaged { holder }) if &*holder == "holder of one"));
    apply(&*store, put_of(sheriffs(), "z", "x")).await;
    let type_name = Some(cowboys());
    store.push(Push::Release { shard: SHARD.into(), type_name }).await.expect("writes");
    apply(&*store, put("z", "x")).await;
    assert_eq!(content(&store.subscribe().state).len(), 3);
    store.close().await.expect("closes");
}

on_every_engine!(
    d34_a_cell_is_published_with_the_objects_it_speaks_of,
    d30_only_the_cell_is_closed_to_ordinary_writers,
);

/// What a process that is lost now leaves behind.
pub(crate) fn lost(rig: &Rig, name: &str) -> Rig {
    let other = Rig::new(Engine::Redb);
    std::fs::create_dir_all(other.path()).expect("a directory");
    std::fs::copy(rig.file(), other.file()).unwrap_or_else(|error| panic!("{name}: {error}"));
    other
}

#[tokio::test]
async fn d32_terms_cells_and_the_catalog_survive_a_restart_and_a_crash() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    let (term, _) = following(&*store).await;
    let types = vec![sheriffs(), cowboys(), TypeName::new("", "secrets")];
    store.push(Push::Catalog { shard: SHARD.into(), term, types }).await.expect("writes");
    let before = known(&store.subscribe().state);
    assert_eq!(before.1[0].1.catalog.as_ref().map(|types| types.len()), Some(3));
    let crashed = lost(&rig, "a crash").open();
    assert_eq!(known(&crashed.subscribe().state), before);
    crashed.close().await.expect("closes");
    store.close().await.expect("closes");
    let store = rig.open();
    assert_eq!(known(&store.subscribe().state), before);
    // The term counts: another process has to wait, the same one goes on.
    let other = store.push(attach("two", None)).await.expect("writes");
    assert_eq!((other.verdict, other.tenure.term), (Verdict::Held, term));
    let again = connect(&*store, "one", 10).await.expect("writes");
    assert_eq!((again.verdict, again.tenure.term), (Verdict::Done, term));
    store.push(attach("two", Some(term))).await.expect("writes");
    // A takeover is durable before anybody learns of it.
    let crashed = lost(&rig, "a crash after a takeover").open();
    assert_eq!(crashed.subscribe().state.tenure(SHARD).map(|tenure| tenure.term), Some(term + 1));
    let late = crashed.push(open(term, 10)).await.expect("writes");
    assert_eq!(late.verdict, Verdict::Fenced);
    crashed.close().await.expect("closes");
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d34_a_position_moved_by_progress_alone_is_durable_at_the_next_commit_and_at_the_close() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    let (term, session) = following(&*store).await;
    let position = async |rig: Rig| {
        let store = rig.open();
        let position = cell(&store.subscribe().state).position;
        store.close().await.expect("closes");
        position
    };
    store.push(frames(term, session, vec![progress(20, &OBJECTS)])).await.expect("writes");
    assert_eq!(cell(&store.subscribe().state).position, 20);
    // Not worth a sync of the disk: a crash takes it back to where the pusher can follow from.
    assert_eq!(position(lost(&rig, "progress")).await, 10);
    apply(&*store, put_of(sheriffs(), "somebody else's", "x")).await;
    assert_eq!(position(lost(&rig, "a commit")).await, 20);
    store.push(frames(term, session, vec![progress(30, &OBJECTS)])).await.expect("writes");
    store.close().await.expect("closes");
    assert_eq!(position(rig).await, 30);
}

#[tokio::test]
async fn d33_the_start_of_a_sync_is_durable_with_its_first_event() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    let (term, session) = following(&*store).await;
    let mut ops = sync(11, &[("a", 5), ("c", 11)]);
    ops.truncate(2);
    store.push(frames(term, session, ops)).await.expect("writes");
    let crashed = lost(&rig, "before the first event").open();
    assert!(cell(&crashed.subscribe().state).cut, "nothing has changed yet");
    crashed.close().await.expect("closes");
    store.push(frames(term, session, vec![upsert("c", 11, "listed")])).await.expect("writes");
    let crashed = lost(&rig, "after the first event").open();
    assert!(!cell(&crashed.subscribe().state).cut, "half a list is not the source");
    let opened = connect(&*crashed, "one", 11).await.expect("writes");
    assert_eq!(opened.verdict, Verdict::Resync("SyncIncomplete".into()));
    crashed.close().await.expect("closes");
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d32_a_backup_has_terms_and_cells() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    following(&*store).await;
    let before = known(&store.subscribe().state);
    let restored = Rig::new(Engine::Redb);
    std::fs::create_dir_all(restored.path()).expect("a directory");
    store.backup(restored.file()).await.expect("backs up");
    store.close().await.expect("closes");
    let store = restored.open();
    assert_eq!(known(&store.subscribe().state), before);
    let refused = commit_one(&*store, put("z", "x")).await;
    assert!(matches!(refused, Err(Refusal::PushManaged { .. })), "{refused:?}");
    store.close().await.expect("closes");
}

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// The format of today.
pub(crate) const FORMAT: u32 = 3;
const CELLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("cells");
const TENURES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tenures");
pub(crate) const ROSTER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("roster");

/// Makes of a file what the version before pushing wrote.
fn make_format_1(file: &Path) {
    make_older(file, 1, &[CELLS, TENURES, ROSTER]);
}

/// Makes of a file one of an older format, which did not have these tables.
pub(crate) fn make_older(file: &Path, format: u32, without: &[TableDefinition<'_, &str, &[u8]>]) {
    let database = Database::open(file).expect("a database");
    let txn = database.begin_write().expect("a transaction");
    {
        let mut meta = txn.open_table(META).expect("meta");
        meta.insert("format", format.to_le_bytes().as_slice()).expect("inserted");
        meta.remove("seeded").expect("removed");
    }
    for table in without {
        assert!(txn.delete_table(*table).expect("deleted"));
    }
    txn.commit().expect("committed");
}

pub(crate) fn format_of(file: &Path) -> u32 {
    let database = Database::open(file).expect("a database");
    let txn = database.begin_read().expect("a transaction");
    let meta = txn.open_table(META).expect("meta");
    let format = meta.get("format").expect("readable").expect("there");
    u32::from_le_bytes(*format.value().first_chunk().expect("four bytes"))
}

#[tokio::test]
async fn a_file_of_format_1_keeps_everything_and_becomes_one_of_today() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    for name in ["a", "b", "c"] {
        apply(&*store, put(name, "x")).await;
    }
    let (before, identity) = (contents(&store.subscribe().state), store.lineage().store);
    store.close().await.expect("closes");
    make_format_1(&rig.file());
    assert_eq!(format_of(&rig.file()), 1);

    let store = rig.open();
    let state = store.subscribe().state;
    assert_eq!((contents(&state), store.lineage().store), (before, identity));
    assert!(!state.has_cells() && state.tenures().next().is_none());
    // Copied before anybody pushes, and after.
    store.backup(rig.beside("before")).await.expect("backs up");
    following(&*store).await;
    let known_before = known(&store.subscribe().state);
    store.backup(rig.beside("after")).await.expect("backs up");
    store.close().await.expect("closes");
    assert_eq!(format_of(&rig.file()), FORMAT);
    let store = RedbStore::open(rig.options(opening_now())).expect("opens");
    assert_eq!(known(&store.subscribe().state), known_before);
    store.close().await.expect("closes");
    for copy in ["before", "after"] {
        assert_eq!(format_of(&rig.beside(copy)), FORMAT, "{copy}");
    }
}
