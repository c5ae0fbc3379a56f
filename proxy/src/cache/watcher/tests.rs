use std::collections::BTreeSet;

use shardcache_storage::{DIGITS, Store};

use super::super::class::Transition;
use super::super::testing::*;
use super::super::{CacheConfig, CacheError};
use super::*;

const NOTHING: [&str; 0] = [];

fn tight(history_bytes: u64) -> CacheConfig {
    CacheConfig { history_bytes, ..CacheConfig::default() }
}

/// Takes everything there is, as events.
fn take(watcher: &mut Watcher) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while let Some(step) = poll_now(watcher) {
        match step {
            WatchStep::Events(deliveries) => {
                assert!(!deliveries.is_empty() && deliveries.len() <= BATCH_EVENTS);
                taken.extend(deliveries);
            }
            end => panic!("{end:?}"),
        }
    }
    taken
}

fn bookmark(watcher: &mut Watcher) -> Option<Revision> {
    watcher.bookmark().map(ResourceVersion::revision)
}

fn revisions(deliveries: &[Delivery]) -> Vec<Revision> {
    deliveries.iter().map(|delivery| delivery.event.revision).collect()
}

#[tokio::test]
async fn a_watcher_sees_what_happens_after_its_start() {
    let mut world = World::new();
    world.put("amber/root//a", "", "1").await;
    let mut watcher = world.watch(all(), world.head());
    assert_eq!(drain_now(&mut watcher), NOTHING);
    world.put("amber/root//a", "", "2").await;
    world.put("amber/root//b", "", "1").await;
    world.apply(change(gadgets(), "amber/root//g", Some(("", "1")))).await;
    world.delete("amber/root//a").await;
    assert_eq!(drain_now(&mut watcher), ["~a 2", "+b 1", "-a 2"]);
}

#[tokio::test]
async fn waiting_ends_with_the_next_event() {
    let mut world = World::new();
    let mut watcher = world.watch(all(), world.head());
    let waiting = tokio::spawn(async move { watcher.next().await });
    tokio::task::yield_now().await;
    world.put("amber/root//a", "", "1").await;
    let step = waiting.await.expect("no panic");
    assert!(matches!(step, WatchStep::Events(deliveries) if describe(&deliveries[0]) == "+a 1"));
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    let mut world = World::new();
    let mut watcher = world.watch(all(), world.head());
    for n in 0..20 {
        assert!(poll_now(&mut watcher).is_none(), "a wait that is given up");
        world.put("amber/root//a", "", &n.to_string()).await;
        let kind = if n == 0 { '+' } else { '~' };
        assert_eq!(drain_now(&mut watcher), [format!("{kind}a {n}")]);
    }
}

#[tokio::test]
async fn b007_watchers_share_one_event_and_versions_keep_their_length() {
    let mut world = World::new();
    let mut watchers: Vec<_> = (0..5).map(|_| world.watch(all(), world.head())).collect();
    for n in 0..100 {
        world.put("amber/root//a", "", &n.to_string()).await;
    }
    let seen: Vec<_> = watchers.iter_mut().map(take).collect();
    for delivery in &seen[0] {
        let object = delivery.event.current.as_ref().expect("a put");
        assert_eq!(object.resource_version().to_string().len(), DIGITS);
        assert_eq!(object.resource_version(), delivery.event.resource_version);
    }
    for other in &seen[1..] {
        assert_eq!(other.len(), 100);
        assert!(seen[0].iter().zip(other).all(|(one, two)| Arc::ptr_eq(&one.event, &two.event)));
    }
}

#[tokio::test]
async fn b017_with_an_empty_history_the_log_answers() {
    let mut world = World::new();
    let before = world.put("amber/root//a", "", "1").await.revision;
    let listed = world.put("amber/root//a", "", "2").await.revision;
    world.restart();
    assert_eq!(drain_now(&mut world.watch(all(), before)), ["~a 2"]);
    assert_eq!(drain_now(&mut world.watch(all(), listed)), NOTHING);
    // And on a type that never had an event in this process.
    let mut gadgets = world.cache.watch(&gadgets(), all(), before).expect("issued");
    assert_eq!(drain_now(&mut gadgets), NOTHING);
}

