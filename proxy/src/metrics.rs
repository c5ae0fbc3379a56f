//! What the proxy measures: one struct of counters, gauges and histograms, registered once.
//!
//! Names are `shardcache_<subsystem>_<what>_<unit>`. No label is unbounded: labels are closed enums
//! ([`labels`]) or HTTP codes, never a shard, a logical cluster, a type or an object's name. Every
//! metric is explained in `docs/operations.md`; a test compares the two. The exception is what is known of
//! shards: there are as many as are pushed or rostered.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use shardcache_storage::Member;

pub mod freshness;
pub mod labels;

use freshness::FreshnessMetrics;
use labels::WriteRefusal;
use labels::{ByClass, ByCode, ByLimit, ByOutcome, ByPushEnd, ByReason, ByRole, BySource, ByState, ByVerb};
use labels::{
    ByWriteRefusal, Class, FrameOutcome, Limit, ProbeOutcome, PushEnd, Reason, Refusal, Role, Source, State,
    Verb,
};

/// Everything the proxy measures. Cheap to clone: the parts are shared handles.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Requests and connections.
    pub http: HttpMetrics,
    /// Lists.
    pub list: ListMetrics,
    /// Watches.
    pub watch: WatchMetrics,
    /// Writes.
    pub write: WriteMetrics,
    /// Push streams.
    pub push: PushMetrics,
    /// Which shards ought to exist.
    pub roster: RosterMetrics,
    /// Freshness and completeness.
    pub freshness: FreshnessMetrics,
    /// The watch cache.
    pub cache: CacheMetrics,
    /// The set of served types.
    pub types: TypeMetrics,
}

/// Requests and connections.
#[derive(Clone, Debug)]
pub struct HttpMetrics {
    /// Answered requests by verb and HTTP code; a watch counts when its headers are sent.
    pub requests: Family<ByCode, Counter>,
    /// Seconds from the request's head to the answer's head, by verb.
    pub duration: Family<ByVerb, Histogram, fn() -> Histogram>,
    /// Requests being answered, by class; a watch counts until its stream ends.
    pub in_flight: Family<ByClass, Gauge>,
    /// Requests and connections turned away because a limit was reached, by limit.
    pub refusals: Family<ByLimit, Counter>,
    /// Bytes of request bodies read.
    pub request_bytes: Counter,
    /// Open connections.
    pub connections: Gauge,
    /// Accepted connections.
    pub connections_accepted: Counter,
    /// Connections whose TLS handshake failed or timed out.
    pub handshake_failures: Counter,
    /// Requests whose handler panicked (answered 500).
    pub panics: Counter,
}

/// Lists.
#[derive(Clone, Debug)]
pub struct ListMetrics {
    /// Objects in one answer.
    pub objects: Histogram,
    /// Bytes of one answer, before compression.
    pub bytes: Histogram,
    /// Bytes of lists being written to clients; the bodies themselves are shared with the cache.
    pub in_flight_bytes: Gauge,
    /// Their compression.
    pub gzip: GzipMetrics,
}

/// Pages of lists that are compressed once.
#[derive(Clone, Debug, Default)]
pub struct GzipMetrics {
    /// Pages that were compressed.
    pub pages_made: Counter,
    /// Pages that were sent as an earlier list had them.
    pub pages_reused: Counter,
    /// Bytes of the pages that are kept.
    pub page_bytes: Gauge,
}

/// Watches.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    /// Open watches by state: level with the cache, or catching up from history or the log.
    pub watchers: Family<ByState, Gauge>,
    /// Ended watches by reason.
    pub terminations: Family<ByReason, Counter>,
    /// Events sent, bookmarks not counted.
    pub events: Counter,
    /// Bookmarks sent.
    pub bookmarks: Counter,
    /// How often a watch went to the durable log because memory no longer held its position.
    pub cold_starts: Counter,
    /// Distinct (type, selector) classes that events are dispatched to.
    pub classes: Gauge,
    /// How often a class judged whether an event concerns it; events sent, per watcher or not, are apart.
    pub judgements: Counter,
}

