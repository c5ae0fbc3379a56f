//! Preconditions and what a change turns into.

use shardcache_storage::{Action, Change, Guard, Refusal, Revision};

use crate::objects::{
    UNLIMITED, apply, commit_one, cowboys, create, delete, key, put, put_guarded, read_log, sheriffs,
};
use crate::{Engine, Rig, on_every_engine};

on_every_engine! {
    create_of_an_existing_key_is_refused_with_the_object_that_has_it,
    a_change_of_nothing_is_refused,
    existence_is_judged_before_uid_and_uid_before_version,
    a_refused_change_fails_alone_and_writes_nothing,
    changes_of_one_batch_see_each_other,
    another_uid_is_a_deletion_and_a_creation_in_one_commit,
    the_same_uid_or_none_is_a_change,
    equal_keys_of_two_types_are_two_objects,
}

async fn create_of_an_existing_key_is_refused_with_the_object_that_has_it(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let first = apply(&*store, create("a", "one")).await;
    let refusal = commit_one(&*store, create("a", "two")).await.expect_err("it exists");
    let Refusal::AlreadyExists(object) = refusal else { panic!("{refusal:?}") };
    assert_eq!(object.revision(), first.event.revision);
    assert_eq!(store.subscribe().state.head(), first.head, "nothing was written");
}

async fn a_change_of_nothing_is_refused(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let wants_one = [
        Guard { exists: Some(true), ..Guard::default() },
        Guard { uid: Some("u".into()), ..Guard::default() },
        Guard { resource_version: Some(store.subscribe().state.resource_version()), ..Guard::default() },
    ];
    for guard in wants_one {
        let change = put_guarded(cowboys(), "a", "", "x", guard);
        assert_eq!(commit_one(&*store, change).await.expect_err("no object"), Refusal::NotFound);
    }
    assert_eq!(commit_one(&*store, delete("a")).await.expect_err("no object"), Refusal::NotFound);
}

async fn existence_is_judged_before_uid_and_uid_before_version(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let old = apply(&*store, put_guarded(cowboys(), "a", "u-1", "one", Guard::default())).await;
    let current = apply(&*store, put_guarded(cowboys(), "a", "u-1", "two", Guard::default())).await;
    let stale = Some(old.event.resource_version);
    let all_wrong = Guard { exists: Some(false), uid: Some("u-2".into()), resource_version: stale };
    let with = |guard| put_guarded(cowboys(), "a", "u-1", "three", guard);
    let refused = |result: Result<_, Refusal>| result.map(drop).expect_err("the guard fails");
    let refusal = refused(commit_one(&*store, with(all_wrong.clone())).await);
    assert!(matches!(refusal, Refusal::AlreadyExists(_)), "{refusal:?}");
    let refusal = refused(commit_one(&*store, with(Guard { exists: None, ..all_wrong.clone() })).await);
    assert!(matches!(refusal, Refusal::UidMismatch(_)), "{refusal:?}");
    let refusal = refused(commit_one(&*store, with(Guard { exists: None, uid: None, ..all_wrong })).await);
    assert!(matches!(refusal, Refusal::VersionMismatch(_)), "{refusal:?}");
    let right = Guard {
        exists: Some(true),
        uid: Some("u-1".into()),
        resource_version: Some(current.event.resource_version),
    };
    let delete = Change { type_name: cowboys(), key: key("a"), guard: right, action: Action::Delete };
    assert!(apply(&*store, delete).await.event.current.is_none());
}

async fn a_refused_change_fails_alone_and_writes_nothing(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let before = store.subscribe().state.head();
    let batch = vec![create("a", "1"), create("a", "2"), delete("zzz"), create("b", "3")];
    let receipt = store.commit(batch).await.expect("the batch is committed");
    assert!(receipt[0].is_ok() && receipt[3].is_ok());
    assert!(matches!(receipt[1], Err(Refusal::AlreadyExists(_))));
    assert!(matches!(receipt[2], Err(Refusal::NotFound)));
    let state = store.subscribe().state;
    assert_eq!(state.head(), Revision(before.0 + 2));
    assert_eq!(state.len(), 2);
}

async fn changes_of_one_batch_see_each_other(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let receipt = store.commit(vec![create("a", "1"), delete("a"), create("a", "2")]).await.expect("writes");
    assert!(receipt.iter().all(Result::is_ok));
    let revisions: Vec<_> =
        receipt.iter().map(|applied| applied.as_ref().expect("applied").event.revision.0).collect();
    assert_eq!(revisions, [revisions[0], revisions[0] + 1, revisions[0] + 2]);
    let state = store.subscribe().state;
    let object = state.get(&cowboys(), key("a").as_str()).expect("it is there");
    assert!(String::from_utf8_lossy(object.body_bytes()).contains(r#""spec":"2""#));
    assert_eq!(object.previous_revision(), Revision::ZERO, "it is a new object");
}

async fn another_uid_is_a_deletion_and_a_creation_in_one_commit(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    apply(&*store, put_guarded(cowboys(), "a", "u-1", "old", Guard::default())).await;
    let mut following = store.subscribe();
    let applied = apply(&*store, put_guarded(cowboys(), "a", "u-2", "new", Guard::default())).await;
    let commit = following.commits.recv().await.expect("a commit");
    assert_eq!(commit.events.len(), 2);
    let (deleted, created) = (&commit.events[0], &commit.events[1]);
    assert!(deleted.current.is_none() && created.previous.is_none());
    assert_eq!(deleted.previous.as_ref().expect("the old one").uid(), "u-1");
    assert_eq!(created.current.as_ref().expect("the new one").uid(), "u-2");
    assert_eq!(created.revision, deleted.revision.next());
    assert_eq!(applied.event.revision, created.revision, "the receipt names the last event");
}

async fn the_same_uid_or_none_is_a_change(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    for (first, second) in [("u-1", "u-1"), ("", "u-1"), ("u-1", "")] {
        let name = format!("{first}-{second}");
        let before = apply(&*store, put_guarded(cowboys(), &name, first, "old", Guard::default())).await;
        let after = apply(&*store, put_guarded(cowboys(), &name, second, "new", Guard::default())).await;
        assert_eq!(after.event.revision, before.event.revision.next(), "{first:?} to {second:?}");
        assert!(after.event.previous.is_some() && after.event.current.is_some());
    }
}

async fn equal_keys_of_two_types_are_two_objects(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    apply(&*store, create("a", "cowboy")).await;
    let guard = Guard { exists: Some(false), ..Guard::default() };
    apply(&*store, put_guarded(sheriffs(), "a", "", "sheriff", guard)).await;
    apply(&*store, put("a", "changed")).await;
    let of_cowboys = read_log(&*store, &cowboys(), Revision::ZERO, UNLIMITED).await.expect("readable");
    let of_sheriffs = read_log(&*store, &sheriffs(), Revision::ZERO, UNLIMITED).await.expect("readable");
    assert_eq!((of_cowboys.len(), of_sheriffs.len()), (2, 1));
    assert_eq!(store.subscribe().state.len(), 2);
}