#[tokio::test]
async fn b025_a_deletion_carries_its_own_version() {
    let mut world = World::new();
    let mut watcher = world.watch(all(), world.head());
    for name in ["a", "b", "c"] {
        world.put(&format!("amber/root//{name}"), "", "last").await;
    }
    let deletion = world.delete("amber/root//a").await;
    let seen = take(&mut watcher);
    let last = seen.last().expect("four events");
    assert_eq!((last.kind, describe(last)), (Transition::Deleted, "-a last".to_owned()));
    assert!(seen[..3].iter().all(|earlier| earlier.event.revision < last.event.revision));
    let body = last.event.departed().expect("there was a state");
    let version = format!(r#""resourceVersion":"{}""#, deletion.resource_version);
    assert!(String::from_utf8_lossy(&body).contains(&version));
    assert_eq!(drain_now(&mut world.watch(all(), deletion.revision)), NOTHING);
}

#[tokio::test]
async fn b026_object_leaving_the_selector_is_deleted_with_previous_content() {
    let mut world = World::new();
    world.put("amber/root//x", "app=a", "old").await;
    let mut watcher = world.watch(filter("*/*", "app=a"), world.head());
    let change = world.put("amber/root//x", "app=b", "new").await;
    world.put("amber/root//x", "app=b", "unseen").await;
    world.put("amber/root//x", "app=a", "back").await;
    let seen = take(&mut watcher);
    assert_eq!(seen.iter().map(describe).collect::<Vec<_>>(), ["-x old", "+x back"]);
    let left = &seen[0].event;
    assert_eq!(left.revision, change.revision);
    let body = left.departed().expect("there was a state");
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(text.contains("old") && text.contains(&change.resource_version.to_string()), "{text}");
    assert_eq!(left.previous.as_ref().and_then(|object| object.label("app")), Some("a"));
}

#[tokio::test]
async fn b028_only_bookmarks_for_what_never_matched() {
    let mut world = World::new();
    let mut watcher = world.watch(filter("*/*", "app=a"), world.head());
    for n in 0..100 {
        world.put("amber/root//x", "app=b", &n.to_string()).await;
    }
    world.delete("amber/root//x").await;
    assert_eq!(drain_now(&mut watcher), NOTHING);
    assert_eq!(bookmark(&mut watcher), Some(world.head()));
}

#[tokio::test]
async fn b032_below_the_floor_there_is_no_partial_replay() {
    let mut world = World::with(tight(0));
    let start = world.put("amber/root//a", "", "1").await.revision;
    // A running watcher, behind, whose next events are compacted away.
    let mut watcher = world.watch(all(), start);
    world.put("amber/root//a", "", "2").await;
    let floor = world.put("amber/root//a", "", "3").await.revision;
    world.put("amber/root//a", "", "4").await;
    assert_eq!(world.compact(floor).await, floor);
    assert_eq!(drain_now(&mut watcher), ["! expired"]);
    assert_eq!(drain_now(&mut watcher), ["! expired"], "it stays expired");
    // A new one is refused before the stream begins.
    let refused = world.cache.watch(&widgets(), all(), start);
    assert!(matches!(refused, Err(CacheError::TooOld { floor: at }) if at == floor));
    // Exactly at the floor nothing is missing.
    assert_eq!(drain_now(&mut world.watch(all(), floor)), ["~a 4"]);
}

#[tokio::test]
async fn b032_a_burst_reaches_everyone_in_order() {
    let mut world = World::new();
    let mut watchers: Vec<_> = (0..10).map(|_| world.watch(all(), world.head())).collect();
    let burst = |round: usize| {
        let put = |n| change(widgets(), &format!("amber/root//w{n}"), Some(("", "x")));
        (0..500).map(|n| put(n + round)).collect::<Vec<_>>()
    };
    let mut expected = Vec::new();
    for round in 0..10 {
        expected.extend(world.commit(burst(round)).await.iter().map(|event| event.revision));
    }
    world.reflect().await;
    for watcher in &mut watchers {
        assert_eq!(revisions(&take(watcher)), expected);
    }
}

#[tokio::test]
async fn a_watcher_many_batches_behind_reads_the_whole_history() {
    for behind in [BATCH_EVENTS, BATCH_EVENTS + 1, SCAN_EVENTS, SCAN_EVENTS + 1, 3 * SCAN_EVENTS] {
        let mut world = World::new();
        let start = world.head();
        let put = |n: usize| change(widgets(), &format!("amber/root//w{n}"), Some(("", "x")));
        let mut expected: Vec<_> =
            world.commit((0..behind).map(put).collect()).await.iter().map(|event| event.revision).collect();
        world.reflect().await;
        // Its class is new, so nothing of this is in a ring.
        let mut watcher = world.watch(all(), start);
        let Some(WatchStep::Events(first)) = poll_now(&mut watcher) else { panic!("events are there") };
        assert_eq!(first.len(), BATCH_EVENTS, "a full batch");
        // While there is more, nothing is promised.
        assert_eq!(watcher.bookmark().is_some(), behind == BATCH_EVENTS);
        expected.push(world.put("amber/root//late", "", "x").await.revision);
        let mut seen = revisions(&first);
        seen.extend(revisions(&take(&mut watcher)));
        assert_eq!(seen, expected, "{behind} behind");
        assert_eq!(bookmark(&mut watcher), Some(world.head()));
        assert_eq!(world.log_reads.load(std::sync::atomic::Ordering::Relaxed), 0, "memory has it all");
    }
}

#[tokio::test]
async fn b038_bookmarks_advance_without_matching_events() {
    let mut world = World::new();
    let mut watcher = world.watch(filter("*/*", "app=none"), world.head());
    let start = watcher.bookmark().expect("at the tail");
    for round in 0..20 {
        let put = |n: usize| change(widgets(), &format!("amber/root//w{n}"), Some(("app=a", "x")));
        world.commit((0..100).map(|n| put(n + round)).collect()).await;
    }
    world.reflect().await;
    assert!(poll_now(&mut watcher).is_none());
    let bookmark = watcher.bookmark().expect("at the tail");
    assert!(bookmark > start);
    assert_eq!(bookmark, world.cache.snapshot().resource_version());
    // The start leaves the history; the bookmark resumes without reading any of it again.
    world.compact(world.head()).await;
    let judged = world.metrics.watch.judgements.get();
    drop(watcher);
    assert!(world.cache.watch(&widgets(), filter("*/*", "app=none"), start.revision()).is_err());
    let mut resumed = world.watch(filter("*/*", "app=none"), bookmark.revision());
    assert_eq!(drain_now(&mut resumed), NOTHING);
    assert_eq!(world.metrics.watch.judgements.get(), judged);
}

#[tokio::test]
async fn b040_nothing_about_objects_gone_before_the_start() {
    let mut world = World::new();
    world.put("amber/root//a", "", "1").await;
    world.put("amber/root//b", "", "1").await;
    world.delete("amber/root//b").await;
    let snapshot = world.cache.snapshot();
    let listed: Vec<_> =
        snapshot.scan(&widgets(), &all(), None).map(|object| object.parts().name.to_owned()).collect();
    let mut watcher = world.watch(all(), snapshot.state.head());
    assert_eq!(listed, ["a"]);
    assert_eq!(drain_now(&mut watcher), NOTHING);
}

#[tokio::test]
async fn b046_a_list_version_is_never_too_old() {
    let mut world = World::new();
    let own = world.put("amber/root//quiet", "", "1").await;
    for n in 0..50 {
        world.apply(change(gadgets(), "amber/root//g", Some(("", &n.to_string())))).await;
    }
    let floor = world.compact(world.head()).await;
    world.restart();
    let mut watcher = world.watch(all(), world.head());
    assert_eq!(drain_now(&mut watcher), NOTHING);
    assert!(own.revision >= floor, "the newest event of a quiet type stays a legal start");
    let mut from_object = world.watch(all(), own.revision);
    world.put("amber/root//quiet", "", "2").await;
    assert_eq!(drain_now(&mut watcher), ["~quiet 2"]);
    assert_eq!(drain_now(&mut from_object), ["~quiet 2"]);
}

#[tokio::test]
async fn a_bookmark_waits_for_the_events_before_it() {
    let mut world = World::new();
    let start = world.head();
    let mut watcher = world.watch(all(), start);
    let first = world.put("amber/root//a", "", "1").await;
    assert_eq!(bookmark(&mut watcher), None, "an event is pending");
    assert_eq!(drain_now(&mut watcher), ["+a 1"]);
    assert_eq!(watcher.bookmark(), Some(first.resource_version));
    let other = world.apply(change(gadgets(), "amber/root//g", Some(("", "1")))).await;
    assert_eq!(watcher.bookmark(), Some(other.resource_version), "another type moves it too");
    world.put("amber/root//a", "", "2").await;
    assert_eq!(watcher.bookmark(), None, "another event is pending");
}

#[tokio::test]
async fn a_published_commit_is_not_bookmarked_before_its_dispatch() {
    let world = World::new();
    let start = world.head();
    let mut watcher = world.watch(all(), start);
    world.commit(vec![change(widgets(), "amber/root//a", Some(("", "1")))]).await;
    // Durable, even acknowledged, but the reflector has not come by.
    assert_eq!(bookmark(&mut watcher), Some(start));
    assert!(poll_now(&mut watcher).is_none());
}

#[tokio::test]
async fn a_bookmark_is_never_in_the_middle_of_a_commit() {
    let world = World::new();
    let mut watcher = world.watch(all(), world.head());
    let put = |n: usize| change(widgets(), &format!("amber/root//w{n}"), Some(("", "x")));
    let events = world.commit((0..5).map(put).collect()).await;
    // The rings are being filled, and not all of the commit is in them; nor is there progress.
    let feed = world.cache.0.feed(&widgets());
    for event in &events[..2] {
        feed.apply(std::slice::from_ref(event));
        assert_eq!(revisions(&take(&mut watcher)), [event.revision]);
        assert_eq!(bookmark(&mut watcher), None, "half of it was seen");
    }
    // Nor for somebody who resumes there.
    let mut world = World::new();
    let events = world.commit((0..5).map(put).collect()).await;
    world.reflect().await;
    let mut resumed = world.watch(all(), events[2].revision);
    assert_eq!(bookmark(&mut resumed), None);
    assert_eq!(revisions(&take(&mut resumed)), [events[3].revision, events[4].revision]);
    assert_eq!(bookmark(&mut resumed), Some(world.head()));
}

#[tokio::test]
async fn a_lagging_watcher_bookmarks_nothing_until_it_has_caught_up() {
    let mut world = World::with(tight(0));
    let start = world.head();
    for n in 0..600 {
        world.put("amber/root//a", "", &n.to_string()).await;
    }
    let mut watcher = world.watch(all(), start);
    assert_eq!(bookmark(&mut watcher), None);
    let Some(WatchStep::Events(first)) = poll_now(&mut watcher) else { panic!("events are there") };
    assert_eq!(bookmark(&mut watcher), None);
    let rest = take(&mut watcher);
    assert_eq!(first.len() + rest.len(), 600);
    assert_eq!(bookmark(&mut watcher), Some(world.head()));
}

#[tokio::test]
async fn b067_a_stalled_watcher_costs_nothing_and_gets_everything() {
    const BUDGET: u64 = 64 << 10;
    let mut world = World::with(tight(BUDGET));
    let start = world.head();
    let mut stalled: Vec<_> =
        ["", "k=1", "!k", "k in (1,2)"].map(|labels| world.watch(filter("*/*", labels), start)).into();
    let mut healthy = world.watch(all(), start);
    let content = "x".repeat(1000);
    let mut expected = Vec::new();
    for n in 0..1500 {
        let event = world.put("amber/root//a", &format!("k={}", n % 3), &content).await;
        expected.push(event.revision);
        assert_eq!(revisions(&take(&mut healthy)), [event.revision], "nobody waits for the stalled");
    }
    let history = world.metrics.cache.history_bytes.get();
    assert!((1..=BUDGET as i64).contains(&history), "{history}");
    let feed = world.cache.0.feed(&widgets());
    assert!(feed.bytes() <= BUDGET && feed.events() < 100, "rings pin nothing beyond the history");
    assert_eq!(revisions(&take(&mut stalled[0])), expected);
    let seen: BTreeSet<_> = stalled.iter_mut().skip(1).flat_map(|one| revisions(&take(one))).collect();
    assert!(seen.len() >= expected.len() - 2, "between them the selectors see every event but creation");
    let behind = |state| world.metrics.watch.watchers.get_or_create(&state).get();
    assert_eq!((behind(State::Cold.into()), behind(State::Lagging.into())), (0, 0));
    assert_eq!(behind(State::Active.into()), 5);
}

#[tokio::test]
async fn b068_catching_up_ends_while_writes_go_on() {
    let mut world = World::with(tight(32 << 10));
    let start = world.head();
    let put = |n: usize| change(widgets(), &format!("amber/root//w{}", n % 50), Some(("", "x")));
    for round in 0..50 {
        world.commit((0..400).map(|n| put(n + round)).collect()).await;
    }
    world.reflect().await;
    // Cut after every step; each resumption starts further ahead.
    let (mut position, mut seen, mut written, mut steps) = (start, 0, 20_000, 0);
    while position < world.head() {
        let mut watcher = world.watch(all(), position);
        let Some(WatchStep::Events(deliveries)) = poll_now(&mut watcher) else { panic!("not at the end") };
        seen += deliveries.len();
        let reached = deliveries.last().expect("not empty").event.revision;
        assert!(reached > position);
        position = reached;
        steps += 1;
        if seen < 20_000 {
            written += world.commit((0..5).map(|n| put(n + steps)).collect()).await.len();
            world.reflect().await;
        }
    }
    assert_eq!(seen, written);
    assert!(written > 20_000);
}

#[tokio::test]
async fn a_failing_log_is_reported_and_not_skipped() {
    let mut world = World::with(tight(0));
    let start = world.head();
    world.put("amber/root//a", "", "1").await;
    let mut watcher = world.watch(all(), start);
    world.failing.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(drain_now(&mut watcher), ["! failed"]);
    world.failing.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(drain_now(&mut watcher), ["+a 1"]);
}

#[tokio::test]
async fn b065_many_resuming_watchers_read_the_disk_once() {
    let mut world = World::new();
    let mut starts = vec![world.head()];
    for n in 0..3000 {
        starts.push(world.put("amber/root//a", &format!("k={}", n % 7), "x").await.revision);
    }
    world.restart();
    let mut watchers = Vec::new();
    for n in 0..500 {
        // A stride that is no divisor visits old and new positions in turn.
        let start = (n * 1013) % starts.len();
        let labels = ["", "k=3", "k!=3"][n % 3];
        watchers.push((start, world.watch(filter("*/*", labels), starts[start])));
    }
    let first = take(&mut watchers[0].1);
    for (start, watcher) in &mut watchers[3..] {
        for delivery in take(watcher) {
            assert!(delivery.event.revision > starts[*start]);
        }
    }
    assert_eq!(revisions(&first), starts[1..]);
    // 3000 events in pages of 1000, plus one page for each position older than all before it.
    let reads = world.log_reads.load(std::sync::atomic::Ordering::Relaxed);
    assert!(reads <= 10, "{reads} reads of the log");
    let again = take(&mut world.watch(all(), starts[0]));
    assert!(first.iter().zip(&again).all(|(one, two)| Arc::ptr_eq(&one.event, &two.event)), "shared");
    assert_eq!(world.store.lineage().incarnations.len(), 1);
}
