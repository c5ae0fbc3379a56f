//! Random scripts against every engine, judged by the reference machine M.
//!
//! `SHARDCACHE_MODEL_CASES=10000 cargo test -p shardcache-storage --test model` runs so many scripts.
//! A failure prints the shrunk script and keeps its seed in `tests/model/regressions.txt`, which every
//! later run tries first; a script worth reading goes to `model/regressions.rs` as a test.

#[path = "model/compare.rs"]
mod compare;
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

use futures::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use shardcache_storage::{MemoryStore, Opening, Revision, StorageError, TypeName};

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

/// Runs scripts of at most `steps` steps: as many as the environment asks for, else `cases`.
fn run<E: Engine>(cases: u32, steps: usize) {
    let asked = std::env::var("SHARDCACHE_MODEL_CASES").ok();
    let config = Config {
        cases: asked.map_or(cases, |asked| asked.parse().expect("SHARDCACHE_MODEL_CASES is a number")),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/model/regressions.txt"))),
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&(any::<bool>(), script::script(steps)), |(wild, script)| {
        World::<E>::new(wild).run(&script);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn d78_a_memory_store_is_the_machine() {
    run::<Memory>(250, 60);
}
