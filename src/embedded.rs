//! The server inside another process, reached without a socket (D58–D60).
//!
//! [`EmbeddedCache`] runs the same [`Instance`] as the binary on a runtime of its own, besides the store's
//! writer thread. [`EmbeddedCache::client`] gives a [`kube::Client`] whose requests are handed over as
//! values: no socket, no TLS, no serialization of HTTP. All of the cache's work happens on its own threads;
//! a panic in it fails a request or the cache, never the host, and a failed store is opened again with a
//! backoff. Not isolated, because nothing in one process can be: the out-of-memory killer, an abort, and
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

use std::path::PathBuf;
use std::time::Duration;

use shardcache_proxy::access::Access;
pub use shardcache_proxy::access::Identity;
use shardcache_proxy::front::Front;
pub use shardcache_proxy::front::Phase;
pub use shardcache_proxy::scope::Scope;
use tokio::runtime::Runtime;
use tokio_util::task::TaskTracker;

use crate::cli::{Settings, StorageKind};
use crate::config::Effective;
use crate::failure::Failure;
use crate::instance::{Instance, InstanceConfig, Restart};
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
}

/// What an embedded cache is started with.
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    threads: usize,
}

impl EmbeddedCache {
    /// A cache with the defaults of `shardcache serve`.
    pub fn builder() -> Builder {
        Builder { settings: Settings::default(), threads: THREADS }
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

    /// Where the cache is in its life.
    pub fn phase(&self) -> Phase {
        self.front.phase()
    }

    /// Waits until requests are served, or says why they are not. Cancel safe.
    pub async fn ready(&self) -> Result<(), Failure> {
        let running = self.running.as_ref().expect("`shutdown` takes the cache, so nobody can ask it");
        running.instance.ready().await.map(drop)
    }

    /// Refuses new requests, ends watches with a last bookmark, waits up to `grace` for requests in flight,
    /// makes queued writes durable and closes the store.
    pub async fn shutdown(mut self, grace: Duration) -> Result<(), Failure> {
        let Some(Running { runtime, instance }) = self.running.take() else { return Ok(()) };
        let requests = self.requests.clone();
        let end = runtime.spawn(async move {
            instance.drain();
            requests.close();
            // Whoever has not finished by then is cut off.
            let _ = tokio::time::timeout(grace, requests.wait()).await;
            instance.close().await
        });
        let outcome = end.await;
        runtime.shutdown_background();
        outcome.unwrap_or_else(|error| Err(Failure::Internal(format!("the cache's shutdown: {error}"))))
    }
}

impl Drop for EmbeddedCache {
    fn drop(&mut self) {
        if let Some(Running { runtime, instance }) = self.running.take() {
            drop(instance);
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
        let config = Effective::of(self.settings)?.config;
        let config = InstanceConfig { restart: Restart::WithBackoff, ..InstanceConfig::from(&config) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name("shardcache")
            .enable_all()
            .build()
            .map_err(|error| Failure::Internal(format!("the runtime cannot be started: {error}")))?;
        let instance = {
            let _in_runtime = runtime.enter();
            Instance::start(config)
        };
        Ok(EmbeddedCache {
            front: instance.front().clone(),
            requests: TaskTracker::new(),
            running: Some(Running { runtime, instance }),
        })
    }
}
