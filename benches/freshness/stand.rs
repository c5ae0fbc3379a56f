//! What runs: a source, a cache, and a replicator between them, as a work needs them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::direct::Direct;
use crate::harness::client::Client;
use crate::harness::machine;
use crate::harness::objects::COLLECTION;
use crate::harness::run::within;
use crate::harness::seed::{post, seed};
use crate::harness::server::Server;
use crate::harness::verdict::{Refusal, equal};

/// The shard that is pushed, and the type.
pub(crate) const SHARD: &str = "amber";
pub(crate) const RESOURCE: &str = "apis.kcp.io/v1alpha2/apiexports";
/// Another type of the source, that nobody replicates.
const ELSEWHERE: &str = "/apis/apis.kcp.io/v1alpha1/apiconversions";
/// Label values of the objects' owners.
const OWNERS: usize = 1_000;
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where the replicator learns how far the source's events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From a source that says so on demand.
    Direct,
    /// From a stock API server's watches.
    Stock,
}

/// The processes of a work, and the replicator that runs in this one.
pub(crate) struct Stand {
    reference: PathBuf,
    source: Option<Server>,
    cache: Option<Server>,
    stock: Option<Server>,
    pub(crate) direct: Option<Direct>,
    foreign: f64,
    /// Stores that were begun, of caches and of sources.
    stores: usize,
    /// Objects that were written to the source beside those that are replicated.
    elsewhere: usize,
    directory: tempfile::TempDir,
}

impl machine::Stand for Stand {
    fn cpu_seconds(&self) -> f64 {
        let all = [&self.source, &self.cache, &self.stock];
        all.into_iter().flatten().map(Server::cpu_seconds).sum()
    }

    fn foreign(&mut self) -> &mut f64 {
        &mut self.foreign
    }
}

impl Stand {
    /// Nothing runs yet.
    pub(crate) fn new(reference: &Path) -> Result<Self, Refusal> {
        Ok(Self {
            reference: reference.to_owned(),
            source: None,
            cache: None,
            stock: None,
            direct: None,
            foreign: 0.0,
            stores: 0,
            elsewhere: 0,
            directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?,
        })
    }

    fn end(&mut self) {
        (self.direct, self.stock, self.cache, self.source) = (None, None, None, None);
    }

    /// Where the next store is.
    fn store(&mut self) -> PathBuf {
        self.stores += 1;
        self.directory.path().join(format!("store-{}", self.stores))
    }

    /// Ends what there is, and starts a cache on an empty store.
    pub(crate) async fn empty_cache(&mut self, flags: &[&str]) -> Result<(), Refusal> {
        self.end();
        let flags: Vec<_> = ["--log-level", "warn"].iter().chain(flags).copied().collect();
        self.cache = Some(Server::start(&self.store(), &flags));
        self.cache().ready(Instant::now()).await;
        Ok(())
    }

    /// Ends what there is, and starts a source of so many objects, a cache with these flags, and a replicator.
    pub(crate) async fn replicate(
        &mut self,
        kind: Kind,
        objects: usize,
        flags: &[&str],
    ) -> Result<(), Refusal> {
        self.empty_cache(flags).await?;
        let of_source: &[&str] = if kind == Kind::Direct { &["-watch-cache=false"] } else { &[] };
        let store = self.store();
        self.source = Some(Server::reference(&self.reference, &store, of_source));
        self.source().ready(Instant::now()).await;
        seed(self.source().address, COLLECTION, 0..objects, OWNERS).await?;
        let (source, cache) = (self.source().address, self.cache().address);
        match kind {
            Kind::Direct => self.direct = Some(Direct::start(source, cache)?),
            Kind::Stock => {
                let flags = ["--shard", SHARD, "--resource", RESOURCE];
                self.stock = Some(Server::replicator(source, cache, &flags));
            }
        }
        within("the first confirmation", async {
            while cell_of(&self.freshness().await?, objects).is_none() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Ok(())
        })
        .await
    }

    pub(crate) fn source(&self) -> &Server {
        self.source.as_ref().expect("a work starts it first")
    }

    pub(crate) fn cache(&self) -> &Server {
        self.cache.as_ref().expect("a work starts it first")
    }

    /// Writes something to the source that is not replicated: its version is another one afterwards, and no
    /// watch of what is replicated says so by itself.
    pub(crate) async fn write_elsewhere(&mut self, client: &mut Client) -> Result<(), Refusal> {
        let body = format!(
            r#"{{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIConversion","metadata":{{"name":"elsewhere-{}"}}}}"#,
            self.elsewhere
        );
        self.elsewhere += 1;
        post(client, ELSEWHERE, body.as_bytes()).await
    }

    /// Lists of the replicated type that the source has answered.
    pub(crate) async fn source_lists(&self) -> Result<f64, Refusal> {
        let text = Client::connect(self.source().address).await?.get("/metrics").await?;
        let text = String::from_utf8_lossy(&text);
        let lists = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains(r#"resource="apiexports""#)
                && line.contains(r#"verb="LIST""#)
        });
        Ok(lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Refuses unless the cache has the source's objects, `count` of them.
    pub(crate) async fn compare(&self, what: &str, count: usize) -> Result<(), Refusal> {
        let ours = Client::connect(self.cache().address).await?.get(&cached("freshness=source")).await?;
        let theirs = Client::connect(self.source().address).await?.get(COLLECTION).await?;
        equal(what, &ours, &theirs, count)
    }

    /// What the cache says of its cells.
    pub(crate) async fn freshness(&self) -> Result<Value, Refusal> {
        let document = Client::connect(self.cache().address).await?.get("/services/cache/freshness").await?;
        Ok(serde_json::from_slice(&document).map_err(std::io::Error::from)?)
    }
}

/// The replicated collection in the cache.
pub(crate) fn cached(query: &str) -> String {
    format!("{}?{query}", place(""))
}

/// The same, or one object of it.
pub(crate) fn place(name: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("/services/cache/shards/{SHARD}/clusters/root{COLLECTION}{name}")
}

/// The only cell, if it is live with so many objects.
fn cell_of(document: &Value, count: usize) -> Option<&Value> {
    let cell = &document["shards"][0]["cells"][0];
    (cell["state"] == "Live" && cell["objects"] == count).then_some(cell)
}
