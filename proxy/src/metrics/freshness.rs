//! What is measured of freshness and completeness. The gauges are set when they are asked for.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{ByCell, ByProbeOutcome, ByRefusal, ByShard, ByShardState};
use super::latency;

/// Freshness and completeness.
#[derive(Clone, Debug)]
pub struct FreshnessMetrics {
    /// Barriers sent to pushers.
    pub barriers: Counter,
    /// Barriers that were answered.
    pub confirmations: Counter,
    /// Direct probes by what they came to.
    pub probes: Family<ByProbeOutcome, Counter>,
    /// Seconds that reads waited for a confirmation, those that failed included.
    pub waits: Histogram,
    /// Reads that were refused by reason.
    pub refusals: Family<ByRefusal, Counter>,
    /// Seconds since everything of a shard was confirmed; infinite where that is unknown.
    pub age: Family<ByShard, Age>,
    /// Cells of a shard by state.
    pub cells: Family<ByShardState, Gauge>,
    /// Wall clock of the oldest sync of a shard's cells, seconds since 1970; it survives restarts.
    pub synced: Family<ByShard, Gauge>,
    /// Each cell by itself; empty unless asked for.
    pub cell: CellMetrics,
}

/// An age in seconds.
pub type Age = Gauge<f64, AtomicU64>;

/// One type of one shard: as many series as there are cells.
#[derive(Clone, Debug, Default)]
pub struct CellMetrics {
    /// Seconds since everything of it was confirmed; infinite where that is unknown.
    pub age: Family<ByCell, Age>,
    /// Wall clock of its last sync, seconds since 1970; it survives restarts.
    pub synced: Family<ByCell, Gauge>,
    /// Its objects.
    pub objects: Family<ByCell, Gauge>,
    /// Lineages of its source that were seen.
    pub generation: Family<ByCell, Gauge>,
    /// Version of the source that it has come to.
    pub position: Family<ByCell, Gauge>,
}

impl Default for FreshnessMetrics {
    fn default() -> Self {
        Self {
            barriers: Counter::default(),
            confirmations: Counter::default(),
            probes: Family::default(),
            waits: latency(),
            refusals: Family::default(),
            age: Family::default(),
            cells: Family::default(),
            synced: Family::default(),
            cell: CellMetrics::default(),
        }
    }
}

impl FreshnessMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("shardcache_freshness_barriers", "Barriers sent to pushers", self.barriers.clone());
        registry.register(
            "shardcache_freshness_confirmations",
            "Barriers that pushers have answered",
            self.confirmations.clone(),
        );
        registry.register(
            "shardcache_freshness_probes",
            "Sources that were asked directly because nobody pushes them, by outcome",
            self.probes.clone(),
        );
        registry.register_with_unit(
            "shardcache_freshness_waits",
            "Time that reads waited for a confirmation by the source",
            Unit::Seconds,
            self.waits.clone(),
        );
        registry.register(
            "shardcache_freshness_refusals",
            "Reads that were refused because of freshness or completeness, by reason",
            self.refusals.clone(),
        );
        registry.register_with_unit(
            "shardcache_shard_age",
            "Time since everything of a shard was confirmed; infinite where that is unknown",
            Unit::Seconds,
            self.age.clone(),
        );
        registry.register("shardcache_shard_cells", "Cells of a shard by state", self.cells.clone());
        registry.register_with_unit(
            "shardcache_shard_synced_timestamp",
            "Wall clock of the oldest sync of a shard's cells, since 1970",
            Unit::Seconds,
            self.synced.clone(),
        );
        self.cell.register(registry);
    }
}

impl CellMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "shardcache_cell_age",
            "Time since everything of a cell was confirmed; infinite where that is unknown",
            Unit::Seconds,
            self.age.clone(),
        );
        registry.register_with_unit(
            "shardcache_cell_synced_timestamp",
            "Wall clock of a cell's last sync, since 1970",
            Unit::Seconds,
            self.synced.clone(),
        );
        registry.register("shardcache_cell_objects", "Objects of a cell", self.objects.clone());
        registry.register(
            "shardcache_cell_generation",
            "Lineages of a cell's source that were seen",
            self.generation.clone(),
        );
        registry.register(
            "shardcache_cell_position",
            "Version of its source that a cell has come to",
            self.position.clone(),
        );
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        self.age.clear();
        self.synced.clear();
        self.objects.clear();
        self.generation.clear();
        self.position.clear();
    }
}
