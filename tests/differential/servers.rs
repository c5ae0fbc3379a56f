//! The two servers: the real binaries, each on a free port and a temporary directory.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::compare::{Difference, differences};
use crate::normal::normalised;
use crate::run::{self, PATIENCE};
use crate::script::Script;

/// Where our copy of everything is that the reference has at its root.
pub(crate) const PLACE: &str = "/services/cache/shards/amber/clusters/root";
/// Collections that scripts use; empty when one begins.
const USED: [&str; 3] = ["widgets", CLUSTER_SCOPED, "gizmos"];
const CLUSTER_SCOPED: &str = "gadgets";

/// A running server.
pub(crate) struct Server {
    process: Child,
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Whether this is the apiserver.
    pub(crate) is_reference: bool,
    _directory: tempfile::TempDir,
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
        let mut reference = Command::new(reference);
        reference.args(["-listen", "127.0.0.1:0", "-feature-gates", "ShardedListAndWatch=true", "-data-dir"]);
        let mut ours = Command::new(env!("CARGO_BIN_EXE_shardcache"));
        ours.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        let pair = Self { theirs: Server::start(reference, true), ours: Server::start(ours, false) };
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
        for mut server in [self.theirs, self.ours] {
            let pid = server.process.id().to_string();
            let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
            assert!(told.success(), "the server had ended before it was told to");
            let until = Instant::now() + PATIENCE;
            let ended = loop {
                match server.process.try_wait().expect("it is our child") {
                    Some(ended) => break ended,
                    None => assert!(Instant::now() < until, "SIGTERM does not end it"),
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            assert!(ended.success(), "after SIGTERM: {ended}");
        }
    }
}

impl Server {
    fn start(mut command: Command, is_reference: bool) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        command.arg(directory.path().join("data")).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut output = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        let base = line.trim().strip_prefix("listening on ");
        let base = base.unwrap_or_else(|| panic!("{command:?} said {line:?}")).to_owned();
        // What it says later must go somewhere, or it stops at a full pipe.
        std::thread::spawn(move || output.read_to_end(&mut vec![]));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { process, base, client, is_reference, _directory: directory }
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
        let place = if self.is_reference { "" } else { PLACE };
        let method: Method = method.parse().map_err(|_| format!("no method: {method}"))?;
        let mut request = Request::builder().method(method).uri(format!("{}{place}{path}", self.base));
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

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
