//! B109: a store that cannot be opened says which file, what is wrong and what to do, in one line.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use redb::TableDefinition;
use shardcache_storage::{RedbOptions, RedbStore, StorageError, Store};

use crate::objects::{apply, opening_now, put};
use crate::{Engine, Rig};

fn refused(rig: &Rig) -> String {
    let error = RedbStore::open(rig.options(opening_now())).expect_err("the store cannot be opened");
    let line = error.to_string();
    assert_eq!(line.lines().count(), 1, "one line: {line}");
    line
}

async fn make_store(rig: &Rig) {
    let store = rig.open();
    for i in 0..100 {
        apply(&*store, put(&format!("o{i}"), "x")).await;
    }
    store.close().await.expect("closes");
}

#[tokio::test]
async fn b109_a_missing_directory_is_made() {
    let rig = Rig::new(Engine::Redb);
    let options = RedbOptions { path: rig.path().join("a/b"), ..rig.options(opening_now()) };
    let store = RedbStore::open(options).expect("opens");
    assert!(rig.path().join("a/b/store.redb").is_file());
    assert!(!rig.path().join("a/b/store.redb.new").exists());
    store.close().await.expect("closes");
}

#[test]
fn b109_a_zero_byte_store_is_not_taken_for_a_new_one() {
    let rig = Rig::new(Engine::Redb);
    std::fs::create_dir_all(rig.path()).expect("a directory");
    std::fs::write(rig.file(), b"").expect("a file");
    let line = refused(&rig);
    assert!(line.contains("store.redb") && line.contains("0 bytes") && line.contains("backup"), "{line}");
    assert_eq!(std::fs::metadata(rig.file()).expect("there").len(), 0, "it was not written to");
}

#[test]
fn b109_a_plain_file_is_no_data_directory() {
    let rig = Rig::new(Engine::Redb);
    std::fs::write(rig.path(), b"hello").expect("a file");
    assert!(refused(&rig).contains("not a directory"));
}

#[test]
fn b109_a_directory_in_place_of_the_store_is_refused() {
    let rig = Rig::new(Engine::Redb);
    std::fs::create_dir_all(rig.file()).expect("a directory");
    assert!(refused(&rig).contains("not a file"));
}

#[test]
fn b109_bytes_that_are_no_store_are_refused_and_left_alone() {
    let rig = Rig::new(Engine::Redb);
    std::fs::create_dir_all(rig.path()).expect("a directory");
    for garbage in [b"x".repeat(10), b"not a database at all ".repeat(10_000)] {
        std::fs::write(rig.file(), &garbage).expect("a file");
        assert!(refused(&rig).contains("damaged or no store"), "{}", refused(&rig));
        assert_eq!(std::fs::read(rig.file()).expect("there"), garbage, "it was not written to");
    }
}

#[test]
fn b109_a_database_of_another_program_is_refused() {
    let rig = Rig::new(Engine::Redb);
    std::fs::create_dir_all(rig.path()).expect("a directory");
    let database = redb::Database::create(rig.file()).expect("a database");
    let txn = database.begin_write().expect("a transaction");
    let table: TableDefinition<'_, u64, u64> = TableDefinition::new("theirs");
    txn.open_table(table).expect("a table").insert(1, 1).expect("inserted");
    txn.commit().expect("committed");
    drop(database);
    assert!(refused(&rig).contains("another program"));
}

#[tokio::test]
async fn b109_a_second_process_is_refused_and_the_first_goes_on() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    assert!(refused(&rig).contains("in use by another process"));
    apply(&*store, put("a", "still writing")).await;
    store.close().await.expect("closes");
    rig.open().close().await.expect("free after the close");
}

#[tokio::test]
async fn b109_a_store_that_cannot_be_written_is_refused() {
    let rig = Rig::new(Engine::Redb);
    make_store(&rig).await;
    let read_only = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    };
    read_only(&rig.file(), 0o444);
    // Root may write everywhere; then there is nothing to refuse.
    let allowed = std::fs::OpenOptions::new().write(true).open(rig.file()).is_ok();
    if allowed {
        eprintln!("SKIPPED: permissions do not bind this user");
    } else {
        assert!(refused(&rig).contains("writable"));
    }
    read_only(&rig.file(), 0o644);
}

#[tokio::test]
async fn a_newer_format_is_refused_with_both_numbers() {
    let rig = Rig::new(Engine::Redb);
    make_store(&rig).await;
    let database = redb::Database::open(rig.file()).expect("a database");
    let txn = database.begin_write().expect("a transaction");
    let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    txn.open_table(meta).expect("meta").insert("format", 99u32.to_le_bytes().as_slice()).expect("inserted");
    txn.commit().expect("committed");
    drop(database);
    let error = RedbStore::open(rig.options(opening_now())).expect_err("it is newer");
    assert!(matches!(error, StorageError::NewerFormat { found: 99, supported: 3 }), "{error}");
}

#[tokio::test]
async fn b109_flipped_and_cut_bytes_are_noticed_or_harmless() {
    let rig = Rig::new(Engine::Redb);
    make_store(&rig).await;
    let intact = std::fs::read(rig.file()).expect("there");
    let whole = {
        let store = rig.open();
        let contents = crate::objects::contents(&store.subscribe().state);
        store.close().await.expect("closes");
        contents
    };
    let mut noticed = 0;
    let every = intact.len() / 150;
    for at in (0..intact.len()).step_by(every.max(1)) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        std::fs::write(rig.file(), &damaged).expect("written");
        match RedbStore::open(rig.options(opening_now())) {
            // A byte that nobody reads, or one that redb repaired: but never a partial set.
            Ok(store) => {
                assert_eq!(crate::objects::contents(&store.subscribe().state), whole, "byte {at}");
                store.close().await.expect("closes");
            }
            Err(error) => {
                noticed += 1;
                assert_eq!(error.to_string().lines().count(), 1, "byte {at}: {error}");
            }
        }
    }
    assert!(noticed > 0, "some of the bytes matter");
    for len in [1, 100, 4096, intact.len() / 2, intact.len() - 4096] {
        std::fs::write(rig.file(), &intact[..len]).expect("written");
        refused(&rig);
    }
}

#[tokio::test]
async fn progress_ends_at_the_number_of_records() {
    let rig = Rig::new(Engine::Redb);
    make_store(&rig).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let options = {
        let told = Arc::clone(&told);
        RedbOptions {
            progress: Some(Arc::new(move |progress| told.lock().expect("told").push(progress))),
            ..rig.options(opening_now())
        }
    };
    let store = RedbStore::open(options).expect("opens");
    let last = *told.lock().expect("told").last().expect("told at least once");
    assert_eq!((last.records, last.total), (100, 100));
    assert!(last.rate() > 0.0 && last.left().is_zero());
    store.close().await.expect("closes");
}
