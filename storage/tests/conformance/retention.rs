//! D15 on the real engine: what is forgotten, when, and who pays.

use std::time::Duration;

use shardcache_storage::{RedbOptions, RedbStore, Revision, State, StorageError, Store, Subscription};

use crate::objects::{
    START_MS, UNLIMITED, apply, contents, cowboys, delete, opening, opening_now, put, put_of, read_log,
    read_retained, sheriffs,
};
use crate::{Engine, Rig};

/// Follows a store until its state is as wanted.
async fn follow_until(following: &mut Subscription, wanted: impl Fn(&State) -> bool) -> State {
    let mut state = following.state.clone();
    while !wanted(&state) {
        let next = tokio::time::timeout(Duration::from_secs(30), following.commits.recv());
        state = next.await.expect("the condition comes true").expect("the store is open").state;
    }
    state
}

#[tokio::test]
async fn d15_an_idle_store_forgets_what_is_too_old() {
    let rig = Rig { history_age: Duration::from_millis(300), ..Rig::new(Engine::Redb) };
    let store = rig.open();
    let mut following = store.subscribe();
    apply(&*store, put("a", "1")).await;
    apply(&*store, put("a", "2")).await;
    let last = apply(&*store, put_of(sheriffs(), "s", "1")).await.head;
    let state = follow_until(&mut following, |state| {
        state.floor(&sheriffs()) == last && state.floor(&cowboys()) == Revision(last.0 - 1)
    })
    .await;
    assert_eq!((state.head(), state.len()), (last, 2), "live objects stay");
    let gone = store.events(&cowboys(), Revision::ZERO, last, UNLIMITED).await;
    assert!(matches!(gone, Err(StorageError::Compacted { .. })));
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d15_age_counts_across_a_restart() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open_as(opening(START_MS, 1)).expect("opens");
    let last = apply(&*store, put("a", "1")).await.head;
    store.close().await.expect("closes");
    // Half an hour later the event is still there; two hours later it is not.
    let store = rig.open_as(opening(START_MS + 1_800_000, 2)).expect("opens");
    assert_eq!(read_log(&*store, &cowboys(), Revision::ZERO, UNLIMITED).await.expect("readable").len(), 1);
    store.close().await.expect("closes");
    let store = rig.open_as(opening(START_MS + 7_200_000, 3)).expect("opens");
    let mut following = store.subscribe();
    follow_until(&mut following, |state| state.floor(&cowboys()) == last).await;
    store.close().await.expect("closes");
}

#[tokio::test]
async fn d15_a_noisy_type_does_not_use_up_a_quiet_ones_history() {
    let rig = Rig { history_bytes: 256 << 10, ..Rig::new(Engine::Redb) };
    let store = rig.open();
    let payload = "x".repeat(2000);
    for i in 0..10 {
        apply(&*store, put_of(sheriffs(), "quiet", &i.to_string())).await;
    }
    for round in 0..40 {
        let batch = (0..20).map(|i| put(&format!("noisy{i}"), &format!("{round}{payload}"))).collect();
        store.commit(batch).await.expect("writes");
    }
    // Only now: a subscriber that does not read holds up the writer.
    let mut following = store.subscribe();
    let state = follow_until(&mut following, |state| state.floor(&cowboys()) > Revision::ZERO).await;
    assert_eq!(state.floor(&sheriffs()), Revision::ZERO);
    drop(following);
    store.close().await.expect("closes");
    // What is left fits the limit: 20 live objects and the history of the rest. Forgetting goes in steps,
    // and the store may have been closed between two of them.
    let store = rig.open();
    let mut following = store.subscribe();
    let superseded = loop {
        let (_, events, _) = read_retained(&*store, &cowboys()).await;
        let superseded =
            events.iter().filter_map(|event| Some(event.previous.as_ref()?.size())).sum::<usize>();
        if superseded as u64 <= 256 << 10 {
            break superseded;
        }
        let step = tokio::time::timeout(Duration::from_secs(30), following.commits.recv()).await;
        step.unwrap_or_else(|_| panic!("{superseded} superseded bytes stay")).expect("the store is open");
    };
    drop(following);
    assert!(superseded as u64 >= 128 << 10, "no more than necessary is forgotten: {superseded}");
    let quiet = read_log(&*store, &sheriffs(), Revision::ZERO, UNLIMITED).await.expect("readable");
    assert_eq!(quiet.len(), 10);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn compaction_removes_records_from_the_file_and_what_is_left_opens_the_same() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    for i in 0..3000 {
        let change = if i % 10 == 9 {
            delete(&format!("o{}", (i - 1) % 50))
        } else {
            put(&format!("o{}", i % 50), "x")
        };
        drop(store.commit(vec![change]));
    }
    let head = apply(&*store, put("last", "x")).await.head;
    let floor = store.compact(cowboys(), Revision(head.0 - 10)).await.expect("compacts");
    assert_eq!(floor, Revision(head.0 - 10), "more than one transaction's worth");
    let before = contents(&store.subscribe().state);
    let live = store.subscribe().state.len() as u64;
    store.close().await.expect("closes");
    let seen = std::sync::Arc::new(std::sync::Mutex::new(0));
    let options = {
        let seen = std::sync::Arc::clone(&seen);
        RedbOptions {
            progress: Some(std::sync::Arc::new(move |progress| {
                *seen.lock().expect("not poisoned") = progress.total;
            })),
            ..rig.options(opening_now())
        }
    };
    let store = RedbStore::open(options).expect("opens");
    assert_eq!(contents(&store.subscribe().state), before);
    let records = *seen.lock().expect("not poisoned");
    assert!(records >= live && records <= live + 20, "{records} records for {live} objects");
    store.close().await.expect("closes");
}
