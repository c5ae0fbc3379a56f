//! A served store in memory, objects to put into it, and a plain client.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use shardcache_proxy::access::Access;
use shardcache_proxy::body::Body;
use shardcache_proxy::cache::{CacheConfig, WatchCache};
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::service::{Api, ApiConfig, ProxyService};
use shardcache_proxy::types::{Column, TypeInfo, Types, VersionInfo};
use shardcache_storage::{
    Action, Change, Draft, Guard, Key, MemoryStore, Opening, PLACEHOLDER, Span, Spans, Store, TypeName,
};
use tower::ServiceExt;

/// Nothing in these tests takes this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Widgets of every shard and cluster.
pub(crate) const WIDGETS: &str = "/services/cache/shards/*/clusters/*/apis/example.dev/v1/widgets";

/// The server, without a listener.
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) service: ProxyService,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
    pub(crate) headers: HeaderMap,
    /// Data of each frame, as the connection would get it.
    pub(crate) frames: Vec<usize>,
}

/// `widgets.example.dev`: namespaced, two versions, a selectable field.
fn widgets() -> TypeInfo {
    let size = Column { priority: 1, ..Column::path("Size", "integer", ".spec.size") };
    let v1 = VersionInfo {
        selectable_fields: vec!["spec.color".to_owned()],
        columns: vec![Column::path("Color", "string", ".spec.color"), size],
        ..VersionInfo::new("v1")
    };
    TypeInfo {
        name: TypeName::new("example.dev", "widgets"),
        kind: "Widget".to_owned(),
        list_kind: "WidgetList".to_owned(),
        singular: "widget".to_owned(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        versions: vec![v1, VersionInfo::new("v1beta1")],
        storage_version: "v1".to_owned(),
    }
}

/// The service over a store.
pub(crate) fn serve(
    store: Arc<dyn Store>,
    configure: impl FnOnce(&mut ApiConfig),
    cache: CacheConfig,
) -> ProxyService {
    let mut config = ApiConfig::default();
    configure(&mut config);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let types = Types::builtin(vec![widgets()]);
    let (cache, reflector) = WatchCache::open(Arc::clone(&store), &types, cache, &metrics);
    tokio::spawn(reflector.run());
    let api = Api::new(store, cache, config, metrics, Arc::new(registry));
    ProxyService::new(api)
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(configure: impl FnOnce(&mut ApiConfig)) -> Self {
        Self::over(MemoryStore::new(Opening::from_system()), configure, CacheConfig::default())
    }

    pub(crate) fn over(
        store: Arc<MemoryStore>,
        configure: impl FnOnce(&mut ApiConfig),
        cache: CacheConfig,
    ) -> Self {
        let service = serve(Arc::clone(&store) as _, configure, cache);
        Self { store, service }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.service.api().metrics
    }

    /// Puts a widget at `shard/cluster/namespace/name`; returns its version. `spec` is any JSON.
    pub(crate) async fn put(&self, path: &str, labels: &str, spec: &Value) -> String {
        self.commit(vec![put(path, labels, spec)]).await
    }

    /// Puts widgets `n-0000`… into shard s, cluster c, namespace n.
    pub(crate) async fn fill(&self, count: usize, size: usize) -> String {
        let spec = json!({ "fill": "x".repeat(size) });
        let changes = (0..count).map(|n| put(&format!("s/c/n/n-{n:05}"), "", &spec)).collect();
        self.commit(changes).await
    }

    pub(crate) async fn delete(&self, path: &str) -> String {
        self.commit(vec![change(path, Action::Delete)]).await
    }

    /// Commits changes that must apply, and waits until they are published; version of the last event.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> String {
        let receipt = self.store.commit(changes).await.expect("a store in memory does not fail");
        let last = receipt.into_iter().map(|result| result.expect("applies")).last().expect("a change");
        self.service.api().cache.published(last.head).await;
        last.event.resource_version.to_string()
    }

    /// Version of the published state.
    pub(crate) fn head(&self) -> String {
        self.service.api().cache.snapshot().resource_version().to_string()
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> http::Response<Body> {
        let response = self.service.clone().oneshot(request);
        let response = tokio::time::timeout(PATIENCE, response).await.expect("an answer in time");
        response.unwrap_or_else(|never| match never {})
    }

    pub(crate) async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        Answer::of(self.send(request(method, path, headers, Bytes::new())).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[]).await
    }

    /// A GET that must succeed, as JSON.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.json()
    }

    /// Opens a watch on the widgets of everywhere.
    pub(crate) async fn watch(&self, query: &str) -> Lines {
        self.watch_at(&format!("{WIDGETS}?watch=true&{query}"), &[]).await
    }

    pub(crate) async fn watch_at(&self, path: &str, headers: &[(&str, &str)]) -> Lines {
        let response = self.send(request(Method::GET, path, headers, Bytes::new())).await;
        let (parts, body) = response.into_parts();
        if parts.status != StatusCode::OK {
            let body = body.collect().await.expect("a body").to_bytes();
            panic!("{path}: {} {}", parts.status, String::from_utf8_lossy(&body));
        }
        Lines { body, buffer: BytesMut::new(), headers: parts.headers, frames: vec![] }
    }
}

