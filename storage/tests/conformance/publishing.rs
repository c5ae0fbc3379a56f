//! Commits as subscribers see them: order, no gap, durable before visible, bounds, closing.

use std::collections::BTreeSet;
use std::sync::Arc;

use shardcache_storage::{Health, Revision, StorageError};

use crate::objects::{apply, contents, cowboys, create, delete, key, put};
use crate::{Engine, Rig, on_every_engine};

on_every_engine! {
    no_two_events_share_a_revision_and_versions_rise,
    subscribing_under_concurrent_writers_leaves_no_gap,
    an_acknowledged_change_is_in_the_published_state,
    a_deletion_carries_the_previous_content_under_its_own_version,
    an_empty_commit_is_answered,
    a_dropped_future_does_not_take_the_change_back,
    a_full_queue_refuses_and_forgets_what_it_refused,
    closing_finishes_what_is_queued_and_ends_subscriptions,
    a_commit_that_changes_nothing_publishes_nothing,
}

async fn no_two_events_share_a_revision_and_versions_rise(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let mut following = store.subscribe();
    for round in 0..20 {
        let batch = (0..5).map(|i| put(&format!("o{i}"), &round.to_string())).collect();
        store.commit(batch).await.expect("writes");
    }
    let mut last = following.state.resource_version();
    for _ in 0..20 {
        let commit = following.commits.recv().await.expect("a commit");
        for event in commit.events.iter() {
            assert!(event.resource_version > last, "versions rise strictly");
            assert_eq!(event.revision, last.revision().next(), "revisions are contiguous");
            last = event.resource_version;
            let text = last.to_string();
            assert!(text.len() == 19 && !text.starts_with('0') && last.value() < 1 << 63, "{text}");
            let object = event.current.as_ref().expect("a put");
            assert_eq!(object.resource_version(), last, "the version is in the body");
        }
        assert_eq!(commit.state.resource_version(), last, "a commit's state is its last event");
    }
}

async fn subscribing_under_concurrent_writers_leaves_no_gap(engine: Engine) {
    const WRITERS: usize = 8;
    const WRITES: usize = 40;
    let rig = Rig::new(engine);
    let store = rig.open().shared();
    let start = store.subscribe().state.head();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for i in 0..WRITES {
                    let name = format!("w{writer}-{}", i % 5);
                    let change = if i % 7 == 6 { delete(&name) } else { put(&name, &i.to_string()) };
                    // A deletion may find nothing; that is not the point here.
                    drop(store.commit(vec![change]).await.expect("writes"));
                }
            })
        })
        .collect();
    // Subscribers that come at different times all arrive at the same state.
    let mut ends = BTreeSet::new();
    let mut followers = Vec::new();
    for _ in 0..10 {
        let mut following = store.subscribe();
        followers.push(tokio::spawn(async move {
            let mut state = following.state.clone();
            let mut folded = contents(&following.state);
            while let Some(commit) = following.commits.recv().await {
                let mut at = state.head();
                for event in commit.events.iter() {
                    assert_eq!(event.revision, at.next(), "no event is missing, none comes twice");
                    at = event.revision;
                }
                assert_eq!(commit.state.head(), at);
                state = commit.state;
                folded = contents(&state);
            }
            (state.head(), folded)
        }));
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    store.close().await.expect("closes");
    for follower in followers {
        ends.insert(follower.await.expect("a follower"));
    }
    assert_eq!(ends.len(), 1, "all followers end at the same state");
    let (head, folded) = ends.pop_first().expect("one");
    assert!(head > start);
    assert_eq!(folded, contents(&store.subscribe().state));
}

async fn an_acknowledged_change_is_in_the_published_state(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    for i in 0..50 {
        let applied = apply(&*store, put("a", &i.to_string())).await;
        let state = store.subscribe().state;
        assert!(state.head() >= applied.head && applied.head >= applied.event.revision);
        let object = state.get(&cowboys(), key("a").as_str()).expect("it is there");
        assert_eq!(object.revision(), applied.event.revision);
    }
}

async fn a_deletion_carries_the_previous_content_under_its_own_version(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let created = apply(&*store, create("a", "last words")).await;
    let deleted = apply(&*store, delete("a")).await;
    let before = created.event.current.as_ref().expect("a state").body();
    let departed = deleted.event.departed().expect("there was a state");
    let expected = String::from_utf8_lossy(&before)
        .replace(&created.event.resource_version.to_string(), &deleted.event.resource_version.to_string());
    assert_eq!(String::from_utf8_lossy(&departed), expected);
    assert_ne!(departed, before);
    assert!(created.event.departed().is_none());
}

async fn an_empty_commit_is_answered(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    assert!(store.commit(Vec::new()).await.expect("answered").is_empty());
}

async fn a_dropped_future_does_not_take_the_change_back(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    drop(store.commit(vec![create("a", "kept")]));
    // The queue is in order: when this one is answered, the first has been done.
    apply(&*store, create("b", "after")).await;
    assert!(store.subscribe().state.get(&cowboys(), key("a").as_str()).is_some());
}

async fn a_full_queue_refuses_and_forgets_what_it_refused(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    // A subscriber that does not read holds up the writer, so that the queue fills.
    let mut stalled = store.subscribe();
    let mut waiting = Vec::new();
    let mut accepted = 0;
    let refused = loop {
        let batch = (0..500).map(|i| put(&format!("o{i}"), "x")).collect();
        let mut commit = store.commit(batch);
        match futures::poll!(&mut commit) {
            std::task::Poll::Ready(Err(error)) => break error,
            std::task::Poll::Ready(Ok(_)) => accepted += 1,
            std::task::Poll::Pending => waiting.push(commit),
        }
        assert!(waiting.len() + accepted < 10_000, "the queue has a bound");
        tokio::task::yield_now().await;
    };
    assert!(matches!(refused, StorageError::Overloaded), "{refused}");
    let reader = tokio::spawn(async move {
        let mut events = 0;
        while let Some(commit) = stalled.commits.recv().await {
            events += commit.events.len();
        }
        events
    });
    accepted += waiting.len();
    for commit in waiting {
        commit.await.expect("what was queued is written");
    }
    store.close().await.expect("closes");
    assert_eq!(reader.await.expect("a reader"), accepted * 500, "what was refused was not written");
}

async fn closing_finishes_what_is_queued_and_ends_subscriptions(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let mut following = store.subscribe();
    let queued = store.commit(vec![create("a", "1")]);
    store.close().await.expect("closes");
    store.close().await.expect("closes twice");
    assert!(queued.await.expect("it was queued before")[0].is_ok());
    assert!(following.commits.recv().await.is_some());
    assert!(following.commits.recv().await.is_none(), "the subscription ends");
    assert!(matches!(store.commit(vec![create("b", "2")]).await, Err(StorageError::Closed)));
    assert_eq!(store.health(), Health::Closed);
    let mut late = store.subscribe();
    assert_eq!(late.state.len(), 1, "the last state can still be looked at");
    assert!(late.commits.recv().await.is_none());
}

async fn a_commit_that_changes_nothing_publishes_nothing(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let mut following = store.subscribe();
    store.commit(vec![delete("a")]).await.expect("answered")[0].as_ref().expect_err("nothing there");
    apply(&*store, create("a", "1")).await;
    let commit = following.commits.recv().await.expect("a commit");
    assert_eq!(commit.events.len(), 1);
    assert_eq!(commit.events[0].revision, Revision(following.state.head().0 + 1));
}
