use std::sync::Arc;

use http_body_util::BodyExt;
use prometheus_client::registry::Registry;
use shardcache_storage::Store;

use super::*;
use crate::cache::testing::World;
use crate::metrics::Metrics;
use crate::service::ApiConfig;

fn outcome(failing: &[&str]) -> Vec<Check> {
    let check = |name: &'static str, counts_for| {
        let failure = failing.contains(&name).then(|| format!("{name} is unwell"));
        Check::new(name, counts_for, failure)
    };
    vec![
        check("ping", CountsFor::Liveness),
        check("cache", CountsFor::Liveness),
        check("store", CountsFor::Readiness),
        check("store-writable", CountsFor::Nothing),
    ]
}

async fn ask(failing: &[&str], endpoint: HealthEndpoint, check: Option<&str>, query: &str) -> (u16, String) {
    let response = report(&outcome(failing), endpoint, check, query);
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("whole").to_bytes();
    (status, String::from_utf8(bytes.to_vec()).expect("text"))
}

use HealthEndpoint::{Healthz, Livez, Readyz};

#[tokio::test]
async fn healthy_is_ok_and_verbose_lists_the_checks() {
    for endpoint in [Healthz, Livez, Readyz] {
        assert_eq!(ask(&[], endpoint, None, "").await, (200, "ok".to_owned()));
    }
    let all = "[+]ping ok\n[+]cache ok\n[+]store ok\n[+]store-writable ok\nreadyz check passed\n";
    for query in ["verbose", "verbose=true", "timeout=1s&verbose"] {
        assert_eq!(ask(&[], Readyz, None, query).await, (200, all.to_owned()), "{query}");
    }
    let live = "[+]ping ok\n[+]cache ok\nlivez check passed\n";
    assert_eq!(ask(&[], Livez, None, "verbose").await, (200, live.to_owned()));
}

#[tokio::test]
async fn a_failed_check_is_named_and_its_reason_withheld() {
    let text = "[+]ping ok\n[+]cache ok\n[-]store failed: reason withheld\n[+]store-writable ok\n";
    assert_eq!(ask(&["store"], Readyz, None, "").await, (500, format!("{text}readyz check failed\n")));
    assert_eq!(ask(&["store"], Healthz, None, "").await, (500, format!("{text}healthz check failed\n")));
    // Liveness does not hang on what a restart does not mend.
    assert_eq!(ask(&["store"], Livez, None, "").await.0, 200);
    assert_eq!(ask(&["cache"], Livez, None, "").await.0, 500);
}

#[tokio::test]
async fn a_store_that_cannot_write_stays_ready_for_reads() {
    assert_eq!(ask(&["store-writable"], Readyz, None, "").await, (200, "ok".to_owned()));
    let (code, text) = ask(&["store-writable"], Readyz, None, "verbose").await;
    assert_eq!(code, 200);
    assert!(text.contains("[~]store-writable failed: reason withheld\n"), "{text}");
    let (code, text) = ask(&["store-writable"], Readyz, Some("store-writable"), "").await;
    assert_eq!((code, text.as_str()), (500, "internal server error: store-writable is unwell\n"));
}

#[tokio::test]
async fn single_checks_have_paths_and_unknown_ones_do_not() {
    assert_eq!(ask(&["cache"], Readyz, Some("store"), "").await, (200, "ok".to_owned()));
    assert_eq!(ask(&[], Readyz, Some("etcd"), "").await.0, 404);
    assert_eq!(ask(&[], Livez, Some("store"), "").await.0, 404);
}

#[tokio::test]
async fn excluded_checks_do_not_count_and_unknown_exclusions_are_pointed_out() {
    let text = "[+]ping ok\n[+]cache ok\n[+]store excluded: ok\n[+]store-writable ok\nreadyz check passed\n";
    assert_eq!(ask(&["store"], Readyz, None, "verbose&exclude=store").await, (200, text.to_owned()));
    assert_eq!(ask(&["store"], Readyz, None, "exclude=store").await, (200, "ok".to_owned()));
    let (code, text) = ask(&[], Readyz, None, "verbose=1&exclude=etcd&exclude=ping").await;
    assert_eq!(code, 200);
    assert!(
        text.contains("warn: some health checks cannot be excluded: no matches for \"etcd\"\n"),
        "{text}"
    );
}

#[tokio::test]
async fn the_checks_follow_the_cache_and_the_store() {
    let mut world = World::new();
    let api = Api::new(
        world.store.clone(),
        world.cache.clone(),
        ApiConfig::default(),
        Metrics::default(),
        Arc::new(Registry::default()),
    );
    let code = |endpoint, check| respond(&api, endpoint, check, "").status().as_u16();
    assert_eq!((code(Livez, None), code(Readyz, None)), (200, 200));

    world.cache.drain();
    world.reflector.step().await;
    assert_eq!((code(Livez, None), code(Readyz, None)), (200, 500));
    assert_eq!(code(Readyz, Some("shutdown")), 500);
    assert_eq!(code(Readyz, Some("cache")), 200);

    drop(world.reflector);
    assert_eq!((code(Livez, None), code(Readyz, None)), (500, 500));
    assert_eq!(code(Livez, Some("cache")), 500);

    world.store.close().await.expect("closes");
    assert_eq!(code(Readyz, Some("store")), 500);
    assert_eq!(code(Readyz, Some("store-writable")), 500);
}

#[tokio::test]
async fn metrics_are_openmetrics_text_with_the_types_that_are_served() {
    let world = World::new();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let api =
        Api::new(world.store.clone(), world.cache.clone(), ApiConfig::default(), metrics, Arc::new(registry));
    let response = super::metrics(&api);
    assert_eq!(
        response.headers()[CONTENT_TYPE],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let body = response.into_body().collect().await.expect("whole").to_bytes();
    let text = std::str::from_utf8(&body).expect("text");
    assert!(text.contains("\nshardcache_types_served{source=\"builtin\"} 26\n"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}
