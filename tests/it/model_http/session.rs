//! One server, the oracle beside it, and the clients that watch: does what a script says, and compares
//! every answer and every line.

use std::path::Path;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use shardcache_storage::{Revision, Store, TypeName};

use super::oracle::{KINDS, Oracle, STEP, Served, View, collection, under};
use super::script::{Act, Content, From, PLACES, Told};
use super::watching::Watching;
use crate::checker::{ItemKey, Version, version_of};
use crate::stand::{Setting, Stand};
use crate::wire::{Answer, Wire};

/// Open watches at most; the oldest leaves for a new one.
const WATCHES: usize = 6;

pub(super) struct Session<'a> {
    dir: &'a Path,
    setting: Setting,
    /// `None` only while it is being restarted.
    stand: Option<Stand>,
    pub(super) wires: [Wire; 2],
    pub(super) oracle: Oracle,
    watches: Vec<Watching>,
    turn: usize,
}

impl<'a> Session<'a> {
    pub(super) async fn start(dir: &'a Path, setting: Setting) -> Self {
        let stand = Stand::open(dir, &setting).await;
        let wires = stand.wires();
        let oracle = Oracle::default();
        let mut session = Self { dir, setting, stand: Some(stand), wires, oracle, watches: vec![], turn: 0 };
        session.opened().await;
        session
    }

    pub(super) async fn run(mut self, script: &[Act]) {
        for act in script {
            self.act(act).await;
            for watching in &mut self.watches {
                watching.catch_up(&self.oracle).await;
            }
        }
        for watching in &mut self.watches {
            watching.verify(&self.oracle, &self.wires).await;
        }
        drop(std::mem::take(&mut self.watches));
        self.stand.take().expect("it runs").close().await;
    }

    async fn act(&mut self, act: &Act) {
        match act {
            Act::Create { kind, place, content } => self.create(*kind, *place, content).await,
            Act::Replace { kind, place, content, version } => {
                self.replace(*kind, *place, content, *version).await;
            }
            Act::Patch { kind, place, content, version } => {
                self.patch(*kind, *place, content, *version).await;
            }
            Act::Delete { kind, place, uid, version } => self.delete(*kind, *place, *uid, *version).await,
            Act::DeleteCollection { view } => self.delete_collection(view).await,
            Act::Get { kind, place } => self.get(*kind, *place).await,
            Act::List { view, mode, limit } => self.list(view, *mode, *limit).await,
            Act::Watch { view, from } => {
                if let Some(watching) = Watching::open(view, *from, &self.oracle, &self.wires).await {
                    self.watches.push(watching);
                    let surplus = self.watches.len().saturating_sub(WATCHES);
                    self.watches.drain(..surplus);
                }
            }
            Act::Resume { watch } => {
                if let Some(index) = watch.checked_rem(self.watches.len()) {
                    let watching = self.watches.remove(index);
                    self.watches.extend(watching.resume(&self.oracle, &self.wires).await);
                }
            }
            Act::Leave { watch } => {
                if let Some(index) = watch.checked_rem(self.watches.len()) {
                    self.watches.remove(index);
                }
            }
            Act::Compact { kind, to } => self.compact(*kind, *to).await,
            Act::Restart => self.restart().await,
        }
    }

    /// What the server shows right after it opened.
    async fn opened(&mut self) {
        let list = self.wires[0].list(&View::default().path()).await.expect("the state is served");
        self.oracle.opened(list.version);
    }

    async fn restart(&mut self) {
        // Sometimes in the middle of somebody's way through history.
        let arrived = self.turn.is_multiple_of(2);
        if arrived {
            for watching in &mut self.watches {
                watching.arrives(self.oracle.head).await;
            }
        }
        let watches = std::mem::take(&mut self.watches);
        let closing = tokio::spawn(self.stand.take().expect("it runs").close());
        let mut ended = vec![];
        for mut watching in watches {
            watching.ends(arrived).await;
            ended.push(watching);
        }
        closing.await.expect("it closes");
        let stand = Stand::open(self.dir, &self.setting).await;
        self.wires = stand.wires();
        self.stand = Some(stand);
        self.opened().await;
        // Nobody lists: everybody goes on where they stood.
        for watching in ended {
            self.watches.extend(watching.resume(&self.oracle, &self.wires).await);
        }
        self.nobody_was_shown().await;
    }

    /// I6: a version from between two openings is no place to go on from, in no way to ask.
    async fn nobody_was_shown(&self) {
        let view = View::default();
        for version in self.oracle.between_openings() {
            self.refused(&view, version).await;
            assert!(
                Watching::open(&view, From::Unissued(version), &self.oracle, &self.wires).await.is_none()
            );
        }
    }

