use proptest::prelude::*;

use super::{HealthEndpoint, ResourcePath, ScopedPath, Target, parse};
use crate::scope::Part;
use crate::status::ApiError;

fn one(name: &str) -> Part {
    Part::One(name.into())
}

fn target(path: &str) -> Target {
    parse(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn error(path: &str) -> ApiError {
    parse(path).expect_err(path)
}

/// The parts of a scoped path.
fn scoped(path: &str) -> (Part, Part, ScopedPath) {
    match target(path) {
        Target::Scoped { shard, cluster, path } => (shard, cluster, path),
        other => panic!("{path}: {other:?}"),
    }
}

fn resource(path: &str) -> ResourcePath {
    match scoped(path).2 {
        ScopedPath::Resource(resource) => resource,
        other => panic!("{path}: {other:?}"),
    }
}

fn exports() -> ResourcePath {
    ResourcePath {
        group: "apis.kcp.io".into(),
        version: "v1alpha1".into(),
        resource: "apiexports".into(),
        ..ResourcePath::default()
    }
}

const SCOPE: &str = "/services/cache/shards/amber/clusters/root";

#[test]
fn b082_spellings_of_one_path_are_equal() {
    let expected = (Part::Any, Part::Any, ScopedPath::Resource(exports()));
    for path in [
        "/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports",
        "/services/cache/shards/%2A/clusters/%2a/apis/apis.kcp.io/v1alpha1/apiexports",
        "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports",
        "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports/",
        "/%73ervices/cache/shards/*/clusters/*/apis/apis%2Ekcp.io/v1alpha1/apiexports",
    ] {
        assert_eq!(scoped(path), expected, "{path}");
    }
    let system = (one("sh:1"), one("system:admin"), ScopedPath::Apis);
    assert_eq!(scoped("/shards/sh:1/clusters/system:admin/apis"), system);
    assert_eq!(scoped("/shards/sh%3A1/clusters/system%3aadmin/apis"), system);
}

#[test]
fn b082_hostile_paths_are_400_or_404_and_never_another_scope() {
    let long = "a".repeat(300);
    let paths = [
        "/services/cache//shards/*/clusters/*/apis".to_owned(),
        "//shards/amber/clusters/root/apis".to_owned(),
        "/shards/Amber/clusters/root/apis".to_owned(),
        "/shards/amber/clusters/Root/apis".to_owned(),
        "/shards/am%2Fber/clusters/root/apis".to_owned(),
        "/shards/amber/clusters/root%2f..%2fother/apis".to_owned(),
        "/shards/amber/../beryl/clusters/root/apis".to_owned(),
        "/shards/../shards/amber/clusters/root/apis".to_owned(),
        "/shards/amber/clusters/../apis".to_owned(),
        "/shards/amber/clusters/%2e%2e/apis".to_owned(),
        "/shards/amber/clusters/root/apis/../../x".to_owned(),
        "/shards/amber/clusters/root/apis//v1".to_owned(),
        "/shards/%252A/clusters/root/apis".to_owned(),
        "/shards/amber/clusters/root%00/apis".to_owned(),
        "/shards/amber/clusters/r%C3/apis".to_owned(),
        "/shards/amber/clusters/r%zz/apis".to_owned(),
        "/shards/amber/clusters/r%2".to_owned(),
        "/shards/**/clusters/root/apis".to_owned(),
        "/shards/amber/clusters/a*/apis".to_owned(),
        format!("/shards/{long}/clusters/root/apis"),
        format!("/shards/amber/clusters/{long}/apis"),
        "/servicescache/shards/amber/clusters/root/apis".to_owned(),
        "/services/cachexyz/shards/amber/clusters/root/apis".to_owned(),
        "*".to_owned(),
        String::new(),
    ];
    for path in paths {
        let error = error(&path);
        assert!(
            matches!((error.code, error.reason), (400, "BadRequest") | (404, "NotFound")),
            "{path}: {error:?}"
        );
    }
}

#[test]
fn rejected_forms_have_kcp_s_texts() {
    let table = [
        ("/shards/amber", "unable to parse shard: no `/` found in path amber"),
        ("/shards", "a shard name is required"),
        ("/shards/", "a shard name is required"),
        ("/shards//clusters/root/apis", "a shard name is required"),
        ("/clusters/root/apis/g/v1/r", "a shard name is required"),
        ("/clusters/root/shards/amber/apis", "a shard name is required"),
        ("/apis/g/v1/r", "a shard name is required"),
        ("/api/v1/namespaces", "a shard name is required"),
        ("/debug/pprof/heap", "a shard name is required"),
        ("/shards/A/clusters/root/apis", "invalid shard: \"A\" does not match the regex"),
        ("/shards/a/clusters/R/apis", "invalid cluster: \"R\" does not match the regex"),
        ("/shards/a/clusters/-r/apis", "invalid cluster: \"-r\" does not match the regex"),
        ("/shards/a/clusters/root:/apis", "invalid cluster: \"root:\" does not match the regex"),
        ("/shards/a/clusters/root:org/apis", "invalid cluster: \"root:org\" is not a logical cluster name"),
        (
            "/shards/a/clusters/root%3Aorg%3Aws/apis",
            "invalid cluster: \"root:org:ws\" is not a logical cluster name",
        ),
        ("/shards/a/clusters/c/apis/g/v1/r:", "invalid resource \"r\": missing identity"),
        ("/shards/a/clusters/c/apis/g/v1/namespaces/n/r:/x", "invalid resource \"r\": missing identity"),
        // kcp fails these two later and worse: an empty cluster in the context ends in a plain 500.
        ("/shards/a/clusters", "a logical cluster name is required"),
        ("/shards/a/clusters//apis", "a logical cluster name is required"),
        ("/shards/a/apis/g/v1/r", "a logical cluster name is required"),
    ];
    for (path, message) in table {
        let error = error(path);
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (400, "BadRequest", message),
            "{path}"
        );
    }
}

#[test]
fn names_up_to_the_limits_are_legal() {
    let (shard, cluster) = ("-".repeat(61), "a".repeat(63));
    assert_eq!(scoped(&format!("/shards/{shard}/clusters/{cluster}/apis")).0, one(&shard));
    assert_eq!(error(&format!("/shards/{shard}a/clusters/{cluster}/apis")).code, 400);
    assert_eq!(error(&format!("/shards/{shard}/clusters/{cluster}a/apis")).code, 400);
    assert_eq!(scoped("/shards/a/clusters/system:system-crds").2, ScopedPath::Root);
}

#[test]
fn resources_namespaces_names_and_subresources() {
    let table = [
        ("", exports()),
        ("/", exports()),
        ("/x", ResourcePath { name: Some("x".into()), ..exports() }),
        (
            "/x/status",
            ResourcePath { name: Some("x".into()), subresource: Some("status".into()), ..exports() },
        ),
        (
            "/x/proxy/a/b",
            ResourcePath { name: Some("x".into()), subresource: Some("proxy/a/b".into()), ..exports() },
        ),
        (":abc", ResourcePath { identity: Some("abc".into()), ..exports() }),
        ("%3Aabc:d/x", ResourcePath { identity: Some("abc:d".into()), name: Some("x".into()), ..exports() }),
    ];
    for (rest, expected) in table {
        let base = format!("{SCOPE}/apis/apis.kcp.io/v1alpha1");
        assert_eq!(resource(&format!("{base}/apiexports{rest}")), expected, "{rest}");
        let legacy = ResourcePath { legacy_watch: true, ..expected.clone() };
        assert_eq!(resource(&format!("{base}/watch/apiexports{rest}")), legacy, "{rest}");
        let namespaced = ResourcePath { namespace: Some("ns".into()), ..expected };
        assert_eq!(resource(&format!("{base}/namespaces/ns/apiexports{rest}")), namespaced, "{rest}");
        let both = ResourcePath { legacy_watch: true, ..namespaced };
        assert_eq!(resource(&format!("{base}/watch/namespaces/ns/apiexports{rest}")), both, "{rest}");
    }
}

#[test]
fn the_core_group_and_its_namespaces() {
    let namespaces =
        ResourcePath { version: "v1".into(), resource: "namespaces".into(), ..ResourcePath::default() };
    let foo = ResourcePath { name: Some("foo".into()), ..namespaces.clone() };
    for prefix in ["api/v1", "apis/core/v1"] {
        assert_eq!(resource(&format!("{SCOPE}/{prefix}/namespaces")), namespaces);
        assert_eq!(resource(&format!("{SCOPE}/{prefix}/namespaces/foo")), foo);
        let status = ResourcePath { subresource: Some("status".into()), ..foo.clone() };
        assert_eq!(resource(&format!("{SCOPE}/{prefix}/namespaces/foo/status")), status);
        let events =
            ResourcePath { resource: "events".into(), namespace: Some("foo".into()), ..namespaces.clone() };
        assert_eq!(resource(&format!("{SCOPE}/{prefix}/namespaces/foo/events")), events);
        let version = ScopedPath::GroupVersion { group: String::new(), version: "v1".into() };
        assert_eq!(scoped(&format!("{SCOPE}/{prefix}")).2, version);
    }
    // Outside the core group `status` is a type like any other.
    let status = resource(&format!("{SCOPE}/apis/g/v1/namespaces/foo/status"));
    assert_eq!((status.namespace.as_deref(), &*status.resource), (Some("foo"), "status"));
    assert_eq!(resource(&format!("{SCOPE}/api/v1/watch")).resource, "watch");
}

#[test]
fn documents_are_served_with_and_without_a_scope() {
    for (prefix, shard, cluster) in [
        ("", Part::Any, Part::Any),
        ("/services/cache", Part::Any, Part::Any),
        ("/shards/amber", one("amber"), Part::Any),
        ("/services/cache/shards/amber/clusters/root", one("amber"), one("root")),
    ] {
        let table = [
            ("/", ScopedPath::Root),
            ("/api", ScopedPath::Api),
            ("/api/", ScopedPath::Api),
            ("/apis", ScopedPath::Apis),
            ("/apis/g", ScopedPath::Group("g".into())),
            ("/apis/g/v1", ScopedPath::GroupVersion { group: "g".into(), version: "v1".into() }),
            ("/openapi/v2", ScopedPath::OpenApiV2),
            ("/openapi/v3", ScopedPath::OpenApiV3(None)),
            ("/openapi/v3/apis/g/v1", ScopedPath::OpenApiV3(Some("apis/g/v1".into()))),
        ];
        for (path, expected) in table {
            let path = format!("{prefix}{path}");
            assert_eq!(scoped(&path), (shard.clone(), cluster.clone(), expected), "{path}");
        }
        assert_eq!(target(&format!("{prefix}/version")), Target::Version);
        for (name, endpoint) in [
            ("healthz", HealthEndpoint::Healthz),
            ("livez", HealthEndpoint::Livez),
            ("readyz", HealthEndpoint::Readyz),
        ] {
            assert_eq!(target(&format!("{prefix}/{name}")), Target::Health { endpoint, check: None });
            let check = Some("store".to_owned());
            assert_eq!(target(&format!("{prefix}/{name}/store")), Target::Health { endpoint, check });
        }
    }
    assert_eq!(scoped("/shards/a/clusters/c").2, ScopedPath::Root);
    for path in ["/openapi", "/version/x", "/readyz/a/b", "/metrics/x", "/foo"] {
        assert_eq!(error(&format!("{SCOPE}{path}")).code, 404, "{path}");
    }
}

#[test]
fn metrics_are_process_wide_and_admin_is_beside_the_shards() {
    assert_eq!(target("/metrics"), Target::Metrics);
    assert_eq!(target("/services/cache/metrics"), Target::Metrics);
    assert_eq!(target("/shards/amber/metrics"), Target::ScopedMetrics);
    assert_eq!(target("/shards/*/clusters/*/metrics"), Target::ScopedMetrics);
    assert_eq!(target("/services/cache/admin/backup"), Target::Admin(vec!["backup".into()]));
    assert_eq!(error("/services/cache/admin/../backup").code, 400);
}

proptest! {
    #[test]
    fn arbitrary_paths_never_panic_and_scopes_are_what_was_written(
        path in "(/|shards|clusters|apis|api|v1|amber|\\*|%2A|%2F|%|\\.\\.|:|é|[a-zA-Z%/]){0,16}",
    ) {
        if let Ok(Target::Scoped { shard: Part::One(shard), .. }) = parse(&path) {
            prop_assert!(path.contains("/shards/") && !shard.contains('/') && &*shard != "*");
        }
    }
}
