//! Columns of the built-in types: of kcp's as in its CRDs, which a test compares, of Kubernetes' own as
//! its printers have them (`pkg/printers/internalversion`).

use super::{ADMISSION, OWN_GROUP, RBAC};
use crate::types::columns::{Column, Computed};

/// The columns of a built-in type in a version. None means the age.
pub(super) fn of(group: &str, plural: &str, version: &str) -> Vec<Column> {
    match (group, plural) {
        ("apiextensions.k8s.io", "customresourcedefinitions") | (RBAC, "clusterroles" | "roles") => {
            vec![Column::computed("Created At", "date", Computed::CreatedAt)]
        }
        (RBAC, "clusterrolebindings" | "rolebindings") => binding(),
        (ADMISSION, "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            vec![Column::computed("Webhooks", "integer", Computed::Count("/webhooks")), Column::age()]
        }
        (ADMISSION, "validatingadmissionpolicies") => policy("Validations", "/spec/validations"),
        (ADMISSION, "mutatingadmissionpolicies") => policy("Mutations", "/spec/mutations"),
        (ADMISSION, "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings") => vec![
            text("PolicyName", ".spec.policyName"),
            Column::computed("ParamRef", "string", Computed::ParamRef),
            Column::age(),
        ],
        ("", "namespaces") => vec![text("Status", ".status.phase"), Column::age()],
        ("", "events") => event(),
        (OWN_GROUP, "shardviews") => vec![
            text("Role", ".status.role"),
            text("State", ".status.state"),
            Column::computed("Types", "integer", Computed::Count("/status/types")),
            Column::age(),
        ],
        ("coordination.k8s.io", "leases") => vec![text("Holder", ".spec.holderIdentity"), Column::age()],
        _ => kcp(plural, version),
    }
}

fn text(name: &str, json_path: &str) -> Column {
    Column::path(name, "string", json_path)
}

fn binding() -> Vec<Column> {
    let subjects = |name, kind| Column::computed(name, "string", Computed::Subjects(kind)).wide();
    vec![
        Column::computed("Role", "string", Computed::Role),
        Column::age(),
        subjects("Users", "User"),
        subjects("Groups", "Group"),
        subjects("ServiceAccounts", "ServiceAccount"),
    ]
}

fn policy(name: &str, list: &'static str) -> Vec<Column> {
    vec![
        Column::computed(name, "integer", Computed::Count(list)),
        Column::computed("ParamKind", "string", Computed::ParamKind),
        Column::age(),
    ]
}

/// Without the name in front: the printer shows what happened, and the event's name last.
fn event() -> Vec<Column> {
    vec![
        Column::computed("Last Seen", "string", Computed::LastSeen),
        text("Type", ".type"),
        text("Reason", ".reason"),
        Column::computed("Object", "string", Computed::EventObject),
        text("Subobject", ".involvedObject.fieldPath").wide(),
        Column::computed("Source", "string", Computed::EventSource).wide(),
        text("Message", ".message"),
        Column::computed("First Seen", "string", Computed::FirstSeen).wide(),
        Column::computed("Count", "string", Computed::EventCount).wide(),
        Column { format: "name".to_owned(), ..Column::computed("Name", "string", Computed::Name).wide() },
    ]
}

fn kcp(plural: &str, version: &str) -> Vec<Column> {
    match (plural, version) {
        ("apiexportendpointslices", _) => {
            vec![text("Export", ".spec.export.name"), text("Partition", ".spec.partition"), Column::age()]
        }
        ("apiexports", "v1alpha1") => {
            let ready = ".status.conditions[?(@.type==\"VirtualWorkspaceURLsReady\")].status";
            vec![Column::age(), text("Ready", ready)]
        }
        ("clustercachedresourceendpointslices", _) => {
            vec![text("ClusterCachedResource", ".spec.clusterCachedResource.name"), Column::age()]
        }
        ("clustercachedresources", _) => {
            vec![text("Resource", ".spec.resource").described("Resource type being published"), Column::age()]
        }
        ("logicalclusters", _) => vec![
            text("Phase", ".status.phase")
                .described("The current phase (e.g. Scheduling, Initializing, Ready, Deleting)"),
            text("URL", ".status.URL").described("URL to access the logical cluster"),
            Column::age(),
        ],
        ("shards", _) => vec![
            text("Region", ".metadata.labels['region']").described("The region this workspace is in"),
            text("URL", ".spec.baseURL").described("Type URL to directly connect to the shard"),
            text("External URL", ".spec.externalURL")
                .described("The URL exposed in logical clusters created on that shard"),
            Column::age(),
        ],
        ("logicalclustermigrations", _) => vec![
            text("Logical Cluster", ".spec.logicalCluster").described("The logical cluster being migrated"),
            text("Phase", ".status.phase").described("The current phase of the migration"),
            text("Destination", ".spec.destinationShard").described("The destination shard"),
            Column::path("Entries Copied", "integer", ".status.entriesCopied")
                .described("Number of etcd entries copied so far"),
        ],
        ("workspacetypes", _) => Vec::new(),
        _ => vec![Column::age()],
    }
}
