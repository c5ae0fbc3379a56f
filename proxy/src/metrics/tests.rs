use std::collections::BTreeSet;

use shardcache_storage::{MemoryStore, Opening};

use super::*;

/// Everything that the crates of this workspace measure, encoded.
fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("encodes");
    text
}

#[test]
fn every_metric_can_be_encoded() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    metrics.http.requests.get_or_create(&ByCode { verb: Verb::List, code: 200 }).inc();
    metrics.watch.terminations.get_or_create(&Reason::Expired.into()).inc();
    let text = encoded(&registry);
    assert!(text.contains("shardcache_http_requests_total{verb=\"list\",code=\"200\"} 1\n"), "{text}");
    assert!(text.contains("shardcache_watch_terminations_total{reason=\"expired\"} 1\n"), "{text}");
}

/// The names of the table in `docs/operations.md`.
fn documented() -> BTreeSet<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let text = std::fs::read_to_string(file).expect("docs/operations.md is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `shardcache_"));
    rows.filter_map(|row| Some(format!("shardcache_{}", row.split_once('`')?.0))).collect()
}

#[test]
fn every_metric_is_explained_in_operations_md() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    // The one family whose labels are not closed has no series yet, and would not be shown.
    metrics.http.requests.get_or_create(&ByCode { verb: Verb::List, code: 200 }).inc();
    MemoryStore::new(Opening::from_system()).metrics().register(&mut registry);
    let registered: BTreeSet<String> = encoded(&registry)
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    let documented = documented();
    let missing: Vec<_> = registered.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:?}");
    // Metrics of the binary are in the same table, but not known here.
    let ours = ["http", "list", "watch", "write", "cache", "types", "push", "roster", "storage"];
    let is_ours = |name: &&String| ours.iter().any(|part| name.starts_with(&format!("shardcache_{part}_")));
    let stale: Vec<_> = documented.difference(&registered).filter(is_ours).collect();
    assert!(stale.is_empty(), "in docs/operations.md, but not measured: {stale:?}");
}
