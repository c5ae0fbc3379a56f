//! The two servers: the real binaries, each on a free port and a temporary directory.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use shardcache_storage::{RedbOptions, RedbStore, Store as _};

use crate::compare::{Difference, differences};
use crate::normal::normalised;
use crate::process::{End, Process};
use crate::run::{self, PATIENCE};
use crate::script::Script;

/// Where our copy of everything is that the reference has at its root.
pub(crate) const PLACE: &str = "/services/cache/shards/amber/clusters/root";
/// Collections that scripts use; empty when one begins.
const USED: [&str; 3] = ["widgets", CLUSTER_SCOPED, "gizmos"];
const CLUSTER_SCOPED: &str = "gadgets";

/// A running server.
pub(crate) struct Server {
    process: Mutex<Process>,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Whether this is the apiserver.
    pub(crate) is_reference: bool,
}

/// Both, with the same types.
pub(crate) struct Pair {
    pub(crate) theirs: Server,
    pub(crate) ours: Server,
}

impl Pair {
    /// Both servers, or `None` with a loud line when there is no reference.
    pub(crate) async fn start(what: &str) -> Option<Self> {
        let Some(reference) = std::env::var_os("SHARDCACHE_REFERENCE_BIN") else {
            eprintln!(
                "SKIPPED: {what}: SHARDCACHE_REFERENCE_BIN does not name the binary of tests/reference"
            );
            return None;
        };
        let theirs = ["-listen", "127.0.0.1:0", "-feature-gates", "ShardedListAndWatch=true", "-data-dir"];
        let ours = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
        let pair = Self {
            theirs: Server::over(Process::start(reference.into(), &theirs), true),
            ours: Server::over(Process::start(env!("CARGO_BIN_EXE_shardcache").into(), &ours), false),
        };
        pair.ours.ready().await;
        pair.copy_definitions().await;
        Some(pair)
    }

    /// Gives our server the definitions that the reference declared for itself.
    async fn copy_definitions(&self) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let list = self.theirs.json("GET", path, &Value::Null).await;
        for definition in list["items"].as_array().expect("definitions") {
            let group = definition["spec"]["group"].as_str().expect("a group");
            if group != "example.io" {
                continue;
            }
            let definition = serde_json::json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": definition["metadata"]["name"] }, "spec": definition["spec"],
            });
            self.ours.json("POST", path, &definition).await;
        }
    }

    /// Runs a script from empty collections on against both, and compares.
    pub(crate) async fn differences(&self, script: &Script) -> Vec<Difference> {
        let transcript = async |server: &Server| {
            server.clear().await;
            normalised(script, run::run(server, script).await)
        };
        let (theirs, ours) = tokio::join!(transcript(&self.theirs), transcript(&self.ours));
        differences(script, &theirs, &ours)
    }

    /// Ends both by SIGTERM; both must exit 0.
    pub(crate) fn stop(self) {
        for server in [self.theirs, self.ours] {
            server.process.into_inner().expect("nobody panicked with it").end(End::Graceful);
        }
    }
}

impl Server {
    fn over(process: Process, is_reference: bool) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { process: Mutex::new(process), client, is_reference }
    }

    /// Ends the server and starts it again on its data.
    pub(crate) async fn restart(&self, how: End) {
        self.while_stopped(how, async |_| {}).await;
    }

    /// Lets the server forget what was before now, and start again: kube-apiserver's watch cache keeps what
    /// etcd forgot, until it ends.
    pub(crate) async fn forget(&self) {
        if self.is_reference {
            let answer = self.send("POST", "/reference/compact", &[], Bytes::new()).await.expect("an answer");
            assert_eq!(answer.status(), 200, "it is not compacted");
            self.restart(End::Graceful).await;
        } else {
            self.while_stopped(End::Graceful, forget).await;
        }
    }

    async fn while_stopped(&self, how: End, between: impl AsyncFnOnce(PathBuf)) {
        let process = || self.process.lock().expect("nobody panicked with it");
        let data = tokio::task::block_in_place(|| {
            process().end(how);
            process().data()
        });
        between(data).await;
        tokio::task::block_in_place(|| process().start_again());
        if !self.is_reference {
            self.ready().await;
        }
    }

    /// Where it listens.
    pub(crate) fn base(&self) -> String {
        self.process.lock().expect("nobody panicked with it").base.clone()
    }

    /// What stands in front of every path that scripts name.
    pub(crate) fn place(&self) -> &'static str {
        if self.is_reference { "" } else { PLACE }
    }

    async fn ready(&self) {
        let ready = async {
            while self
                .send("GET", "/readyz", &[], Bytes::new())
                .await
                .is_ok_and(|answer| answer.status() != 200)
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.expect("it becomes ready");
    }

    /// One request to the place where scripts play.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Bytes,
    ) -> Result<Response<Incoming>, String> {
        let method: Method = method.parse().map_err(|_| format!("no method: {method}"))?;
        let mut request =
            Request::builder().method(method).uri(format!("{}{}{path}", self.base(), self.place()));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| format!("{path}: {error}"))?;
        self.client.request(request).await.map_err(|error| format!("{path}: {error:?}"))
    }

    /// A request that must succeed.
    async fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let headers = [("Content-Type".to_owned(), media.to_owned())];
        let answer = self.send(method, path, &headers, body).await.expect("an answer");
        let status = answer.status();
        let bytes = answer.into_body().collect().await.expect("a whole answer").to_bytes();
        assert!(status.is_success(), "{method} {path}: {status} {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Empties every collection that a script may have used, finalizers or not.
    async fn clear(&self) {
        for plural in USED {
            let all = format!("/apis/example.io/v1/{plural}");
            let list = self.json("GET", &all, &Value::Null).await;
            for item in list["items"].as_array().expect("items") {
                let metadata = &item["metadata"];
                let name = metadata["name"].as_str().expect("a name");
                let path = match metadata["namespace"].as_str() {
                    Some(place) if plural != CLUSTER_SCOPED => {
                        format!("/apis/example.io/v1/namespaces/{place}/{plural}/{name}")
                    }
                    _ => format!("{all}/{name}"),
                };
                if metadata["finalizers"].is_array() {
                    let freed = serde_json::json!({ "metadata": { "finalizers": null } });
                    self.json("PATCH", &path, &freed).await;
                }
                self.send("DELETE", &path, &[], Bytes::new()).await.expect("an answer");
            }
        }
    }
}

/// Forgets the whole history of a store that nobody has open.
async fn forget(data: PathBuf) {
    let opening = tokio::task::spawn_blocking(move || RedbStore::open(RedbOptions::new(&data)));
    let store = opening.await.expect("joined").expect("it was closed");
    let state = store.subscribe().state;
    for (name, _) in state.types() {
        store.compact(name.clone(), state.head()).await.expect("it is writable");
    }
    store.close().await.expect("nothing failed");
}
