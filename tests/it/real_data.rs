//! Real input: every YAML document of kcp, written to two shards and two clusters, listed under the wildcard.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::Value;

use crate::checker::ItemKey;
use crate::harness::{Served, collection, real_data};
use crate::wire::Wire;

/// apiVersion and kind → plural, and whether objects live in namespaces.
type Kinds = BTreeMap<(String, String), (String, bool)>;

fn yaml_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

/// Every object in the files, definitions of types first.
fn documents(directory: &Path) -> Vec<Value> {
    let mut files = vec![];
    yaml_files(directory, &mut files);
    files.sort();
    let mut objects = vec![];
    for file in files {
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        if text.contains("{{") {
            eprintln!("{} is a template, not YAML", file.display());
            continue;
        }
        let parsed: Result<Vec<Value>, _> = serde_saphyr::from_multiple(&text);
        let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        objects.extend(parsed.into_iter().filter(|object| object["kind"].is_string()));
    }
    objects.sort_by_key(|object| object["kind"] != "CustomResourceDefinition");
    objects
}

/// What discovery says is served at a place.
async fn kinds(wire: &Wire, shard: &str, cluster: &str) -> Kinds {
    let place = format!("/services/cache/shards/{shard}/clusters/{cluster}");
    let groups = wire.get(&format!("{place}/apis")).await.json();
    let versions = groups["groups"].as_array().expect("groups").iter();
    let versions = versions.flat_map(|group| group["versions"].as_array().expect("versions").iter());
    let versions = versions.map(|version| version["groupVersion"].as_str().expect("a text").to_owned());
    let mut kinds = Kinds::new();
    for version in versions.chain(["v1".to_owned()]) {
        let root = if version == "v1" { "api" } else { "apis" };
        let list = wire.get(&format!("{place}/{root}/{version}")).await.json();
        for resource in list["resources"].as_array().expect("resources") {
            let name = resource["name"].as_str().expect("a name");
            if !name.contains('/') {
                let kind = resource["kind"].as_str().expect("a kind").to_owned();
                let namespaced = resource["namespaced"] == true;
                kinds.insert((version.clone(), kind), (name.to_owned(), namespaced));
            }
        }
    }
    kinds
}

/// The object as its author wrote it: without what the cache adds.
fn as_written(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kcp.io/shard");
        annotations.remove("kcp.io/cluster");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_of_kcp_is_stored_and_served_with_its_shard_and_cluster() {
    let Some(directory) = real_data("every_object_of_kcp_is_stored_and_served") else { return };
    let objects = documents(&directory);
    let served = Served::start().await;
    let wire = served.wire();
    let places = [
        ("amber", "root"),
        ("amber", "2vkqn4aabrd1ih5x"),
        ("sapphire", "root"),
        ("sapphire", "2vkqn4aabrd1ih5x"),
    ];
    let mut written: BTreeMap<String, BTreeMap<ItemKey, Value>> = BTreeMap::new();
    let mut unserved = BTreeSet::new();
    for (shard, cluster) in places {
        let mut served_kinds = kinds(&wire, shard, cluster).await;
        for object in &objects {
            let text = |field: &str| object[field].as_str().expect("a text").to_owned();
            let mut found = served_kinds.get(&(text("apiVersion"), text("kind")));
            if found.is_none() {
                // A definition that was just written may serve it.
                served_kinds = kinds(&wire, shard, cluster).await;
                found = served_kinds.get(&(text("apiVersion"), text("kind")));
            }
            let Some((plural, namespaced)) = found else {
                unserved.insert((text("apiVersion"), text("kind")));
                continue;
            };
            let root = if object["apiVersion"] == "v1" { "api" } else { "apis" };
            let namespace = match object["metadata"]["namespace"].as_str() {
                _ if !namespaced => "",
                Some(namespace) => namespace,
                None => "default",
            };
            let within =
                if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
            let resource = format!("{root}/{}/{within}{plural}", text("apiVersion"));
            let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
            let path = collection(shard, cluster, &resource);
            let answer = wire.call(Method::POST, &path, object.to_string()).await;
            // The same object stands in more than one file; the later one replaces the earlier, as in `apply`.
            let answer = if answer.status == 409 {
                let mut object = object.clone();
                let current = wire.get(&format!("{path}/{name}")).await.json();
                object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
                wire.call(Method::PUT, &format!("{path}/{name}"), object.to_string()).await
            } else {
                answer
            };
            assert!(answer.status.is_success(), "{path}/{name}: {}", String::from_utf8_lossy(&answer.body));
            let key = ItemKey([shard.to_owned(), cluster.to_owned(), namespace.to_owned(), name]);
            let everywhere = format!("{root}/{}/{plural}", text("apiVersion"));
            written.entry(everywhere).or_default().insert(key, object.clone());
        }
    }
    let total: usize = written.values().map(BTreeMap::len).sum();
    eprintln!("{total} objects of {} types; nobody serves {unserved:?}", written.len());
    assert!(total >= 300 && written.len() >= 12, "{total} objects of {} types", written.len());
    check(&wire, &written).await;
    // And the same after a restart.
    let served = served.restart().await;
    check(&served.wire(), &written).await;
}

async fn check(wire: &Wire, written: &BTreeMap<String, BTreeMap<ItemKey, Value>>) {
    for (resource, objects) in written {
        let listed = wire.list(&collection("*", "*", resource)).await.expect("listed");
        assert_eq!(
            listed.items.keys().collect::<Vec<_>>(),
            objects.keys().collect::<Vec<_>>(),
            "{resource} under the wildcard"
        );
        for (key, item) in &listed.items {
            let annotations = &item["metadata"]["annotations"];
            assert_eq!(
                (&annotations["kcp.io/shard"], &annotations["kcp.io/cluster"]),
                (&Value::from(key.0[0].as_str()), &Value::from(key.0[1].as_str()))
            );
            let (served, mut sent) = (as_written(item.clone()), as_written(objects[key].clone()));
            if served["metadata"]["namespace"] == "default" {
                sent["metadata"]["namespace"] = "default".into();
            }
            assert_eq!(served, sent, "{resource} {key:?} is not what was written");
        }
    }
}
