//! Has the roster follow names that somebody else keeps: the `shards.core.kcp.io` that one shard has sent
//! (`--roster-from-shards`), or a ConfigMap (`--roster-configmap`).
//!
//! A store that has seen nothing is seeded with a stand-in that is no shard: it never sends a catalog, so no
//! view over all shards is shown. Once the names are known, every one is expected and the stand-in is
//! forgotten, in that order; names that come later join. A store that has shown something already is seeded
//! with the names, once they are known: until then nobody has said which shards there ought to be, and no
//! view is called complete. A name that goes stays: that a shard is gone for good is for an operator to say.

pub(super) mod cached;
pub(super) mod config_map;

use std::time::Duration;

use shardcache_storage::{Push, Role, RosterChange, State, Store, Verdict};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{info, warn};

use super::seed;
use crate::failure::Failure;

/// Holds every gate until the names are known. Not a name that kcp gives to a shard.
pub(super) const STAND_IN: &str = "roster:shards";
/// How often the roster is held against the names.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Closes the gates of a store that has seen nothing.
pub(super) async fn begin(store: &dyn Store) -> Result<(), Failure> {
    let state = store.subscribe().state;
    let has_seen_nothing = !state.is_seeded() && state.tenures().next().is_none() && state.is_empty();
    if !has_seen_nothing {
        return Ok(());
    }
    seed::seed(store, &[STAND_IN.into()]).await
}

/// The names are known at once. A stand-in that waits for names from elsewhere gives way to them, as it would
/// have to those: no view has been shown meanwhile, so every one is awaited.
pub(super) async fn given(store: &dyn Store, shards: &[Box<str>]) -> Result<(), Failure> {
    let state = store.subscribe().state;
    if state.member(STAND_IN).is_some() {
        let names: Vec<&str> = shards.iter().map(|shard| &**shard).collect();
        tell(store, &state, &names, "the file").await;
    }
    seed::seed(store, shards).await
}

/// Once a second.
fn ticks() -> Interval {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Tells the store what its roster lacks of the names; what cannot be written now is for the next time.
async fn tell(store: &dyn Store, state: &State, names: &[&str], whence: &str) {
    let changes = lacks(state, names);
    if changes.is_empty() {
        return;
    }
    info!(?changes, whence, "the roster follows the names of shards");
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

/// What the roster lacks of the names; nothing if there are none.
fn lacks(state: &State, names: &[&str]) -> Vec<RosterChange> {
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
    } else if !state.is_seeded() || names.iter().any(|name| state.member(name).is_none()) {
        changes.push(RosterChange::Seed { shards: names.iter().map(|name| (*name).into()).collect() });
    }
    if stand_in.is_some() {
        changes.push(RosterChange::Forget { shard: STAND_IN.into() });
    }
    changes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shardcache_storage::{Attach, MemoryStore, Opening};

    use super::*;

    fn members(store: &MemoryStore) -> Vec<(String, Role)> {
        let state = store.subscribe().state;
        state.roster().map(|(name, member)| (name.to_owned(), member.role)).collect()
    }

    async fn told(store: &MemoryStore, names: &[&str]) -> Vec<(String, Role)> {
        tell(store, &store.subscribe().state, names, "the test").await;
        members(store)
    }

    fn of(roles: &[(&str, Role)]) -> Vec<(String, Role)> {
        roles.iter().map(|(name, role)| ((*name).to_owned(), *role)).collect()
    }

    async fn attach(store: &MemoryStore, shard: &str) {
        let (holder, instance) = ("h".into(), "i".into());
        let claim = Attach { shard: shard.into(), holder, instance, election: None, replaces: None };
        store.push(Push::Attach(claim)).await.expect("it is writable");
    }

    #[tokio::test]
    async fn d42_whom_a_new_store_waits_for_is_known_with_the_names() {
        let store: Arc<MemoryStore> = MemoryStore::new(Opening::from_system());
        begin(&*store).await.expect("it is writable");
        assert_eq!(members(&store), of(&[(STAND_IN, Role::Expected)]));
        attach(&store, "beryl").await;
        assert_eq!(told(&store, &[]).await.len(), 2, "nobody was named: nothing is known");
        let both = of(&[("amber", Role::Expected), ("beryl", Role::Expected)]);
        assert_eq!(told(&store, &["amber", "beryl"]).await, both);
        // What is named later joins, and what is not named any more stays.
        let three = of(&[("amber", Role::Expected), ("beryl", Role::Expected), ("coral", Role::Joining)]);
        assert_eq!(told(&store, &["amber", "coral"]).await, three);
        assert!(lacks(&store.subscribe().state, &["coral"]).is_empty(), "nothing is written anew");
        begin(&*store).await.expect("it is writable");
        assert_eq!(members(&store), three, "the next start");
    }

    #[tokio::test]
    async fn d42_names_that_are_given_after_all_take_the_place_of_the_stand_in() {
        let store = MemoryStore::new(Opening::from_system());
        begin(&*store).await.expect("it is writable");
        attach(&store, "beryl").await;
        let names: Vec<Box<str>> = vec!["amber".into(), "beryl".into()];
        given(&*store, &names).await.expect("it is writable");
        let both = of(&[("amber", Role::Expected), ("beryl", Role::Expected)]);
        assert_eq!(members(&store), both, "nothing was shown yet, so both are awaited");
        let more: Vec<Box<str>> = vec!["amber".into(), "coral".into()];
        given(&*store, &more).await.expect("it is writable");
        assert_eq!(members(&store).last(), Some(&("coral".to_owned(), Role::Joining)), "that comes later");
    }

    #[tokio::test]
    async fn d42_a_store_that_has_shown_something_is_seeded_by_the_names_alone() {
        let store = MemoryStore::new(Opening::from_system());
        attach(&store, "amber").await;
        begin(&*store).await.expect("it is writable");
        let joining = of(&[("amber", Role::Joining)]);
        assert_eq!((members(&store), store.subscribe().state.is_seeded()), (joining.clone(), false));
        assert_eq!(told(&store, &["amber"]).await, joining);
        assert!(store.subscribe().state.is_seeded(), "somebody has said which there ought to be");
    }
}
