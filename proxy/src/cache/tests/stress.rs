//! The same promises with real concurrency: a writer, the reflector and watchers on several threads.

use std::collections::HashSet;
use std::sync::Arc;

use shardcache_storage::{Event, MemoryStore, Revision, Store as _};

use crate::cache::class::transition;
use crate::cache::testing::*;
use crate::cache::{CacheConfig, WatchCache, WatchStep};
use crate::filter::Filter;

const COMMITS: usize = 1500;

/// Follows a filter to the end, taking a bookmark after every step and sometimes between two looks. Returns
/// what it saw, and the bookmarks.
async fn follow(cache: WatchCache, filter: Filter, after: Revision) -> (Vec<Revision>, Vec<Revision>) {
    let mut watcher = cache.watch(&widgets(), filter, after).expect("issued");
    let (mut seen, mut bookmarks, mut promised) = (Vec::new(), Vec::new(), after);
    loop {
        match watcher.next().await {
            WatchStep::Events(deliveries) => {
                let head = cache.snapshot().state.head();
                for delivery in &deliveries {
                    let revision = delivery.event.revision;
                    assert!(revision > promised, "{revision} follows the bookmark {promised}");
                    assert!(revision <= head, "a list never lacks what a watch has shown");
                    seen.push(revision);
                }
            }
            WatchStep::Draining => {
                let last = watcher.bookmark().expect("there is nothing more to come");
                assert!(last.revision() >= promised);
                return (seen, bookmarks);
            }
            end => panic!("{end:?}"),
        }
        for _ in 0..3 {
            if let Some(bookmark) = watcher.bookmark() {
                assert!(bookmark.revision() >= promised, "a bookmark never falls");
                promised = bookmark.revision();
                bookmarks.push(promised);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Writes commits; their events, and where they end.
async fn write(store: &MemoryStore) -> (Vec<Arc<Event>>, HashSet<Revision>) {
    let (mut events, mut boundaries) = (Vec::new(), HashSet::new());
    for n in 0..COMMITS {
        let path = format!("amber/root//w{}", n % 10);
        let text = n.to_string();
        let mut changes = vec![
            change(widgets(), &path, Some((&format!("k={}", n % 4), &text))),
            change(gadgets(), "amber/root//g", Some(("", &text))),
        ];
        if n % 5 == 4 {
            changes.push(change(widgets(), &path, None));
        }
        let receipt = store.commit(changes).await.expect("commits");
        for applied in receipt.into_iter().map(|result| result.expect("applies")) {
            boundaries.insert(applied.head);
            events.push(applied.event);
        }
    }
    (events, boundaries)
}

async fn all_see_everything(history_bytes: u64) {
    let world = World::with(CacheConfig { history_bytes, ..CacheConfig::default() });
    let World { store, cache, reflector, .. } = world;
    let reflecting = tokio::spawn(reflector.run());
    let start = cache.snapshot().state.head();
    let filters =
        [("*/*", ""), ("*/*", "k=1"), ("*/*", "k in (1,2)"), ("*/*", "!k"), ("amber/*", "k!=3"), ("b/*", "")];
    let followers: Vec<_> = filters
        .iter()
        .cycle()
        .take(3 * filters.len())
        .map(|(scope, labels)| {
            let filter = filter(scope, labels);
            (filter.clone(), tokio::spawn(follow(cache.clone(), filter, start)))
        })
        .collect();
    let (events, mut boundaries) = write(&store).await;
    boundaries.insert(start);
    let last = events.last().expect("some").revision;
    cache.published(last).await;
    cache.drain();
    for (filter, follower) in followers {
        let expected: Vec<_> = events
            .iter()
            .filter(|event| event.type_name == widgets() && transition(&filter, event).is_some())
            .map(|event| event.revision)
            .collect();
        let (seen, bookmarks) = follower.await.expect("no panic");
        assert_eq!(seen, expected, "{filter:?}");
        assert!(bookmarks.iter().all(|at| boundaries.contains(at)), "a bookmark inside a commit");
    }
    assert_eq!(cache.0.feed(&widgets()).classes(), 0, "classes go with their last watcher");
    store.close().await.expect("closes");
    reflecting.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn d25_bookmarks_never_overtake_an_event_under_load() {
    all_see_everything(CacheConfig::default().history_bytes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn d23_watchers_thrown_back_to_the_log_miss_nothing_under_load() {
    all_see_everything(0).await;
}
