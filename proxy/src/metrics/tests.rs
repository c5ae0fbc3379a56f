use super::*;

#[test]
fn every_metric_can_be_encoded() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    metrics.http.requests.get_or_create(&ByCode { verb: labels::Verb::List, code: 200 }).inc();
    metrics.watch.terminations.get_or_create(&labels::Reason::Expired.into()).inc();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
    assert!(text.contains("shardcache_http_requests_total{verb=\"list\",code=\"200\"} 1\n"), "{text}");
    assert!(text.contains("shardcache_watch_terminations_total{reason=\"expired\"} 1\n"), "{text}");
}
