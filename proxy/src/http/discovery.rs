//! Discovery: the types served at a scope, in the legacy and in the aggregated form (v2).
//!
//! Every document is made from the snapshot's set of types for the request's shard and logical
//! cluster, so a client that discovers below `/shards/<s>/clusters/<c>` sees that workspace's types.
//!
//! Under a wildcard the verbs are `list watch`: what works there. A client that wants to write names
//! a shard and a cluster, and discovers there. Subresources do not exist: one PUT changes `spec` and
//! `status` (kcp's rule), so none are published.

use std::collections::BTreeMap;

use ::http::header::{HOST, HeaderValue};
use ::http::{HeaderMap, Response};
use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::accept::{
    AGGREGATED_DISCOVERY, AGGREGATED_DISCOVERY_YAML, DiscoveryForm, Encoding, Representation,
    negotiate_discovery,
};
use super::document::{self, Freshness};
use super::path::ScopedPath;
use super::respond;
use crate::body::Body;
use crate::scope::Part;
use crate::status::ApiError;
use crate::types::{TypeInfo, Types};

/// Verbs of a type at a concrete shard and cluster, as kube-apiserver publishes them for a CRD's type.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// The same of a type that only the server writes.
const OWN_VERBS: &[&str] = &["get", "list", "watch"];
/// Verbs under a wildcard.
const WILDCARD_VERBS: &[&str] = &["list", "watch"];
const CORE: &str = "";

/// Where discovery looks.
#[derive(Clone, Copy)]
struct View<'a> {
    types: &'a Types,
    shard: &'a Part,
    cluster: &'a Part,
}

/// Types of one group by version, the preferred version first.
type Versions<'a> = Vec<(&'a str, Vec<&'a TypeInfo>)>;