/// Writes.
#[derive(Clone, Debug)]
pub struct WriteMetrics {
    /// Seconds from a validated write to its acknowledgement: commit, sync and publication.
    pub duration: Histogram,
    /// Writes that changed nothing and made no event.
    pub unchanged: Counter,
    /// Refused writes by reason.
    pub refusals: Family<ByWriteRefusal, Counter>,
}

/// Push streams.
#[derive(Clone, Debug, Default)]
pub struct PushMetrics {
    /// Streams of types that are open.
    pub sessions: Gauge,
    /// Ended streams by reason.
    pub ends: Family<ByPushEnd, Counter>,
    /// What frames came to.
    pub frames: Family<ByOutcome, Counter>,
    /// How often a copy was not the source and is synced again.
    pub resyncs: Counter,
    /// How often a stream waited because too many frames wait for the store.
    pub throttled: Counter,
    /// Bytes of frames read.
    pub bytes: Counter,
}

/// Which shards ought to exist.
#[derive(Clone, Debug, Default)]
pub struct RosterMetrics {
    /// Members by role.
    pub members: Family<ByRole, Gauge>,
    /// Expected members of whom something is awaited: views over all shards are not shown because of them.
    pub gating: Gauge,
}

/// The watch cache.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    /// Seconds from a commit's arrival at the reflector to its publication.
    pub publish_lag: Histogram,
    /// Newest published revision, comparable with the store's.
    pub revision: Gauge,
    /// Live objects.
    pub objects: Gauge,
    /// Encoded bytes of live objects.
    pub object_bytes: Gauge,
    /// Events of the in-memory history.
    pub history_events: Gauge,
    /// Bytes of superseded bodies that the in-memory history holds.
    pub history_bytes: Gauge,
    /// Snapshots retained for paging.
    pub snapshots: Gauge,
    /// Bytes of superseded bodies that only retained snapshots keep, at most.
    pub snapshot_bytes: Gauge,
    /// Indexes of types, by a label or by cluster.
    pub indexes: Gauge,
}

/// The set of served types.
#[derive(Clone, Debug, Default)]
pub struct TypeMetrics {
    /// Served types by where their description comes from.
    pub served: Family<BySource, Gauge>,
    /// CustomResourceDefinitions that are not served because they cannot be understood.
    pub broken: Gauge,
}

