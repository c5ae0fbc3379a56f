//! Golden documents (`golden/*.json`; `UPDATE_GOLDEN=1` writes them anew), and the two forms compared.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::types::config;

/// The built-in types and one with everything a type can have.
fn types() -> Arc<Types> {
    let yaml = "types: [{group: example.io, versions: [v1beta1, v1], resource: widgets, kind: Widget,
        shortNames: [wd], categories: [all], namespaced: true}]";
    Types::builtin(config::parse(yaml).expect("legal"))
}

fn one(name: &str) -> Part {
    Part::One(name.into())
}

fn document(shard: &Part, cluster: &Part, path: &ScopedPath, form: DiscoveryForm) -> Option<Value> {
    View { types: &types(), shard, cluster }.document(path, form, "cache.example:7443")
}

fn group_version(group: &str, version: &str) -> ScopedPath {
    ScopedPath::GroupVersion { group: group.into(), version: version.into() }
}

#[test]
fn documents_are_those_in_golden() {
    use DiscoveryForm::{Aggregated, Legacy};
    let cases = [
        ("root", ScopedPath::Root, Legacy),
        ("api", ScopedPath::Api, Legacy),
        ("api-v1", group_version("", "v1"), Legacy),
        ("apis", ScopedPath::Apis, Legacy),
        ("apis-apis.kcp.io", ScopedPath::Group("apis.kcp.io".into()), Legacy),
        ("apis-apis.kcp.io-v1alpha1", group_version("apis.kcp.io", "v1alpha1"), Legacy),
        ("apis-example.io-v1", group_version("example.io", "v1"), Legacy),
        ("api-aggregated", ScopedPath::Api, Aggregated),
        ("apis-aggregated", ScopedPath::Apis, Aggregated),
    ];
    for (name, path, form) in cases {
        let document = document(&one("amber"), &one("root"), &path, form).expect("served");
        golden(name, &document);
    }
    let wildcard = document(&Part::Any, &Part::Any, &group_version("apis.kcp.io", "v1alpha2"), Legacy);
    golden("wildcard-apis-apis.kcp.io-v1alpha2", &wildcard.expect("served"));
}

fn golden(name: &str, document: &Value) {
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/http/discovery/golden/{name}.json"));
    let text = format!("{document:#}\n");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &text).expect("writable");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(text == expected, "{} differs; UPDATE_GOLDEN=1 writes it anew:\n{text}", file.display());
}

#[test]
fn what_is_not_served_is_not_found() {
    let (amber, root) = (one("amber"), one("root"));
    let unknown = [
        ScopedPath::Group("nobody.io".into()),
        ScopedPath::Group(String::new()),
        group_version("nobody.io", "v1"),
        group_version("apis.kcp.io", "v1"),
        group_version("", "v2"),
        ScopedPath::OpenApiV2,
    ];
    for path in unknown {
        assert_eq!(document(&amber, &root, &path, DiscoveryForm::Legacy), None, "{path:?}");
        let error = respond(&types(), &amber, &root, &path, "", &HeaderMap::new()).expect_err("unknown");
        assert_eq!((error.code, error.reason), (404, "NotFound"), "{path:?}");
    }
}

/// `group/version resource kind namespaced verbs` of everything in the legacy documents.
fn legacy(shard: &Part, cluster: &Part) -> BTreeSet<String> {
    let get = |path: &ScopedPath| document(shard, cluster, path, DiscoveryForm::Legacy).expect("served");
    let mut lists = vec![get(&group_version("", "v1"))];
    for group in get(&ScopedPath::Apis)["groups"].as_array().expect("groups") {
        let name = group["name"].as_str().expect("a name");
        assert_eq!(get(&ScopedPath::Group(name.into()))["versions"], group["versions"]);
        for version in group["versions"].as_array().expect("versions") {
            lists.push(get(&group_version(name, version["version"].as_str().expect("text"))));
        }
    }
    let lines = |list: &Value| {
        let group_version = list["groupVersion"].as_str().expect("text").to_owned();
        let resources = list["resources"].as_array().expect("resources").clone();
        resources.into_iter().map(move |resource| {
            let field = |name: &str| resource[name].to_string();
            format!(
                "{group_version} {} {} {} {} {} {} {}",
                resource["name"],
                resource["kind"],
                resource["singularName"],
                resource["namespaced"],
                field("verbs"),
                field("shortNames"),
                field("categories"),
            )
        })
    };
    lists.iter().flat_map(lines).collect()
}

/// The same of the aggregated ones.
fn aggregated(shard: &Part, cluster: &Part) -> BTreeSet<String> {
    let get = |path: &ScopedPath| document(shard, cluster, path, DiscoveryForm::Aggregated).expect("served");
    let mut lines = BTreeSet::new();
    for document in [get(&ScopedPath::Api), get(&ScopedPath::Apis)] {
        for group in document["items"].as_array().expect("items") {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().expect("versions") {
                let group_version = super::group_version(name, version["version"].as_str().expect("text"));
                for resource in version["resources"].as_array().expect("resources") {
                    lines.insert(format!(
                        "{group_version} {} {} {} {} {} {} {}",
                        resource["resource"],
                        resource["responseKind"]["kind"],
                        resource["singularResource"],
                        resource["scope"] == "Namespaced",
                        resource["verbs"],
                        resource["shortNames"],
                        resource["categories"],
                    ));
                }
            }
        }
    }
    lines
}

#[test]
fn d1_aggregated_and_legacy_discovery_agree_in_every_scope() {
    for (shard, cluster) in [("*", "*"), ("amber", "*"), ("*", "root"), ("amber", "root")] {
        let part = |name: &str| if name == "*" { Part::Any } else { one(name) };
        let (shard, cluster) = (part(shard), part(cluster));
        let legacy = legacy(&shard, &cluster);
        // 26 built-in types, one of them in two versions, and the configured one in two.
        assert_eq!(legacy.len(), 29);
        assert_eq!(legacy, aggregated(&shard, &cluster));
    }
}

#[test]
fn r19_kopf_finds_namespaces_events_and_crds_in_legacy_discovery() {
    let legacy = legacy(&one("amber"), &one("root"));
    let expected =
        [("v1", "namespaces"), ("v1", "events"), ("apiextensions.k8s.io/v1", "customresourcedefinitions")];
    for (group_version, resource) in expected {
        let prefix = format!("{group_version} {resource:?} ");
        let line = legacy.iter().find(|line| line.starts_with(&prefix)).expect(resource);
        assert!(["list", "watch", "patch"].iter().all(|verb| line.contains(verb)), "{line}");
    }
}

#[test]
fn storage_version_hashes_are_those_of_kubernetes() {
    // From the discovery documents in kubernetes/api.
    let known = [
        ("namespaces", "Q3oi5N2YM8M="),
        ("events", "r2yiGXH7wu8="),
        ("clusterroles", "bYE5ZWDrJ44="),
        ("roles", "7FuwZcIIItM="),
    ];
    let types = types();
    for (resource, hash) in known {
        let (any, also) = (Part::Any, Part::Any);
        let info = types.in_scope(&any, &also).find(|info| info.name.resource() == resource).expect(resource);
        assert_eq!(storage_version_hash(info), hash, "{resource}");
    }
}
