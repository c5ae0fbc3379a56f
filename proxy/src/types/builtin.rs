//! The built-in types: the 21 that kcp's cache server serves, the few core types that clients of any
//! Kubernetes API expect to find (wire contract R19, leader election), and the one that is the server's own.
//!
//! Names, scope, versions and categories are those of kcp's own CRDs; a test compares the table with
//! them. Nothing here has a schema: objects are stored and served as sent. CRDs of these types bring theirs.

mod columns;

use std::sync::{Arc, LazyLock};

use shardcache_storage::{OWN_GROUP, TypeName};

use super::{TypeInfo, VersionInfo};

/// One row of the table.
#[derive(Clone, Copy)]
struct Row {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    /// Most preferred first.
    versions: &'static [&'static str],
    storage: &'static str,
    /// Fields of `fieldSelector` beside name and namespace, as kube-apiserver has them for core types.
    selectable: &'static [&'static str],
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const EXTENSIONS: &[&str] = &["api-extensions"];
const KCP: &[&str] = &["kcp"];

/// A cluster-scoped type with one version and no short names, which most are.
const fn row(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    categories: &'static [&'static str],
    versions: &'static [&'static str],
) -> Row {
    let storage = versions[0];
    Row {
        group,
        plural,
        singular,
        kind,
        short_names: &[],
        categories,
        namespaced: false,
        versions,
        storage,
        selectable: &[],
    }
}

const fn namespaced(row: Row) -> Row {
    Row { namespaced: true, ..row }
}

const fn selectable(row: Row, selectable: &'static [&'static str]) -> Row {
    Row { selectable, ..row }
}

const fn short(row: Row, short_names: &'static [&'static str]) -> Row {
    Row { short_names, ..row }
}

/// What `kubectl describe` and others select events by.
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// What kcp's cache server serves (`pkg/cache/server/bootstrap`).
#[rustfmt::skip]
const KCP_TYPES: [Row; 21] = [
    row("apis.kcp.io", "apiresourceschemas", "apiresourceschema", "APIResourceSchema", KCP, &["v1alpha1"]),
    row("apis.kcp.io", "apiconversions", "apiconversion", "APIConversion", KCP, &["v1alpha1"]),
    row("apis.kcp.io", "apiexports", "apiexport", "APIExport", KCP, &["v1alpha2", "v1alpha1"]),
    row("apis.kcp.io", "apiexportendpointslices", "apiexportendpointslice", "APIExportEndpointSlice", KCP, &["v1alpha1"]),
    row("core.kcp.io", "logicalclusters", "logicalcluster", "LogicalCluster", KCP, &["v1alpha1"]),
    row("core.kcp.io", "shards", "shard", "Shard", KCP, &["v1alpha1"]),
    row("migration.kcp.io", "logicalclustermigrations", "logicalclustermigration", "LogicalClusterMigration", KCP, &["v1alpha1"]),
    row("cache.kcp.io", "cachedobjects", "cachedobject", "CachedObject", KCP, &["v1alpha1"]),
    row("cache.kcp.io", "clustercachedresources", "clustercachedresource", "ClusterCachedResource", KCP, &["v1alpha1"]),
    row("cache.kcp.io", "clustercachedresourceendpointslices", "clustercachedresourceendpointslice", "ClusterCachedResourceEndpointSlice", KCP, &["v1alpha1"]),
    row("tenancy.kcp.io", "workspacetypes", "workspacetype", "WorkspaceType", KCP, &["v1alpha1"]),
    row(RBAC, "clusterroles", "clusterrole", "ClusterRole", &[], &["v1"]),
    row(RBAC, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", &[], &["v1"]),
    namespaced(row(RBAC, "roles", "role", "Role", &[], &["v1"])),
    namespaced(row(RBAC, "rolebindings", "rolebinding", "RoleBinding", &[], &["v1"])),
    row(ADMISSION, "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration", EXTENSIONS, &["v1"]),
    row(ADMISSION, "validatingwebhookconfigurations", "validatingwebhookconfiguration", "ValidatingWebhookConfiguration", EXTENSIONS, &["v1"]),
    row(ADMISSION, "validatingadmissionpolicies", "validatingadmissionpolicy", "ValidatingAdmissionPolicy", EXTENSIONS, &["v1"]),
    row(ADMISSION, "validatingadmissionpolicybindings", "validatingadmissionpolicybinding", "ValidatingAdmissionPolicyBinding", EXTENSIONS, &["v1"]),
    row(ADMISSION, "mutatingadmissionpolicies", "mutatingadmissionpolicy", "MutatingAdmissionPolicy", EXTENSIONS, &["v1"]),
    row(ADMISSION, "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding", "MutatingAdmissionPolicyBinding", EXTENSIONS, &["v1"]),
];

/// What clients expect of any Kubernetes API: kopf looks for the first three in discovery, leader
/// election needs the fourth.
#[rustfmt::skip]
const CORE_TYPES: [Row; 4] = [
    selectable(short(row("", "namespaces", "namespace", "Namespace", &[], &["v1"]), &["ns"]), &["status.phase"]),
    selectable(short(namespaced(row("", "events", "event", "Event", &[], &["v1"])), &["ev"]), EVENT_FIELDS),
    short(row("apiextensions.k8s.io", "customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition", EXTENSIONS, &["v1"]), &["crd", "crds"]),
    namespaced(row("coordination.k8s.io", "leases", "lease", "Lease", &[], &["v1"])),
];

/// What the server itself says of shards: nobody else writes it.
static SHARDVIEWS: LazyLock<Arc<TypeInfo>> = LazyLock::new(|| {
    let row = row(OWN_GROUP, "shardviews", "shardview", "ShardView", &[], &["v1alpha1"]);
    Arc::new(row.info())
});

/// Every built-in type.
pub(super) fn table() -> impl Iterator<Item = Arc<TypeInfo>> {
    let others = KCP_TYPES.iter().chain(&CORE_TYPES).map(|row| Arc::new(row.info()));
    others.chain([Arc::clone(&SHARDVIEWS)])
}

/// The type that the server itself writes.
pub(crate) fn shardviews() -> &'static TypeInfo {
    &SHARDVIEWS
}

/// Whether a name is that of [`shardviews`]. Names only: nobody's definition of it counts.
pub(crate) fn is_shardviews(name: &TypeName) -> bool {
    *name == SHARDVIEWS.name
}

/// The type whose objects declare other types.
pub(super) fn crd_type() -> TypeName {
    TypeName::new("apiextensions.k8s.io", "customresourcedefinitions")
}

impl Row {
    fn info(&self) -> TypeInfo {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        TypeInfo {
            name: TypeName::new(self.group, self.plural),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            singular: self.singular.to_owned(),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            versions: self.versions.iter().map(|version| self.version(version)).collect(),
            storage_version: self.storage.to_owned(),
        }
    }

    fn version(&self, name: &str) -> VersionInfo {
        let selectable_fields = self.selectable.iter().map(|field| (*field).to_owned()).collect();
        let columns = columns::of(self.group, self.plural, name);
        VersionInfo { selectable_fields, columns, ..VersionInfo::new(name) }
    }
}
