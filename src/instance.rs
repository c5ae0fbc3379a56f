//! One cache: its store, its watch cache and its API, opened, supervised and closed in one place.
//!
//! [`Instance::start`] returns at once; the [`Front`] it gives answers from then on and hands requests
//! through once the store is loaded (D59). The instance's task owns everything that lives as long as
//! the store does. If a part of it ends early, panics or can no longer write, the instance fails: the front
//! answers 503, the host lives on (D60). Listening and signals are the callers' business.
//!
//! The task — *owns* the stage, the store's handle, the reflector and the scribe; *receives* the stop signal and the
//! health of the store; *sends* the phase to the front and the last failure to whoever waits for it;
//! *stops when* it is told to, or when the store failed and [`Restart::Never`] holds.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use prometheus_client::registry::Registry;
use shardcache_proxy::access::Identity;
use shardcache_proxy::cache::{CacheConfig, WatchCache};
use shardcache_proxy::freshness::shardview::Scribe;
use shardcache_proxy::front::{Front, Phase, Stage, Tokens};
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::service::{Api, ApiConfig, ProxyService};
use shardcache_proxy::types::{TypeInfo, Types};
use shardcache_storage::{Health, StorageError, Store};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use crate::config::{Config, RosterSource, StorageConfig};
use crate::failure::Failure;
use crate::telemetry;

mod names;
mod open;
mod seed;

/// How often the store is asked whether it can still write.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// Default of [`InstanceConfig::read_only_grace`].
const READ_ONLY_GRACE: Duration = Duration::from_secs(30);
/// Failures within [`RESTART_WINDOW`] after which an instance stays failed (D60).
const RESTARTS_MAX: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_mins(10);
/// First wait before a restart; each further one doubles it.
const BACKOFF: Duration = Duration::from_millis(500);

/// What an instance needs to know.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// The engine and its bounds.
    pub storage: StorageConfig,
    /// Directory of the store.
    pub data_dir: PathBuf,
    /// Bounds and timings of requests.
    pub api: ApiConfig,
    /// Bounds of the watch cache.
    pub cache: CacheConfig,
    /// Bearer tokens and whom they stand for.
    pub tokens: Vec<(String, Identity)>,
    /// Who says which shards ought to exist, if somebody does; the store is told before anybody is served.
    pub roster: Option<RosterSource>,
    /// Types served besides the built-in ones.
    pub types: Vec<TypeInfo>,
    /// What follows a failure.
    pub restart: Restart,
    /// How long a store that can never write again goes on serving reads before the instance fails (D14).
    pub read_only_grace: Duration,
    /// Opens the store instead of the configured engine, at the start and at every restart.
    pub opener: Option<Opener>,
}

/// Opens a store, however that is done. May block: it gets a thread to itself.
#[derive(Clone)]
pub struct Opener(pub(crate) Arc<dyn Fn() -> Result<Arc<dyn Store>, StorageError> + Send + Sync>);

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The instance stays failed; a supervisor outside starts the process again.
    Never,
    /// The store is opened again after a backoff. After five failures in ten minutes it stays failed
    /// until [`Instance::restart`].
    WithBackoff,
}

impl From<&Config> for InstanceConfig {
    fn from(config: &Config) -> Self {
        Self {
            storage: config.storage.clone(),
            data_dir: config.data_dir.clone(),
            api: config.api.clone(),
            cache: CacheConfig { history_bytes: config.history_memory_bytes, ..CacheConfig::default() },
            tokens: config.tokens.clone(),
            roster: config.roster.clone(),
            types: config.types.clone(),
            restart: Restart::Never,
            read_only_grace: READ_ONLY_GRACE,
            opener: None,
        }
    }
}

/// A running cache. Dropping it stops its task as a crash would; nothing acknowledged is lost.
#[must_use = "dropping an instance stops it"]
#[derive(Debug)]
pub struct Instance {
    front: Front,
    failure: watch::Receiver<Option<Failure>>,
    drain: CancellationToken,
    stop: CancellationToken,
    again: Arc<Notify>,
    life: JoinHandle<()>,
}

impl Instance {
    /// Starts opening the store on the current runtime and returns at once.
    pub fn start(config: InstanceConfig) -> Self {
        let (stage, front) = Stage::new(Tokens::new(config.tokens.clone()), config.api.request_timeout);
        let (failed, failure) = watch::channel(None);
        let (drain, stop) = (CancellationToken::new(), CancellationToken::new());
        let again = Arc::<Notify>::default();
        let life = Life {
            config,
            stage: Arc::new(stage),
            failed,
            drain: drain.clone(),
            stop: stop.clone(),
            again: Arc::clone(&again),
        };
        Self { front, failure, drain, stop, again, life: tokio::spawn(life.run()) }
    }

