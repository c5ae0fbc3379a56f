//! The served set over a real store, commit by commit.

use std::sync::Arc;

use serde_json::{Value, json};
use shardcache_storage::{
    Action, Change, Commit, Draft, Guard, Key, MemoryStore, Opening, PLACEHOLDER, Span, Spans, Store,
    Subscription, TypeName,
};

use super::*;

mod derivation;
mod table;

/// A store and the set of types that follows it.
struct Lab {
    store: Arc<MemoryStore>,
    subscription: Subscription,
    types: Arc<Types>,
}

impl Lab {
    fn new(config: Vec<TypeInfo>) -> Self {
        let store = MemoryStore::new(Opening::from_system());
        let subscription = store.subscribe();
        let types = Types::builtin(config).at(&subscription.state);
        Self { store, subscription, types }
    }

    /// Commits the changes and follows; returns the commit.
    async fn commit(&mut self, changes: Vec<Change>) -> Option<Commit> {
        let receipt = self.store.commit(changes).await.expect("a store in memory does not fail");
        if receipt.iter().all(Result::is_err) {
            return None;
        }
        let commit = self.subscription.commits.recv().await.expect("published before acknowledged");
        self.types = self.types.after(&commit);
        Some(commit)
    }

    /// The version names of a type at a scope, preferred first; `None` if it is not served there.
    fn versions(&self, shard: &str, cluster: &str, name: &TypeName) -> Option<Vec<String>> {
        let (shard, cluster) = (part(shard), part(cluster));
        let info = self.types.in_scope(&shard, &cluster).find(|info| info.name == *name)?;
        for version in &info.versions {
            let resolved =
                self.types.resolve(&shard, &cluster, name.group(), &version.name, name.resource(), None);
            assert_eq!(resolved, Some(info));
        }
        Some(info.versions.iter().map(|version| version.name.clone()).collect())
    }
}

fn part(text: &str) -> Part {
    if text == "*" { Part::Any } else { Part::One(text.into()) }
}

fn widgets() -> TypeName {
    TypeName::new("example.io", "widgets")
}

fn put(type_name: &TypeName, cell: (&str, &str), namespace: &str, object: &Value) -> Change {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let key = Key::new(cell.0, cell.1, namespace, name).expect("legal");
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = std::str::from_utf8(PLACEHOLDER).expect("digits").into();
    let body = object.to_string();
    let at = |text: &str| body.find(text).expect("is there");
    let api_version = object["apiVersion"].as_str().expect("an apiVersion");
    let spans = Spans {
        resource_version_at: at("0000000000000000000") as u32,
        metadata: Span { at: at("{\"name\"") as u32, len: object["metadata"].to_string().len() as u32 },
        api_version: Span { at: at(api_version) as u32, len: api_version.len() as u32 },
        uid: Span::default(),
    };
    let draft = Draft::new::<&str, &str>(&key, &[], body.as_bytes(), spans).expect("a legal draft");
    Change { type_name: type_name.clone(), key, guard: Guard::default(), action: Action::Put(draft) }
}

fn delete(type_name: &TypeName, cell: (&str, &str), namespace: &str, name: &str) -> Change {
    let key = Key::new(cell.0, cell.1, namespace, name).expect("legal");
    Change { type_name: type_name.clone(), key, guard: Guard::default(), action: Action::Delete }
}

/// A CRD of `widgets.example.io`; versions as `v1` or `v1!` for the storage version.
fn crd(versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let name = version.trim_end_matches('!');
            json!({
                "name": name,
                "served": true,
                "storage": name != *version,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "scope": "Namespaced",
            "versions": versions,
        },
    })
}

pub(crate) fn put_crd(cell: (&str, &str), crd: &Value) -> Change {
    put(&builtin::crd_type(), cell, "", crd)
}

fn delete_crd(cell: (&str, &str)) -> Change {
    delete_crd_of(&widgets(), cell)
}

fn delete_crd_of(name: &TypeName, cell: (&str, &str)) -> Change {
    delete(&builtin::crd_type(), cell, "", &name.qualified())
}

fn widget(version: &str, name: &str) -> Value {
    json!({"apiVersion": format!("example.io/{version}"), "kind": "Widget", "metadata": {"name": name}})
}

fn put_widget(cell: (&str, &str), version: &str, name: &str) -> Change {
    put(&widgets(), cell, "default", &widget(version, name))
}

