//! The reference machine M in the terms of the API: objects as served, views, and what a LIST or a
//! WATCH of a view has to answer. Pure, and none of the server's code.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::checker::{ItemKey, List, Step, Version};

/// Versions of neighbouring events of one incarnation.
pub(crate) const STEP: Version = 1024;

/// A served type.
pub(crate) struct Served {
    pub(crate) group_version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

pub(crate) const KINDS: [Served; 2] = [
    Served {
        group_version: "rbac.authorization.k8s.io/v1",
        resource: "clusterroles",
        kind: "ClusterRole",
        namespaced: false,
    },
    Served {
        group_version: "rbac.authorization.k8s.io/v1",
        resource: "roles",
        kind: "Role",
        namespaced: true,
    },
];

/// What a LIST or WATCH asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) kind: usize,
    pub(crate) shard: Option<&'static str>,
    pub(crate) cluster: Option<&'static str>,
    pub(crate) namespace: Option<&'static str>,
    pub(crate) labels: Labels,
    /// `fieldSelector=metadata.name=…`
    pub(crate) name: Option<&'static str>,
}

/// The label selectors that are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Labels {
    #[default]
    All,
    Is(&'static str),
    In,
    Not(&'static str),
    Has,
    HasNot,
}

/// One event.
#[derive(Clone, Debug)]
struct Change {
    version: Version,
    kind: usize,
    key: ItemKey,
    previous: Option<Value>,
    current: Option<Value>,
}

/// Everything that happened to a store since it was made.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    log: Vec<Change>,
    pub(crate) head: Version,
    /// Per type, the newest compacted version.
    pub(crate) floors: [Version; KINDS.len()],
    /// Every version that an opening began with.
    openings: Vec<Version>,
    /// Below it the server may have forgotten which openings there were, and has to say so: all that it
    /// could replay from there is compacted, in every type that anything ever happened to.
    pub(crate) forgettable: Version,
}

impl View {
    /// Path and selectors, ready for more parameters.
    pub(crate) fn path(&self) -> String {
        let mut path = collection(
            self.kind,
            self.shard.unwrap_or("*"),
            self.cluster.unwrap_or("*"),
            self.namespace.unwrap_or(""),
        );
        let mut separator = '?';
        let fields = self.name.map(|name| format!("fieldSelector=metadata.name%3D{name}"));
        for parameter in [self.labels.parameter(), fields].into_iter().flatten() {
            path.push(separator);
            path.push_str(&parameter);
            separator = '&';
        }
        path
    }

    fn contains(&self, key: &ItemKey, object: &Value) -> bool {
        let part = |wanted: Option<&str>, index: usize| wanted.is_none_or(|wanted| wanted == key.0[index]);
        part(self.shard, 0)
            && part(self.cluster, 1)
            && part(self.namespace, 2)
            && part(self.name, 3)
            && self.labels.select(object["metadata"]["labels"]["tier"].as_str())
    }

    /// Whether the server may count what is left without looking.
    pub(crate) fn has_selectors(&self) -> bool {
        self.labels != Labels::All || self.name.is_some()
    }
}

impl Labels {
    fn parameter(self) -> Option<String> {
        let text = match self {
            Self::All => return None,
            Self::Is(value) => format!("tier%3D{value}"),
            Self::In => "tier%20in%20(a,b)".to_owned(),
            Self::Not(value) => format!("tier!%3D{value}"),
            Self::Has => "tier".to_owned(),
            Self::HasNot => "!tier".to_owned(),
        };
        Some(format!("labelSelector={text}"))
    }

    fn select(self, tier: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Is(value) => tier == Some(value),
            Self::In => tier == Some("a") || tier == Some("b"),
            Self::Not(value) => tier != Some(value),
            Self::Has => tier.is_some(),
            Self::HasNot => tier.is_none(),
        }
    }
}

/// Path of a collection; `namespace` `""` for all of them.
pub(crate) fn collection(kind: usize, shard: &str, cluster: &str, namespace: &str) -> String {
    let Served { group_version, resource, .. } = KINDS[kind];
    let namespace = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
    format!("/services/cache/shards/{shard}/clusters/{cluster}/apis/{group_version}/{namespace}{resource}")
}