pub(crate) fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Full::new(body)).expect("the test writes legal requests");
    request.extensions_mut().insert(Access::internal());
    request
}

impl Answer {
    pub(crate) async fn of(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let promised = http_body::Body::size_hint(&body).exact();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a body in time");
        let body = body.expect("a whole body").to_bytes();
        assert!(promised.is_none_or(|len| len == body.len() as u64), "{promised:?} of {}", body.len());
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// Code, reason and message of a `Status`; checks what every `Status` has.
    pub(crate) fn status(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")), "{status}");
        assert_eq!(status["code"], json!(self.status.as_u16()), "{status}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), text("reason"), text("message"))
    }
}

impl Lines {
    /// The next line; `None` at the end of the stream.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let next = async {
            loop {
                if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                    let line = self.buffer.split_to(end + 1);
                    return Some(String::from_utf8(line[..end].to_vec()).expect("UTF-8"));
                }
                let Some(frame) = self.body.frame().await else {
                    assert!(self.buffer.is_empty(), "a stream ended in the middle of a line");
                    return None;
                };
                let mut data = frame.expect("not cut").into_data().expect("data");
                self.frames.push(data.remaining());
                self.buffer.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("a line in time")
    }

    /// The next event, as `(type, object)`.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        let line = self.line().await.expect("the stream goes on");
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line.starts_with(r#"{"type":""#), "type comes first: {line}");
        (event["type"].as_str().expect("a type").to_owned(), event["object"].clone())
    }

    /// The next event as `TYPE name`, or `TYPE` if the object has no name.
    pub(crate) async fn brief(&mut self) -> String {
        let (kind, object) = self.event().await;
        match object["metadata"]["name"].as_str() {
            Some(name) => format!("{kind} {name}"),
            None => kind,
        }
    }

    pub(crate) async fn briefs(&mut self, count: usize) -> Vec<String> {
        let mut briefs = Vec::new();
        for _ in 0..count {
            briefs.push(self.brief().await);
        }
        briefs
    }
}

pub(crate) fn put(path: &str, labels: &str, spec: &Value) -> Change {
    change(path, Action::Put(draft(path, labels, spec)))
}

fn change(path: &str, action: Action) -> Change {
    Change { type_name: widgets().name, key: key(path), guard: Guard::default(), action }
}

fn key(path: &str) -> Key {
    let parts: Vec<_> = path.split('/').collect();
    let [shard, cluster, namespace, name] = parts[..] else { panic!("not four parts: {path}") };
    Key::new(shard, cluster, namespace, name).expect("no NUL")
}

/// An encoded widget as ingest makes them: verbatim, with the version's place reserved.
fn draft(path: &str, labels: &str, spec: &Value) -> Draft {
    let key = key(path);
    let parts = key.parts();
    let labels: Vec<(&str, &str)> = labels.split(',').filter_map(|pair| pair.split_once('=')).collect();
    let label_map: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    // Backwards, because FNV spreads over all bits only what comes early.
    let uid = format!("{}-uid", path.replace('/', "-").chars().rev().collect::<String>());
    let metadata = json!({
        "name": parts.name, "namespace": parts.namespace, "uid": uid,
        "resourceVersion": std::str::from_utf8(PLACEHOLDER).expect("digits"), "labels": label_map,
        "annotations": { "kcp.io/shard": parts.shard, "kcp.io/cluster": parts.cluster },
    });
    let metadata = metadata.to_string();
    let start = r#"{"apiVersion":"example.dev/v1","kind":"Widget","metadata":"#;
    let body = format!("{start}{metadata},\"spec\":{spec}}}");
    let find = |text: &str| body.find(text).expect("written above") as u32;
    let spans = Spans {
        resource_version_at: find("\"resourceVersion\":\"") + 19,
        metadata: Span { at: start.len() as u32, len: metadata.len() as u32 },
        api_version: Span { at: find("example.dev/v1"), len: "example.dev/v1".len() as u32 },
        uid: Span { at: find(&uid), len: uid.len() as u32 },
    };
    Draft::new(&key, &labels, body.as_bytes(), spans).expect("small")
}

/// Names of a list's items in order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}
