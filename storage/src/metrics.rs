//! What a store reports about itself. Every name begins with `shardcache_storage_` once registered.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::resource_version::Revision;
use crate::store::Health;

/// The metrics of one store. Clones share their values; recording is lock-free or nearly so.
#[derive(Clone, Debug)]
pub struct Metrics {
    commit_seconds: Histogram,
    batch_changes: Histogram,
    /// Changes waiting for the writer.
    pub(crate) queue_depth: Gauge,
    head: Gauge,
    history_events: Gauge,
    history_bytes: Gauge,
    history_span_seconds: Gauge,
    compacted_records: Counter,
    load_seconds: Gauge<f64, AtomicU64>,
    clock_untrusted: Gauge,
    read_only: Gauge,
    failed_writes: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            // 62 µs to about 4 s.
            commit_seconds: Histogram::new(exponential_buckets(1.0 / 16_000.0, 2.0, 17)),
            batch_changes: Histogram::new(exponential_buckets(1.0, 2.0, 13)),
            queue_depth: Gauge::default(),
            head: Gauge::default(),
            history_events: Gauge::default(),
            history_bytes: Gauge::default(),
            history_span_seconds: Gauge::default(),
            compacted_records: Counter::default(),
            load_seconds: Gauge::default(),
            clock_untrusted: Gauge::default(),
            read_only: Gauge::default(),
            failed_writes: Counter::default(),
        }
    }
}

impl Metrics {
    /// Registers every metric under the prefix `shardcache_storage`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("shardcache_storage");
        registry.register_with_unit(
            "commit",
            "From taking a batch off the queue to its being durable",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        registry.register("batch_changes", "Changes in one batch", self.batch_changes.clone());
        registry.register("queue_changes", "Changes waiting for the writer", self.queue_depth.clone());
        registry.register("head_revision", "Last published revision", self.head.clone());
        registry.register("history_events", "Events that can be replayed", self.history_events.clone());
        registry.register_with_unit(
            "history",
            "Superseded states and deletions kept for replay",
            Unit::Bytes,
            self.history_bytes.clone(),
        );
        registry.register_with_unit(
            "history_span",
            "Age of the oldest event that can be replayed",
            Unit::Seconds,
            self.history_span_seconds.clone(),
        );
        registry.register(
            "compacted_records",
            "Superseded states and deletions removed from the log",
            self.compacted_records.clone(),
        );
        registry.register_with_unit(
            "load",
            "Time the last opening took until the state was in memory",
            Unit::Seconds,
            self.load_seconds.clone(),
        );
        registry.register(
            "clock_untrusted",
            "1 if the clock was implausible at the opening",
            self.clock_untrusted.clone(),
        );
        registry.register(
            "read_only",
            "0 if writes work, 1 if the disk is full, 2 after a failed write",
            self.read_only.clone(),
        );
        registry.register("failed_writes", "Batches that could not be written", self.failed_writes.clone());
    }

    pub(crate) fn batch(&self, changes: usize) {
        self.batch_changes.observe(changes as f64);
    }

    pub(crate) fn committed(&self, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn head(&self, head: Revision) {
        self.head.set(head.0.cast_signed());
    }

    pub(crate) fn history(&self, events: usize, bytes: u64, span: Duration) {
        self.history_events.set(events as i64);
        self.history_bytes.set(bytes.cast_signed());
        self.history_span_seconds.set(span.as_secs().cast_signed());
    }

    pub(crate) fn compacted(&self, records: usize) {
        self.compacted_records.inc_by(records as u64);
    }

    pub(crate) fn loaded(&self, took: Duration) {
        self.load_seconds.set(took.as_secs_f64());
    }

    pub(crate) fn clock(&self, trusted: bool) {
        self.clock_untrusted.set((!trusted).into());
    }

    pub(crate) fn write_failed(&self) {
        self.failed_writes.inc();
    }

    pub(crate) fn health(&self, health: &Health) {
        self.read_only.set(match health {
            Health::Writable | Health::Closed => 0,
            Health::DiskFull => 1,
            Health::ReadOnly(_) => 2,
        });
    }
}