fn delete_widget(cell: (&str, &str), name: &str) -> Change {
    delete(&widgets(), cell, "default", name)
}

const AMBER_ROOT: (&str, &str) = ("amber", "root");
const AMBER_ACME: (&str, &str) = ("amber", "acme");
const BERYL_ROOT: (&str, &str) = ("beryl", "root");

#[tokio::test]
async fn d45_a_crd_serves_its_type_in_its_cell_and_under_the_wildcards_that_include_it() {
    let mut lab = Lab::new(Vec::new());
    assert_eq!(lab.versions("*", "*", &widgets()), None);
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1!"]))]).await;
    for (shard, cluster) in [("amber", "root"), ("amber", "*"), ("*", "root"), ("*", "*")] {
        assert_eq!(lab.versions(shard, cluster, &widgets()), Some(vec!["v1".into()]), "{shard} {cluster}");
    }
    for (shard, cluster) in [("amber", "acme"), ("beryl", "root"), ("beryl", "*"), ("*", "acme")] {
        assert_eq!(lab.versions(shard, cluster, &widgets()), None, "{shard} {cluster}");
    }
    lab.commit(vec![delete_crd(AMBER_ROOT)]).await;
    assert_eq!(lab.versions("*", "*", &widgets()), None);
    assert_eq!(lab.versions("amber", "root", &widgets()), None);
}

#[tokio::test]
async fn a_crd_in_the_system_cluster_of_any_shard_serves_its_type_everywhere() {
    let mut lab = Lab::new(Vec::new());
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1beta1!"]))]).await;
    lab.commit(vec![put_crd(("beryl", "system:system-crds"), &crd(&["v1!"]))]).await;
    // The earlier source wins also where a cell has its own definition.
    for (shard, cluster) in [("amber", "root"), ("citrine", "acme"), ("*", "*"), ("*", "acme")] {
        assert_eq!(lab.versions(shard, cluster, &widgets()), Some(vec!["v1".into()]), "{shard} {cluster}");
    }
    lab.commit(vec![delete_crd(("beryl", "system:system-crds"))]).await;
    assert_eq!(lab.versions("amber", "root", &widgets()), Some(vec!["v1beta1".into()]));
    assert_eq!(lab.versions("citrine", "acme", &widgets()), None);
}

#[tokio::test]
async fn under_a_wildcard_every_version_that_some_definition_serves_is_served() {
    let mut lab = Lab::new(Vec::new());
    let changes = vec![
        put_crd(AMBER_ROOT, &crd(&["v1alpha1", "v1!"])),
        put_crd(AMBER_ACME, &crd(&["v1alpha1", "v1!"])),
        put_crd(BERYL_ROOT, &crd(&["v2beta1!"])),
    ];
    lab.commit(changes).await;
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(lab.versions("*", "*", &widgets()), names(&["v1", "v2beta1", "v1alpha1"]));
    assert_eq!(lab.versions("amber", "*", &widgets()), names(&["v1", "v1alpha1"]));
    assert_eq!(lab.versions("*", "root", &widgets()), names(&["v1", "v2beta1", "v1alpha1"]));
    assert_eq!(lab.versions("beryl", "root", &widgets()), names(&["v2beta1"]));
    lab.commit(vec![delete_crd(AMBER_ROOT), delete_crd(BERYL_ROOT)]).await;
    assert_eq!(lab.versions("*", "*", &widgets()), names(&["v1", "v1alpha1"]));
}

#[tokio::test]
async fn d45_losing_its_definition_does_not_remove_a_type_that_still_has_objects() {
    let mut lab = Lab::new(Vec::new());
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1alpha1", "v1!"]))]).await;
    lab.commit(vec![put_widget(AMBER_ROOT, "v1", "one"), put_widget(AMBER_ROOT, "v1", "two")]).await;
    let described = lab.types.in_scope(&part("*"), &part("*")).find(|info| info.name == widgets()).cloned();
    lab.commit(vec![delete_crd(AMBER_ROOT)]).await;
    // The last description is kept, with everything that clients resolved through it.
    let kept = lab.types.in_scope(&part("*"), &part("*")).find(|info| info.name == widgets()).cloned();
    assert_eq!(kept, described);
    assert_eq!(lab.types.counts().leftover, 1);
    lab.commit(vec![delete_widget(AMBER_ROOT, "one")]).await;
    assert!(lab.versions("amber", "root", &widgets()).is_some());
    lab.commit(vec![delete_widget(AMBER_ROOT, "two")]).await;
    assert_eq!(lab.versions("amber", "root", &widgets()), None);
    assert_eq!(lab.types.counts().leftover, 0);
}

