//! A shard of a test: objects with versions of their own, and the frames that tell of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shardcache_storage::{Digest, KeyParts, entry_digest};

use crate::harness::collection;

/// Logical cluster of everything here.
const CLUSTER: &str = "root";

/// The objects of one type in one shard.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) shard: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) resource: &'static str,
    pub(super) kind: &'static str,
    /// Namespace of all objects; empty for a cluster-scoped type.
    pub(super) namespace: &'static str,
    /// What the source calls itself.
    pub(super) id: String,
    /// Its newest version.
    pub(super) head: u64,
    /// Makes uids that are never used again.
    pub(super) made: u64,
    pub(super) objects: BTreeMap<String, Thing>,
}

/// An object of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    pub(super) uid: String,
    pub(super) version: u64,
    tier: String,
}

impl Source {
    fn new(shard: &'static str, [group, version, resource, kind, namespace]: [&'static str; 5]) -> Self {
        let objects = BTreeMap::new();
        Self {
            shard,
            group,
            version,
            resource,
            kind,
            namespace,
            id: "src".into(),
            head: 100,
            made: 0,
            objects,
        }
    }

    /// A built-in cluster-scoped type.
    pub(super) fn roles(shard: &'static str) -> Self {
        Self::new(shard, ["rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", ""])
    }

    /// Another one.
    pub(super) fn exports(shard: &'static str) -> Self {
        Self::new(shard, ["apis.kcp.io", "v1alpha2", "apiexports", "APIExport", ""])
    }

    /// The type by which kcp's root shard names all shards.
    pub(super) fn shards(shard: &'static str) -> Self {
        Self::new(shard, ["core.kcp.io", "v1alpha1", "shards", "Shard", ""])
    }

    /// The type by which shards that write by requests speak for themselves.
    pub(super) fn leases(shard: &'static str) -> Self {
        Self::new(shard, ["coordination.k8s.io", "v1", "leases", "Lease", "default"])
    }

    /// A type that only the pusher knows, with namespaces.
    pub(super) fn widgets(shard: &'static str) -> Self {
        Self::new(shard, ["stable.example.io", "v1", "widgets", "Widget", "default"])
    }

    /// The same with these objects.
    pub(super) fn with(mut self, names: &[&str]) -> Self {
        for name in names {
            self.put(name, "gold");
        }
        self
    }

    /// Where its stream begins.
    pub(super) fn push_path(&self) -> String {
        let Self { shard, group, version, resource, .. } = self;
        format!("{}?group={group}&version={version}&resource={resource}", control_path(shard))
    }

    /// Where its objects are served, with a shard in place of its own.
    pub(super) fn collection_in(&self, shard: &str, cluster: &str) -> String {
        collection(shard, cluster, &format!("apis/{}/{}/{}", self.group, self.version, self.resource))
    }

    /// Where its objects are served and written.
    pub(super) fn collection(&self) -> String {
        if self.namespace.is_empty() {
            return self.collection_in(self.shard, CLUSTER);
        }
        let Self { group, version, namespace, resource, .. } = self;
        let path = format!("apis/{group}/{version}/namespaces/{namespace}/{resource}");
        collection(self.shard, CLUSTER, &path)
    }

    pub(super) fn type_name(&self) -> Value {
        json!({"group": self.group, "resource": self.resource})
    }

    /// The object as the source has it.
    pub(super) fn object(&self, name: &str) -> Value {
        let thing = &self.objects[name];
        let mut object = json!({
            "apiVersion": format!("{}/{}", self.group, self.version), "kind": self.kind,
            "metadata": {
                "name": name, "uid": thing.uid, "resourceVersion": thing.version.to_string(),
                "labels": { "tier": thing.tier },
            },
        });
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = self.namespace.into();
        }
        object
    }

    pub(super) fn hello(&self, instance: &str) -> Value {
        json!({
            "type": "hello", "holder": format!("h-{instance}"), "instance": instance,
            "source": { "id": self.id, "headRV": self.head.to_string() },
            "kind": self.kind, "scope": if self.namespace.is_empty() { "Cluster" } else { "Namespaced" },
        })
    }

    /// Creates or changes an object; its frame.
    pub(super) fn put(&mut self, name: &str, tier: &str) -> Value {
        self.head += 1;
        let version = self.head;
        let known = self.objects.get(name).map(|thing| thing.uid.clone());
        let uid = known.unwrap_or_else(|| {
            self.made += 1;
            format!("uid-{}-{}", self.id, self.made)
        });
        self.objects.insert(name.to_owned(), Thing { uid, version, tier: tier.to_owned() });
        self.upsert(name)
    }

    /// Removes an object; its frame.
    pub(super) fn delete(&mut self, name: &str) -> Value {
        self.head += 1;
        let thing = self.objects.remove(name).expect("it is there");
        let mut frame = json!({
            "type": "delete", "rv": self.head.to_string(), "cluster": CLUSTER, "name": name, "uid": thing.uid,
        });
        if !self.namespace.is_empty() {
            frame["namespace"] = self.namespace.into();
        }
        frame
    }

    pub(super) fn upsert(&self, name: &str) -> Value {
        let version = self.objects[name].version.to_string();
        json!({"type": "upsert", "rv": version, "cluster": CLUSTER, "object": self.object(name)})
    }

    /// A whole sync.
    pub(super) fn sync(&self, number: u64) -> Vec<Value> {
        let mut frames = vec![json!({"type": "syncStart", "sync": number})];
        frames.extend(self.objects.keys().map(|name| self.upsert(name)));
        frames.push(self.summed(json!({"type": "syncEnd", "sync": number, "rv": self.head.to_string()})));
        frames
    }

    pub(super) fn progress(&self) -> Value {
        self.summed(json!({"type": "progress", "rv": self.head.to_string()}))
    }

    pub(super) fn digest(&self) -> Digest {
        let entries = self.objects.iter().map(|(name, thing)| {
            let key = KeyParts { shard: self.shard, cluster: CLUSTER, namespace: self.namespace, name };
            entry_digest(key, &thing.uid, thing.version)
        });
        entries.fold(Digest::default(), Digest::with)
    }

    fn summed(&self, mut frame: Value) -> Value {
        frame["count"] = self.objects.len().into();
        frame["digest"] = self.digest().to_string().into();
        frame
    }
}

/// Where the control stream of a shard begins, and its status is.
pub(super) fn control_path(shard: &str) -> String {
    format!("/services/cache/shards/{shard}/push")
}
