//! Opens the configured engine without blocking the runtime: the only place that chooses an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shardcache_proxy::front::Stage;
use shardcache_storage::{
    MemoryStore, Metrics, Opening, Progress, QuickRepair, RedbOptions, RedbStore, StorageError, Store,
};
use tracing::info;

use super::InstanceConfig;
use crate::cli;
use crate::config::Engine;
use crate::failure::Failure;

/// An opened store, loaded into memory.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) metrics: Metrics,
}

/// Opens the store and loads it, telling the stage and the log how far that is. Dropping the future does
/// not stop the thread that loads; its store is closed as soon as it is open.
pub(super) async fn open(config: &InstanceConfig, stage: Arc<Stage>) -> Result<Opened, Failure> {
    let Engine::Redb { quick_repair, cache_bytes } = config.storage.engine else {
        let store = MemoryStore::new(Opening::from_system());
        let metrics = store.metrics().clone();
        return Ok(Opened { store, metrics });
    };
    let reported_s = AtomicU64::new(0);
    let options = RedbOptions {
        quick_repair: match quick_repair {
            cli::QuickRepair::Auto => QuickRepair::Auto,
            cli::QuickRepair::On => QuickRepair::On,
            cli::QuickRepair::Off => QuickRepair::Off,
        },
        cache_bytes,
        history_age: config.storage.history_age,
        history_bytes: config.storage.history_bytes,
        progress: Some(Arc::new(move |progress| {
            stage.loading();
            report(progress, &reported_s);
        })),
        ..RedbOptions::new(&config.data_dir)
    };
    let path = options.path.clone();
    let opened = tokio::task::spawn_blocking(|| RedbStore::open(options)).await;
    match opened {
        Ok(Ok(store)) => Ok(Opened { metrics: store.metrics().clone(), store }),
        // It names the path itself.
        Ok(Err(error @ StorageError::Open { .. })) => Err(Failure::Store(error.to_string())),
        Ok(Err(error)) => Err(Failure::Store(format!("{}: {error}", path.display()))),
        Err(error) => Err(Failure::Internal(format!("opening the store: {error}"))),
    }
}

/// One line per second of loading, so that a store that loads in less says nothing.
fn report(progress: Progress, reported_s: &AtomicU64) {
    let elapsed_s = progress.elapsed.as_secs();
    if reported_s.fetch_max(elapsed_s, Ordering::Relaxed) < elapsed_s {
        let Progress { records, total, .. } = progress;
        info!(
            "loading the store: {records} of {total} records, {:.0}/s, {:.0} s left",
            progress.rate(),
            progress.left().as_secs_f64().ceil(),
        );
    }
}
