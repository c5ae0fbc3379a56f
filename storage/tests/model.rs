//! Random scripts against every engine, judged by the reference machine M.
//!
//! `SHARDCACHE_MODEL_CASES=10000 cargo test -p shardcache-storage --test model` runs so many scripts.
//! A failure prints the shrunk script and keeps its seed in `tests/model/regressions.txt`, which every
//! later run tries first; a script worth reading goes to `model/regressions.rs` as a test.

#[path = "model/compare.rs"]
mod compare;
#[path = "model/faulty.rs"]
mod faulty;
#[path = "model/machine.rs"]
mod machine;
#[path = "model/script.rs"]
mod script;
#[path = "model/text.rs"]
mod text;
#[path = "model/world.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use shardcache_storage::{MemoryStore, Opening, RedbOptions, RedbStore, Revision, StorageError, TypeName};

use crate::faulty::{FAULTS, Faulty};
use crate::world::{Engine, World};

struct Memory;

impl Engine for Memory {
    type Store = MemoryStore;
    const DURABLE: bool = false;

    fn open(_dir: &Path, opening: Opening) -> Arc<MemoryStore> {
        MemoryStore::new(opening)
    }

    fn compact(
        store: &MemoryStore,
        kind: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>> {
        store.compact(kind, to)
    }

    fn file(_dir: &Path) -> PathBuf {
        unreachable!("a store in memory has no file")
    }
}

struct Redb;

impl Engine for Redb {
    type Store = RedbStore;
    const DURABLE: bool = true;

    fn open(dir: &Path, opening: Opening) -> Arc<RedbStore> {
        let mut options = RedbOptions::new(dir);
        options.opening = opening;
        options.cache_bytes = 1 << 20;
        // Only what the script compacts is compacted: by age, worlds of other years would be.
        options.history_age = Duration::MAX;
        RedbStore::open(options).expect("the directory holds a store or nothing")
    }

    fn compact(
        store: &RedbStore,
        kind: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>> {
        store.compact(kind, to)
    }

    fn file(dir: &Path) -> PathBuf {
        dir.join("store.redb")
    }
}

/// How many scripts to run: as many as the environment asks for, else `cases`.
fn cases(cases: u32) -> u32 {
    let asked = std::env::var("SHARDCACHE_MODEL_CASES").ok();
    asked.map_or(cases, |asked| asked.parse().expect("SHARDCACHE_MODEL_CASES is a number"))
}

/// Runs scripts of at most `steps` steps.
fn run<E: Engine>(config: Config, steps: usize) -> Result<(), String> {
    let outcome = TestRunner::new(config).run(&(any::<bool>(), script::script(steps)), |(wild, script)| {
        World::<E>::new(wild).run(&script);
        Ok(())
    });
    outcome.map_err(|failure| failure.to_string())
}

fn prove<E: Engine>(cases: u32, steps: usize) {
    let seeds = FileFailurePersistence::Direct("tests/model/regressions.txt");
    let config = Config { cases, failure_persistence: Some(Box::new(seeds)), ..Config::default() };
    if let Err(failure) = run::<E>(config, steps) {
        panic!("{failure}");
    }
}

#[test]
fn d78_a_memory_store_is_the_machine() {
    prove::<Memory>(cases(250), 60);
}

#[test]
fn d78_a_redb_store_is_the_machine() {
    prove::<Redb>(cases(40), 40);
}

fn notices<const N: usize>() {
    let config = Config { cases: 200, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let outcome = run::<Faulty<N>>(config, 60);
    assert!(outcome.is_err(), "{:?} went unnoticed", FAULTS[N]);
}

#[test]
fn d80_every_planted_fault_is_noticed() {
    let all: [fn(); FAULTS.len()] = [
        notices::<0>,
        notices::<1>,
        notices::<2>,
        notices::<3>,
        notices::<4>,
        notices::<5>,
        notices::<6>,
        notices::<7>,
        notices::<8>,
        notices::<9>,
        notices::<10>,
        notices::<11>,
    ];
    for notices in all {
        notices();
    }
}
