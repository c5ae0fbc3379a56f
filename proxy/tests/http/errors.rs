use http::{Method, StatusCode};
use serde_json::json;

use crate::world::{WIDGETS, World};

#[tokio::test]
async fn unknown_paths_are_plain_text_and_unknown_types_a_status() {
    let world = World::new();
    let answer = world.get("/services/cache/shards/s/clusters/c/nowhere").await;
    assert_eq!((answer.status, answer.text().trim()), (StatusCode::NOT_FOUND, "404 page not found"));
    assert!(answer.header("content-type").is_some_and(|value| value.starts_with("text/plain")));
    for path in [
        "/services/cache/shards/*/clusters/*/apis/example.dev/v1/gadgets",
        "/services/cache/shards/*/clusters/*/apis/example.dev/v2/widgets",
        "/services/cache/shards/*/clusters/*/apis/other.dev/v1/widgets",
        // A namespace where the type has none, and none where an object needs one.
        "/services/cache/shards/s/clusters/c/apis/apis.kcp.io/v1alpha1/namespaces/n/apiexports",
        "/services/cache/shards/s/clusters/c/apis/example.dev/v1/widgets/a",
    ] {
        let (code, reason, message) = world.get(path).await.status();
        assert_eq!((code, reason.as_str()), (404, "NotFound"), "{path}");
        assert_eq!(message, "the server could not find the requested resource");
    }
}

#[tokio::test]
async fn every_answer_carries_the_common_headers() {
    let world = World::new();
    for path in [WIDGETS, "/livez", "/nowhere", "/version", "/services/cache/shards/a"] {
        let answer = world.call(Method::GET, path, &[("audit-id", "mine-1")]).await;
        assert_eq!(answer.header("audit-id"), Some("mine-1"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache, private"), "{path}");
        let lineage = answer.header("x-cache-lineage").expect("D6").to_owned();
        let (store, incarnation) = lineage.split_once('/').expect("two parts");
        assert!(store.len() == 36 && incarnation.bytes().all(|byte| byte.is_ascii_digit()), "{lineage}");
        let (one, two) = (world.get(path).await, world.get(path).await);
        assert_eq!(one.header("audit-id").map(str::len), Some(36));
        assert_ne!(one.header("audit-id"), two.header("audit-id"));
    }
}

#[tokio::test]
async fn methods_that_mean_nothing_are_405() {
    let world = World::new();
    let object = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets/a";
    for (method, path) in [
        (Method::POST, object),
        (Method::PUT, WIDGETS),
        (Method::PATCH, WIDGETS),
        (Method::OPTIONS, WIDGETS),
        (Method::TRACE, object),
        (Method::POST, "/version"),
        (Method::DELETE, "/livez"),
        (Method::POST, "/services/cache/shards/s/clusters/c/apis"),
    ] {
        let (code, reason, _) = world.call(method.clone(), path, &[]).await.status();
        assert_eq!((code, reason.as_str()), (405, "MethodNotAllowed"), "{method} {path}");
    }
}

#[tokio::test]
async fn impersonation_is_refused_not_ignored() {
    let world = World::new();
    let answer = world.call(Method::GET, WIDGETS, &[("impersonate-user", "root")]).await;
    assert_eq!(answer.status().0, 403);
}

#[tokio::test]
async fn what_no_client_can_read_is_406() {
    let world = World::new();
    for accept in [
        "application/vnd.kubernetes.protobuf",
        "text/html",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ] {
        let (code, reason, _) = world.call(Method::GET, WIDGETS, &[("accept", accept)]).await.status();
        assert_eq!((code, reason.as_str()), (406, "NotAcceptable"), "{accept}");
    }
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let list = world.call(Method::GET, WIDGETS, &[("accept", metadata)]).await.json();
    assert_eq!(list["kind"], json!("PartialObjectMetadataList"));
}

#[tokio::test]
async fn sloppy_queries_are_understood() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    for query in
        ["?&limit=500", "?limit=500&&", "?nonsense=1&limit=1", "?watch=false", "?watch=0", "?timeout=5s"]
    {
        let list = world.json(&format!("{WIDGETS}{query}")).await;
        assert_eq!(list["kind"], json!("WidgetList"), "{query}");
    }
    for watch in ["True", "1", "true", ""] {
        let mut lines = world.watch_at(&format!("{WIDGETS}?&watch={watch}&unknown=x"), &[]).await;
        assert_eq!(lines.brief().await, "ADDED a", "{watch}");
    }
}
