use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, ETAG};
use http_body_util::BodyExt;

use super::*;
use crate::types::config;

fn types(versions: &str) -> Arc<Types> {
    let yaml = format!(
        "types: [{{group: example.io, versions: [{versions}], resource: widgets, kind: Widget, namespaced: true}}]"
    );
    Types::builtin(config::parse(&yaml).expect("legal"))
}

fn scope(concrete: bool) -> (Part, Part) {
    if concrete { (Part::One("amber".into()), Part::One("root".into())) } else { (Part::Any, Part::Any) }
}

fn get(types: &Types, concrete: bool, piece: Option<&str>, query: &str) -> Response<Body> {
    let (shard, cluster) = scope(concrete);
    let path = ScopedPath::OpenApiV3(piece.map(str::to_owned));
    respond(types, &shard, &cluster, &path, query, &HeaderMap::new()).expect("served")
}

async fn json(response: Response<Body>) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let body = response.into_body().collect().await.expect("whole").to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

/// The hash that the index gives for a document.
async fn hash(types: &Types, concrete: bool, piece: &str) -> String {
    let index = json(get(types, concrete, None, "")).await;
    let url = index["paths"][piece]["serverRelativeURL"].as_str().expect("an URL");
    let (path, hash) = url.split_once("?hash=").expect("a hash");
    assert_eq!(path, format!("/openapi/v3/{piece}"));
    hash.to_owned()
}

