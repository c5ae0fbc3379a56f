//! Reading the durable log, and forgetting it.

use std::sync::Arc;

use shardcache_storage::{Event, Object, Objects, ReadLimit, Revision, StorageError};

use crate::objects::{
    EventFacts, UNLIMITED, apply, contents, cowboys, create, delete, facts, key, put, put_of, read_log,
    sheriffs,
};
use crate::{AnyStore, Engine, Rig, on_every_engine};

on_every_engine! {
    reading_page_by_page_equals_what_was_published,
    a_page_is_bounded_and_says_how_far_it_is_complete,
    reading_past_the_head_promises_nothing_about_the_future,
    an_unknown_type_has_an_empty_history,
    compaction_raises_the_floor_to_the_newest_forgotten_event,
    a_watch_can_start_exactly_from_the_floor_on,
    compaction_never_touches_live_objects_or_other_types,
    i5_the_retained_log_undone_from_the_state_is_the_state_at_the_floor,
    compacting_again_or_lower_changes_nothing,
}

/// Some history of two types; returns what was published.
async fn some_history(store: &AnyStore) -> Vec<Arc<Event>> {
    let mut following = store.subscribe();
    for round in 0..30 {
        let batch = vec![
            put(&format!("o{}", round % 7), &round.to_string()),
            put_of(sheriffs(), &format!("s{}", round % 3), &round.to_string()),
            delete(&format!("o{}", (round + 3) % 7)),
        ];
        store.commit(batch).await.expect("writes");
    }
    let mut events = Vec::new();
    while let Ok(commit) = following.commits.try_recv() {
        events.extend(commit.events.iter().cloned());
    }
    events
}

fn facts_of<'a>(events: impl IntoIterator<Item = &'a Arc<Event>>) -> Vec<EventFacts> {
    events.into_iter().map(|event| facts(event)).collect()
}

async fn reading_page_by_page_equals_what_was_published(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let published = some_history(&store).await;
    for type_name in [cowboys(), sheriffs()] {
        let of_type: Vec<_> = published.iter().filter(|event| event.type_name == type_name).collect();
        for events in [1, 2, 7, 1000] {
            let limit = ReadLimit { events, bytes: usize::MAX };
            let read = read_log(&*store, &type_name, Revision::ZERO, limit).await.expect("readable");
            assert_eq!(facts_of(&read), facts_of(of_type.iter().copied()), "{events} at a time");
        }
        let middle = of_type[of_type.len() / 2].revision;
        let read = read_log(&*store, &type_name, middle, UNLIMITED).await.expect("readable");
        let rest = of_type.iter().copied().filter(|event| event.revision > middle);
        assert_eq!(facts_of(&read), facts_of(rest), "strictly after");
    }
}

async fn a_page_is_bounded_and_says_how_far_it_is_complete(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    for i in 0..10 {
        apply(&*store, put(&format!("o{i}"), &"x".repeat(1000))).await;
    }
    let head = store.subscribe().state.head();
    let tiny = ReadLimit { events: 100, bytes: 1 };
    let page = store.events(&cowboys(), Revision::ZERO, head, tiny).await.expect("readable");
    assert_eq!(page.events.len(), 1, "at least one event, however small the limit");
    assert_eq!(page.complete_to, page.events[0].revision);
    let some = ReadLimit { events: 100, bytes: 3500 };
    let page = store.events(&cowboys(), Revision::ZERO, head, some).await.expect("readable");
    assert!((3..=5).contains(&page.events.len()), "about as many bytes as asked for");
    let up_to = page.events[1].revision;
    let page = store.events(&cowboys(), Revision::ZERO, up_to, UNLIMITED).await.expect("readable");
    assert_eq!((page.events.len(), page.complete_to), (2, up_to));
}

async fn reading_past_the_head_promises_nothing_about_the_future(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let applied = apply(&*store, create("a", "1")).await;
    let far = Revision(applied.head.0 + 1_000_000);
    let page = store.events(&cowboys(), Revision::ZERO, far, UNLIMITED).await.expect("readable");
    assert_eq!((page.events.len(), page.complete_to), (1, applied.head));
}

async fn an_unknown_type_has_an_empty_history(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let applied = apply(&*store, create("a", "1")).await;
    let page = store.events(&sheriffs(), Revision::ZERO, applied.head, UNLIMITED).await.expect("readable");
    assert!(page.events.is_empty());
    assert_eq!(page.complete_to, applied.head);
}

