//! One suite for every engine: what `Store` promises, and what an opening finds.
//!
//! Run: `cargo test -p shardcache-storage --test conformance`.

#[path = "fixtures/objects.rs"]
mod objects;
#[path = "fixtures/pushing.rs"]
mod pushing;

#[path = "conformance/guards.rs"]
mod guards;
#[path = "conformance/history.rs"]
mod history;
#[path = "conformance/opening.rs"]
mod opening;
#[path = "conformance/publishing.rs"]
mod publishing;
#[path = "conformance/push.rs"]
mod push;
#[path = "conformance/restart.rs"]
mod restart;
#[path = "conformance/retention.rs"]
mod retention;
#[path = "conformance/roster.rs"]
mod roster;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shardcache_storage::{
    MemoryStore, Opening, RedbOptions, RedbStore, Revision, StorageError, Store, TypeName,
};

/// Which engine a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    Memory,
    Redb,
}

/// A directory of its own, and stores in it.
pub(crate) struct Rig {
    engine: Engine,
    directory: tempfile::TempDir,
    pub(crate) history_age: Duration,
    pub(crate) history_bytes: u64,
}

/// A store of either kind.
pub(crate) enum AnyStore {
    Memory(Arc<MemoryStore>),
    Redb(Arc<RedbStore>),
}

impl Rig {
    pub(crate) fn new(engine: Engine) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { engine, directory, history_age: Duration::from_hours(1), history_bytes: 1 << 30 }
    }

    /// The data directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The store's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.path().join("store.redb")
    }

    /// A path beside the data directory.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn options(&self, opening: Opening) -> RedbOptions {
        RedbOptions {
            opening,
            history_age: self.history_age,
            history_bytes: self.history_bytes,
            ..RedbOptions::new(self.path())
        }
    }

    pub(crate) fn open(&self) -> AnyStore {
        self.open_as(objects::opening_now()).expect("the store opens")
    }

    pub(crate) fn open_as(&self, opening: Opening) -> Result<AnyStore, StorageError> {
        match self.engine {
            Engine::Memory => Ok(AnyStore::Memory(MemoryStore::new(opening))),
            Engine::Redb => RedbStore::open(self.options(opening)).map(AnyStore::Redb),
        }
    }
}

impl AnyStore {
    pub(crate) async fn compact(&self, type_name: TypeName, to: Revision) -> Result<Revision, StorageError> {
        match self {
            Self::Memory(store) => store.compact(type_name, to).await,
            Self::Redb(store) => store.compact(type_name, to).await,
        }
    }

    pub(crate) fn shared(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Redb(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }
}

impl Deref for AnyStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Memory(store) => store.as_ref(),
            Self::Redb(store) => store.as_ref(),
        }
    }
}

/// Makes of each test two: one per engine.
#[macro_export]
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::Engine::Memory).await;
            })+
        }
        mod redb {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::Engine::Redb).await;
            })+
        }
    };
}
