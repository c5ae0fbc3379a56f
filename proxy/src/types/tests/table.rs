//! The built-in table against kcp's own CRDs.

use std::path::PathBuf;

use super::*;

/// Where kcp's manifests are, if they are on this machine.
fn manifests() -> Option<PathBuf> {
    let data = std::env::var_os("SHARDCACHE_TEST_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")),
        PathBuf::from,
    );
    let crds = data.join("kcp/crds");
    crds.is_dir().then_some(crds)
}

#[test]
fn the_built_in_table_is_that_of_kcps_own_crds() {
    let Some(manifests) = manifests() else {
        eprintln!("SKIPPED: kcp's CRDs are not here; set SHARDCACHE_TEST_DATA to compare the built-in table");
        return;
    };
    let kcp = builtin::table().filter(|info| is_kcp(info));
    let mut compared = 0;
    for info in kcp {
        let file = manifests.join(format!("{}_{}.yaml", info.name.group(), info.name.resource()));
        let yaml =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let crd: Value = serde_saphyr::from_str(&yaml).expect("YAML");
        let name = info.name.qualified();
        let parsed = crd::parse(&name, crd.to_string().as_bytes()).expect("a good definition");
        let mut info = (*info).clone();
        let mut parsed = parsed;
        for version in &mut parsed.versions {
            assert!(version.schema.take().is_some(), "{name} has a schema that clients can read");
        }
        if info.name.group().ends_with(".k8s.io") {
            // kcp's CRDs of Kubernetes' own types have no columns; here they have those of its printers.
            info.versions.iter_mut().for_each(|version| version.columns.clear());
        }
        assert_eq!(info, parsed, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 21);
}

/// Whether kcp's cache server has the type: all but the four core ones and our own.
fn is_kcp(info: &TypeInfo) -> bool {
    let others = ["namespaces", "events", "customresourcedefinitions", "leases", "shardviews"];
    !others.contains(&info.name.resource())
}

#[test]
fn every_built_in_type_passes_the_checks_that_a_crd_has_to_pass() {
    let mut names = std::collections::BTreeSet::new();
    for info in builtin::table() {
        info.check().unwrap_or_else(|problem| panic!("{:?}: {problem}", info.name));
        assert!(info.version(&info.storage_version).is_some(), "{:?}", info.name);
        assert!(names.insert(info.name.clone()), "{:?} is there twice", info.name);
    }
    assert_eq!(names.len(), 26);
}

#[test]
fn r19_core_types_that_clients_look_for_are_served_everywhere() {
    let types = Types::builtin(Vec::new());
    let expected = [
        ("", "v1", "namespaces"),
        ("", "v1", "events"),
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        ("coordination.k8s.io", "v1", "leases"),
    ];
    for (group, version, resource) in expected {
        for (shard, cluster) in [("*", "*"), ("amber", "*"), ("*", "root"), ("amber", "root")] {
            let (shard, cluster) = (part(shard), part(cluster));
            assert!(types.resolve(&shard, &cluster, group, version, resource, None).is_some(), "{resource}");
        }
    }
    let (amber, root) = (part("amber"), part("root"));
    assert!(types.resolve(&amber, &root, "core", "v1", "namespaces", None).is_some());
    assert!(types.resolve(&amber, &root, "", "v2", "namespaces", None).is_none());
    assert!(types.resolve(&amber, &root, "", "v1", "pods", None).is_none());
}

#[test]
fn b080_events_are_selected_by_what_kubectl_describe_asks_for() {
    let types = Types::builtin(Vec::new());
    let check = |resource: &str, selector: &str| {
        let info = types.resolve(&part("amber"), &part("root"), "", "v1", resource, None).expect("served");
        let selector = crate::selector::FieldSelector::parse(selector).expect("legal");
        selector.check(info.namespaced, &info.versions[0].selectable_fields)
    };
    let describe = "involvedObject.name=x,involvedObject.namespace=ns,involvedObject.kind=APIExport,involvedObject.uid=u";
    assert_eq!(check("events", describe), Ok(()));
    assert_eq!(check("events", "type!=Normal,reason=x,source=kubelet,reportingComponent="), Ok(()));
    assert_eq!(check("namespaces", "status.phase=Active"), Ok(()));
    let refused = check("namespaces", "involvedObject.name=x").expect_err("no such field");
    assert_eq!(refused, "field label not supported: involvedObject.name");
}
