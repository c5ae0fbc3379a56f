//! How far a replicator is: for people, for `/metrics` and for `/readyz`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shardcache_proxy::push::client::Provider;

use super::selection::Resource;

/// Where a type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A stream is being opened.
    Connecting,
    /// A complete list is being sent; about so many objects are left.
    Syncing {
        /// Objects that the source has not listed yet, as far as it says.
        remaining: u64,
    },
    /// Every event is sent as it comes.
    Live,
    /// The source or the cache failed, and is tried again; or another replica pushes.
    Waiting,
}

/// One type's numbers.
#[derive(Clone, Debug)]
pub struct TypeReport {
    /// Where it is.
    pub phase: Phase,
    /// Objects sent since the last stream or list began.
    pub objects: u64,
    /// When that was.
    pub since: Instant,
}

/// Upper bounds of the histogram of [`Durations`], in seconds: a watch that is there already answers in
/// milliseconds, a rolling one in one to three seconds, and readers wait no longer than that.
const BOUNDS: [f64; 10] = [0.005, 0.02, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 60.0];

/// How long something took, how often.
#[derive(Clone, Copy, Debug, Default)]
struct Durations {
    /// Those of at most [`BOUNDS`].
    within: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

/// What a replicator is doing. Shared by all of its tasks.
#[derive(Debug, Default)]
pub struct Report {
    types: Mutex<BTreeMap<String, TypeReport>>,
    objects: AtomicU64,
    bytes: AtomicU64,
    resyncs: AtomicU64,
    failures: AtomicU64,
    term: AtomicU64,
    standing_by: AtomicBool,
    barriers: Mutex<BTreeMap<Provider, Durations>>,
}

impl Report {
    pub(super) fn phase(&self, resource: &Resource, phase: Phase) {
        let mut types = self.types.lock();
        let known = types.entry(resource.to_string()).or_insert_with(|| TypeReport {
            phase,
            objects: 0,
            since: Instant::now(),
        });
        let begins = matches!(phase, Phase::Syncing { .. }) && !matches!(known.phase, Phase::Syncing { .. });
        if begins {
            (known.objects, known.since) = (0, Instant::now());
        }
        known.phase = phase;
    }

    pub(super) fn pushed(&self, resource: &Resource, bytes: usize) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(known) = self.types.lock().get_mut(&resource.to_string()) {
            known.objects += 1;
        }
    }

    pub(super) fn resynced(&self) {
        self.resyncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A barrier was answered, so long after it came.
    pub(super) fn confirmed(&self, provider: Provider, took: Duration) {
        let mut barriers = self.barriers.lock();
        let known = barriers.entry(provider).or_default();
        let took = took.as_secs_f64();
        for (within, bound) in known.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(took <= bound);
        }
        known.count += 1;
        known.sum += took;
    }

    /// How many barriers were answered, by what the answers rest on.
    pub fn barriers(&self) -> BTreeMap<Provider, u64> {
        self.barriers.lock().iter().map(|(provider, known)| (*provider, known.count)).collect()
    }

    /// The term in which the shard is held; 0 while it is not.
    pub(super) fn holds(&self, term: u64) {
        self.term.store(term, Ordering::Relaxed);
        self.standing_by.store(false, Ordering::Relaxed);
    }

    /// Another replica pushes; whether that is news.
    pub(super) fn standing_by(&self) -> bool {
        self.term.store(0, Ordering::Relaxed);
        self.types.lock().values_mut().for_each(|known| known.phase = Phase::Waiting);
        !self.standing_by.swap(true, Ordering::Relaxed)
    }

    /// Whether another replica pushes, as far as is known.
    pub fn stands_by(&self) -> bool {
        self.standing_by.load(Ordering::Relaxed)
    }

    /// Every type, by name.
    pub fn types(&self) -> BTreeMap<String, TypeReport> {
        self.types.lock().clone()
    }

    /// The term in which the shard is held; 0 while it is not.
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    /// Whether every type is live.
    pub fn is_live(&self) -> bool {
        let types = self.types.lock();
        self.term() > 0 && !types.is_empty() && types.values().all(|known| known.phase == Phase::Live)
    }