impl Metrics {
    /// Creates the metrics and registers them. Call once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.begin_at_zero();
        metrics.register_http(registry);
        metrics.register_list_and_watch(registry);
        metrics.register_write_and_types(registry);
        metrics.register_cache(registry);
        metrics.register_push(registry);
        metrics.register_roster(registry);
        metrics.freshness.register(registry);
        metrics
    }

    /// Makes every series with a closed label, so that a rate does not miss the first increment.
    fn begin_at_zero(&self) {
        fn all<L: Copy, S, M>(labels: &[L], family: &Family<S, M, impl Fn() -> M>)
        where
            S: From<L> + Clone + std::hash::Hash + Eq,
        {
            for label in labels {
                drop(family.get_or_create(&S::from(*label)));
            }
        }
        all(Verb::ALL, &self.http.duration);
        all(Class::ALL, &self.http.in_flight);
        all(Limit::ALL, &self.http.refusals);
        all(State::ALL, &self.watch.watchers);
        all(Reason::ALL, &self.watch.terminations);
        all(WriteRefusal::ALL, &self.write.refusals);
        all(Source::ALL, &self.types.served);
        all(PushEnd::ALL, &self.push.ends);
        all(FrameOutcome::ALL, &self.push.frames);
        all(Role::ALL, &self.roster.members);
        all(Refusal::ALL, &self.freshness.refusals);
        all(ProbeOutcome::ALL, &self.freshness.probes);
    }

    fn register_http(&self, registry: &mut Registry) {
        let http = &self.http;
        registry.register(
            "shardcache_http_requests",
            "Answered requests by verb and HTTP code",
            http.requests.clone(),
        );
        registry.register_with_unit(
            "shardcache_http_request_duration",
            "Time from the request's head to the answer's head",
            Unit::Seconds,
            http.duration.clone(),
        );
        registry.register(
            "shardcache_http_in_flight_requests",
            "Requests being answered by class, watches included",
            http.in_flight.clone(),
        );
        registry.register(
            "shardcache_http_refusals",
            "Requests and connections turned away at a limit, by limit",
            http.refusals.clone(),
        );
        registry.register_with_unit(
            "shardcache_http_request_body",
            "Bytes of request bodies read",
            Unit::Bytes,
            http.request_bytes.clone(),
        );
        registry.register("shardcache_http_open_connections", "Open connections", http.connections.clone());
        registry.register(
            "shardcache_http_accepted_connections",
            "Accepted connections",
            http.connections_accepted.clone(),
        );
        registry.register(
            "shardcache_http_failed_handshakes",
            "Connections whose TLS handshake failed or timed out",
            http.handshake_failures.clone(),
        );
        registry.register("shardcache_http_panics", "Requests whose handler panicked", http.panics.clone());
    }

    fn register_list_and_watch(&self, registry: &mut Registry) {
        let (list, watch) = (&self.list, &self.watch);
        registry.register("shardcache_list_objects", "Objects in one list answer", list.objects.clone());
        registry.register_with_unit(
            "shardcache_list_response",
            "Bytes of one list answer before compression",
            Unit::Bytes,
            list.bytes.clone(),
        );
        registry.register_with_unit(
            "shardcache_list_in_flight",
            "Bytes of lists being written to clients",
            Unit::Bytes,
            list.in_flight_bytes.clone(),
        );
        self.register_gzip(registry);
        registry.register("shardcache_watch_watchers", "Open watches by state", watch.watchers.clone());
        registry.register(
            "shardcache_watch_terminations",
            "Ended watches by reason",
            watch.terminations.clone(),
        );
        registry.register("shardcache_watch_events", "Events sent to watches", watch.events.clone());
        registry.register("shardcache_watch_bookmarks", "Bookmarks sent to watches", watch.bookmarks.clone());
        registry.register(
            "shardcache_watch_cold_starts",
            "How often a watch went to the durable log",
            watch.cold_starts.clone(),
        );
        registry.register(
            "shardcache_watch_classes",
            "Distinct selector classes that events are dispatched to",
            watch.classes.clone(),
        );
        registry.register(
            "shardcache_watch_judgements",
            "How often a selector class judged an event",
            watch.judgements.clone(),
        );
    }

    fn register_gzip(&self, registry: &mut Registry) {
        let gzip = &self.list.gzip;
        registry.register(
            "shardcache_list_gzip_pages_made",
            "Pages of lists that were compressed",
            gzip.pages_made.clone(),
        );
        registry.register(
            "shardcache_list_gzip_pages_reused",
            "Pages of lists that were sent as an earlier list had them",
            gzip.pages_reused.clone(),
        );
        registry.register_with_unit(
            "shardcache_list_gzip_page",
            "Bytes of the compressed pages that are kept",
            Unit::Bytes,
            gzip.page_bytes.clone(),
        );
    }

    fn register_write_and_types(&self, registry: &mut Registry) {
        let (write, types) = (&self.write, &self.types);
        registry.register_with_unit(
            "shardcache_write_duration",
            "Time from a validated write to its acknowledgement",
            Unit::Seconds,
            write.duration.clone(),
        );
        registry.register(
            "shardcache_write_unchanged",
            "Writes that changed nothing and made no event",
            write.unchanged.clone(),
        );
        registry.register("shardcache_write_refusals", "Refused writes by reason", write.refusals.clone());
        registry.register("shardcache_types_served", "Served types by source", types.served.clone());
        registry.register(
            "shardcache_types_broken",
            "CustomResourceDefinitions that are not served because they cannot be understood",
            types.broken.clone(),
        );
    }

    fn register_push(&self, registry: &mut Registry) {
        let push = &self.push;
        registry.register(
            "shardcache_push_sessions",
            "Push streams of types that are open",
            push.sessions.clone(),
        );
        registry.register("shardcache_push_ends", "Ended push streams by reason", push.ends.clone());
        registry.register(
            "shardcache_push_frames",
            "Pushed frames by what they came to",
            push.frames.clone(),
        );
        registry.register(
            "shardcache_push_resyncs",
            "How often a copy was not the source and is synced again",
            push.resyncs.clone(),
        );
        registry.register(
            "shardcache_push_throttled",
            "How often a push stream waited because too many frames wait for the store",
            push.throttled.clone(),
        );
        registry.register_with_unit(
            "shardcache_push_received",
            "Bytes of push frames read",
            Unit::Bytes,
            push.bytes.clone(),
        );
    }

    fn register_roster(&self, registry: &mut Registry) {
        let roster = &self.roster;
        registry.register(
            "shardcache_roster_members",
            "Members of the roster of shards by role",
            roster.members.clone(),
        );
        registry.register(
            "shardcache_roster_gating_members",
            "Members that keep views over all shards from being shown",
            roster.gating.clone(),
        );
    }

    fn register_cache(&self, registry: &mut Registry) {
        let cache = &self.cache;
        registry.register_with_unit(
            "shardcache_cache_publish_lag",
            "Time from a commit's arrival to its publication",
            Unit::Seconds,
            cache.publish_lag.clone(),
        );
        registry.register("shardcache_cache_revision", "Newest published revision", cache.revision.clone());
        registry.register("shardcache_cache_objects", "Live objects", cache.objects.clone());
        registry.register_with_unit(
            "shardcache_cache_object",
            "Encoded bytes of live objects",
            Unit::Bytes,
            cache.object_bytes.clone(),
        );
        registry.register(
            "shardcache_cache_history_events",
            "Events of the in-memory history",
            cache.history_events.clone(),
        );
        registry.register_with_unit(
            "shardcache_cache_history",
            "Bytes of superseded bodies in the in-memory history",
            Unit::Bytes,
            cache.history_bytes.clone(),
        );
        registry.register(
            "shardcache_cache_snapshots",
            "Snapshots retained for paging",
            cache.snapshots.clone(),
        );
        registry.register_with_unit(
            "shardcache_cache_snapshot",
            "Bytes of superseded bodies that retained snapshots keep, at most",
            Unit::Bytes,
            cache.snapshot_bytes.clone(),
        );
        registry.register(
            "shardcache_cache_indexes",
            "Indexes of types, by a label or by cluster",
            cache.indexes.clone(),
        );
    }
}

