//! A control plane that keeps the cache of its fleet in its own process: a replicator beside an embedded cache.
//!
//! Run it with `cargo run --example embedded_replicator`; it ends by itself, and needs no server, no socket
//! and no cluster. The API server of shard `amber` is played by a second embedded cache; a real one is a
//! `kube::Client` like any other.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use shardcache::embedded::{EmbeddedCache, Identity, Scope};
use shardcache::replicate::{Config, Prune, Replicator, Resource};
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROLES: usize = 50;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let source = EmbeddedCache::builder().memory().start()?;
    let cache = EmbeddedCache::builder().redb(directory.path()).start()?;
    let origin = source.client(&Scope::shard("origin").cluster("root"), &Identity::admin());
    let roles: Api<ClusterRole> = Api::all(origin.clone());
    for n in 0..ROLES {
        roles.create(&PostParams::default(), &role(n)).await?;
    }

    let replicator = Replicator::new(Config {
        shard: "amber".to_owned(),
        cluster: "root".to_owned(),
        source: origin,
        prefix: String::new(),
        source_id: "origin".to_owned(),
        target: cache.push_target(&Identity::shard("amber")),
        resources: vec![Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles")],
        prune: Prune::default(),
        identity: "example".to_owned(),
        election_namespace: None,
    });
    let stop = CancellationToken::new();
    let pushing = tokio::spawn(replicator.run(stop.clone()));

    // A controller over all shards: here it counts.
    let reader = cache.client(&Scope::wildcard(), &Identity::named("controller", &[]));
    let events = watcher(Api::<ClusterRole>::all(reader), watcher::Config::default()).default_backoff();
    let mut events = pin!(events);
    let (mut known, mut removed) = (std::collections::BTreeSet::new(), false);
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::InitApply(role) | watcher::Event::Apply(role) => {
                known.insert(role.name_any());
            }
            watcher::Event::Delete(role) => {
                known.remove(&role.name_any());
            }
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
        if known.len() == ROLES && !removed {
            println!("{ROLES} roles of shard amber have arrived");
            roles.delete("role-7", &DeleteParams::default()).await?;
            removed = true;
        } else if removed && known.len() == ROLES - 1 {
            println!("what was deleted at the source is deleted in the cache");
            break;
        }
    }
    stop.cancel();
    pushing.await?;
    cache.shutdown(Duration::from_secs(5)).await?;
    source.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

fn role(n: usize) -> ClusterRole {
    ClusterRole {
        metadata: ObjectMeta { name: Some(format!("role-{n}")), ..ObjectMeta::default() },
        ..ClusterRole::default()
    }
}
