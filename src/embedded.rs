//! The server inside another process, reached without a socket (D58–D60).
//!
//! [`EmbeddedCache`] runs the same [`Instance`] as the binary on a runtime of its own, besides the store's
//! writer thread. [`EmbeddedCache::client`] gives a [`kube::Client`] whose requests are handed over as
//! values: no socket, no TLS, no serialization of HTTP. All of the cache's work happens on its own threads;
//! a panic in it fails a request or the cache, never the host, and a failed store is opened again with a
//! backoff. What the host sees of each fault is the table "Faults of an embedded cache" of
//! docs/operations.md. With [`Builder::listen`] the same cache also listens on a socket, so that a client
//! that moves to a process of its own changes its URL and nothing else. Not isolated, because nothing in one process can be: the out-of-memory killer, an abort, and
//! the disk's bandwidth. Whoever needs that runs the binary.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use shardcache::embedded::{EmbeddedCache, Identity, Scope};
//!
//! let cache = EmbeddedCache::builder().redb("./cache").start()?;
//! let everything = cache.client(&Scope::wildcard(), &Identity::named("controller", &[]));
//! let mine = cache.client(&Scope::shard("amber").cluster("root"), &Identity::shard("amber"));
//! // … kube::Api, kube::runtime::watcher and the rest work as with any API server …
//! cache.shutdown(Duration::from_secs(10)).await?;
//! # Ok(()) }
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shardcache_proxy::access::Access;
pub use shardcache_proxy::access::Identity;
use shardcache_proxy::front::Front;
pub use shardcache_proxy::front::Phase;
use shardcache_proxy::http::path::is_shard_name;
use shardcache_proxy::http::server::Server;
pub use shardcache_proxy::scope::Scope;
use shardcache_storage::{StorageError, Store};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::cli::{Settings, StorageKind};
use crate::config::{Effective, RosterSource};
use crate::failure::Failure;
use crate::instance::{Instance, InstanceConfig, Opener, Restart};
use crate::listener;
use crate::replicate::Target;
use crate::units::{Size, Time};

mod in_process;

/// Threads that serve requests, unless the builder is told otherwise.
const THREADS: usize = 2;

/// A cache in this process. Dropping it is as safe as killing a process that runs one: nothing
/// acknowledged is lost; [`EmbeddedCache::shutdown`] ends watches cleanly first.
#[derive(Debug)]
pub struct EmbeddedCache {
    front: Front,
    /// Every request of every client, its body included.
    requests: TaskTracker,
    /// `None` once shut down.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    runtime: Runtime,
    instance: Instance,
    listening: Option<Listening>,
}

/// The socket beside the clients that need none.
struct Listening {
    address: SocketAddr,
    server: Server,
    task: JoinHandle<std::io::Result<()>>,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listening").field(&self.address).finish()
    }
}

/// What an embedded cache is started with.
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    roster: Option<Vec<Box<str>>>,
    threads: usize,
    listen: Option<SocketAddr>,
    opener: Option<Opener>,
    read_only_grace: Option<Duration>,
}

impl EmbeddedCache {
    /// A cache with the defaults of `shardcache serve`.
    pub fn builder() -> Builder {
        Builder {
            settings: Settings::default(),
            roster: None,
            threads: THREADS,
            listen: None,
            opener: None,
            read_only_grace: None,
        }
    }

    /// A client that sees `scope` as its cluster: what it asks for is asked under
    /// `/services/cache/shards/<shard>/clusters/<cluster>`. Requests before readiness wait, up to the
    /// request timeout. Needs no runtime to be created; using it needs one, as always.
    pub fn client(&self, scope: &Scope, identity: &Identity) -> kube::Client {
        let running = self.running.as_ref().expect("`shutdown` takes the cache, so nobody can ask it");
        let work = running.runtime.handle().clone();
        // kube starts a task per client; it belongs to our runtime.
        let _in_runtime = work.enter();
        let service = in_process::InProcess::new(
            self.front.clone(),
            scope,
            Access::of(identity),
            work.clone(),
            self.requests.clone(),
        );
        kube::Client::new(service, "default")
    }

    /// Where a [`crate::replicate::Replicator`] in this process pushes to, with the rights of `identity`:
    /// [`Identity::shard`] for the shard it pushes.
    pub fn push_target(&self, identity: &Identity) -> Target {
        Target::InProcess(self.front.clone(), Access::of(identity))
    }

    /// Where the cache is in its life.
    pub fn phase(&self) -> Phase {
        self.front.phase()
    }

    /// The address that [`Builder::listen`] bound.
    pub fn address(&self) -> Option<SocketAddr> {
        self.running.as_ref()?.listening.as_ref().map(|listening| listening.address)
    }

    /// Waits until requests are served, or says why they are not before [`EmbeddedCache::restart`].
    /// Cancel safe.
    pub async fn ready(&self) -> Result<(), Failure> {
        let running = self.running.as_ref().expect("`shutdown` takes the cache, so nobody can ask it");
        running.instance.ready().await.map(drop)
    }

    /// Opens the store again if the cache stays failed, which it does after five failures in ten minutes.
    /// Does nothing in any other phase.
    pub fn restart(&self) {
        if let Some(running) = &self.running {
            running.instance.restart();
        }
    }

