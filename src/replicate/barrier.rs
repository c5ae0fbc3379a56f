//! How a position comes to a barrier's version where no event takes it there: which way is next, and when.
//!
//! ```text
//! watch ──► rolling watch: its bookmark ──► another ──► metadata are compared ──► watch anew ──► list
//!               │ none in time                              ▲
//!               └───────────────────────────────────────────┘
//! ```
//!
//! A source that can be asked for a bookmark ([`super::direct`]) is asked before any of it.
//! Knows no source and no clock; `now` is an argument.

use std::time::Duration;

use shardcache_proxy::push::client::Provider;
use tokio::time::Instant;

/// How long a rolling watch lasts. A kube-apiserver sends a bookmark 2 s before a watch's end.
pub(super) const ROLL_TIME: Duration = Duration::from_secs(3);
/// How long a watch that is about to deliver is waited for before another is opened.
const GRACE: Duration = Duration::from_millis(100);
/// By then a kube-apiserver's bookmark has come: it sends them once a second, or a little later.
const BOOKMARK_TIME: Duration = Duration::from_millis(2500);
/// Shortest time between two rolling watches.
const ROLL_EVERY: Duration = Duration::from_secs(1);
/// Rolling watches that may stay below the version before something else is tried.
const ROUNDS_MAX: u32 = 2;
/// How long it is remembered that rolling did not help.
const UNHELPFUL_FOR: Duration = Duration::from_mins(5);
/// Shortest pause between two comparisons, and how many times as long as the last one took it is: no more
/// than a tenth of the time is spent on them, for each reads every object's metadata.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_SHARE: u32 = 9;
/// An event that no watch has brought for so long is not late, it is lost.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// A barrier that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    pub(super) id: u64,
    /// When it came.
    pub(super) since: Instant,
    /// The position at that time: a version below it is none of the same source.
    pub(super) floor: u64,
    /// The source's version that it asks for, once it was read.
    pub(super) head: Option<u64>,
    /// What has brought the position where it is.
    pub(super) provider: Provider,
    /// Whether the source was asked for a bookmark.
    pub(super) is_asked: bool,
}

/// What is to be done for a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A rolling watch is opened at this time.
    Roll(Instant),
    /// The metadata are compared at this time.
    Compare(Instant),
}

/// What has been tried, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Whether the watch that is followed is a rolling one.
    rolls: bool,
    /// When that one began, until its bookmark comes.
    silent: Option<Instant>,
    /// Rolling watches in a row that stayed below the version.
    rounds: u32,
    /// No rolling watch is opened before.
    paced: Option<Instant>,
    /// No rolling watch is opened before, because they do not help.
    unhelpful: Option<Instant>,
    /// When the comparison that is under way, or planned, begins.
    compares: Option<Instant>,
    /// No comparison begins before.
    rested: Option<Instant>,
    /// The position at which the last comparisons found a difference, and since when.
    differed: Option<(u64, Instant)>,
}

impl Ways {
    /// What to do next; `None` while a rolling watch may still speak.
    pub(super) fn next(&mut self, now: Instant) -> Option<Way> {
        if self.silent.is_some() {
            return None;
        }
        if self.unhelpful.is_some_and(|until| now < until) {
            let at = self.rested.map_or(now, |rested| rested.max(now));
            self.compares = Some(at);
            return Some(Way::Compare(at));
        }
        let at = now + GRACE;
        Some(Way::Roll(self.paced.map_or(at, |paced| paced.max(at))))
    }

    /// Whether the watch that is followed is a rolling one.
    pub(super) fn is_rolling(&self) -> bool {
        self.rolls
    }

    /// A rolling watch is followed from now on.
    pub(super) fn rolled(&mut self, now: Instant) {
        self.rolls = true;
        self.silent = Some(now);
        self.paced = Some(now + ROLL_EVERY);
    }

    /// A rolling watch could not be opened.
    pub(super) fn failed(&mut self, now: Instant) {
        self.paced = Some(now + ROLL_EVERY);
    }

    /// Something else is followed from now on.
    pub(super) fn left(&mut self, now: Instant) {
        self.rolls = false;
        self.heard(now);
    }