/// Answers a GET of `/`, `/api`, `/api/v1`, `/apis`, `/apis/<group>` or `/apis/<group>/<version>`; 404 for
/// a group or version that is not served there.
pub fn respond(
    types: &Types,
    shard: &Part,
    cluster: &Part,
    path: &ScopedPath,
    query: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let may_aggregate = matches!(path, ScopedPath::Api | ScopedPath::Apis);
    let (form, representation) = match path {
        // What paths there are is no object, and has one form.
        ScopedPath::Root => (DiscoveryForm::Legacy, Representation::default()),
        _ => negotiate_discovery(headers, query, may_aggregate)?,
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let document = View { types, shard, cluster }.document(path, form, host);
    let body = Bytes::from(document.ok_or_else(ApiError::no_such_path)?.to_string());
    let content_type = match (form, representation.encoding) {
        (DiscoveryForm::Aggregated, Encoding::Json) => HeaderValue::from_static(AGGREGATED_DISCOVERY),
        (DiscoveryForm::Aggregated, Encoding::Yaml) => HeaderValue::from_static(AGGREGATED_DISCOVERY_YAML),
        (DiscoveryForm::Legacy, Encoding::Json) => respond::JSON,
        (DiscoveryForm::Legacy, Encoding::Yaml) => respond::YAML,
    };
    // Each way to write a document has its own validator.
    let body = respond::spelled(body, representation);
    Ok(document::answer(headers, content_type, body, Freshness::Revalidate))
}

impl<'a> View<'a> {
    fn document(self, path: &ScopedPath, form: DiscoveryForm, host: &str) -> Option<Value> {
        match (path, form) {
            (ScopedPath::Root, _) => Some(self.paths()),
            (ScopedPath::Api, DiscoveryForm::Aggregated) => Some(self.aggregated(|group| group == CORE)),
            (ScopedPath::Apis, DiscoveryForm::Aggregated) => Some(self.aggregated(|group| group != CORE)),
            (ScopedPath::Api, DiscoveryForm::Legacy) => Some(self.core_versions(host)),
            (ScopedPath::Apis, DiscoveryForm::Legacy) => Some(self.group_list()),
            (ScopedPath::Group(group), _) => self.group(group),
            (ScopedPath::GroupVersion { group, version }, _) => self.resource_list(group, version),
            (ScopedPath::OpenApiV2 | ScopedPath::OpenApiV3(_) | ScopedPath::Resource(_), _) => None,
        }
    }

    fn groups(self) -> BTreeMap<&'a str, Versions<'a>> {
        let mut groups: BTreeMap<&str, Versions<'_>> = BTreeMap::new();
        for info in self.types.in_scope(self.shard, self.cluster) {
            let versions = groups.entry(info.name.group()).or_default();
            for version in &info.versions {
                match versions.iter_mut().find(|(name, _)| *name == version.name) {
                    Some((_, types)) => types.push(info),
                    None => versions.push((&version.name, vec![info])),
                }
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by(|(a, _), (b, _)| crate::types::by_preference(a, b));
        }
        groups
    }

    fn verbs(self, info: &TypeInfo) -> &'static [&'static str] {
        match (self.shard, self.cluster) {
            (Part::One(_), Part::One(_)) if info.is_own() => OWN_VERBS,
            (Part::One(_), Part::One(_)) => VERBS,
            _ => WILDCARD_VERBS,
        }
    }

    fn paths(self) -> Value {
        let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
        for (group, versions) in self.groups() {
            if group != CORE {
                paths.push(format!("/apis/{group}"));
            }
            paths.extend(versions.iter().map(|(version, _)| format!("/{}", gv_path(group, version))));
        }
        let others = ["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"];
        paths.extend(others.map(str::to_owned));
        if (self.shard, self.cluster) == (&Part::Any, &Part::Any) {
            paths.push("/metrics".to_owned());
        }
        paths.sort();
        json!({ "paths": paths })
    }

    fn core_versions(self, host: &str) -> Value {
        let groups = self.groups();
        let versions: Vec<&str> =
            groups.get(CORE).into_iter().flatten().map(|(version, _)| *version).collect();
        json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
        })
    }

    fn group_list(self) -> Value {
        let groups = self.groups();
        let groups: Vec<Value> = (groups.iter().filter(|(group, _)| **group != CORE))
            .map(|(group, versions)| api_group(group, versions))
            .collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    fn group(self, group: &str) -> Option<Value> {
        let groups = self.groups();
        let versions = groups.get(group).filter(|_| group != CORE)?;
        let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
        let fields = document.as_object_mut()?;
        if let Value::Object(group) = api_group(group, versions) {
            fields.extend(group);
        }
        Some(document)
    }

    fn resource_list(self, group: &str, version: &str) -> Option<Value> {
        let groups = self.groups();
        let (_, types) = groups.get(group)?.iter().find(|(name, _)| *name == version)?;
        let resources: Vec<Value> = types.iter().map(|info| self.api_resource(info)).collect();
        Some(json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version(group, version),
            "resources": resources,
        }))
    }

    fn api_resource(self, info: &TypeInfo) -> Value {
        let mut resource = json!({
            "name": info.name.resource(),
            "singularName": info.singular,
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": self.verbs(info),
        });
        add_names(&mut resource, info);
        resource["storageVersionHash"] = storage_version_hash(info).into();
        resource
    }

    fn aggregated(self, wanted: impl Fn(&str) -> bool) -> Value {
        let groups = self.groups();
        let items: Vec<Value> = (groups.iter().filter(|(group, _)| wanted(group)))
            .map(|(group, versions)| {
                let metadata = if *group == CORE { json!({}) } else { json!({"name": group}) };
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|(version, types)| self.aggregated_version(group, version, types))
                    .collect();
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        })
    }

    fn aggregated_version(self, group: &str, version: &str, types: &[&TypeInfo]) -> Value {
        let resources: Vec<Value> = types
            .iter()
            .map(|info| {
                let mut resource = json!({
                    "resource": info.name.resource(),
                    "responseKind": {"group": group, "version": version, "kind": info.kind},
                    "scope": if info.namespaced { "Namespaced" } else { "Cluster" },
                    "singularResource": info.singular,
                    "verbs": self.verbs(info),
                });
                add_names(&mut resource, info);
                resource
            })
            .collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    }
}

fn api_group(group: &str, versions: &Versions<'_>) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": group_version(group, version), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// Short names and categories, left out where there are none, as kube-apiserver does.
fn add_names(resource: &mut Value, info: &TypeInfo) {
    for (field, names) in [("shortNames", &info.short_names), ("categories", &info.categories)] {
        if !names.is_empty() {
            resource[field] = names.as_slice().into();
        }
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group == CORE { version.to_owned() } else { format!("{group}/{version}") }
}

/// `api/v1` or `apis/<group>/<version>`: how OpenAPI v3 names a group version.
pub(super) fn gv_path(group: &str, version: &str) -> String {
    if group == CORE { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Changes exactly when objects are stored as another group, version or kind
/// (`k8s.io/apiserver/pkg/endpoints/discovery.StorageVersionHash`).
fn storage_version_hash(info: &TypeInfo) -> String {
    let stored = format!("{}/{}/{}", info.name.group(), info.storage_version, info.kind);
    base64::engine::general_purpose::STANDARD.encode(&Sha256::digest(stored)[..8])
}

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests;
