//! D25 in every interleaving: a dispatcher fills a ring and then publishes progress, a watcher reads the
//! ring and makes bookmarks, as `cache/reflector.rs` and `Watcher::bookmark` do. A bookmark must be a
//! boundary of commits, and every event up to it must have been yielded before.
//!
//! A model, so that loom can try all orders of its few steps; the code itself is tried under load by
//! `cache/tests/stress.rs`. The two planted mistakes show that the model would notice.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, RwLock};
use loom::thread;

/// Commits: the class's events in each, and the boundary, which may be another type's event.
const COMMITS: [(&[u64], u64); 2] = [(&[1, 2], 3), (&[4, 5], 5)];
const START: u64 = 0;

/// A class's ring, and how far everything is dispatched.
struct Feed {
    ring: RwLock<Vec<u64>>,
    progress: AtomicU64,
}

/// How a watcher comes to its bookmark.
#[derive(Clone, Copy)]
enum Rule {
    /// Progress first, then the ring; nothing while in the middle of a commit.
    Right,
    /// The ring first: what is dispatched between the two looks is overtaken.
    RingFirst,
    /// The last event seen, whether or not its commit goes on.
    LastEvent,
}

fn dispatch(feed: &Feed) {
    for (events, boundary) in COMMITS {
        for event in events {
            feed.ring.write().expect("not poisoned").push(*event);
        }
        feed.progress.store(boundary, Ordering::Release);
    }
}

/// A watcher that has read everything up to a position.
struct Watcher<'a> {
    feed: &'a Feed,
    position: u64,
    seen: Vec<u64>,
}

impl Watcher<'_> {
    fn read(&mut self) {
        let ring = self.feed.ring.read().expect("not poisoned");
        self.seen.extend(ring.iter().filter(|event| **event > self.position));
        self.position = self.position.max(ring.last().copied().unwrap_or(START));
    }

    fn is_at_tail(&self) -> bool {
        self.feed.ring.read().expect("not poisoned").last().is_none_or(|last| *last <= self.position)
    }

    fn bookmark(&mut self, rule: Rule) -> Option<u64> {
        let progress = || self.feed.progress.load(Ordering::Acquire);
        let bookmark = match rule {
            Rule::Right => {
                let progress = progress();
                (self.is_at_tail() && progress >= self.position).then_some(progress)
            }
            Rule::RingFirst => {
                let at_tail = self.is_at_tail();
                let progress = progress();
                (at_tail && progress >= self.position).then_some(progress)
            }
            Rule::LastEvent => Some(self.position),
        };
        self.position = self.position.max(bookmark.unwrap_or(START));
        bookmark
    }
}

fn every_interleaving(rule: Rule) {
    loom::model(move || {
        let feed = Arc::new(Feed { ring: RwLock::new(Vec::new()), progress: AtomicU64::new(START) });
        let dispatcher = thread::spawn({
            let feed = Arc::clone(&feed);
            move || dispatch(&feed)
        });
        let mut watcher = Watcher { feed: &feed, position: START, seen: Vec::new() };
        for _ in 0..2 {
            watcher.read();
            let Some(bookmark) = watcher.bookmark(rule) else { continue };
            let boundary = bookmark == START || COMMITS.iter().any(|(_, boundary)| *boundary == bookmark);
            assert!(boundary, "{bookmark} is inside a commit");
            let promised = COMMITS.iter().flat_map(|(events, _)| *events).filter(|event| **event <= bookmark);
            assert!(promised.eq(&watcher.seen), "{bookmark} after {:?}", watcher.seen);
        }
        dispatcher.join().expect("no panic");
        watcher.read();
        assert_eq!(watcher.bookmark(Rule::Right), Some(5), "who has everything stands at the newest commit");
        assert_eq!(watcher.seen, [1, 2, 4, 5]);
    });
}

#[test]
fn d25_a_bookmark_is_a_boundary_and_overtakes_nothing() {
    every_interleaving(Rule::Right);
}

#[test]
#[should_panic(expected = "after")]
fn d25_looking_at_the_ring_before_progress_would_overtake() {
    every_interleaving(Rule::RingFirst);
}

#[test]
#[should_panic(expected = "inside a commit")]
fn i5_bookmarking_the_last_event_would_show_half_a_commit() {
    every_interleaving(Rule::LastEvent);
}
