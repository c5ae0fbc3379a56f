//! Has the roster follow the `shards.core.kcp.io` that one shard has sent (`--roster-from-shards`).
//!
//! A store that has seen nothing is seeded with a stand-in that is no shard: it never sends a catalog, so no
//! view over all shards is shown. Once the naming shard's type of shards has synced, every name is expected
//! and the stand-in is forgotten, in that order; names that come later join. A name that goes stays: that a
//! shard is gone for good is for an operator to say.
//!
//! The task — *owns* nothing; *receives* the cache's snapshots, once a second; *sends* changes of the roster
//! to the store; *stops when* it is aborted, with the store.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use shardcache_proxy::cache::WatchCache;
use shardcache_proxy::http::path::is_shard_name;
use shardcache_storage::{Cell, CellName, Push, Role, RosterChange, State, Store, TypeName, Verdict};
use tracing::{info, warn};

use super::seed;
use crate::failure::Failure;

/// Holds every gate until the names are known. Not a name that kcp gives to a shard.
pub(super) const STAND_IN: &str = "roster:shards";
/// How often the cache is asked for names.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The logical cluster whose objects count: nobody but kcp's administrators writes shards there.
const CLUSTER: &str = "root";

/// Closes the gates of a store that has seen nothing.
pub(super) async fn begin(store: &dyn Store) -> Result<(), Failure> {
    if store.subscribe().state.is_seeded() {
        return Ok(());
    }
    seed::seed(store, &[STAND_IN.into()]).await
}

/// Tells the store of every name, for as long as it is polled.
pub(super) async fn follow(store: Arc<dyn Store>, cache: WatchCache, naming: Box<str>) {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let changes = changes(&cache.snapshot().state, &naming);
        if changes.is_empty() {
            continue;
        }
        info!(?changes, naming, "the roster follows the cached shards");
        // Queued in this order, so applied in it.
        let answers: Vec<_> = changes.into_iter().map(|change| store.push(Push::Roster(change))).collect();
        for answer in futures::future::join_all(answers).await {
            match answer.map(|pushed| pushed.verdict) {
                Ok(Verdict::Broken(problem)) => warn!(%problem, "the roster"),
                Ok(_) => {}
                Err(failure) => warn!(%failure, "the roster cannot be written now; it is tried again"),
            }
        }
    }
}

/// What the roster lacks of what the naming shard has sent; nothing before that is complete, and nothing
/// if it names nobody.
fn changes(state: &State, naming: &str) -> Vec<RosterChange> {
    let type_name = TypeName::new("core.kcp.io", "shards");
    if !state.cell(&CellName::new(naming, type_name.clone())).is_some_and(Cell::is_managed) {
        return Vec::new();
    }
    // NUL separates the parts of a key: U+0001 is above every key of the cluster and below the next.
    let (from, to) = (format!("{naming}\0{CLUSTER}\0"), format!("{naming}\0{CLUSTER}\u{1}"));
    let objects = state.objects(&type_name).into_iter();
    let names: Vec<&str> = objects
        .flat_map(|objects| objects.range(Bound::Included(&from), Bound::Excluded(&to)))
        .map(|object| object.parts().name)
        .filter(|name| is_shard_name(name))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let stand_in = state.member(STAND_IN).map(|member| member.role);
    let mut changes = Vec::new();
    if stand_in == Some(Role::Expected) {
        // No view has been shown yet, so whoever came before its name was known is awaited too.
        let is_new = |name: &&&str| state.member(name).is_none_or(|member| member.role == Role::Joining);
        changes
            .extend(names.iter().filter(is_new).map(|name| RosterChange::Expect { shard: (*name).into() }));
    } else {
        let shards: Vec<Box<str>> =
            names.iter().filter(|name| state.member(name).is_none()).map(|name| (*name).into()).collect();
        if !shards.is_empty() {
            changes.push(RosterChange::Seed { shards });
        }
    }
    if stand_in.is_some() {
        changes.push(RosterChange::Forget { shard: STAND_IN.into() });
    }
    changes
}
