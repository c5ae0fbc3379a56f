//! What each representation of a list costs the server, without sockets:
//! `cargo bench -p shardcache-proxy --bench represent`.
//!
//! Bodies of a LIST of 20 000 objects of 2 KiB each, drained chunk by chunk, per `Accept`. JSON is what
//! controllers ask for: it must not pay for the others. Medians of several rounds, with the fastest one.
//! Run on a machine that does nothing else.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use prometheus_client::registry::Registry;
use serde_json::json;
use shardcache_proxy::access::Access;
use shardcache_proxy::cache::{CacheConfig, WatchCache};
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::service::{Api, ApiConfig, ProxyService};
use shardcache_proxy::types::Types;
use shardcache_storage::{MemoryStore, Opening, Store};
use tower::ServiceExt;

const OBJECTS: usize = 20_000;
const FILL: usize = 1_700;
const ROUNDS: usize = 15;
const EXPORTS: &str = "/shards/s/clusters/c/apis/apis.kcp.io/v1alpha2/apiexports";
const EVERYWHERE: &str = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports";
const FORMS: [(&str, &str); 4] = [
    ("JSON", "application/json"),
    ("metadata", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
    ("Table", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"),
    ("YAML", "application/yaml,application/json"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let service = service();
    for n in 0..OBJECTS {
        let object = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
            "metadata": {"name": format!("export-{n:05}"), "labels": {"n": n.to_string()}},
            "spec": {"fill": "x".repeat(FILL)},
        });
        let mut create = request(Method::POST, EXPORTS, "application/json", object.to_string());
        create.headers_mut().insert("content-type", "application/json".parse().expect("legal"));
        let response = service.clone().oneshot(create).await.unwrap_or_else(|never| match never {});
        assert_eq!(response.status(), 201);
    }
    for (name, accept) in FORMS {
        let mut took = Vec::with_capacity(ROUNDS);
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            bytes = drain(&service, accept).await;
            took.push(started.elapsed());
        }
        took.sort();
        println!(
            "{name:>9}: median {:>8} fastest {:>8} for {:.1} MiB",
            millis(took[ROUNDS / 2]),
            millis(took[0]),
            bytes as f64 / f64::from(1 << 20)
        );
    }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn service() -> ProxyService {
    let store: Arc<dyn Store> = MemoryStore::new(Opening::from_system());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let types = Types::builtin(Vec::new());
    let (cache, reflector) = WatchCache::open(Arc::clone(&store), &types, CacheConfig::default(), &metrics);
    tokio::spawn(reflector.run());
    ProxyService::new(Api::new(store, cache, ApiConfig::default(), metrics, Arc::new(registry)))
}

fn request(method: Method, path: &str, accept: &str, body: String) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let mut request = request.body(Full::new(Bytes::from(body))).expect("a legal request");
    request.extensions_mut().insert(Access::internal());
    request
}

/// Bytes of a list, which are looked at as a socket would: not at all.
async fn drain(service: &ProxyService, accept: &str) -> usize {
    let list = request(Method::GET, EVERYWHERE, accept, String::new());
    let response = service.clone().oneshot(list).await.unwrap_or_else(|never| match never {});
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let mut rope = frame.expect("not cut").into_data().expect("data");
        while rope.has_remaining() {
            let len = rope.chunk().len();
            bytes += len;
            rope.advance(len);
        }
    }
    bytes
}
