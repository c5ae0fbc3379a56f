//! Writes through the whole service, over a store in memory.

use std::sync::Arc;

use ::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use shardcache_storage::{MemoryStore, Opening, Store};
use tower_service::Service;

use crate::body::BytesBody;
use crate::cache::{CacheConfig, WatchCache};
use crate::metrics::Metrics;
use crate::service::{Api, ApiConfig, ProxyService};
use crate::types::Types;

mod contention;
mod delete;
mod dry_run;
mod errors;
mod fidelity;
mod kcp;
mod patch;
mod store;

/// Where most tests write: cluster-scoped objects that kcp caches.
const EXPORTS: &str = "/services/cache/shards/amber/clusters/acme/apis/apis.kcp.io/v1alpha1/apiexports";
/// Namespaced objects.
const LEASES: &str =
    "/services/cache/shards/amber/clusters/acme/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// A server without a socket; its reflector lives as long as the test's runtime.
#[derive(Clone)]
struct Server {
    api: Arc<Api>,
    service: ProxyService,
}

/// An answer, read to its end.
#[derive(Debug)]
struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Value,
    text: String,
}

impl Answer {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_else(|| panic!("no message: {}", self.text))
    }

    fn version(&self) -> String {
        self.body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }

    /// Asserts the code and returns the answer, which is shown if it is another.
    #[track_caller]
    fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }
}

impl Server {
    fn start() -> Self {
        Self::over(MemoryStore::new(Opening::from_system()), ApiConfig::default())
    }

    fn over(store: Arc<dyn Store>, config: ApiConfig) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let types = Types::builtin(Vec::new());
        let (cache, reflector) =
            WatchCache::open(Arc::clone(&store), &types, CacheConfig::default(), &metrics);
        tokio::spawn(reflector.run());
        let api = Api::new(store, cache, config, metrics, Arc::new(registry));
        let service = ProxyService::new(Arc::clone(&api));
        Self { api, service }
    }

    /// Sends a request with headers given as pairs.
    async fn send(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body));
        let request = request.body(body).expect("a legal request");
        let response = self.service.clone().call(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = BytesBody::from(body).collect().await.expect("a whole body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let body = crate::ingest::parse_value(&text).unwrap_or(Value::Null);
        Answer { code: parts.status.as_u16(), headers: parts.headers, body, text }
    }

    async fn post(&self, url: &str, object: &Value) -> Answer {
        self.send("POST", url, &[("content-type", "application/json")], object.to_string().as_bytes()).await
    }

    async fn put(&self, url: &str, object: &Value) -> Answer {
        self.send("PUT", url, &[("content-type", "application/json")], object.to_string().as_bytes()).await
    }

    async fn get(&self, url: &str) -> Answer {
        self.send("GET", url, &[], b"").await
    }

    async fn delete(&self, url: &str) -> Answer {
        self.send("DELETE", url, &[], b"").await
    }

    async fn merge(&self, url: &str, patch: &Value) -> Answer {
        let headers = [("content-type", "application/merge-patch+json")];
        self.send("PATCH", url, &headers, patch.to_string().as_bytes()).await
    }

    async fn json_patch(&self, url: &str, patch: &Value) -> Answer {
        let headers = [("content-type", "application/json-patch+json")];
        self.send("PATCH", url, &headers, patch.to_string().as_bytes()).await
    }

    /// Creates an export and returns it as answered.
    async fn create(&self, name: &str) -> Value {
        self.post(EXPORTS, &export(name)).await.expect(201).body
    }

    /// Number of events the store has committed.
    fn head(&self) -> u64 {
        self.api.cache.snapshot().state.head().0
    }
}

fn export(name: &str) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": { "name": name }, "spec": {},
    })
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": {},
    })
}

/// URL of an export.
fn at(name: &str) -> String {
    format!("{EXPORTS}/{name}")
}
