//! What clients read of an OpenAPI document: which operations there are, on what, with which parameters; which
//! schemas, and of those that are declared in the tests' types, what they say.
//!
//! The rest is prose, and differs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The document without its prose; `None` if it is none.
pub(crate) fn essence(document: &Value) -> Option<Value> {
    document["openapi"].as_str()?;
    let mut operations = Map::new();
    for (path, item) in document["paths"].as_object()? {
        for (method, operation) in item.as_object()? {
            if operation.is_object() {
                operations.insert(format!("{method} {path}"), said(item, operation));
            }
        }
    }
    let schemas = document["components"]["schemas"].as_object()?;
    // Of Kubernetes' own, what objects and lists have; the others are options, errors and parts.
    let shared =
        ["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"];
    let compared = |name: &str| !name.starts_with("io.k8s.") || shared.contains(&name);
    let kinds: Map<_, _> = schemas
        .iter()
        .filter(|(name, _)| compared(name))
        .map(|(name, schema)| (name.clone(), kind(schema)))
        .collect();
    Some(json!({ "operations": operations, "schemas": kinds }))
}

fn said(item: &Value, operation: &Value) -> Value {
    let own = operation["parameters"].as_array().into_iter().flatten();
    let shared = item["parameters"].as_array().into_iter().flatten();
    let parameters: BTreeSet<_> =
        own.chain(shared).filter_map(|parameter| parameter["name"].as_str()).collect();
    let bodies = operation["requestBody"]["content"].as_object();
    let bodies: BTreeSet<_> = bodies.into_iter().flatten().map(|(media, _)| media).collect();
    let mut said = Map::new();
    said.insert("action".to_owned(), operation["x-kubernetes-action"].clone());
    said.insert("kind".to_owned(), operation["x-kubernetes-group-version-kind"].clone());
    // By name, so that each has its own place in a comparison.
    said.insert(
        "parameters".to_owned(),
        parameters.into_iter().map(|name| (name.to_owned(), true)).collect(),
    );
    said.insert("bodies".to_owned(), bodies.into_iter().map(|name| (name.clone(), true)).collect());
    said.into()
}

/// Which kind a schema is of, and the types of its fields, and of theirs.
fn kind(schema: &Value) -> Value {
    let fields = |schema: &Value| -> Map<String, Value> {
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties.map(|(name, property)| (name.clone(), property["type"].clone())).collect()
    };
    json!({
        "kinds": schema["x-kubernetes-group-version-kind"],
        "fields": fields(schema),
        "spec": fields(&schema["properties"]["spec"]),
        "selectable": schema["x-kubernetes-selectable-fields"],
    })
}
