//! Opens the configured engine without blocking the runtime: the only place that chooses an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shardcache_proxy::front::Stage;
use shardcache_storage::{
    MemoryStore, Metrics, Opening, Progress, QuickRepair, RedbOptions, RedbStore, StorageError, Store,
};
use tracing::info;

use super::{InstanceConfig, Opener};
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
    if let Some(Opener(open)) = config.opener.clone() {
        let opened = tokio::task::spawn_blocking(move || open()).await;
        return match opened {
            Ok(opened) => Ok(Opened { store: opened?, metrics: Metrics::default() }),
            Err(error) => Err(Failure::Internal(format!("opening the store: {error}"))),
        };
    }
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

/// Logs one line per second of loading; a store that loads in less says nothing.
fn report(progress: Progress, reported_s: &AtomicU64) {
    let elapsed_s = progress.elapsed.as_secs();
    if reported_s.fetch_max(elapsed_s, Ordering::Relaxed) < elapsed_s {
        info!("loading the store: {}", describe(progress));
    }
}

fn describe(progress: Progress) -> String {
    let Progress { records, total, .. } = progress;
    let left_s = progress.left().as_secs_f64().ceil();
    format!("{records} of {total} records, {:.0}/s, {left_s:.0} s left", progress.rate())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn progress_has_count_rate_and_time_left() {
        let progress = Progress { records: 250_000, total: 1_000_000, elapsed: Duration::from_millis(1250) };
        assert_eq!(describe(progress), "250000 of 1000000 records, 200000/s, 4 s left");
    }

    #[test]
    fn progress_is_told_once_a_second() {
        let reported_s = AtomicU64::new(0);
        let at = |ms| {
            let before = reported_s.load(Ordering::Relaxed);
            report(Progress { records: 1, total: 2, elapsed: Duration::from_millis(ms) }, &reported_s);
            reported_s.load(Ordering::Relaxed) > before
        };
        assert_eq!(
            [200, 900, 1000, 1100, 1999, 2000, 5000, 5500].map(at),
            [false, false, true, false, false, true, true, false]
        );
    }
}
