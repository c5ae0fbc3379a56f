//! The roster (D42), through the contract of engines: random schedules of seeds, operators, pushers,
//! restarts and losses, against what has to be, said from everything that happened; and planted faults that
//! must be noticed.
//!
//! `SHARDCACHE_MODEL_CASES=10000 cargo test -p shardcache-storage --test roster` runs so many schedules.

#[path = "roster/faulty.rs"]
mod faulty;
#[path = "fixtures/objects.rs"]
mod objects;
#[path = "roster/script.rs"]
mod script;
#[path = "roster/truth.rs"]
mod truth;
#[path = "roster/world.rs"]
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use shardcache_storage::{MemoryStore, Opening, RedbOptions, RedbStore};

use crate::faulty::{FAULTS, Faulty, Forgetful};
use crate::world::{Engine, World};

pub(crate) struct Memory;

impl Engine for Memory {
    type Store = MemoryStore;
    const DURABLE: bool = false;

    fn open(_dir: &Path, opening: Opening) -> Arc<MemoryStore> {
        MemoryStore::new(opening)
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
    let seeds = FileFailurePersistence::Direct("tests/roster/regressions.txt");
    let config = Config { cases, failure_persistence: Some(Box::new(seeds)), ..Config::default() };
    if let Err(failure) = run::<E>(config, steps) {
        panic!("{failure}");
    }
}

#[test]
fn d42_a_memory_store_waits_for_whom_it_has_to_and_for_nobody_else() {
    prove::<Memory>(cases(400), 80);
}

#[test]
fn d42_a_redb_store_waits_for_whom_it_has_to_and_for_nobody_else() {
    prove::<Redb>(cases(40), 60);
}

fn notices<E: Engine>(fault: &str) {
    let config = Config { cases: 500, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let outcome = run::<E>(config, 80);
    let problem = outcome.expect_err(&format!("{fault} went unnoticed"));
    let first = problem.lines().next().unwrap_or_default();
    eprintln!("{fault}: {first}");
}

fn notices_fault<const N: usize>() {
    notices::<Faulty<N>>(&format!("{:?}", FAULTS[N]));
}

#[test]
fn d80_every_planted_fault_of_the_roster_is_noticed() {
    let all: [fn(); FAULTS.len()] = [
        notices_fault::<0>,
        notices_fault::<1>,
        notices_fault::<2>,
        notices_fault::<3>,
        notices_fault::<4>,
        notices_fault::<5>,
        notices_fault::<6>,
        notices_fault::<7>,
        notices_fault::<8>,
        notices_fault::<9>,
        notices_fault::<10>,
        notices_fault::<11>,
        notices_fault::<12>,
        notices_fault::<13>,
        notices_fault::<14>,
        notices_fault::<15>,
    ];
    for notices in all {
        notices();
    }
    notices::<Forgetful<true>>("a file without its roster");
    notices::<Forgetful<false>>("a file that does not know that it was seeded");
}