    /// In the format of Prometheus.
    pub fn metrics(&self) -> String {
        let types = self.types.lock();
        let count = |pick: fn(&Phase) -> bool| types.values().filter(|known| pick(&known.phase)).count();
        let mut text = String::new();
        for (name, kind, help, value) in [
            ("objects_total", "counter", "Objects sent", self.objects.load(Ordering::Relaxed)),
            ("bytes_total", "counter", "Bytes of objects sent", self.bytes.load(Ordering::Relaxed)),
            (
                "resyncs_total",
                "counter",
                "How often the cache asked for everything again",
                self.resyncs.load(Ordering::Relaxed),
            ),
            (
                "failures_total",
                "counter",
                "Streams that ended with an error",
                self.failures.load(Ordering::Relaxed),
            ),
            ("standing_by", "gauge", "1 while another replica pushes the shard", self.stands_by().into()),
            ("term", "gauge", "Term in which the shard is held, 0 while it is not", self.term()),
            (
                "types_live",
                "gauge",
                "Types whose every event is sent",
                count(|phase| *phase == Phase::Live) as u64,
            ),
            ("types", "gauge", "Types", types.len() as u64),
        ] {
            let full = format!("shardcache_replicate_{name}");
            // Writing to memory cannot fail.
            let _ = write!(text, "# HELP {full} {help}\n# TYPE {full} {kind}\n{full} {value}\n");
        }
        self.barrier_metrics(&mut text);
        text
    }

    fn barrier_metrics(&self, text: &mut String) {
        let barriers = self.barriers.lock();
        let known = |provider| barriers.get(&provider).copied().unwrap_or_default();
        let name = "shardcache_replicate_barriers_total";
        let _ = write!(text, "# HELP {name} Barriers answered, by provider\n# TYPE {name} counter\n");
        for provider in Provider::ALL {
            let _ = writeln!(text, "{name}{{provider=\"{}\"}} {}", provider.as_str(), known(provider).count);
        }
        let name = "shardcache_replicate_barrier_duration_seconds";
        let help = "From a barrier to its answer, by provider";
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} histogram\n");
        for provider in Provider::ALL {
            let (Durations { within, count, sum }, label) = (known(provider), provider.as_str());
            for (bound, within) in BOUNDS.iter().zip(within) {
                let _ = writeln!(text, "{name}_bucket{{provider=\"{label}\",le=\"{bound}\"}} {within}");
            }
            let _ = write!(
                text,
                "{name}_bucket{{provider=\"{label}\",le=\"+Inf\"}} {count}\n\
                 {name}_sum{{provider=\"{label}\"}} {sum}\n{name}_count{{provider=\"{label}\"}} {count}\n"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_counted_by_provider_and_duration() {
        let report = Report::default();
        report.confirmed(Provider::Watch, Duration::from_millis(3));
        report.confirmed(Provider::RollingWatch, Duration::from_millis(1250));
        report.confirmed(Provider::RollingWatch, Duration::from_secs(2));
        let text = report.metrics();
        for line in [
            r#"shardcache_replicate_barriers_total{provider="watch"} 1"#,
            r#"shardcache_replicate_barriers_total{provider="metadataDiff"} 0"#,
            r#"shardcache_replicate_barrier_duration_seconds_bucket{provider="rollingWatch",le="1"} 0"#,
            r#"shardcache_replicate_barrier_duration_seconds_bucket{provider="rollingWatch",le="1.5"} 1"#,
            r#"shardcache_replicate_barrier_duration_seconds_bucket{provider="rollingWatch",le="2"} 2"#,
            r#"shardcache_replicate_barrier_duration_seconds_bucket{provider="rollingWatch",le="+Inf"} 2"#,
            r#"shardcache_replicate_barrier_duration_seconds_sum{provider="rollingWatch"} 3.25"#,
            r#"shardcache_replicate_barrier_duration_seconds_count{provider="watch"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(report.barriers(), [(Provider::Watch, 1), (Provider::RollingWatch, 2)].into());
    }
}
