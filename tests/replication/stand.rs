//! Everything that runs: the cache, two sources, two replicators of each.

use std::path::Path;

use serde_json::{Value, json};

use crate::churn::Source;
use crate::eventually;
use crate::process::Process;
use crate::view::{GROUP, KINDS, Status};
use crate::wire::Server;

pub(crate) const SHARDS: [&str; 2] = ["amber", "onyx"];

/// The processes. Dropping it ends them.
pub(crate) struct Stand {
    pub(crate) cache: Process,
    pub(crate) cache_server: Server,
    pub(crate) references: [Process; 2],
    pub(crate) sources: [Source; 2],
    /// By shard.
    pub(crate) replicas: [[Process; 2]; 2],
    /// Goes last.
    pub(crate) directory: tempfile::TempDir,
}

impl Stand {
    /// Starts the servers, and no replicator; whether those elect a leader, whether the cache may ask the
    /// sources itself, and what else it is told.
    pub(crate) async fn start(reference: &Path, elects: bool, probes: bool, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        let data = |name: &str| root.join(name).display().to_string();
        let ours = Path::new(env!("CARGO_BIN_EXE_shardcache"));
        let mut references = SHARDS.map(|shard| {
            // The first has no watch cache: what is compacted is gone at once, and it has no streaming lists.
            let cached = format!("-watch-cache={}", shard != SHARDS[0]);
            let arguments = ["-listen", "127.0.0.1:0", "-data-dir", &data(shard), &cached];
            Process::new(&format!("reference-{shard}"), reference, arguments.map(str::to_owned).into(), root)
        });
        let [amber, onyx] = &mut references;
        let (amber, onyx) = tokio::join!(amber.listen("-listen"), onyx.listen("-listen"));
        let sources = [(SHARDS[0], amber), (SHARDS[1], onyx)]
            .map(|(shard, base)| Source { shard, server: Server::new(base) });
        let kubeconfig = data("kubeconfig");
        std::fs::write(&kubeconfig, contexts(&sources).to_string()).expect("written");
        let probe = ["--direct-probe", &kubeconfig];
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data("cache")];
        let probe = if probes { &probe[..] } else { &[] };
        let arguments = arguments.iter().chain(flags).chain(probe);
        let arguments = arguments.map(|argument| (*argument).to_owned()).collect();
        let mut cache = Process::new("cache", ours, arguments, root);
        let cache_server = Server::new(cache.listen("--listen").await);
        let replicas = [0, 1].map(|at| {
            [0, 1].map(|number| {
                let source: &Source = &sources[at];
                let identity = format!("{}-{number}", source.shard);
                let mut arguments: Vec<String> = [
                    "replicate",
                    "--shard",
                    source.shard,
                    "--server",
                    &source.server.base,
                    "--cache-url",
                    &format!("{}/services/cache", cache_server.base),
                    "--listen",
                    "127.0.0.1:0",
                    "--identity",
                    &identity,
                ]
                .map(str::to_owned)
                .into();
                arguments.extend(elects.then(|| "--leader-election".to_owned()));
                for kind in &KINDS {
                    arguments.extend(["--resource".to_owned(), format!("{GROUP}/v1/{}", kind.plural)]);
                }
                Process::new(&identity, ours, arguments, root)
            })
        });
        Self { cache, cache_server, references, sources, replicas, directory }
    }

    /// Which replica pushes a shard, and in which term.
    pub(crate) async fn leader(&self, at: usize) -> (usize, u64) {
        let held = async || {
            let status = Status::of(&self.cache_server, SHARDS[at]).await?;
            if status.streams() <= KINDS.len() as u64 {
                return Err(format!("{} streams", status.streams()));
            }
            let names = &self.replicas[at];
            let leader = names.iter().position(|replica| replica.name == status.holder());
            Ok((leader.ok_or_else(|| format!("{} is nobody", status.holder()))?, status.term()))
        };
        eventually("a replica pushes every type", held).await
    }

    /// Waits until a shard is pushed by a certain replica, in a term after `term`; that term.
    pub(crate) async fn led_by(&self, at: usize, replica: usize, term: u64) -> u64 {
        let name = &self.replicas[at][replica].name;
        let led = async || {
            let status = Status::of(&self.cache_server, SHARDS[at]).await?;
            let is_led =
                status.holder() == name && status.term() > term && status.streams() > KINDS.len() as u64;
            let state = || format!("{} in term {}", status.holder(), status.term());
            if is_led { Ok(status.term()) } else { Err(state()) }
        };
        eventually(&format!("{name} takes over"), led).await
    }

    /// Every process's name and everything it said.
    fn processes(&self) -> impl Iterator<Item = &Process> {
        std::iter::once(&self.cache).chain(&self.references).chain(self.replicas.as_flattened())
    }

    /// Lines that no log may have.
    pub(crate) fn panics(&self) -> Vec<String> {
        let panics = |process: &Process| {
            let log = process.log();
            let bad = log.lines().filter(|line| line.contains("panicked at") || line.starts_with("panic:"));
            bad.map(|line| format!("{}: {line}", process.name)).collect::<Vec<_>>()
        };
        self.processes().flat_map(panics).collect()
    }

    /// Ends everything in order, and everything must end in order.
    pub(crate) async fn stop(mut self) {
        for replica in self.replicas.as_flattened_mut().iter_mut().filter(|replica| replica.is_started()) {
            replica.terminate().await;
        }
        self.cache.terminate().await;
        for reference in &mut self.references {
            reference.terminate().await;
        }
        let panics = self.panics();
        assert!(panics.is_empty(), "{panics:?}");
    }
}

/// A kubeconfig with a context for each source. JSON is YAML.
fn contexts(sources: &[Source]) -> Value {
    let of = |entry: &dyn Fn(&Source) -> Value| sources.iter().map(entry).collect::<Vec<_>>();
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": of(&|source| json!({"name": source.shard, "cluster": {"server": source.server.base}})),
        "users": of(&|source| json!({"name": source.shard, "user": {}})),
        "contexts": of(&|source| {
            json!({"name": source.shard, "context": {"cluster": source.shard, "user": source.shard}})
        }),
    })
}

impl Drop for Stand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.processes() {
                eprintln!("{}", process.tail());
            }
        }
    }
}
