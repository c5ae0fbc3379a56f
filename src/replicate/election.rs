//! Which of several replicas pushes: a Lease at the source, as controllers elect their leaders.
//!
//! The rules are those of client-go's `leaderelection`: a Lease that nobody renewed for its whole duration,
//! as seen from here, may be taken; times in it are of other clocks and are not compared. Its uid and
//! transitions go into the hello, so that the cache can tell a leader from one that was replaced.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use shardcache_storage::Election;
use tokio::time::Instant;

/// How long a Lease holds without being renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long the leader tries to renew it before it stops.
pub(super) const RENEW_TIME: Duration = Duration::from_secs(10);
/// Pause between two tries.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// A candidate.
pub(super) struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    /// What was last seen of the Lease, and when it was seen to change.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    pub(super) fn new(client: Client, namespace: &str, shard: &str, identity: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: format!("shardcache-replicator-{shard}"),
            identity: identity.to_owned(),
            seen: None,
        }
    }

    /// Takes or renews the Lease, once; `None` if somebody else holds it.
    pub(super) async fn campaign(&mut self) -> Result<Option<Election>, kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return self.write(self.claim(None)).await;
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != version) {
            self.seen = Some((version, Instant::now()));
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let duration =
            Duration::from_secs(spec.lease_duration_seconds.unwrap_or(15).max(1).unsigned_abs().into());
        let expired = self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() > duration);
        if holder.is_empty() || holder == self.identity || expired {
            self.write(self.claim(Some(lease))).await
        } else {
            Ok(None)
        }
    }

    /// Gives the Lease up, so that another replica need not wait.
    pub(super) async fn resign(&mut self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.identity) {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }

    fn claim(&self, held: Option<Lease>) -> Lease {
        let now = Some(MicroTime(Timestamp::now()));
        let mut lease = held.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        let before = lease.spec.take().unwrap_or_default();
        let is_ours = before.holder_identity.as_deref() == Some(&self.identity);
        let transitions = before.lease_transitions.unwrap_or(0);
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(DURATION.as_secs() as i32),
            acquire_time: if is_ours { before.acquire_time } else { now.clone() },
            renew_time: now,
            lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        });
        lease
    }

    async fn write(&mut self, lease: Lease) -> Result<Option<Election>, kube::Error> {
        let written = if lease.metadata.resource_version.is_some() {
            self.leases.replace(&self.name, &PostParams::default(), &lease).await
        } else {
            self.leases.create(&PostParams::default(), &lease).await
        };
        match written {
            Ok(lease) => {
                self.seen = Some((lease.metadata.resource_version.unwrap_or_default(), Instant::now()));
                let term = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or(0).max(0);
                let uid = lease.metadata.uid.unwrap_or_default().into();
                Ok(Some(Election { uid, term: term.unsigned_abs().into() }))
            }
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }
}