    /// Refuses new requests, ends watches with a last bookmark, waits up to `grace` for requests in flight,
    /// makes queued writes durable and closes the store.
    pub async fn shutdown(mut self, grace: Duration) -> Result<(), Failure> {
        let Some(Running { runtime, instance, listening }) = self.running.take() else { return Ok(()) };
        let requests = self.requests.clone();
        let end = runtime.spawn(async move {
            instance.drain();
            requests.close();
            // Whoever has not finished by then is cut off.
            let in_process = tokio::time::timeout(grace, requests.wait());
            let by_socket = async {
                if let Some(listening) = listening {
                    listening.server.shutdown(grace).await;
                    // It was told to stop; that it ended otherwise has been logged.
                    let _ = listening.task.await;
                }
            };
            let _ = tokio::join!(in_process, by_socket);
            instance.close().await
        });
        let outcome = end.await;
        runtime.shutdown_background();
        outcome.unwrap_or_else(|error| Err(Failure::Internal(format!("the cache's shutdown: {error}"))))
    }
}

impl Drop for EmbeddedCache {
    fn drop(&mut self) {
        if let Some(Running { runtime, instance, listening }) = self.running.take() {
            drop((instance, listening));
            // Does not wait, so that it may be dropped inside another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Builder {
    /// Keeps objects in a redb store in this directory, which is created if it is missing.
    #[must_use]
    pub fn redb(mut self, data_dir: impl Into<PathBuf>) -> Self {
        self.settings.storage = Some(StorageKind::Redb);
        self.settings.data_dir = Some(data_dir.into());
        self
    }

    /// Keeps objects in memory only: they are gone when the cache is.
    #[must_use]
    pub fn memory(mut self) -> Self {
        self.settings.storage = Some(StorageKind::Memory);
        self
    }

    /// Keeps objects in whatever this opens: another engine, or [`shardcache_storage::RedbStore`] on other
    /// files. Called on a thread where it may block, at the start and whenever a store that failed is
    /// opened again; the store of before is closed by then.
    #[must_use]
    pub fn store<F>(mut self, open: F) -> Self
    where
        F: Fn() -> Result<Arc<dyn Store>, StorageError> + Send + Sync + 'static,
    {
        self.opener = Some(Opener(Arc::new(open)));
        self
    }

    /// Also listens on an address, from the start on; port 0 lets the system choose. An address that is
    /// not loopback needs [`Builder::tls`], as `shardcache serve` does.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Serves TLS where it listens, with the files of a PEM certificate chain, its private key, and the
    /// authorities that clients' certificates come from.
    #[must_use]
    pub fn tls(
        mut self,
        certificate: impl Into<PathBuf>,
        private_key: impl Into<PathBuf>,
        client_authorities: impl Into<PathBuf>,
    ) -> Self {
        self.settings.tls_cert_file = Some(certificate.into());
        self.settings.tls_private_key_file = Some(private_key.into());
        self.settings.client_ca_file = Some(client_authorities.into());
        self
    }

    /// The shards that ought to exist: a store that has seen nothing shows no view over all shards before it
    /// has what they push (docs/operations.md, "Which shards ought to exist").
    #[must_use]
    pub fn roster<'a>(mut self, shards: impl IntoIterator<Item = &'a str>) -> Self {
        self.roster = Some(shards.into_iter().map(Box::from).collect());
        self
    }

    /// Asks a shard itself whether the copy of it is current, where its pusher is gone and a read needs that,
    /// by the context of its name in this kubeconfig (`docs/operations.md`, "Asking a shard itself").
    #[must_use]
    pub fn direct_probe(mut self, kubeconfig: impl Into<PathBuf>) -> Self {
        self.settings.direct_probe = Some(kubeconfig.into());
        self
    }

    /// How long a store that can never write again (an I/O error, a bug in its writer) goes on serving
    /// reads before it is opened again; 30 s unless set.
    #[must_use]
    pub fn read_only_grace(mut self, grace: Duration) -> Self {
        self.read_only_grace = Some(grace);
        self
    }

    /// How much history is kept: age, and bytes of superseded states.
    #[must_use]
    pub fn history(mut self, age: Duration, bytes: u64) -> Self {
        self.settings.history_age = Some(Time(age));
        self.settings.history_bytes = Some(Size(bytes));
        self
    }

    /// Threads that serve requests; at least one. The store's writer has its own besides.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Starts to open the store and returns at once.
    pub fn start(self) -> Result<EmbeddedCache, Failure> {
        if cfg!(not(panic = "unwind")) {
            return Err(Failure::usage("an embedded cache needs panic = \"unwind\" in the build profile"));
        }
        if let Some(name) = self.roster.iter().flatten().find(|name| !is_shard_name(name)) {
            return Err(Failure::usage(format!("roster: {name:?} is not the name of a shard")));
        }
        if self.roster.as_ref().is_some_and(Vec::is_empty) {
            return Err(Failure::usage("roster: names no shard"));
        }
        let settings = Settings { listen: self.listen, ..self.settings };
        let config = Effective::of(settings)?.config;
        let defaults = InstanceConfig::from(&config);
        let instance = InstanceConfig {
            restart: Restart::WithBackoff,
            read_only_grace: self.read_only_grace.unwrap_or(defaults.read_only_grace),
            opener: self.opener,
            roster: self.roster.map(RosterSource::Names),
            ..defaults
        };
        // First what can be refused at once: no store is opened for an address that is taken.
        let bound = self.listen.map(listener::bind).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name("shardcache")
            .enable_all()
            .build()
            .map_err(|error| Failure::Internal(format!("the runtime cannot be started: {error}")))?;
        let in_runtime = runtime.enter();
        let instance = Instance::start(instance);
        let front = instance.front().clone();
        let listening = bound.map(|bound| {
            let (address, server) = (bound.address, Server::new(front.clone(), config.server.clone()));
            let task = tokio::spawn(listener::serve(server.clone(), bound, config));
            Listening { address, server, task }
        });
        drop(in_runtime);
        Ok(EmbeddedCache {
            front,
            requests: TaskTracker::new(),
            running: Some(Running { runtime, instance, listening }),
        })
    }
}
