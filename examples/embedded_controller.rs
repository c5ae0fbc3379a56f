//! A controller over an embedded cache: no server, no socket, no cluster.
//!
//! Run it with `cargo run --example embedded_controller`; it ends by itself.
//!
//! Three shards hold cluster roles. The controller watches all of them through one wildcard client and keeps
//! a copy of each role that is labelled `publish=true` in the shard `directory`. When every copy is there, the
//! process shuts the cache down, opens the same store again, and shows that a watch resumes where it ended,
//! without listing anything.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use shardcache::embedded::{EmbeddedCache, Identity, Scope};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SHARDS: [&str; 3] = ["amber", "sapphire", "onyx"];
const ROLES_PER_SHARD: usize = 20;
/// The shard that the controller writes to.
const DIRECTORY: &str = "directory";
const SHARD_ANNOTATION: &str = "kcp.io/shard";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let cache = EmbeddedCache::builder().redb(directory.path()).start()?;
    // As kcp's shards would do it, each with its own identity.
    for shard in SHARDS {
        write_roles(&cache, shard).await?;
    }

    let everything = cache.client(&Scope::wildcard(), &Identity::named("publisher", &[]));
    let target = cache.client(&Scope::shard(DIRECTORY).cluster("root"), &Identity::shard(DIRECTORY));
    let copies: Api<ClusterRole> = Api::all(target);
    let wanted = SHARDS.len() * ROLES_PER_SHARD / 2;

    let done = tokio::spawn(published(copies.clone(), wanted));
    let controller = Controller::new(Api::<ClusterRole>::all(everything), watcher::Config::default())
        .graceful_shutdown_on(async move { drop(done.await) })
        .run(publish, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(copies.clone()))
        .filter_map(|outcome| async move { outcome.err() })
        .for_each(|error| async move { eprintln!("{error}") });
    controller.await;

    let published = copies.list(&ListParams::default()).await?;
    println!("{} roles of {} shards are published in {DIRECTORY}", published.items.len(), SHARDS.len());
    let seen = published.metadata.resource_version.unwrap_or_default();
    cache.shutdown(Duration::from_secs(5)).await?;

    resume(directory.path(), &seen).await
}

/// Half of a shard's roles are to be published.
async fn write_roles(cache: &EmbeddedCache, shard: &str) -> Result<(), Failure> {
    let client = cache.client(&Scope::shard(shard).cluster("root"), &Identity::shard(shard));
    let roles: Api<ClusterRole> = Api::all(client);
    for number in 0..ROLES_PER_SHARD {
        let mut role = ClusterRole {
            rules: Some(vec![PolicyRule {
                verbs: vec!["get".to_owned()],
                non_resource_urls: Some(vec![format!("/{number}")]),
                ..PolicyRule::default()
            }]),
            ..ClusterRole::default()
        };
        role.metadata.name = Some(format!("{shard}-{number}"));
        if number % 2 == 0 {
            role.labels_mut().insert("publish".to_owned(), "true".to_owned());
        }
        roles.create(&PostParams::default(), &role).await?;
    }
    Ok(())
}

/// One reconciliation: the copy exists and has the same rules.
async fn publish(role: Arc<ClusterRole>, copies: Arc<Api<ClusterRole>>) -> Result<Action, kube::Error> {
    let from = role.annotations().get(SHARD_ANNOTATION).map_or("", String::as_str);
    let wanted = role.labels().get("publish").is_some_and(|value| value == "true");
    if from != DIRECTORY && wanted {
        let mut copy = ClusterRole { rules: role.rules.clone(), ..ClusterRole::default() };
        copy.metadata.name = Some(role.name_any());
        match copies.get_opt(&role.name_any()).await? {
            Some(current) if current.rules == copy.rules => {}
            Some(current) => {
                copy.metadata.resource_version = current.resource_version();
                copies.replace(&role.name_any(), &PostParams::default(), &copy).await?;
            }
            None => drop(copies.create(&PostParams::default(), &copy).await?),
        }
    }
    Ok(Action::await_change())
}

/// Resolves when so many copies are there: the end of this example, not of a real controller.
async fn published(copies: Api<ClusterRole>, wanted: usize) {
    let mut events = pin!(watcher(copies, watcher::Config::default()));
    let mut names = std::collections::BTreeSet::new();
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::InitApply(role) | watcher::Event::Apply(role)) = event {
            names.insert(role.name_any());
        }
        if names.len() >= wanted {
            return;
        }
    }
}

/// Opens the store again and watches on from a version of its earlier life.
async fn resume(directory: &std::path::Path, version: &str) -> Result<(), Failure> {
    let cache = EmbeddedCache::builder().redb(directory).start()?;
    let client = cache.client(&Scope::wildcard(), &Identity::named("publisher", &[]));
    let roles: Api<ClusterRole> = Api::all(client);
    let parameters = WatchParams::default().timeout(20);
    let mut events = pin!(roles.watch(&parameters, version).await?);
    let late = cache.client(&Scope::shard("amber").cluster("root"), &Identity::shard("amber"));
    let mut role = ClusterRole::default();
    role.metadata.name = Some("late".to_owned());
    Api::all(late).create(&PostParams::default(), &role).await?;
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(role) = event {
            println!("after a restart, watching on from {version}: {} was added", role.name_any());
            break;
        }
    }
    cache.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
