//! D42: the roster of a server that is told of a ConfigMap, with an API server of the test on loopback.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use futures::stream;
use http::Request;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::crash_loop::binary::Binary;
use crate::harness::{binary, collection, eventually};
use crate::loopback::{Answer, Listening, events, listen, whole};
use crate::wire::Wire;

const STAND_IN: &str = "roster:shards";
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps";

/// The events of one ConfigMap, from version 1 on.
#[derive(Default)]
struct State {
    log: Vec<Value>,
    refuses: bool,
}

impl State {
    fn version(&self) -> u64 {
        1 + self.log.len() as u64
    }
}

/// An API server that has one ConfigMap, or none.
struct Api {
    state: Arc<watch::Sender<State>>,
    listening: Listening,
}

impl Api {
    async fn start() -> Self {
        let state = Arc::new(watch::Sender::new(State::default()));
        let served = Arc::clone(&state);
        let listening = listen(move |request| {
            let answer = answer(&served, &request);
            async move { answer }
        });
        Self { state, listening: listening.await }
    }

    /// Gives the ConfigMap this text; none takes it away.
    fn set(&self, text: Option<&str>) {
        self.state.send_modify(|state| {
            let version = (state.version() + 1).to_string();
            let kind = if text.is_none() { "DELETED" } else { "MODIFIED" };
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"shards": text.unwrap_or_default()},
                "metadata": {"name": "shards", "namespace": "kube-system", "resourceVersion": version}});
            state.log.push(json!({"type": kind, "object": object}));
        });
    }

    fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| state.refuses = refuses);
    }
}

fn answer(state: &Arc<watch::Sender<State>>, request: &Request<Incoming>) -> Answer {
    let known = state.borrow();
    let query = request.uri().query().unwrap_or_default();
    let is_of_it = query.contains("fieldSelector=metadata.name%3Dshards");
    if known.refuses || request.uri().path() != PATH || !is_of_it {
        let message = "configmaps is forbidden: so the test says";
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "reason": "Forbidden", "code": 403, "message": message});
        return whole(403, &status);
    }
    if !query.contains("watch=true") {
        let last = known.log.last().filter(|event| event["type"] != "DELETED");
        let items: Vec<_> = last.map(|event| event["object"].clone()).into_iter().collect();
        let version = known.version().to_string();
        return whole(
            200,
            &json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": items,
            "metadata": {"resourceVersion": version}}),
        );
    }
    let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
    let seen: usize = from.expect("a version").parse().expect("a number");
    events(stream::unfold((state.subscribe(), seen - 1), |(mut state, seen)| async move {
        loop {
            let next = state.borrow_and_update().log.get(seen).cloned();
            if let Some(event) = next {
                return Some((event, (state, seen + 1)));
            }
            state.changed().await.ok()?;
        }
    }))
}

/// A server that has to do with the ConfigMap; what it logs goes to a file.
fn serve(directory: &Path, data: &str, api: &Api) -> Binary {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": api.listening.url}}],
        "users": [{"name": "here", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    });
    let path = directory.join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("written");
    let mut command = binary();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--data-dir"]);
    command.arg(directory.join(data)).args(["--roster-configmap", "kube-system/shards"]);
    command.env("KUBECONFIG", path).stderr(File::create(directory.join("log")).expect("made"));
    Binary::of(command)
}

/// Names and roles of all members.
async fn roster(wire: &Wire) -> Vec<(String, String)> {
    let document = wire.get("/services/cache/freshness").await.json();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let shards = document["shards"].as_array().expect("an array");
    shards.iter().map(|shard| (text(&shard["name"]), text(&shard["role"]))).collect()
}

async fn becomes(wire: &Wire, expected: &[(&str, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(name, role)| ((*name).to_owned(), (*role).to_owned())).collect();
    let what = format!("the roster is {expected:?}");
    eventually(&what, || async { roster(wire).await == expected }).await;
}

async fn logged(directory: &Path, what: &str) {
    let read = || std::fs::read_to_string(directory.join("log")).expect("readable");
    eventually(what, || async { read().contains(what) }).await;
}

/// The causes that a list of all shards is refused with.
async fn refused(wire: &Wire) -> Vec<(String, String)> {
    let answer = wire.get(&collection("*", "*", "apis/rbac.authorization.k8s.io/v1/clusterroles")).await;
    assert_eq!(answer.reason(), (500, "ServerTimeout".to_owned()), "{answer:?}");
    let causes = answer.json()["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    causes.iter().map(|cause| (text(&cause["reason"]), text(&cause["field"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_a_config_map_names_whom_to_wait_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let (directory, api) = (directory.path(), Api::start().await);
    let unknown = [("Incomplete".to_owned(), format!("shards/{STAND_IN}"))];
    let mut server = serve(directory, "data", &api);
    let wire = Wire::tcp(&server.ready().await);
    // Nobody knows whom to wait for, as long as it is not there or not what it should be.
    logged(directory, "it is not there").await;
    assert_eq!(refused(&wire).await, unknown);
    api.set(Some("amber\nBeryl\n"));
    logged(directory, "line 2").await;
    api.set(Some("# nobody yet\n"));
    logged(directory, "names no shard").await;
    assert_eq!(refused(&wire).await, unknown);
    assert_eq!(roster(&wire).await, [(STAND_IN.to_owned(), "expected".to_owned())]);
    api.set(Some("amber\nberyl # in the north\n"));
    becomes(&wire, &[("amber", "expected"), ("beryl", "expected")]).await;
    assert_eq!(refused(&wire).await.len(), 2);
    // What is named later joins; what is named no more stays, and so does everything if it is taken away.
    api.set(Some("amber\ncoral\n"));
    let all = [("amber", "expected"), ("beryl", "expected"), ("coral", "joining")];
    becomes(&wire, &all).await;
    api.set(None);
    eventually("its going is logged", || async {
        let log = std::fs::read_to_string(directory.join("log")).expect("readable");
        log.matches("it is not there").count() == 2
    })
    .await;
    becomes(&wire, &all).await;

    // The next start knows them, whether the ConfigMap can be read or not; a lost store waits for it.
    api.refuse(true);
    api.set(Some("amber\nberyl\n"));
    server.kill();
    let mut server = serve(directory, "data", &api);
    let wire = Wire::tcp(&server.ready().await);
    logged(directory, "so the test says").await;
    becomes(&wire, &all).await;
    server.kill();
    let mut server = serve(directory, "lost", &api);
    let wire = Wire::tcp(&server.ready().await);
    logged(directory, "so the test says").await;
    assert_eq!(refused(&wire).await, unknown);
    // It is asked again by itself.
    api.refuse(false);
    becomes(&wire, &[("amber", "expected"), ("beryl", "expected")]).await;
}

#[test]
fn d42_a_config_map_is_named_by_its_namespace() {
    for name in
        ["shards", "a/b/c", "/shards", "kube-system/", "Kube/shards", "kube-system/-x", "kube-system/*"]
    {
        let output =
            binary().args(["serve", "--roster-configmap", name]).output().expect("it can be started");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{name}: {line}");
        assert_eq!(line, format!("shardcache: --roster-configmap {name:?}: is not NAMESPACE/NAME\n"));
    }
}