impl Oracle {
    /// A server opened the store and shows this version.
    pub(crate) fn opened(&mut self, head: Version) {
        assert!(head > self.head, "an opening at {head} repeats versions up to {}", self.head);
        self.head = head;
        self.openings.push(head);
    }

    /// Something was written; `current` without its version, which is returned.
    pub(crate) fn write(&mut self, kind: usize, key: ItemKey, current: Option<Value>) -> Version {
        self.head += STEP;
        let version = self.head;
        let previous = self.get(kind, &key).cloned();
        let current = current.map(|object| under(&object, version));
        assert!(previous.is_some() || current.is_some());
        self.log.push(Change { version, kind, key, previous, current });
        version
    }

    /// One object now.
    pub(crate) fn get(&self, kind: usize, key: &ItemKey) -> Option<&Value> {
        let last = self.log.iter().rfind(|change| change.kind == kind && change.key == *key)?;
        last.current.as_ref()
    }

    /// What a LIST of the view answers at a version.
    pub(crate) fn list(&self, view: &View, version: Version) -> List {
        let mut items = BTreeMap::new();
        let log = self.log.iter().take_while(|change| change.version <= version);
        for change in log.filter(|change| change.kind == view.kind) {
            match &change.current {
                Some(object) if view.contains(&change.key, object) => {
                    items.insert(change.key.clone(), object.clone());
                }
                _ => {
                    items.remove(&change.key);
                }
            }
        }
        List { version, items }
    }

    /// What a WATCH of the view is sent after a version, and at which: the table D24.
    pub(crate) fn steps(&self, view: &View, after: Version) -> Vec<(Version, Step)> {
        let log = self.log.iter().filter(|change| change.version > after && change.kind == view.kind);
        log.filter_map(|change| {
            let seen = |object: &&Value| view.contains(&change.key, object);
            let step = match (change.previous.as_ref().filter(seen), change.current.as_ref().filter(seen)) {
                (None, Some(new)) => Step::Added(new.clone()),
                (Some(_), Some(new)) => Step::Modified(new.clone()),
                (Some(old), None) => Step::Deleted(under(old, change.version)),
                (None, None) => return None,
            };
            Some((change.version, step))
        })
        .collect()
    }

    /// A version that was shown at some time: by index, of an event or of an opening.
    pub(crate) fn shown(&self, index: usize) -> Version {
        let count = self.log.len() + self.openings.len();
        let index = index % count;
        self.log.get(index).map_or_else(|| self.openings[index - self.log.len()], |change| change.version)
    }

    /// Versions that nobody was ever shown: between the last of one opening and the first of the next, at
    /// both ends and in the middle, under the tags of both.
    pub(crate) fn between_openings(&self) -> Vec<Version> {
        let mut between = vec![];
        for pair in self.openings.windows(2) {
            let (earlier, later) = (pair[0], pair[1]);
            let last = self.log.iter().rfind(|change| change.version < later).map(|change| change.version);
            let last = last.unwrap_or(earlier).max(earlier);
            let (first, end) = (last / STEP + 1, later / STEP - 1);
            for revision in [first, first.midpoint(end), end] {
                between.extend([earlier, later].map(|opening| revision * STEP + opening % STEP));
            }
        }
        between
    }

    /// The server compacted a type up to a version that was shown; returns the type's floor.
    pub(crate) fn compacted(&mut self, kind: usize, to: Version) -> Version {
        if let Some(floor) = self.newest(kind, to) {
            self.floors[kind] = self.floors[kind].max(floor);
        }
        let lowest = self.log.iter().map(|change| self.floors[change.kind]).min();
        self.forgettable = self.forgettable.max(lowest.unwrap_or_default());
        self.floors[kind]
    }

    /// The newest event of a type at or below a version.
    fn newest(&self, kind: usize, version: Version) -> Option<Version> {
        let of_kind = |change: &&Change| change.kind == kind && change.version <= version;
        self.log.iter().rfind(of_kind).map(|change| change.version)
    }
}

/// The object under another version.
pub(crate) fn under(object: &Value, version: Version) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object
}
