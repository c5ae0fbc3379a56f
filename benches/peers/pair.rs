//! The two servers: real binaries with their stores on the same disk, and what differs in how they are asked.

use std::path::PathBuf;
use std::time::Instant;

use futures::future::try_join_all;

use crate::harness::client::Client;
use crate::harness::machine::{Stand, settled};
use crate::harness::objects::COLLECTION;
use crate::harness::seed::{post, seed, version_of};
use crate::harness::server::Server;
use crate::harness::verdict::{Refusal, equal};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// One of the two servers, running.
pub(crate) struct Peer {
    pub(crate) side: Side,
    pub(crate) server: Server,
    data: PathBuf,
    reference: PathBuf,
}

/// Both, with their stores in one temporary directory.
pub(crate) struct Pair {
    pub(crate) ours: Peer,
    pub(crate) theirs: Peer,
    /// The most of the machine that other programs took in a round that counts.
    pub(crate) foreign: f64,
    /// Objects that the work began with, before scaling.
    pub(crate) begins: usize,
    /// Objects that [`Self::fill`] wrote.
    filled: usize,
    _directory: tempfile::TempDir,
}

impl Side {
    /// Before the path of a collection to write to.
    fn place(self) -> &'static str {
        match self {
            Self::Ours => "/services/cache/shards/amber/clusters/root",
            Self::Theirs => "",
        }
    }

    /// Where an object is written to.
    pub(crate) fn writes(self) -> String {
        format!("{}{COLLECTION}", self.place())
    }

    /// What a controller reads: all shards and clusters, or everything that the reference has.
    pub(crate) fn reads(self, query: &str) -> String {
        let everywhere = match self {
            Self::Ours => "/services/cache/shards/*/clusters/*",
            Self::Theirs => "",
        };
        format!("{everywhere}{COLLECTION}?{query}")
    }

    /// A collection of another type.
    pub(crate) fn other_writes(self) -> String {
        format!("{}/apis/core.kcp.io/v1alpha1/shards", self.place())
    }
}

impl Peer {
    fn start(side: Side, data: PathBuf, reference: PathBuf) -> Self {
        let server = match side {
            Side::Ours => Server::start(&data, &[]),
            Side::Theirs => Server::reference(&reference, &data, &[]),
        };
        Self { side, server, data, reference }
    }

    /// Kills the process and starts another on its store; returns when that is ready, and the seconds
    /// since the kill.
    pub(crate) async fn kill_and_start(&mut self) -> f64 {
        let began = Instant::now();
        self.server.kill();
        *self = Self::start(self.side, self.data.clone(), self.reference.clone());
        self.server.ready(began).await.as_secs_f64()
    }

    pub(crate) async fn connect(&self) -> Result<Client, Refusal> {
        Ok(Client::connect(self.server.address).await?)
    }

    /// The whole list.
    pub(crate) async fn list(&self, query: &str) -> Result<Vec<u8>, Refusal> {
        Ok(self.connect().await?.get(&self.side.reads(query)).await?)
    }

    /// The version of the newest state.
    pub(crate) async fn version(&self) -> Result<String, Refusal> {
        version_of(&self.list("limit=1").await?)
    }

    /// Watches that begin now; each is open when this returns.
    pub(crate) async fn watchers(&self, selectors: &[String]) -> Result<Vec<Client>, Refusal> {
        let version = self.version().await?;
        let mut watchers = Vec::with_capacity(selectors.len());
        // Some at a time: a server's queue of connections not yet accepted is short.
        for some in selectors.chunks(64) {
            let opened = some.iter().map(async |selector| {
                let mut client = Client::watcher(self.server.address).await?;
                let query = format!("watch=true&resourceVersion={version}{selector}");
                client.watch(&self.side.reads(&query)).await?;
                Ok::<_, std::io::Error>(client)
            });
            watchers.extend(try_join_all(opened).await?);
        }
        Ok(watchers)
    }

    /// Creates an object; anything but 201 is an error.
    pub(crate) async fn create(&self, client: &mut Client, body: &[u8]) -> Result<(), Refusal> {
        post(client, &self.side.writes(), body).await
    }

    /// Resident memory, once it does not move any more or after half a minute.
    pub(crate) async fn settled_rss(&self) -> u64 {
        settled(|| self.server.rss()).await
    }
}

impl Stand for Pair {
    fn cpu_seconds(&self) -> f64 {
        self.ours.server.cpu_seconds() + self.theirs.server.cpu_seconds()
    }

    fn foreign(&mut self) -> &mut f64 {
        &mut self.foreign
    }
}

impl Pair {
    /// Starts both on empty stores.
    pub(crate) async fn start(reference: PathBuf) -> Result<Self, Refusal> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let start = |side, name| Peer::start(side, directory.path().join(name), reference.clone());
        let (ours, theirs) = (start(Side::Ours, "ours"), start(Side::Theirs, "theirs"));
        for peer in [&ours, &theirs] {
            peer.server.ready(Instant::now()).await;
        }
        Ok(Self { ours, theirs, foreign: 0.0, begins: 0, filled: 0, _directory: directory })
    }

    /// Writes objects of 2 KiB to both until they hold `count`; `owner` makes a label of the number.
    pub(crate) async fn fill(&mut self, count: usize, owners: usize) -> Result<(), Refusal> {
        for peer in [&self.ours, &self.theirs] {
            seed(peer.server.address, &peer.side.writes(), self.filled..count, owners).await?;
        }
        self.filled = count;
        self.compare(&format!("{count} objects written"), count).await
    }

    /// Refuses unless both hold the same objects, `count` of them.
    pub(crate) async fn compare(&self, what: &str, count: usize) -> Result<(), Refusal> {
        let (ours, theirs) = (self.ours.list("").await?, self.theirs.list("").await?);
        equal(what, &ours, &theirs, count)
    }
}