async fn compaction_raises_the_floor_to_the_newest_forgotten_event(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let first = apply(&*store, put("a", "1")).await.event.revision;
    let other = apply(&*store, put_of(sheriffs(), "s", "1")).await.event.revision;
    let mut following = store.subscribe();
    assert_eq!(store.compact(cowboys(), other).await.expect("compacts"), first);
    let commit = following.commits.recv().await.expect("floors are published");
    assert!(commit.events.is_empty());
    assert_eq!(commit.state.floor(&cowboys()), first);
    assert_eq!(commit.state.floor(&sheriffs()), Revision::ZERO);
    assert_eq!(commit.state.head(), following.state.head());
}

async fn a_watch_can_start_exactly_from_the_floor_on(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let published = some_history(&store).await;
    let of_type: Vec<_> = published.iter().filter(|event| event.type_name == cowboys()).collect();
    let floor = of_type[of_type.len() / 2].revision;
    assert_eq!(store.compact(cowboys(), floor).await.expect("compacts"), floor);
    let head = store.subscribe().state.head();
    for after in (of_type[0].revision.0..floor.0 + 20).map(Revision) {
        let result = store.events(&cowboys(), after, head, UNLIMITED).await;
        if after < floor {
            let Err(StorageError::Compacted { requested, floor: told }) = result else { panic!("{after}") };
            assert_eq!((requested, told), (after, floor));
        } else {
            let rest = of_type.iter().copied().filter(|event| event.revision > after);
            assert_eq!(facts_of(&result.expect("readable").events), facts_of(rest));
        }
    }
}

async fn compaction_never_touches_live_objects_or_other_types(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    some_history(&store).await;
    let before = store.subscribe().state;
    let sheriffs_before = read_log(&*store, &sheriffs(), Revision::ZERO, UNLIMITED).await.expect("readable");
    let floor = store.compact(cowboys(), before.head()).await.expect("compacts");
    let after = store.subscribe().state;
    let objects = |state: &shardcache_storage::State| -> Vec<String> {
        contents(state).into_iter().filter(|line| !line.contains(" floor ")).collect()
    };
    assert_eq!(objects(&after), objects(&before));
    let sheriffs_after = read_log(&*store, &sheriffs(), Revision::ZERO, UNLIMITED).await.expect("readable");
    assert_eq!(facts_of(&sheriffs_after), facts_of(&sheriffs_before));
    let nothing = store.events(&cowboys(), floor, after.head(), UNLIMITED).await.expect("readable");
    assert!(nothing.events.is_empty());
}

async fn i5_the_retained_log_undone_from_the_state_is_the_state_at_the_floor(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let published = some_history(&store).await;
    let of_type: Vec<_> = published.iter().filter(|event| event.type_name == cowboys()).collect();
    let floor = of_type[of_type.len() / 3].revision;
    store.compact(cowboys(), floor).await.expect("compacts");
    // The state at the floor, from the events that are forgotten now …
    let mut at_floor = Objects::default();
    for event in of_type.iter().filter(|event| event.revision <= floor) {
        match &event.current {
            Some(object) => drop(at_floor.insert(object.clone())),
            None => drop(at_floor.remove(event.key())),
        }
    }
    // … equals the state now with the retained events undone.
    let mut undone = store.subscribe().state.objects(&cowboys()).expect("it has objects").clone();
    let retained = read_log(&*store, &cowboys(), floor, UNLIMITED).await.expect("readable");
    for event in retained.iter().rev() {
        match &event.previous {
            Some(object) => drop(undone.insert(object.clone())),
            None => drop(undone.remove(event.key())),
        }
    }
    let listed = |objects: &Objects| -> Vec<(Revision, Vec<u8>)> {
        objects.iter().map(|object: &Object| (object.revision(), object.body_bytes().to_vec())).collect()
    };
    assert_eq!(listed(&undone), listed(&at_floor));
    assert!(!at_floor.is_empty(), "the test compares something");
}

async fn compacting_again_or_lower_changes_nothing(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    apply(&*store, put("a", "1")).await;
    let second = apply(&*store, put("a", "2")).await.event.revision;
    assert_eq!(store.compact(cowboys(), second).await.expect("compacts"), second);
    assert_eq!(store.compact(cowboys(), second).await.expect("compacts"), second);
    assert_eq!(store.compact(cowboys(), Revision(second.0 - 1)).await.expect("compacts"), second);
    assert_eq!(store.compact(sheriffs(), second).await.expect("compacts"), Revision::ZERO);
    assert!(store.subscribe().state.get(&cowboys(), key("a").as_str()).is_some());
}
