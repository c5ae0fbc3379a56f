//! Every setting reaches what it sets: each bound is met from outside, on a server that was given a small one.

use http::Method;
use serde_json::{Value, json};
use shardcache::cli::{Settings, StorageKind};
use shardcache::units::Size;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{ROLES, Served, collection, eventually, role};

fn refusals(served: &Served, limit: &str) -> f64 {
    served.metric(&format!("shardcache_http_refusals_total{{limit=\"{limit}\""))
}

async fn memory(settings: Settings) -> Served {
    Served::with(Settings { storage: Some(StorageKind::Memory), ..settings }).await
}

fn padded(name: &str, bytes: usize) -> String {
    let mut object = role(name, "gold");
    object["metadata"]["annotations"] = json!({ "padding": "x".repeat(bytes) });
    object.to_string()
}

#[tokio::test]
async fn max_body_bytes_is_413_and_counted() {
    let served = memory(Settings { max_body_bytes: Some(Size(4 << 10)), ..Settings::default() }).await;
    let path = collection("amber", "root", ROLES);
    assert_eq!(served.wire().call(Method::POST, &path, padded("small", 1 << 10)).await.status, 201);
    let refused = served.wire().call(Method::POST, &path, padded("large", 8 << 10)).await;
    assert_eq!(refused.reason(), (413, "RequestEntityTooLarge".to_owned()));
    assert!(refusals(&served, "body") > 0.5);
}

#[tokio::test]
async fn max_object_bytes_refuses_new_objects_and_nothing_else() {
    let served = memory(Settings { max_object_bytes: Some(Size(4 << 10)), ..Settings::default() }).await;
    let (wire, path) = (served.wire(), collection("amber", "root", ROLES));
    assert_eq!(wire.call(Method::POST, &path, padded("first", 3 << 10)).await.status, 201);
    let refused = wire.call(Method::POST, &path, padded("second", 3 << 10)).await;
    assert_eq!(refused.reason(), (507, "InsufficientStorage".to_owned()));
    assert_eq!(wire.get(&path).await.status, 200);
    assert_eq!(wire.call(Method::DELETE, &format!("{path}/first"), "").await.status, 200);
    assert_eq!(wire.call(Method::POST, &path, padded("second", 3 << 10)).await.status, 201);
}

#[tokio::test]
async fn max_watches_is_429_with_retry_after() {
    let served = memory(Settings { max_watches: Some(1), ..Settings::default() }).await;
    let (wire, path) = (served.wire(), collection("*", "*", ROLES));
    let first = wire.watch(&path, "resourceVersion=0").await.expect("it opens");
    let refused = wire.get(&format!("{path}?watch=true")).await;
    assert_eq!(refused.reason(), (429, "TooManyRequests".to_owned()));
    assert!(refused.headers.contains_key("retry-after"));
    assert!(refusals(&served, "watches") > 0.5);
    drop(first);
    eventually("the place of a watch that ended is free", || async {
        wire.watch(&path, "resourceVersion=0").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn max_header_bytes_is_431() {
    let served = memory(Settings { max_header_bytes: Some(Size(8 << 10)), ..Settings::default() }).await;
    let long = format!("/readyz?exclude={}", "x".repeat(16 << 10));
    let answer = raw(&served, &format!("GET {long} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431") || answer.starts_with("HTTP/1.1 414"), "{answer}");
}

#[tokio::test]
async fn max_connections_is_429_and_closed() {
    let served = memory(Settings { max_connections: Some(1), ..Settings::default() }).await;
    let address = served.url().trim_start_matches("http://").to_owned();
    let mut first = TcpStream::connect(&address).await.expect("it accepts");
    first.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let mut beginning = [0; 12];
    first.read_exact(&mut beginning).await.expect("answered");
    assert_eq!(&beginning, b"HTTP/1.1 200");
    let answer = raw(&served, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(refusals(&served, "connections") > 0.5);
}

/// One request on a connection of its own, and everything that is said until it is closed.
async fn raw(served: &Served, request: &str) -> String {
    let address = served.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.expect("it accepts");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(crate::wire::PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("it closes in time").expect("readable");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn types_of_the_configuration_are_served_everywhere() {
    let types = "types:\n- group: example.dev\n  versions: [v1]\n  resource: widgets\n  kind: Widget\n  \
                 namespaced: true\n";
    let settings: Settings = serde_saphyr::from_str(types).expect("YAML of settings");
    let served = memory(settings).await;
    let wire = served.wire();
    let path = collection("amber", "root", "apis/example.dev/v1/namespaces/default/widgets");
    let widget = json!({ "apiVersion": "example.dev/v1", "kind": "Widget", "metadata": { "name": "a" } });
    assert_eq!(wire.call(Method::POST, &path, widget.to_string()).await.status, 201);
    let listed = wire.get(&collection("*", "*", "apis/example.dev/v1/widgets")).await.json();
    assert_eq!(listed["kind"], "WidgetList");
    assert_eq!(listed["items"][0]["metadata"]["annotations"]["kcp.io/shard"], "amber");
    let resources = wire.get(&collection("sapphire", "root", "apis/example.dev/v1")).await.json();
    let names: Vec<_> =
        resources["resources"].as_array().expect("a list").iter().map(|r| &r["name"]).collect();
    assert_eq!(names, [&Value::from("widgets")]);
}

#[tokio::test]
async fn a_store_in_memory_serves_everything_but_backups() {
    let served = memory(Settings::default()).await;
    let path = collection("amber", "root", ROLES);
    assert_eq!(served.wire().call(Method::POST, &path, role("a", "gold").to_string()).await.status, 201);
    let copy = served.data_dir().join("copy.redb");
    let mut command = crate::harness::binary();
    command.args(["ctl", "backup", "--data-dir"]).arg(served.data_dir()).arg("--output").arg(&copy);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("joined");
    let output = output.expect("it can be started");
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("memory"), "it says why");
    assert!(!copy.exists() && !served.data_dir().join("store.redb").exists());
}
