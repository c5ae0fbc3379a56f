//! Tells a store which shards ought to exist, before anybody can ask it or write to it.

use shardcache_storage::{Push, RosterChange, Store};
use tracing::info;

use crate::failure::Failure;

/// Seeds the roster with these names. A store that knows them all is asked nothing, so that one that cannot
/// write now still serves.
pub(super) async fn seed(store: &dyn Store, shards: &[Box<str>]) -> Result<(), Failure> {
    let state = store.subscribe().state;
    if state.is_seeded() && shards.iter().all(|shard| state.member(shard).is_some()) {
        return Ok(());
    }
    // A store that was lost and not told would show a part of everything for the whole.
    let seeded = store.push(Push::Roster(RosterChange::Seed { shards: shards.to_vec() })).await;
    seeded.map_err(|error| Failure::Store(format!("the roster of shards cannot be noted: {error}")))?;
    let state = store.subscribe().state;
    let waits = state.roster().filter(|(_, member)| member.gates()).count();
    info!(shards = shards.len(), waits, "seeded the roster of shards");
    Ok(())
}

#[cfg(test)]
mod tests {
    use shardcache_storage::{MemoryStore, Opening};

    use super::*;

    #[tokio::test]
    async fn d42_a_store_that_cannot_be_told_whom_to_wait_for_is_not_served() {
        let store = MemoryStore::new(Opening::from_system());
        let shards: Vec<Box<str>> = vec!["amber".into()];
        store.close().await.expect("closes");
        let failure = seed(&*store, &shards).await.expect_err("it cannot write");
        assert!(matches!(failure, Failure::Store(_)), "{failure:?}");
        assert!(failure.line().contains("roster"), "{failure}");
    }

    #[tokio::test]
    async fn d42_a_store_that_knows_all_of_them_need_not_write() {
        let store = MemoryStore::new(Opening::from_system());
        let shards: Vec<Box<str>> = vec!["amber".into(), "beryl".into()];
        seed(&*store, &shards).await.expect("it can write");
        store.close().await.expect("closes");
        assert_eq!(seed(&*store, &shards).await, Ok(()));
        assert_eq!(seed(&*store, &shards[..1]).await, Ok(()), "fewer names take nobody away");
        let more: Vec<Box<str>> = vec!["coral".into()];
        assert!(seed(&*store, &more).await.is_err());
    }
}