    /// A bookmark came. If it did not take the position to the barrier's version, that was one round.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.silent.take().is_some() {
            self.rounds += 1;
            if self.rounds >= ROUNDS_MAX {
                self.unhelpful(now);
            }
        }
    }

    /// When to stop waiting for a bookmark.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.silent.map(|since| since + BOOKMARK_TIME)
    }

    /// Rolling does not help here: the source sends no bookmark, or has forgotten the position.
    pub(super) fn unhelpful(&mut self, now: Instant) {
        self.silent = None;
        self.unhelpful = Some(now + UNHELPFUL_FOR);
    }

    /// A comparison has ended, whatever came of it.
    pub(super) fn compared(&mut self, now: Instant) {
        if let Some(began) = self.compares.take().filter(|began| *began <= now) {
            self.rested = Some(now + (REST_SHARE * (now - began)).max(REST_MIN));
        }
    }

    /// A comparison has found a difference at a position; whether watches will not mend it.
    pub(super) fn differs(&mut self, position: u64, now: Instant) -> bool {
        let since = self.differed.filter(|(known, _)| *known == position).map_or(now, |(_, since)| since);
        self.differed = Some((position, since));
        now - since >= LOST_AFTER
    }

    /// The position has come to the barrier's version.
    pub(super) fn answered(&mut self, provider: Provider, now: Instant) {
        self.silent = None;
        self.rounds = 0;
        self.differed = None;
        self.compared(now);
        if provider == Provider::RollingWatch {
            self.unhelpful = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn d38_watches_roll_twice_before_metadata_are_compared() {
        let (mut ways, start) = (Ways::default(), Instant::now());
        assert_eq!(ways.next(start), Some(Way::Roll(start + GRACE)), "a watch may be about to deliver");
        let first = start + 120 * MS;
        ways.rolled(first);
        assert_eq!((ways.next(first), ways.patience()), (None, Some(first + BOOKMARK_TIME)));
        // A bookmark that comes at once, and too low, does not make watches roll at once.
        ways.heard(first + MS);
        assert_eq!(ways.next(first + MS), Some(Way::Roll(first + ROLL_EVERY)));
        let second = first + ROLL_EVERY;
        ways.rolled(second);
        ways.heard(second + 1100 * MS);
        let now = second + 1100 * MS;
        assert_eq!(ways.next(now), Some(Way::Compare(now)));
        ways.answered(Provider::MetadataDiff, now + 30 * MS);
        // What has not helped is not tried first for a while; afterwards it is.
        assert!(matches!(ways.next(now + MS), Some(Way::Compare(_))));
        let later = now + UNHELPFUL_FOR;
        assert_eq!(ways.next(later), Some(Way::Roll(later + GRACE)));
    }

    #[test]
    fn a_rolling_watch_that_helped_is_the_way_again() {
        let (mut ways, now) = (Ways::default(), Instant::now());
        for _ in 0..3 {
            ways.rolled(now);
            ways.heard(now);
            ways.answered(Provider::RollingWatch, now);
            assert!(matches!(ways.next(now), Some(Way::Roll(_))));
        }
        // A source without bookmarks is known after the first.
        ways.rolled(now);
        ways.unhelpful(now + BOOKMARK_TIME);
        assert_eq!(ways.patience(), None);
        assert!(matches!(ways.next(now + BOOKMARK_TIME), Some(Way::Compare(_))));
        // A watch that broke off without a bookmark was a round.
        let (mut ways, now) = (Ways::default(), Instant::now());
        for _ in 0..ROUNDS_MAX {
            assert!(matches!(ways.next(now), Some(Way::Roll(_))));
            ways.rolled(now);
            ways.left(now);
        }
        assert!(matches!(ways.next(now), Some(Way::Compare(_))));
    }

    #[test]
    fn no_more_than_a_tenth_of_the_time_is_spent_on_comparisons() {
        let (mut ways, start) = (Ways::default(), Instant::now());
        for took in [5, 200, 4000_u32] {
            (ways.rested, ways.unhelpful) = (None, Some(start + UNHELPFUL_FOR * 10));
            let mut now = start;
            let mut spent = Duration::ZERO;
            for _ in 0..20 {
                let Some(Way::Compare(at)) = ways.next(now) else { panic!("{ways:?}") };
                now = at + took * MS;
                spent += took * MS;
                ways.compared(now);
            }
            let Some(Way::Compare(at)) = ways.next(now) else { panic!("{ways:?}") };
            assert!(spent * 10 <= at - start, "{spent:?} of {:?}", at - start);
        }
    }

    #[test]
    fn a_difference_that_stays_is_told_from_one_that_moves() {
        let (mut ways, now) = (Ways::default(), Instant::now());
        assert!(!ways.differs(7, now));
        assert!(!ways.differs(9, now + LOST_AFTER), "an event came meanwhile");
        assert!(!ways.differs(9, now + LOST_AFTER * 2 - MS));
        assert!(ways.differs(9, now + LOST_AFTER * 2));
        ways.answered(Provider::Watch, now + LOST_AFTER * 2);
        assert!(!ways.differs(9, now + LOST_AFTER * 4));
    }
}