/// Names of the query parameters of an operation.
fn parameters(document: &Value, path: &str, method: &str) -> Vec<String> {
    let operation = &document["paths"][path][method];
    let parameters = operation["parameters"].as_array().unwrap_or_else(|| panic!("{method} {path}"));
    parameters.iter().map(|parameter| parameter["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn r18_writes_take_field_validation_and_name_their_kind() {
    let types = types("v1");
    let document = json(get(&types, true, Some("apis/example.io/v1"), "")).await;
    let collection = "/apis/example.io/v1/namespaces/{namespace}/widgets";
    let object = "/apis/example.io/v1/namespaces/{namespace}/widgets/{name}";
    for (path, method) in [(collection, "post"), (object, "put"), (object, "patch")] {
        let parameters = parameters(&document, path, method);
        for name in ["dryRun", "fieldManager", "fieldValidation"] {
            assert!(parameters.iter().any(|parameter| parameter == name), "{method} {path}: {name}");
        }
        let kind = &document["paths"][path][method]["x-kubernetes-group-version-kind"];
        assert_eq!(*kind, json!({"group": "example.io", "version": "v1", "kind": "Widget"}));
    }
    for method in ["get", "delete"] {
        assert!(document["paths"][object][method].is_object(), "{method}");
    }
    for (path, method) in [(collection, "post"), (collection, "delete"), (object, "put"), (object, "delete")]
    {
        let content = document["paths"][path][method]["requestBody"]["content"].as_object();
        let content: Vec<_> = content.expect("a body").keys().collect();
        assert_eq!(content, ["application/json", "application/yaml"], "{method} {path}");
    }
}

#[tokio::test]
async fn r22_every_list_takes_a_shard_selector() {
    let types = types("v1");
    for concrete in [true, false] {
        let index = json(get(&types, concrete, None, "")).await;
        let pieces = index["paths"].as_object().expect("paths");
        assert_eq!(pieces.len(), 13, "{index}");
        for piece in pieces.keys() {
            let document = json(get(&types, concrete, Some(piece), "")).await;
            let paths = document["paths"].as_object().expect("paths");
            let lists: Vec<&String> = paths.keys().filter(|path| !path.ends_with("{name}")).collect();
            assert!(!lists.is_empty(), "{piece}");
            for path in lists {
                let parameters = parameters(&document, path, "get");
                assert!(parameters.contains(&"shardSelector".to_owned()), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn operation_ids_are_unique_and_references_lead_somewhere() {
    let types = types("v1, v1beta1");
    let index = json(get(&types, true, None, "")).await;
    let mut ids = std::collections::BTreeSet::new();
    for piece in index["paths"].as_object().expect("paths").keys() {
        let document = json(get(&types, true, Some(piece), "")).await;
        for (path, item) in document["paths"].as_object().expect("paths") {
            for operation in item.as_object().expect("operations").values().filter(|o| o.is_object()) {
                let id = operation["operationId"].as_str().expect("an id").to_owned();
                assert!(ids.insert(id.clone()), "{id} of {path} is there twice");
            }
        }
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().expect("ends");
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}

#[tokio::test]
async fn below_a_wildcard_nothing_can_be_written() {
    let types = types("v1");
    let document = json(get(&types, false, Some("apis/apis.kcp.io/v1alpha2"), "")).await;
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.keys().collect::<Vec<_>>(), ["/apis/apis.kcp.io/v1alpha2/apiexports"]);
    let operations: Vec<_> = paths.values().flat_map(|item| item.as_object().expect("one").keys()).collect();
    assert_eq!(operations, ["get", "parameters"]);
}

#[tokio::test]
async fn the_right_hash_may_be_kept_and_a_wrong_one_leads_to_it() {
    let types = types("v1");
    let piece = "apis/example.io/v1";
    let hash = hash(&types, true, piece).await;
    let right = get(&types, true, Some(piece), &format!("hash={hash}"));
    assert_eq!(right.status(), StatusCode::OK);
    assert_eq!(right.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
    assert!(right.headers().contains_key(ETAG));

    let wrong = get(&types, true, Some(piece), "timeout=32s&hash=0123");
    assert_eq!(wrong.status(), StatusCode::MOVED_PERMANENTLY);
    assert_eq!(wrong.headers()[LOCATION], format!("?hash={hash}"));
    assert_eq!(wrong.headers()[CACHE_CONTROL], "no-store");

    let none = get(&types, true, Some(piece), "");
    assert_eq!(none.headers()[CACHE_CONTROL], "public");
    let mut known = HeaderMap::new();
    known.insert(::http::header::IF_NONE_MATCH, none.headers()[ETAG].clone());
    let (shard, cluster) = scope(true);
    let path = ScopedPath::OpenApiV3(Some(piece.to_owned()));
    let again = respond(&types, &shard, &cluster, &path, "", &known).expect("served");
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn the_hash_follows_what_the_document_shows() {
    let (old, new) = (types("v1"), types("v1, v1beta1"));
    let piece = "apis/example.io/v1";
    assert_eq!(hash(&old, true, piece).await, hash(&types("v1"), true, piece).await);
    assert_ne!(hash(&old, true, piece).await, hash(&old, false, piece).await);
    assert_ne!(hash(&old, true, piece).await, hash(&new, true, piece).await);
    let exports = "apis/apis.kcp.io/v1alpha2";
    assert_eq!(hash(&old, true, exports).await, hash(&new, true, exports).await);
}

#[test]
fn unknown_documents_are_not_found() {
    let (shard, cluster) = scope(true);
    for path in ["apis/nobody.io/v1", "apis/apis.kcp.io", "version", ""] {
        let path = ScopedPath::OpenApiV3(Some(path.into()));
        let error =
            respond(&types("v1"), &shard, &cluster, &path, "", &HeaderMap::new()).expect_err("unknown");
        assert_eq!(error.code, 404, "{path:?}");
    }
}

#[tokio::test]
async fn a_crd_s_schema_is_shown_where_the_crd_counts() {
    use crate::cache::testing::World;
    let crd = |description: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gauges.example.org"},
            "spec": {
                "group": "example.org",
                "names": {"plural": "gauges", "kind": "Gauge"},
                "scope": "Cluster",
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "selectableFields": [{"jsonPath": ".spec.size"}],
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "description": description,
                        "required": ["spec"],
                        "properties": {
                            "metadata": {"type": "object"},
                            "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 1.5}}},
                        },
                    }},
                }],
            },
        })
    };
    let shown = |types: &Types, shard: &str| {
        let shard = if shard == "*" { Part::Any } else { Part::One(shard.into()) };
        let cluster = Part::One("root".into());
        let documents = documents(types, &shard, &cluster, true);
        let document = documents["apis/example.org/v1"].json();
        (
            document["components"]["schemas"]["org.example.v1.Gauge"].clone(),
            documents["apis/example.org/v1"].hash(),
        )
    };
    let mut world = World::new();
    let cell = |shard| (shard, "root");
    world.commit(vec![crate::types::tests::put_crd(cell("amber"), &crd("One."))]).await;
    world.reflector.step().await;
    let types = Arc::clone(&world.cache.snapshot().types);
    let (schema, hash) = shown(&types, "amber");
    assert_eq!(schema["description"], "One.");
    assert_eq!(
        schema["properties"]["spec"]["properties"]["size"].to_string(),
        r#"{"type":"integer","maximum":1.5}"#
    );
    assert_eq!(schema["required"], json!(["spec"]));
    assert_eq!(
        schema["properties"]["metadata"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
    );
    assert_eq!(schema["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.size"}]));
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Gauge");
    assert_eq!(shown(&types, "*").0, schema);
    let (shard, cluster) = scope(true);
    let list = &documents(&types, &shard, &cluster, true)["apis/example.org/v1"].json()["components"]["schemas"]
        ["org.example.v1.GaugeList"];
    assert_eq!(list["x-kubernetes-selectable-fields"], schema["x-kubernetes-selectable-fields"]);

    // Another schema for the same type: each shard has its own, and everywhere there is none.
    world.commit(vec![crate::types::tests::put_crd(cell("beryl"), &crd("Other."))]).await;
    world.reflector.step().await;
    let types = Arc::clone(&world.cache.snapshot().types);
    assert_eq!(shown(&types, "amber"), (schema, hash.clone()));
    let (other, other_hash) = shown(&types, "beryl");
    assert_eq!(other["description"], "Other.");
    assert_ne!(other_hash, hash, "the hash follows the schema");
    let everywhere = shown(&types, "*").0;
    assert_eq!(everywhere["x-kubernetes-preserve-unknown-fields"], json!(true));
    assert!(everywhere["properties"].get("spec").is_none());
}

#[tokio::test]
async fn kubernetes_own_types_show_their_fields() {
    let types = types("v1");
    let document = json(get(&types, true, Some("apis/rbac.authorization.k8s.io/v1"), "")).await;
    let schemas = &document["components"]["schemas"];
    let role = &schemas["io.k8s.authorization.rbac.v1.ClusterRole"]["properties"];
    assert_eq!(
        role["rules"]["items"]["properties"]["verbs"],
        json!({"type": "array", "items": {"type": "string"}})
    );
    let meta = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    for (name, property) in meta.as_object().expect("properties") {
        assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
    }
    assert_eq!(meta["labels"]["additionalProperties"], json!({"type": "string"}));
}

#[tokio::test]
async fn a_built_in_type_is_explained_by_its_cached_crd() {
    use crate::cache::testing::World;
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "description": format!("An export in {name}.")}},
        })
    };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "apiexports.apis.kcp.io"},
        "spec": {
            "group": "apis.kcp.io",
            "names": {"plural": "apiexports", "kind": "APIExport"},
            "scope": "Cluster",
            "versions": [version("v1alpha1", false), version("v1alpha2", true)],
        },
    });
    let mut world = World::new();
    let shown = |types: &Types, version: &str| {
        let (shard, cluster) = scope(true);
        let documents = documents(types, &shard, &cluster, true);
        let schemas = documents[&format!("apis/apis.kcp.io/{version}")].json();
        schemas["components"]["schemas"][format!("io.kcp.apis.{version}.APIExport")].clone()
    };
    let open = shown(&world.cache.snapshot().types, "v1alpha2");
    assert_eq!(open["x-kubernetes-preserve-unknown-fields"], json!(true));
    world.commit(vec![crate::types::tests::put_crd(("beryl", "system:system-crds"), &crd)]).await;
    world.reflector.step().await;
    for version in ["v1alpha1", "v1alpha2"] {
        let schema = shown(&world.cache.snapshot().types, version);
        assert_eq!(schema["description"], json!(format!("An export in {version}.")));
        assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "APIExport");
    }
}
