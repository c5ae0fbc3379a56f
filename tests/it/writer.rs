//! Writers that remember, outside the server, what they were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Method;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::checker::{ItemKey, Replay, Version, Written, version_of};
use crate::wire::{Answer, Wire};

/// What every object here is.
const GROUP_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Path of the collection that is written.
pub(crate) fn collection(shard: &str, cluster: &str) -> String {
    format!("/services/cache/shards/{shard}/clusters/{cluster}/apis/{GROUP_VERSION}/clusterroles")
}

/// Every acknowledged write, and what each object must be now.
#[derive(Default)]
pub(crate) struct Journal {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    written: Written,
    objects: BTreeMap<ItemKey, Value>,
}

/// Owns a few objects that nobody else writes, so their order of writes is its own.
pub(crate) struct Writer {
    number: u64,
    journal: Arc<Journal>,
    random: rand::rngs::StdRng,
    count: u64,
    /// A write that was sent and not answered.
    pending: Option<Pending>,
}

struct Pending {
    key: ItemKey,
    /// `spec.value` that it would have; `None` for a deletion.
    value: Option<u64>,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().written.len()
    }

    fn note(&self, version: Version, key: ItemKey, object: Option<Value>) {
        let mut state = self.lock();
        match &object {
            Some(object) => state.objects.insert(key.clone(), object.clone()),
            None => state.objects.remove(&key),
        };
        let again = state.written.insert(version, (key, object));
        assert!(again.is_none(), "version {version} was given to two writes");
    }

    /// A deletion that was carried out, at a version nobody was told.
    fn note_gone(&self, key: &ItemKey) {
        self.lock().objects.remove(key);
    }

    fn held(&self, key: &ItemKey) -> Option<Value> {
        self.lock().objects.get(key).cloned()
    }

    /// I1: the server has exactly what was acknowledged. Fences are not journaled.
    pub(crate) async fn verify(&self, wire: &Wire) {
        let list = wire.list(&collection("*", "*")).await.expect("the state is served");
        let listed: BTreeMap<_, _> =
            list.items.into_iter().filter(|(key, _)| !key.0[3].starts_with("fence")).collect();
        let state = self.lock();
        for (key, object) in &state.objects {
            assert_eq!(listed.get(key), Some(object), "an acknowledged write is lost");
        }
        if let Some(key) = listed.keys().find(|key| !state.objects.contains_key(key)) {
            panic!("{key:?} is there, though its deletion was acknowledged, or nobody wrote it");
        }
    }

    /// Everything that was acknowledged.
    pub(crate) fn written(&self) -> Written {
        self.lock().written.clone()
    }

    /// Whatever a client replayed holds every acknowledged write of its scope.
    pub(crate) fn delivered_to(&self, replay: &Replay, in_scope: impl Fn(&ItemKey) -> bool) {
        let mut written = self.lock().written.clone();
        written.retain(|_, (key, _)| in_scope(key));
        replay.contains(&written).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

impl Writer {
    pub(crate) fn new(number: u64, journal: Arc<Journal>) -> Self {
        Self { number, journal, random: SeedableRng::seed_from_u64(number), count: 0, pending: None }
    }

    /// Writes until the server is gone.
    pub(crate) async fn run(mut self, wire: Wire) -> Self {
        while self.write(&wire).await.is_some() {}
        self
    }

    /// Writes so many times; the server stays.
    pub(crate) async fn run_for(mut self, wire: Wire, writes: usize) -> Self {
        for _ in 0..writes {
            self.write(&wire).await.expect("the server stays");
        }
        self
    }

    /// One write; `None` when it was not answered.
    async fn write(&mut self, wire: &Wire) -> Option<()> {
        self.count += 1;
        let shard = ["amber", "beryl"][self.random.random_range(0..2)];
        let cluster = ["root", "zeta"][self.random.random_range(0..2)];
        let name = format!("w{}-{}", self.number, self.random.random_range(0..3));
        let key = ItemKey::new(shard, cluster, "", &name);
        let path = collection(shard, cluster);
        let held = self.journal.held(&key);
        let delete = held.is_some() && self.random.random_bool(0.25);
        self.pending = Some(Pending { key: key.clone(), value: (!delete).then_some(self.count) });
        let body = match (&held, delete) {
            (_, true) => Bytes::new(),
            (held, false) => self.object(&name, held.as_ref()).to_string().into(),
        };
        let (method, path, success) = match (held.is_some(), delete) {
            (false, _) => (Method::POST, path, 201),
            (true, false) => (Method::PUT, format!("{path}/{name}"), 200),
            (true, true) => (Method::DELETE, format!("{path}/{name}"), 200),
        };
        let answer = wire.request(method, &path, "application/json", body).await.ok()?;
        assert_eq!(answer.status, success, "{path}: {answer:?}");
        self.acknowledged(key, delete, &answer);
        Some(())
    }

    fn acknowledged(&mut self, key: ItemKey, delete: bool, answer: &Answer) {
        let answer = answer.json();
        let version = version_of(&answer).expect("every answer to a write says its version");
        self.journal.note(version, key, (!delete).then_some(answer));
        self.pending = None;
    }

    fn object(&mut self, name: &str, held: Option<&Value>) -> Value {
        let fill = "x".repeat(self.random.random_range(0..3000));
        let mut metadata = json!({ "name": name, "labels": { "tier": format!("t{}", self.count % 2) } });
        if let Some(held) = held {
            metadata["resourceVersion"] = held["metadata"]["resourceVersion"].clone();
        }
        json!({
            "apiVersion": GROUP_VERSION,
            "kind": "ClusterRole",
            "metadata": metadata,
            "spec": { "value": self.count, "fill": fill },
        })
    }

    /// Finds out what became of the write that was not answered: all of it, or nothing.
    pub(crate) async fn resolve(&mut self, wire: &Wire) {
        let Some(Pending { key, value }) = self.pending.take() else { return };
        let [shard, cluster, _, name] = &key.0;
        let answer = wire.get(&format!("{}/{name}", collection(shard, cluster))).await;
        let found = (answer.status == 200).then(|| answer.json());
        let held = self.journal.held(&key);
        if found == held {
            return;
        }
        match (found, value) {
            (None, None) => self.journal.note_gone(&key),
            (Some(found), Some(value)) if found["spec"]["value"] == json!(value) => {
                let version = version_of(&found).expect("a stored object has a version");
                self.journal.note(version, key, Some(found));
            }
            (found, _) => panic!("{key:?} is {found:?}, neither {held:?} nor the write {value:?}"),
        }
    }
}