#[tokio::test]
async fn after_a_restart_a_type_without_definition_is_read_off_its_objects() {
    let mut lab = Lab::new(Vec::new());
    lab.commit(vec![put_crd(("amber", "system:system-crds"), &crd(&["v1alpha1", "v1!"]))]).await;
    lab.commit(vec![put_widget(AMBER_ROOT, "v1", "one"), put_widget(BERYL_ROOT, "v1alpha1", "two")]).await;
    lab.commit(vec![delete_crd(("amber", "system:system-crds"))]).await;
    lab.types = Types::builtin(Vec::new()).at(&lab.store.subscribe().state);
    assert_eq!(lab.versions("amber", "root", &widgets()), Some(vec!["v1".into()]));
    assert_eq!(lab.versions("beryl", "root", &widgets()), Some(vec!["v1alpha1".into()]));
    assert_eq!(lab.versions("*", "*", &widgets()), Some(vec!["v1".into(), "v1alpha1".into()]));
    assert_eq!(lab.versions("citrine", "root", &widgets()), None);
    let (amber, root) = (part("amber"), part("root"));
    let info = lab.types.resolve(&amber, &root, "example.io", "v1", "widgets", None).expect("served");
    assert_eq!(
        (info.kind.as_str(), info.list_kind.as_str(), info.namespaced),
        ("Widget", "WidgetList", true)
    );
}

#[tokio::test]
async fn b107_a_broken_definition_is_skipped_and_breaks_nothing_else() {
    let mut broken: Vec<Value> = Vec::new();
    let mut breaking = |path: &str, value: Value| {
        let mut crd = crd(&["v1!"]);
        crd["metadata"]["name"] = format!("broken{}s.example.io", broken.len()).into();
        crd["spec"]["names"]["plural"] = format!("broken{}s", broken.len()).into();
        *crd.pointer_mut(path).expect("is there") = value;
        broken.push(crd);
    };
    breaking("/spec", json!("text"));
    breaking("/spec/versions", json!([]));
    breaking("/spec/versions/0/storage", json!(false));
    breaking("/spec/versions/0/served", json!(false));
    breaking("/spec/versions/0/name", json!("V 1"));
    breaking("/spec/scope", json!("Galaxy"));
    breaking("/spec/group", json!("other.io"));
    breaking("/spec/names/kind", json!("Wid get"));
    breaking("/spec/names/kind", json!(7));
    breaking("/metadata/name", json!("nodot"));
    let count = broken.len();

    let mut lab = Lab::new(Vec::new());
    let mut changes: Vec<Change> = broken.iter().map(|crd| put_crd(AMBER_ROOT, crd)).collect();
    changes.push(put_crd(AMBER_ROOT, &crd(&["v1!"])));
    lab.commit(changes).await;
    let (amber, root) = (part("amber"), part("root"));
    let served: Vec<_> =
        lab.types.in_scope(&amber, &root).filter(|i| i.name.group() == "example.io").collect();
    assert_eq!(served.iter().map(|info| &info.name).collect::<Vec<_>>(), [&widgets()]);
    assert_eq!(lab.types.counts().broken, count);
    // Mended, it is served; deleted, it is forgotten.
    let mut mended = broken[0].clone();
    mended["spec"] = crd(&["v1!"])["spec"].clone();
    mended["spec"]["names"]["plural"] = "broken0s".into();
    lab.commit(vec![put_crd(AMBER_ROOT, &mended), delete(&builtin::crd_type(), AMBER_ROOT, "", "nodot")])
        .await;
    assert_eq!(lab.types.counts().broken, count - 2);
    assert!(lab.types.resolve(&amber, &root, "example.io", "v1", "broken0s", None).is_some());
}

#[tokio::test]
async fn a_definition_that_becomes_broken_keeps_the_type_while_it_has_objects() {
    let mut lab = Lab::new(Vec::new());
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1!"])), put_widget(AMBER_ROOT, "v1", "one")]).await;
    let mut broken = crd(&["v1!"]);
    broken["spec"]["versions"] = json!([]);
    lab.commit(vec![put_crd(AMBER_ROOT, &broken)]).await;
    assert_eq!(lab.versions("amber", "root", &widgets()), Some(vec!["v1".into()]));
    lab.commit(vec![delete_widget(AMBER_ROOT, "one")]).await;
    assert_eq!(lab.versions("amber", "root", &widgets()), None);
}