impl RosterMetrics {
    /// Counts a place in the roster that is there (1), or was (-1).
    pub(crate) fn count(&self, member: &Member, by: i64) {
        self.members.get_or_create(&ByRole::from(Role::from(member.role))).inc_by(by);
        self.gating.inc_by(if member.gates() { by } else { 0 });
    }
}

impl Default for Metrics {
    /// Metrics that nobody reads: for tests and benches.
    fn default() -> Self {
        Self {
            http: HttpMetrics {
                requests: Family::default(),
                duration: Family::new_with_constructor(latency as fn() -> Histogram),
                in_flight: Family::default(),
                refusals: Family::default(),
                request_bytes: Counter::default(),
                connections: Gauge::default(),
                connections_accepted: Counter::default(),
                handshake_failures: Counter::default(),
                panics: Counter::default(),
            },
            list: ListMetrics {
                objects: Histogram::new(exponential_buckets(1.0, 10.0, 7)),
                bytes: Histogram::new(exponential_buckets(1024.0, 8.0, 8)),
                in_flight_bytes: Gauge::default(),
                gzip: GzipMetrics::default(),
            },
            watch: WatchMetrics::default(),
            write: WriteMetrics {
                duration: latency(),
                unchanged: Counter::default(),
                refusals: Family::default(),
            },
            push: PushMetrics::default(),
            roster: RosterMetrics::default(),
            freshness: FreshnessMetrics::default(),
            cache: CacheMetrics {
                publish_lag: latency(),
                revision: Gauge::default(),
                objects: Gauge::default(),
                object_bytes: Gauge::default(),
                history_events: Gauge::default(),
                history_bytes: Gauge::default(),
                snapshots: Gauge::default(),
                snapshot_bytes: Gauge::default(),
                indexes: Gauge::default(),
            },
            types: TypeMetrics::default(),
        }
    }
}

/// 100 µs to 26 s in steps of four.
fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 4.0, 10))
}

#[cfg(test)]
mod tests;