    async fn compact(&mut self, kind: usize, to: usize) {
        // Who is still on the way through history may be too late; who has arrived must not notice.
        for watching in &mut self.watches {
            watching.arrives(self.oracle.head).await;
        }
        let to = self.oracle.shown(to);
        let expected = self.oracle.compacted(kind, to);
        let (group, _) = KINDS[kind].group_version.split_once('/').expect("group and version");
        let type_name = TypeName::new(group, KINDS[kind].resource);
        let store = &self.stand.as_ref().expect("it runs").store;
        let floor = store.compact(type_name.clone(), Revision(to / STEP)).await.expect("it is writable");
        assert_eq!(floor.0, expected / STEP);
        // The cache learns of it as it learns of everything: published, not told.
        let api = &self.stand.as_ref().expect("it runs").api;
        let known = async {
            while api.cache.snapshot().state.floor(&type_name) != store.subscribe().state.floor(&type_name) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(super::STEP_PATIENCE, known).await.expect("the floor reaches the cache");
    }

    /// Writes take turns: through the socket, around it.
    pub(super) async fn send(&mut self, method: Method, path: &str, kind: &str, body: String) -> Answer {
        self.turn += 1;
        let wire = &self.wires[self.turn % 2];
        let answer = wire.request(method, path, kind, body);
        let answer = tokio::time::timeout(super::STEP_PATIENCE, answer).await.expect("answered in time");
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn create(&mut self, kind: usize, place: usize, content: &Content) {
        let (key, path) = at(kind, place);
        let sent = fresh(kind, &key, content);
        let answer = self.send(Method::POST, &path, JSON, sent.to_string()).await;
        if self.oracle.get(kind, &key).is_some() {
            assert_eq!(answer.reason(), (409, "AlreadyExists".to_owned()));
            return;
        }
        assert_eq!(answer.status, 201, "{answer:?}");
        let mut got = answer.json();
        let version = self.oracle.write(kind, key.clone(), Some(got.clone()));
        assert_eq!(version_of(&got), Ok(version));
        let metadata = got["metadata"].as_object_mut().expect("an object");
        for assigned in ["uid", "creationTimestamp", "generation", "resourceVersion"] {
            let value = metadata.remove(assigned);
            assert!(value.is_some(), "{assigned} is not assigned");
        }
        let annotations = metadata.remove("annotations");
        assert_eq!(annotations, Some(json!({ "kcp.io/shard": key.0[0], "kcp.io/cluster": key.0[1] })));
        let mut expected = sent;
        if KINDS[kind].namespaced {
            expected["metadata"]["namespace"] = json!(key.0[2]);
        }
        assert_eq!(got, expected);
    }

    async fn replace(&mut self, kind: usize, place: usize, content: &Content, version: Told) {
        let (key, path) = at(kind, place);
        let held = self.oracle.get(kind, &key).cloned();
        let mut sent = held.clone().unwrap_or_else(|| fresh(kind, &key, content));
        match content.tier {
            Some(tier) => sent["metadata"]["labels"] = json!({ "tier": tier }),
            None => drop(sent["metadata"].as_object_mut().expect("an object").remove("labels")),
        }
        sent["spec"] = json!({ "value": content.value });
        let told = self.told(version, held.as_ref());
        match told {
            Some(version) => sent["metadata"]["resourceVersion"] = json!(version.to_string()),
            None => drop(sent["metadata"].as_object_mut().expect("an object").remove("resourceVersion")),
        }
        let answer = self.send(Method::PUT, &format!("{path}/{}", key.0[3]), JSON, sent.to_string()).await;
        match (&held, version) {
            // Without an object and without a version both are wrong; either may be said.
            (None, Told::Nothing) => assert!(matches!(answer.status.as_u16(), 404 | 422), "{answer:?}"),
            (None, _) => assert_eq!(answer.reason(), (404, "NotFound".to_owned())),
            (Some(_), Told::Nothing) => assert_eq!(answer.reason(), (422, "Invalid".to_owned())),
            (Some(held), version) => self.updated(kind, key, held, &sent, version, &answer),
        }
    }

    async fn patch(&mut self, kind: usize, place: usize, content: &Content, version: Told) {
        let (key, path) = at(kind, place);
        let held = self.oracle.get(kind, &key).cloned();
        let mut changes = json!({ "spec": { "value": content.value } });
        let mut expected = held.clone().unwrap_or_default();
        expected["spec"]["value"] = json!(content.value);
        let has_labels = held.as_ref().is_some_and(|held| held["metadata"].get("labels").is_some());
        if content.tier.is_some() || has_labels {
            changes["metadata"]["labels"]["tier"] = json!(content.tier);
            if let Some(tier) = content.tier {
                expected["metadata"]["labels"]["tier"] = json!(tier);
            } else {
                let labels = expected["metadata"]["labels"].as_object_mut();
                labels.expect("it has labels").remove("tier");
            }
        }
        if let Some(version) = self.told(version, held.as_ref()) {
            changes["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        let path = format!("{path}/{}", key.0[3]);
        let answer =
            self.send(Method::PATCH, &path, "application/merge-patch+json", changes.to_string()).await;
        match &held {
            None => assert_eq!(answer.reason(), (404, "NotFound".to_owned())),
            Some(held) => self.updated(kind, key, held, &expected, version, &answer),
        }
    }

    /// What an update of an object that is there has to answer.
    fn updated(
        &mut self,
        kind: usize,
        key: ItemKey,
        held: &Value,
        new: &Value,
        version: Told,
        answer: &Answer,
    ) {
        if version == Told::Wrong {
            assert_eq!(answer.reason(), (409, "Conflict".to_owned()));
            return;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        let before = version_of(held).expect("it is stored");
        let new = under(new, before);
        // D29: what changes nothing writes nothing.
        if new == *held {
            assert_eq!(answer.json(), *held);
            return;
        }
        let version = self.oracle.write(kind, key, Some(new.clone()));
        assert_eq!(answer.json(), under(&new, version));
    }

    async fn delete(&mut self, kind: usize, place: usize, uid: Told, version: Told) {
        let (key, path) = at(kind, place);
        let held = self.oracle.get(kind, &key).cloned();
        let mut preconditions = json!({});
        if let Some(version) = self.told(version, held.as_ref()) {
            preconditions["resourceVersion"] = json!(version.to_string());
        }
        let right = held.as_ref().and_then(|held| held["metadata"]["uid"].as_str());
        match uid {
            Told::Nothing => {}
            Told::Right => preconditions["uid"] = json!(right.unwrap_or("any")),
            Told::Wrong => preconditions["uid"] = json!("00000000-0000-0000-0000-000000000000"),
        }
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions });
        let path = format!("{path}/{}", key.0[3]);
        let answer = self.send(Method::DELETE, &path, JSON, options.to_string()).await;
        if held.is_none() {
            assert_eq!(answer.reason(), (404, "NotFound".to_owned()));
        } else if uid == Told::Wrong || version == Told::Wrong {
            assert_eq!(answer.reason(), (409, "Conflict".to_owned()));
        } else {
            assert_eq!(answer.status, 200, "{answer:?}");
            let version = self.oracle.write(kind, key, None);
            assert_eq!(version_of(&answer.json()), Ok(version));
        }
    }

    async fn delete_collection(&mut self, view: &View) {
        let mut view = view.clone();
        if KINDS[view.kind].namespaced {
            view.namespace.get_or_insert("default");
        }
        let answer = self.send(Method::DELETE, &view.path(), JSON, String::new()).await;
        if view.shard.is_none() || view.cluster.is_none() {
            assert_eq!(answer.reason(), (405, "MethodNotAllowed".to_owned()));
            return;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        let gone = self.oracle.list(&view, self.oracle.head);
        let answered = answer.json();
        let items = answered["items"].as_array().expect("a list of what was deleted");
        assert_eq!(items.iter().collect::<Vec<_>>(), gone.items.values().collect::<Vec<_>>());
        for key in gone.items.into_keys() {
            self.oracle.write(view.kind, key, None);
        }
    }

    /// A version to name in a write.
    fn told(&self, told: Told, held: Option<&Value>) -> Option<Version> {
        let held = held.and_then(|held| version_of(held).ok()).unwrap_or(self.oracle.head);
        match told {
            Told::Nothing => None,
            Told::Right => Some(held),
            Told::Wrong => Some(held - STEP),
        }
    }
}

const JSON: &str = "application/json";

/// Key and collection of a place.
pub(super) fn at(kind: usize, place: usize) -> (ItemKey, String) {
    let [shard, cluster, namespace, name] = PLACES[place];
    let namespace = if KINDS[kind].namespaced { namespace } else { "" };
    (ItemKey::new(shard, cluster, namespace, name), collection(kind, shard, cluster, namespace))
}

fn fresh(kind: usize, key: &ItemKey, content: &Content) -> Value {
    let Served { group_version, kind, .. } = KINDS[kind];
    let mut object = json!({
        "apiVersion": group_version,
        "kind": kind,
        "metadata": { "name": key.0[3] },
        "spec": { "value": content.value },
    });
    if let Some(tier) = content.tier {
        object["metadata"]["labels"] = json!({ "tier": tier });
    }
    object
}