    /// The service in all phases.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// Waits until requests are served, or says why they never will be. A failure that the instance
    /// recovers from by itself is waited out.
    pub async fn ready(&self) -> Result<ProxyService, Failure> {
        let mut front = self.front.clone();
        let served = |phase: &Phase| matches!(phase, Phase::Ready(_) | Phase::Draining(_) | Phase::Stopped);
        tokio::select! {
            phase = front.wait_for(served) => match phase {
                Phase::Ready(service) | Phase::Draining(service) => Ok(service),
                _ => Err(self.failure.borrow().clone().unwrap_or_else(ended)),
            },
            failure = self.failed() => Err(failure),
        }
    }

    /// Waits for a failure that the instance does not recover from by itself.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().unwrap_or_else(ended),
            Err(_) => ended(),
        }
    }

    /// Tries once more after a failure that the instance does not recover from by itself, if restarts are
    /// its business. Does nothing otherwise.
    pub fn restart(&self) {
        self.again.notify_waiters();
    }

    /// Refuses new requests and ends watches with a last bookmark; requests in flight go on.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Finishes queued writes and closes the store. The caller has drained what it listens on.
    pub async fn close(mut self) -> Result<(), Failure> {
        self.stop.cancel();
        if (&mut self.life).await.is_err() {
            return Err(Failure::Internal("the instance's task panicked".to_owned()));
        }
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn ended() -> Failure {
    Failure::Internal("the instance has ended".to_owned())
}

/// The task's state.
struct Life {
    config: InstanceConfig,
    stage: Arc<Stage>,
    failed: watch::Sender<Option<Failure>>,
    drain: CancellationToken,
    stop: CancellationToken,
    again: Arc<Notify>,
}

/// A store and what follows it.
struct Running {
    store: Arc<dyn Store>,
    service: ProxyService,
    reflector: JoinHandle<()>,
    /// Tells the store of names that come later. It has a share in the store, so it must not outlive this.
    names: Option<AbortOnDropHandle<()>>,
    /// Writes views of shards; as above.
    scribe: AbortOnDropHandle<()>,
    /// Stops the scribe.
    stop: CancellationToken,
}

impl Life {
    async fn run(self) {
        let mut failures: Vec<tokio::time::Instant> = Vec::new();
        while let Err(failure) = self.supervised().await {
            error!(%failure, "the cache has failed");
            self.stage.enter(Phase::Failed(failure.line().into()));
            let now = tokio::time::Instant::now();
            failures.retain(|earlier| now - *earlier < RESTART_WINDOW);
            failures.push(now);
            if self.config.restart == Restart::Never {
                self.failed.send_replace(Some(failure));
                return;
            }
            if failures.len() >= RESTARTS_MAX {
                // Listening comes before telling, so that who was told is heard.
                let mut again = pin!(self.again.notified());
                again.as_mut().enable();
                self.failed.send_replace(Some(failure));
                tokio::select! {
                    () = again => {}
                    () = self.stop.cancelled() => return,
                }
                self.failed.send_replace(None);
                failures.clear();
                continue;
            }
            let backoff = BACKOFF * (1 << failures.len());
            let stopped = tokio::time::timeout(backoff, self.stop.cancelled()).await.is_ok();
            if stopped {
                break;
            }
        }
        self.stage.enter(Phase::Stopped);
    }

    /// A bug in an engine can strike when its store is dropped, too: redb's does after a panic inside of it.
    async fn supervised(&self) -> Result<(), Failure> {
        let served = AssertUnwindSafe(self.open_and_serve()).catch_unwind().await;
        served.unwrap_or_else(|_| Err(Failure::Internal("the cache's task panicked; see the log".to_owned())))
    }

    /// One life of the store: opened, loaded, served, closed. `Ok` if the end was asked for.
    async fn open_and_serve(&self) -> Result<(), Failure> {
        self.stage.enter(Phase::Opening);
        let opening = open::open(&self.config, Arc::clone(&self.stage));
        let opened = tokio::select! {
            opened = opening => opened?,
            // The file is as a crash would leave it; the next opening finds every acknowledged write.
            // Whoever waits for readiness is told now, not at the end of the grace.
            () = self.stop.cancelled() => return Ok(()),
            () = self.drain.cancelled() => return Ok(()),
        };
        let seeded = match &self.config.roster {
            Some(RosterSource::Names(shards)) => names::given(&*opened.store, shards).await,
            Some(RosterSource::ShardsOf(_) | RosterSource::ConfigMap(_)) => {
                names::begin(&*opened.store).await
            }
            None => Ok(()),
        };
        if let Err(failure) = seeded {
            drop(opened.store.close().await);
            return Err(failure);
        }
        let mut running = self.assemble(opened);
        self.stage.enter(Phase::Ready(running.service.clone()));
        info!(revision = %running.service.api().cache.snapshot().resource_version(), "ready");
        let outcome = tokio::select! {
            () = self.end(&running.service) => Ok(()),
            end = &mut running.reflector => Err(Failure::Internal(match end {
                Ok(()) => "the watch cache's reflector ended".to_owned(),
                Err(error) => format!("the watch cache's reflector: {error}"),
            })),
            end = &mut running.scribe => Err(Failure::Internal(match end {
                Ok(()) => "the writer of shard views ended".to_owned(),
                Err(error) => format!("the writer of shard views: {error}"),
            })),
            failure = read_only(&*running.store, self.config.read_only_grace) => Err(failure),
        };
        match &outcome {
            Ok(()) => self.stage.enter(Phase::Stopped),
            Err(failure) => self.stage.enter(Phase::Failed(failure.line().into())),
        }
        running.close().await;
        outcome
    }

    /// Resolves when the end is asked for; a drain may come before.
    async fn end(&self, service: &ProxyService) {
        tokio::select! {
            () = self.stop.cancelled() => return,
            () = self.drain.cancelled() => {}
        }
        self.stage.enter(Phase::Draining(service.clone()));
        service.api().drain();
        self.stop.cancelled().await;
    }

    fn assemble(&self, opened: open::Opened) -> Running {
        let mut registry = Registry::default();
        telemetry::register_build(&mut registry);
        opened.metrics.register(&mut registry);
        let metrics = Metrics::register(&mut registry);
        let types = Types::builtin(self.config.types.clone());
        let store = opened.store;
        let (cache, reflector) =
            WatchCache::open(Arc::clone(&store), &types, self.config.cache.clone(), &metrics);
        let reflector = tokio::spawn(reflector.run());
        let (told, seen) = (Arc::clone(&store), cache.clone());
        let names = match self.config.roster.clone() {
            Some(RosterSource::ShardsOf(naming)) => {
                Some(tokio::spawn(names::cached::follow(told, seen, naming)))
            }
            Some(RosterSource::ConfigMap(name)) => {
                Some(tokio::spawn(names::config_map::follow(told, seen, name)))
            }
            Some(RosterSource::Names(_)) | None => None,
        };
        let names = names.map(AbortOnDropHandle::new);
        let api = Api::new(Arc::clone(&store), cache, self.config.api.clone(), metrics, Arc::new(registry));
        let stop = CancellationToken::new();
        let scribe = tokio::spawn(Scribe::new(Arc::clone(&api)).run(stop.clone()));
        let scribe = AbortOnDropHandle::new(scribe);
        Running { store, service: ProxyService::new(api), reflector, names, scribe, stop }
    }
}

impl Running {
    async fn close(self) {
        self.service.api().drain();
        drop(self.names);
        self.stop.cancel();
        if let Err(failure) = self.store.close().await {
            warn!(%failure, "closing the store");
        }
        // The store is closed, so the reflector has come to its end.
        if !self.reflector.is_finished() {
            let _ = self.reflector.await;
        }
        if !self.scribe.is_finished() {
            let _ = self.scribe.await;
        }
    }
}

/// Resolves when the store has been unable to write for good, for longer than the grace.
async fn read_only(store: &dyn Store, grace: Duration) -> Failure {
    let mut ticks = tokio::time::interval(HEALTH_INTERVAL);
    let mut since = None;
    loop {
        ticks.tick().await;
        let Health::ReadOnly(problem) = store.health() else {
            since = None;
            continue;
        };
        let begun = *since.get_or_insert_with(|| {
            error!(problem, ?grace, "the store is read-only; a restart is needed");
            tokio::time::Instant::now()
        });
        if begun.elapsed() >= grace {
            return Failure::Store(format!("the store is read-only after a failed write: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests;