#[tokio::test]
async fn d45_only_the_stored_version_is_served_unless_the_conversion_is_none() {
    let mut lab = Lab::new(Vec::new());
    let mut converting = crd(&["v1alpha1", "v1!", "v2"]);
    converting["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {}});
    lab.commit(vec![put_crd(AMBER_ROOT, &converting)]).await;
    assert_eq!(lab.versions("amber", "root", &widgets()), Some(vec!["v1".into()]));
    converting["spec"]["conversion"] = json!({"strategy": "None"});
    lab.commit(vec![put_crd(AMBER_ROOT, &converting)]).await;
    let all = Some(vec!["v2".into(), "v1".into(), "v1alpha1".into()]);
    assert_eq!(lab.versions("amber", "root", &widgets()), all);
}

#[tokio::test]
async fn a_crd_brings_names_scope_and_selectable_fields() {
    let mut lab = Lab::new(Vec::new());
    let mut named = crd(&["v1!"]);
    named["spec"]["scope"] = "Cluster".into();
    named["spec"]["names"]["singular"] = "gizmo".into();
    named["spec"]["names"]["listKind"] = "WidgetCollection".into();
    named["spec"]["names"]["categories"] = json!(["all"]);
    named["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    lab.commit(vec![put_crd(AMBER_ROOT, &named)]).await;
    let (amber, root) = (part("amber"), part("root"));
    let info = lab.types.resolve(&amber, &root, "example.io", "v1", "widgets", None).expect("served");
    let expected = TypeInfo {
        name: widgets(),
        kind: "Widget".into(),
        list_kind: "WidgetCollection".into(),
        singular: "gizmo".into(),
        short_names: vec!["wd".into()],
        categories: vec!["all".into()],
        namespaced: false,
        versions: vec![VersionInfo {
            selectable_fields: vec!["spec.color".into()],
            schema: Schema::parse("{\"type\":\"object\"}"),
            ..VersionInfo::new("v1")
        }],
        storage_version: "v1".into(),
    };
    assert!(expected.versions[0].schema.is_some());
    assert_eq!(**info, expected);
}

#[tokio::test]
async fn the_set_is_the_same_arc_unless_a_commit_concerns_types() {
    let mut lab = Lab::new(Vec::new());
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1!"]))]).await;
    let before = Arc::clone(&lab.types);
    lab.commit(vec![put_widget(AMBER_ROOT, "v1", "one")]).await;
    let namespaces = TypeName::new("", "namespaces");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    lab.commit(vec![put(&namespaces, AMBER_ROOT, "", &namespace)]).await;
    lab.commit(vec![delete_widget(AMBER_ROOT, "one")]).await;
    assert!(Arc::ptr_eq(&before, &lab.types));
}

#[tokio::test]
async fn the_earlier_source_of_a_type_wins() {
    let configured = config::parse(
        "types: [{group: example.io, versions: [v1beta1], resource: widgets, kind: Widget, namespaced: true}]",
    );
    let mut lab = Lab::new(configured.expect("legal"));
    assert_eq!(lab.versions("amber", "root", &widgets()), Some(vec!["v1beta1".into()]));
    // A CRD wins over the configuration where it is; elsewhere the configuration stands.
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1!"]))]).await;
    assert_eq!(lab.versions("amber", "root", &widgets()), Some(vec!["v1".into()]));
    assert_eq!(lab.versions("amber", "acme", &widgets()), Some(vec!["v1beta1".into()]));
    assert_eq!(lab.versions("*", "*", &widgets()), Some(vec!["v1".into(), "v1beta1".into()]));
    lab.commit(vec![delete_crd(AMBER_ROOT)]).await;
    assert_eq!(lab.versions("*", "*", &widgets()), Some(vec!["v1beta1".into()]));
    // The built-in table wins over a CRD.
    let exports = TypeName::new("apis.kcp.io", "apiexports");
    let mut crd = crd(&["v9!"]);
    crd["metadata"]["name"] = "apiexports.apis.kcp.io".into();
    crd["spec"]["group"] = "apis.kcp.io".into();
    crd["spec"]["names"] = json!({"plural": "apiexports", "kind": "APIExport"});
    lab.commit(vec![put_crd(AMBER_ROOT, &crd)]).await;
    assert_eq!(lab.versions("amber", "root", &exports), Some(vec!["v1alpha2".into(), "v1alpha1".into()]));
}

#[tokio::test]
async fn a_crd_of_a_built_in_type_explains_it_where_it_counts_and_decides_nothing_else() {
    let mut lab = Lab::new(Vec::new());
    let exports = TypeName::new("apis.kcp.io", "apiexports");
    let mut crd = crd(&["v1alpha2!", "v9"]);
    crd["metadata"]["name"] = "apiexports.apis.kcp.io".into();
    crd["spec"]["group"] = "apis.kcp.io".into();
    crd["spec"]["scope"] = "Cluster".into();
    crd["spec"]["names"] = json!({"plural": "apiexports", "kind": "APIExport", "categories": ["other"]});
    let version = &mut crd["spec"]["versions"][0];
    version["additionalPrinterColumns"] =
        json!([{"name": "Ready", "type": "string", "jsonPath": ".status.ready"}]);
    version["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    let plain = lab.types.clone();
    let at = |types: &Types, shard: &str, cluster: &str| {
        let info = types.resolve(&part(shard), &part(cluster), "apis.kcp.io", "v1alpha2", "apiexports", None);
        (**info.expect("served")).clone()
    };
    let builtin = at(&plain, "*", "*");

    lab.commit(vec![put_crd(AMBER_ROOT, &crd)]).await;
    assert_eq!((lab.types.counts().crd, lab.types.counts().builtin), (0, plain.counts().builtin));
    for (shard, cluster) in [("amber", "root"), ("amber", "*"), ("*", "root"), ("*", "*")] {
        let versions = Some(vec!["v1alpha2".to_owned(), "v1alpha1".to_owned()]);
        assert_eq!(lab.versions(shard, cluster, &exports), versions, "{shard} {cluster}");
        let info = at(&lab.types, shard, cluster);
        assert_eq!((&info.categories, &info.versions[1]), (&builtin.categories, &builtin.versions[1]));
        let explained = &info.versions[0];
        assert_eq!(explained.schema, Schema::parse("{\"type\":\"object\"}"));
        assert_eq!(explained.selectable_fields, ["spec.color"]);
        assert_eq!(explained.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["Ready"]);
    }
    assert_eq!(at(&lab.types, "beryl", "root"), builtin);
    let derived = lab.types.at(&lab.store.subscribe().state);
    assert_eq!(at(&derived, "amber", "root"), at(&lab.types, "amber", "root"));

    // Everywhere from the system's cluster, until it goes.
    lab.commit(vec![delete_crd_of(&exports, AMBER_ROOT)]).await;
    assert_eq!(at(&lab.types, "amber", "root"), builtin);
    lab.commit(vec![put_crd(("beryl", "system:system-crds"), &crd)]).await;
    assert!(at(&lab.types, "citrine", "acme").versions[0].schema.is_some());
    lab.commit(vec![delete_crd_of(&exports, ("beryl", "system:system-crds"))]).await;
    assert_eq!(at(&lab.types, "citrine", "acme"), builtin);

    // What has another kind or scope under the name says nothing of the type.
    crd["spec"]["scope"] = "Namespaced".into();
    lab.commit(vec![put_crd(AMBER_ROOT, &crd)]).await;
    assert_eq!(at(&lab.types, "amber", "root"), builtin);
}

#[tokio::test]
async fn d46_an_identity_is_ignored_on_built_in_types_and_unknown_on_others() {
    let mut lab = Lab::new(Vec::new());
    lab.commit(vec![put_crd(AMBER_ROOT, &crd(&["v1!"]))]).await;
    let (amber, root, any) = (part("amber"), part("root"), Part::Any);
    let at = |shard, cluster, group, version, resource| {
        lab.types.resolve(shard, cluster, group, version, resource, Some("c0ffee")).map(|info| &info.name)
    };
    let exports = TypeName::new("apis.kcp.io", "apiexports");
    assert_eq!(at(&any, &any, "apis.kcp.io", "v1alpha2", "apiexports"), Some(&exports));
    assert_eq!(at(&amber, &root, "example.io", "v1", "widgets"), None);
    assert_eq!(at(&any, &any, "example.io", "v1", "widgets"), None);
}
