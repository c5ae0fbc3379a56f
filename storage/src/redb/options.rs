//! How a [`RedbStore`](super::RedbStore) is opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::lineage::Opening;
use crate::metrics::Metrics;

/// Everything a [`RedbStore`](super::RedbStore) needs to be opened.
#[derive(Clone)]
pub struct RedbOptions {
    /// The data directory; created if it is missing. The store is the file `store.redb` in it.
    pub path: PathBuf,
    /// Clock, randomness and host name of the opening.
    pub opening: Opening,
    /// Whether every commit saves what a fast recovery needs.
    pub quick_repair: QuickRepair,
    /// Bytes of file pages kept in memory by redb. The objects themselves are in memory anyway, so
    /// this only serves the writer and cold reads of history.
    pub cache_bytes: usize,
    /// Events older than this are forgotten.
    pub history_age: Duration,
    /// Superseded states and deletions above this many bytes are forgotten, whatever their age.
    pub history_bytes: u64,
    /// Told how far the load is, a few times per second and once at its end.
    pub progress: Option<ProgressFn>,
    /// Where the store records what it does.
    pub metrics: Metrics,
}

/// Called with the state of a load that is under way.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

/// How far the load of a store is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Records read so far.
    pub records: u64,
    /// Records in the file.
    pub total: u64,
    /// Time since the load began.
    pub elapsed: Duration,
}

impl Progress {
    /// Records per second so far.
    pub fn rate(&self) -> f64 {
        self.records as f64 / self.elapsed.as_secs_f64().max(1e-3)
    }

    /// Expected time until the end, at the rate so far.
    pub fn left(&self) -> Duration {
        let rate = self.rate();
        if rate < 1.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(self.total.saturating_sub(self.records) as f64 / rate)
    }
}

/// Whether commits save redb's allocator state, so that the opening after a crash needs no walk over
/// the whole file. Costs a second sync and some writing per commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuickRepair {
    /// On while the file is smaller than 16 GiB: what is saved grows with the file.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never; plan about 1.7 s of recovery per GiB after a crash.
    Off,
}

impl QuickRepair {
    const AUTO_BELOW_BYTES: u64 = 16 << 30;

    /// Whether a commit to a file of this size saves the state.
    pub(crate) fn applies(self, file_bytes: u64) -> bool {
        match self {
            Self::Auto => file_bytes < Self::AUTO_BELOW_BYTES,
            Self::On => true,
            Self::Off => false,
        }
    }
}

impl RedbOptions {
    /// The defaults for a data directory: quick-repair `auto`, 256 MiB of page cache, one hour or
    /// 2 GiB of history, real clock.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            opening: Opening::from_system(),
            quick_repair: QuickRepair::default(),
            cache_bytes: 256 << 20,
            history_age: Duration::from_hours(1),
            history_bytes: 2 << 30,
            progress: None,
            metrics: Metrics::default(),
        }
    }
}

impl fmt::Debug for RedbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbOptions")
            .field("path", &self.path)
            .field("quick_repair", &self.quick_repair)
            .field("cache_bytes", &self.cache_bytes)
            .field("history_age", &self.history_age)
            .field("history_bytes", &self.history_bytes)
            .finish_non_exhaustive()
    }
}
