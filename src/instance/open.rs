//! Opens the configured engine without blocking the runtime: the only place that chooses an engine.

use std::sync::Arc;

use shardcache_storage::{MemoryStore, Metrics, Opening, Store};

use super::InstanceConfig;
use crate::config::Engine;
use crate::failure::Failure;

/// An opened store, loaded into memory.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) metrics: Metrics,
}

/// Opens the store; `loading` is called when its file is open and its objects are being read.
pub(super) async fn open(config: &InstanceConfig, loading: impl Fn()) -> Result<Opened, Failure> {
    match config.storage.engine {
        Engine::Memory => {
            loading();
            let store = MemoryStore::new(Opening::from_system());
            let metrics = store.metrics().clone();
            Ok(Opened { store, metrics })
        }
        Engine::Redb { .. } => Err(Failure::Store("redb: not wired yet".into())),
    }
}
