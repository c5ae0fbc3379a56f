//! Discovery as clients ask for it: through the whole service, with their headers.

use std::sync::Arc;

use ::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use ::http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use prometheus_client::registry::Registry;
use tower_service::Service;

use super::*;
use crate::cache::testing::World;
use crate::metrics::Metrics;
use crate::service::{Api, ApiConfig, ProxyService};

/// What kubectl and client-go send.
const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
const AMBER_ROOT: &str = "/services/cache/shards/amber/clusters/root";

fn service(world: &World) -> ProxyService {
    let registry = Arc::new(Registry::default());
    let (store, cache) = (world.store.clone(), world.cache.clone());
    ProxyService::new(Api::new(store, cache, ApiConfig::default(), Metrics::default(), registry))
}

async fn get(
    service: &ProxyService,
    path: &str,
    accept: &str,
    known: Option<&HeaderValue>,
) -> Response<Body> {
    let mut request = Request::get(path).header(ACCEPT, accept);
    if let Some(etag) = known {
        request = request.header(IF_NONE_MATCH, etag);
    }
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    service.clone().call(request).await.expect("infallible")
}

async fn json(response: Response<Body>) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.expect("whole").to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test]
async fn r17_both_roots_are_aggregated_with_the_exact_content_type_and_a_validator() {
    let service = service(&World::new());
    for root in ["/api", "/apis", "/apis/"] {
        let path = format!("{AMBER_ROOT}{root}");
        let first = get(&service, &path, KUBECTL, None).await;
        let headers = first.headers().clone();
        assert_eq!(
            headers[CONTENT_TYPE],
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        assert_eq!(headers[VARY], "Accept");
        assert_eq!(headers[CACHE_CONTROL], "public");
        assert_eq!(json(first).await["kind"], "APIGroupDiscoveryList");
        let again = get(&service, &path, KUBECTL, Some(&headers[ETAG])).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(again.into_body().collect().await.expect("whole").to_bytes().is_empty());
        // The same validator does not stand for the other form.
        let legacy = get(&service, &path, "application/json", Some(&headers[ETAG])).await;
        assert_eq!(legacy.headers()[CONTENT_TYPE], "application/json");
        assert!(
            ["APIVersions", "APIGroupList"].contains(&json(legacy).await["kind"].as_str().expect("a kind"))
        );
    }
}

#[tokio::test]
async fn every_document_but_the_root_comes_as_yaml_too() {
    let service = service(&World::new());
    for (path, accept, content_type) in [
        ("/api", "application/yaml", "application/yaml"),
        ("/apis", "application/yaml,application/json", "application/yaml"),
        ("/apis/apis.kcp.io", "application/yaml", "application/yaml"),
        ("/apis/apis.kcp.io/v1alpha2", "application/yaml", "application/yaml"),
        ("/apis", &AGGREGATED_DISCOVERY.replace("json", "yaml"), AGGREGATED_DISCOVERY_YAML),
    ] {
        let path = format!("{AMBER_ROOT}{path}");
        let yaml = get(&service, &path, accept, None).await;
        assert_eq!(
            (yaml.status(), &yaml.headers()[CONTENT_TYPE]),
            (StatusCode::OK, &HeaderValue::from_static(content_type))
        );
        let etag = yaml.headers()[ETAG].clone();
        let body = yaml.into_body().collect().await.expect("whole").to_bytes();
        let read: Value = serde_saphyr::from_slice(&body).expect("YAML");
        let as_json = get(&service, &path, &accept.replace("yaml", "json"), None).await;
        assert_ne!(as_json.headers()[ETAG], etag, "they are other bytes");
        assert_eq!(read, json(as_json).await, "{path}");
        assert_eq!(get(&service, &path, accept, Some(&etag)).await.status(), StatusCode::NOT_MODIFIED);
    }
    // The root of all is for people; OpenAPI and the version have no YAML.
    let root = get(&service, AMBER_ROOT, "application/yaml", None).await;
    assert_eq!(root.headers()[CONTENT_TYPE], "application/json");
    for path in ["/version", "/openapi/v2", "/openapi/v3/apis/apis.kcp.io/v1alpha2"] {
        let refused = get(&service, &format!("{AMBER_ROOT}{path}"), "application/yaml", None).await;
        assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE, "{path}");
    }
}

#[tokio::test]
async fn who_looks_at_discovery_sees_it_indented() {
    let service = service(&World::new());
    let path = format!("{AMBER_ROOT}/apis/apis.kcp.io");
    let text = async |path: &str| {
        let answer = get(&service, path, "*/*", None).await;
        String::from_utf8(answer.into_body().collect().await.expect("whole").to_bytes().into()).expect("text")
    };
    assert!(text(&format!("{path}?pretty=1")).await.starts_with("{\n  \"kind\": \"APIGroup\",\n"));
    assert!(text(&path).await.starts_with("{\"kind\":"));
}

#[tokio::test]
async fn discovery_without_a_shard_is_that_of_the_wildcards() {
    let service = service(&World::new());
    for path in [
        "/apis/apis.kcp.io/v1alpha2",
        "/shards/*/apis/apis.kcp.io/v1alpha2/",
        "/shards/%2A/clusters/%2A/apis/apis.kcp.io/v1alpha2",
    ] {
        let list = json(get(&service, path, "*/*", None).await).await;
        assert_eq!(list["resources"][0]["verbs"], json!(["list", "watch"]), "{path}");
    }
}

#[tokio::test]
async fn an_unknown_group_version_is_a_status_404() {
    let service = service(&World::new());
    for path in ["/apis/nobody.io", "/apis/nobody.io/v1", "/apis/apis.kcp.io/v7"] {
        let response = get(&service, &format!("{AMBER_ROOT}{path}"), "*/*", None).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        let status: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((status["kind"].as_str(), status["reason"].as_str()), (Some("Status"), Some("NotFound")));
        assert_eq!(status["message"], "the server could not find the requested resource");
    }
}

#[tokio::test]
async fn d45_a_posted_crd_is_discovered_in_its_scope_at_that_commit() {
    let mut world = World::new();
    let service = service(&world);
    let path = |scope: &str| format!("/services/cache/{scope}/apis/example.io/v1");
    assert_eq!(get(&service, &path("shards/amber/clusters/root"), "*/*", None).await.status(), 404);
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    let change = crate::types::tests::put_crd(("amber", "root"), &crd);
    world.commit(vec![change]).await;
    world.reflector.step().await;
    for scope in ["shards/amber/clusters/root", "shards/amber/clusters/*", "shards/*/clusters/*"] {
        let list = json(get(&service, &path(scope), "*/*", None).await).await;
        assert_eq!(list["resources"][0]["name"], "widgets", "{scope}");
    }
    for scope in ["shards/amber/clusters/acme", "shards/beryl/clusters/*"] {
        assert_eq!(get(&service, &path(scope), "*/*", None).await.status(), 404, "{scope}");
    }
}
