//! Pushing (D30–D36), through the contract of engines: random schedules of a source, two pushers, cuts,
//! restores and crashes; a session cut after every prefix; and planted faults that must be noticed.
//!
//! `SHARDCACHE_MODEL_CASES=10000 cargo test -p shardcache-storage --test push` runs so many schedules.
//! A failure prints the shrunk schedule and keeps its seed in `tests/push/regressions.txt`, which every
//! later run tries first.

#[path = "push/faulty.rs"]
mod faulty;
#[path = "push/inspector.rs"]
mod inspector;
#[path = "fixtures/objects.rs"]
mod objects;
#[path = "push/prefixes.rs"]
mod prefixes;
#[path = "push/pusher.rs"]
mod pusher;
#[path = "push/script.rs"]
mod script;
#[path = "push/source.rs"]
mod source;
#[path = "push/world.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use shardcache_storage::{MemoryStore, Opening, RedbOptions, RedbStore};

use crate::faulty::{FAULTS, Faulty};
use crate::world::{Engine, World};

/// The shard that is pushed.
pub(crate) const SHARD: &str = "amber";

pub(crate) struct Memory;

impl Engine for Memory {
    type Store = MemoryStore;
    const DURABLE: bool = false;

    fn open(_dir: &Path, opening: Opening) -> Arc<MemoryStore> {
        MemoryStore::new(opening)
    }

    fn file(_dir: &Path) -> PathBuf {
        unreachable!("a store in memory has no file")
    }
}

pub(crate) struct Redb;

impl Engine for Redb {
    type Store = RedbStore;
    const DURABLE: bool = true;

    fn open(dir: &Path, opening: Opening) -> Arc<RedbStore> {
        let mut options = RedbOptions::new(dir);
        options.opening = opening;
        options.cache_bytes = 1 << 20;
        options.history_age = Duration::MAX;
        RedbStore::open(options).expect("the directory holds a store or nothing")
    }

    fn file(dir: &Path) -> PathBuf {
        dir.join("store.redb")
    }
}

/// How many schedules to run: as many as the environment asks for, else `cases`.
fn cases(cases: u32) -> u32 {
    let asked = std::env::var("SHARDCACHE_MODEL_CASES").ok();
    asked.map_or(cases, |asked| asked.parse().expect("SHARDCACHE_MODEL_CASES is a number"))
}

/// Runs schedules of at most `steps` steps.
fn run<E: Engine>(config: Config, steps: usize) -> Result<(), String> {
    let outcome = TestRunner::new(config).run(&script::script(steps), |script| {
        World::<E>::new().run(&script);
        Ok(())
    });
    outcome.map_err(|failure| failure.to_string())
}

fn prove<E: Engine>(cases: u32, steps: usize) {
    let seeds = FileFailurePersistence::Direct("tests/push/regressions.txt");
    let config = Config { cases, failure_persistence: Some(Box::new(seeds)), ..Config::default() };
    if let Err(failure) = run::<E>(config, steps) {
        panic!("{failure}");
    }
}

#[test]
fn d32_a_memory_store_follows_whoever_holds_the_shard() {
    prove::<Memory>(cases(400), 100);
}

#[test]
fn d32_a_redb_store_follows_whoever_holds_the_shard() {
    prove::<Redb>(cases(40), 80);
}

fn notices<const N: usize>() {
    let config = Config { cases: 5_000, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let outcome = run::<Faulty<N>>(config, 100);
    let problem = outcome.expect_err(&format!("{:?} went unnoticed", FAULTS[N]));
    let first = problem.lines().next().unwrap_or_default();
    eprintln!("{:?}: {first}", FAULTS[N]);
}

#[test]
fn d80_every_planted_fault_of_pushing_is_noticed() {
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
        notices::<12>,
        notices::<13>,
        notices::<14>,
        notices::<15>,
    ];
    for notices in all {
        notices();
    }
}
