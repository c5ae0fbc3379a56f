//! The replicator: pushes the objects of an API server into a cache (`docs/push-protocol.md`).
//!
//! ```text
//! source ──lists, watches──► cell (one per type) ──frames──► link ──HTTP/2──► cache
//!                               └ pusher: pure, what was sent and acknowledged
//! ```
//!
//! `shardcache replicate` is this module with flags; a control plane in Rust embeds it beside an
//! [`crate::embedded::EmbeddedCache`]. Objects pass through as the bytes they came in; memory is a page of
//! objects and 32 bytes for each object sent.

mod barrier;
mod cell;
mod compare;
mod direct;
mod election;
mod feed;
mod link;
mod object;
mod pipe;
mod probe;
mod progress;
mod pusher;
mod report;
mod run;
mod selection;
mod session;
mod shard;
mod source;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use shardcache_proxy::push::client::Hello;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use direct::RequestProgress;
pub use link::{Network, Target};
pub use object::Prune;
pub(crate) use pipe::pipe;
pub use probe::Prober;
pub use report::{Phase, Report, TypeReport};
pub(crate) use run::network;
pub use run::run;
pub use selection::{KCP_PREFIX, NotAResource, Preset, Resource, Rule};
pub use shardcache_proxy::push::client::Provider;

use cell::{Cell, CellError};
use election::{Candidate, RENEW_TIME, RETRY};
use shard::Shard;
use source::Source;

/// What is pushed, from where, to where.
#[derive(Clone)]
pub struct Config {
    /// Name of the shard in the cache.
    pub shard: String,
    /// Logical cluster of objects that do not say one by the annotation `kcp.io/cluster`.
    pub cluster: String,
    /// The source; a client that does not ask again by itself (`kube::Config::default_retry`), because a
    /// 504 may say that the source is not at a version, and then another sync is due.
    pub source: Client,
    /// What stands before `/api` and `/apis` at the source; [`KCP_PREFIX`] for a shard of kcp.
    pub prefix: String,
    /// What the source is called; another name is another lineage of versions.
    pub source_id: String,
    /// The cache.
    pub target: Target,
    /// The types.
    pub resources: Vec<Resource>,
    /// What is left out of objects.
    pub prune: Prune,
    /// Name of this replica; unique among the replicas of the shard.
    pub identity: String,
    /// Namespace of the Lease at the source by which replicas elect one; without it none is elected, and
    /// another replica takes over when this one was silent for a while.
    pub election_namespace: Option<String>,
}

/// Pushes a shard.
pub struct Replicator {
    config: Config,
    report: Arc<Report>,
    progress: Option<Arc<dyn RequestProgress>>,
}

impl Replicator {
    /// Nothing happens before [`Replicator::run`].
    pub fn new(config: Config) -> Self {
        Self::with_report(config, Arc::default())
    }

    /// The same, going on with a report.
    pub fn with_report(config: Config, report: Arc<Report>) -> Self {
        Self { config, report, progress: None }
    }

    /// The same with a source that says on demand how far its watches are, so that freshness costs a round
    /// trip and not a second.
    #[must_use]
    pub fn with_progress(self, progress: Arc<dyn RequestProgress>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// What it is doing.
    pub fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report)
    }

    /// Pushes until `stop` is set; then what was sent is durable, unless the cache cannot be reached.
    /// Failures are logged and waited out.
    pub async fn run(self, stop: CancellationToken) {
        let mut shard = self.shard();
        let Some(namespace) = &self.config.election_namespace else {
            while !stop.is_cancelled() {
                let error = shard.run(None, stop.clone()).await;
                if stop.is_cancelled() {
                    return;
                }
                self.stand_by(&error, &stop).await;
            }
            return;
        };
        let Config { source, shard: name, identity, .. } = &self.config;
        let mut candidate = Candidate::new(source.clone(), namespace, name, identity);
        while !stop.is_cancelled() {
            match candidate.campaign().await {
                Ok(Some(election)) => self.lead(&mut shard, &mut candidate, election, &stop).await,
                Ok(None) => {
                    self.report.standing_by();
                }
                Err(error) => tracing::warn!(%error, "the Lease cannot be had"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Pushes for as long as the Lease is ours.
    async fn lead(
        &self,
        shard: &mut Shard,
        candidate: &mut Candidate,
        election: shardcache_storage::Election,
        stop: &CancellationToken,
    ) {
        tracing::info!(shard = self.config.shard, term = election.term, "elected");
        let lost = CancellationToken::new();
        let stopped = stop.clone();
        let renew = async {
            let mut renewed = tokio::time::Instant::now();
            loop {
                tokio::select! {
                    () = stopped.cancelled() => break,
                    () = tokio::time::sleep(RETRY) => {}
                }
                let problem = match tokio::time::timeout(RENEW_TIME, candidate.campaign()).await {
                    Ok(Ok(Some(now))) if now == election => {
                        renewed = tokio::time::Instant::now();
                        continue;
                    }
                    Ok(Ok(_)) => {
                        tracing::warn!(shard = self.config.shard, "the Lease is not ours any more");
                        break;
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "the source does not answer".to_owned(),
                };
                tracing::warn!(shard = self.config.shard, problem, "the Lease was not renewed");
                if renewed.elapsed() > RENEW_TIME {
                    break;
                }
            }
            lost.cancel();
        };
        let push = shard.run(Some(election.clone()), lost.clone());
        let (push, ()) = {
            tokio::pin!(push, renew);
            tokio::select! {
                error = &mut push => (error, ()),
                () = &mut renew => (push.await, ()),
            }
        };
        self.report.standing_by();
        tracing::info!(shard = self.config.shard, reason = %push, "standing by");
        if let Err(error) = candidate.resign().await {
            tracing::debug!(%error, "the Lease was not given up");
        }
    }

    /// Waits before the shard is asked for again.
    async fn stand_by(&self, error: &CellError, stop: &CancellationToken) {
        self.report.standing_by();
        tracing::info!(shard = self.config.shard, reason = %error, "standing by");
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(5)) => {}
        }
    }

    fn shard(&self) -> Shard {
        let config = &self.config;
        let hello = Hello {
            holder: config.identity.clone(),
            // A replica that comes back is the same; a process that replaced it is not.
            instance: uuid::Uuid::new_v4().to_string(),
            source: config.source_id.clone(),
            ..Hello::default()
        };
        let turns = Arc::new(Semaphore::new(1));
        let cell = |resource: &Resource| Cell {
            shard: config.shard.clone(),
            cluster: config.cluster.clone(),
            resource: resource.clone(),
            source: Source::new(config.source.clone(), resource, &config.prefix),
            prune: config.prune,
            report: Arc::clone(&self.report),
            turns: Arc::clone(&turns),
            progress: self.progress.clone(),
            mirror: Arc::default(),
        };
        Shard {
            name: config.shard.clone(),
            target: config.target.clone(),
            hello,
            report: Arc::clone(&self.report),
            cells: config.resources.iter().map(cell).collect(),
        }
    }
}
