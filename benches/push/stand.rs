//! What runs: a source, and a cache and a replicator as a work needs them, with their stores on one disk.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::client::Client;
use crate::harness::machine;
use crate::harness::objects::COLLECTION;
use crate::harness::pusher::push_path;
use crate::harness::run::within;
use crate::harness::seed::{seed, version_of};
use crate::harness::server::Server;
use crate::harness::verdict::{Refusal, equal};

/// The shard that is pushed.
pub(crate) const SHARD: &str = "amber";
/// The type that is pushed, and one that the source has no objects of.
pub(crate) const RESOURCE: &str = "apis.kcp.io/v1alpha2/apiexports";
pub(crate) const EMPTY_RESOURCE: &str = "apis.kcp.io/v1alpha1/apiconversions";
/// Label values of the objects' owners.
pub(crate) const OWNERS: usize = 1_000;
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The processes of a work. What was started for one of them is ended by the next, or by dropping it.
pub(crate) struct Stand {
    pub(crate) source: Server,
    pub(crate) cache: Option<Server>,
    pub(crate) replicator: Option<Server>,
    /// Objects that the source was filled with.
    pub(crate) filled: usize,
    /// The most of the machine that other programs took in a round that counts.
    pub(crate) foreign: f64,
    caches: usize,
    directory: tempfile::TempDir,
}

impl machine::Stand for Stand {
    fn cpu_seconds(&self) -> f64 {
        let others = [&self.cache, &self.replicator].into_iter().flatten();
        self.source.cpu_seconds() + others.map(Server::cpu_seconds).sum::<f64>()
    }

    fn foreign(&mut self) -> &mut f64 {
        &mut self.foreign
    }
}

impl Stand {
    /// Starts a source and fills it.
    pub(crate) async fn start(reference: &Path, objects: usize) -> Result<Self, Refusal> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let source = Server::reference(reference, &directory.path().join("source"), &[]);
        source.ready(Instant::now()).await;
        let (cache, replicator) = (None, None);
        let mut stand = Self { source, cache, replicator, filled: 0, foreign: 0.0, caches: 0, directory };
        if objects > 0 {
            seed(stand.source.address, COLLECTION, 0..objects, OWNERS).await?;
            stand.filled = objects;
        }
        Ok(stand)
    }

    /// Ends the replicator and the cache.
    pub(crate) fn end_pushing(&mut self) {
        (self.replicator, self.cache) = (None, None);
    }

    /// Where files of a measurement go: beside the stores.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Data of the cache that was started last.
    pub(crate) fn cache_data(&self) -> PathBuf {
        self.file(&format!("cache-{}", self.caches))
    }

    /// Ends what there is, and starts a cache on an empty store.
    pub(crate) async fn empty_cache(&mut self) -> Result<(), Refusal> {
        self.end_pushing();
        if self.caches > 0 {
            std::fs::remove_dir_all(self.cache_data())?;
        }
        self.caches += 1;
        self.start_cache();
        self.cache().ready(Instant::now()).await;
        Ok(())
    }

    /// Starts a cache on the data that there is.
    pub(crate) fn start_cache(&mut self) {
        self.cache = Some(Server::start(&self.cache_data(), &["--log-level", "warn"]));
    }

    pub(crate) fn cache(&self) -> &Server {
        self.cache.as_ref().expect("a work starts it first")
    }

    pub(crate) fn replicator(&self) -> &Server {
        self.replicator.as_ref().expect("a work starts it first")
    }

    /// The whole list of the source.
    pub(crate) async fn source_list(&self) -> Result<Vec<u8>, Refusal> {
        Ok(Client::connect(self.source.address).await?.get(COLLECTION).await?)
    }

    /// The version of the source.
    pub(crate) async fn source_version(&self) -> Result<String, Refusal> {
        let mut client = Client::connect(self.source.address).await?;
        version_of(&client.get(&format!("{COLLECTION}?limit=1")).await?)
    }

    /// The version of the cache.
    pub(crate) async fn cache_version(&self) -> Result<String, Refusal> {
        let mut client = Client::connect(self.cache().address).await?;
        version_of(&client.get(&format!("{}?limit=1", cached())).await?)
    }

    /// Refuses unless the cache has the source's objects, `count` of them.
    pub(crate) async fn compare(&self, what: &str, count: usize) -> Result<(), Refusal> {
        let ours = Client::connect(self.cache().address).await?.get(&cached()).await?;
        equal(what, &ours, &self.source_list().await?, count)
    }

    /// What the cache says of the shard; nothing if nobody has pushed it.
    pub(crate) async fn status(&self) -> Result<Option<Value>, Refusal> {
        let mut client = Client::connect(self.cache().address).await?;
        match client.fetch(&push_path(SHARD)).await? {
            (200, body) => Ok(Some(serde_json::from_slice(&body).map_err(std::io::Error::from)?)),
            (404, _) => Ok(None),
            (code, body) => {
                let said = String::from_utf8_lossy(&body).into_owned();
                Err(Refusal::Client(std::io::Error::other(format!("status: {code} {said}"))))
            }
        }
    }

    /// Waits until the replicator has pushed `count` objects and follows its source.
    pub(crate) async fn synced(&self, count: usize) -> Result<(), Refusal> {
        within("the replicator's sync", async {
            loop {
                let status = self.status().await?.unwrap_or_default();
                let cell = &status["cells"][0];
                if cell["complete"] == true && cell["count"] == count {
                    break;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            self.replicator().ready(Instant::now()).await;
            Ok(())
        })
        .await
    }
}

/// The collection in the cache, as controllers read it.
pub(crate) fn cached() -> String {
    format!("/services/cache/shards/*/clusters/*{COLLECTION}")
}
