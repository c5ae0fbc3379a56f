//! D1, D3, D9: a simulation of stores, their copies and the clients that hold versions of them.
//!
//! A version is judged *right* if `Issued` is only ever said when what the holder saw up to it is a
//! prefix of this store's history (I6). Histories are compared event by event, by an identity that
//! the simulation gives to each.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::resource_version::DIGITS;

/// One file: its incarnations and every event in it, with an identity that no other event has.
#[derive(Clone)]
struct File {
    incarnations: Vec<Incarnation>,
    events: Vec<(Revision, u64)>,
}

/// A version that a client holds, and the last event it had seen (its place in the file's history).
struct Held {
    version: ResourceVersion,
    history: Vec<u64>,
}

struct World {
    random: StdRng,
    now_ms: u64,
    next_event: u64,
    sane_clock: bool,
    held: Vec<Held>,
    checks: u64,
}

impl File {
    fn blank() -> Self {
        Self { incarnations: Vec::new(), events: Vec::new() }
    }

    fn lineage(&self) -> Lineage {
        Lineage { store: uuid::Uuid::nil(), incarnations: self.incarnations.clone() }
    }

    fn head(&self) -> Revision {
        let start = self.incarnations.last().map_or(Revision::ZERO, |current| current.start);
        self.events.last().map_or(Revision::ZERO, |(revision, _)| *revision).max(start)
    }

    fn history_at(&self, revision: Revision) -> Vec<u64> {
        self.events.iter().take_while(|(at, _)| *at <= revision).map(|(_, event)| *event).collect()
    }
}

impl World {
    fn new(seed: u64, sane_clock: bool) -> Self {
        let now_ms = 1_796_083_200_000;
        let random = StdRng::seed_from_u64(seed);
        Self { random, now_ms, next_event: 1, sane_clock, held: Vec::new(), checks: 0 }
    }

    fn open(&mut self, file: &mut File) {
        let last = file.head();
        if let Some(previous) = file.incarnations.last_mut() {
            previous.end = Some(last);
        }
        let now = UNIX_EPOCH + Duration::from_millis(self.now_ms);
        let opening = Opening { now, entropy: self.random.random(), host: String::new() };
        let begun = begin(&file.incarnations, last, &opening);
        assert!(begun.incarnation.start > last, "revisions rise across openings");
        let neighbour = file.incarnations.last().map(|previous| previous.tag);
        assert_ne!(Some(begun.incarnation.tag), neighbour, "neighbours have different tags");
        file.incarnations.push(begun.incarnation);
        self.see(file);
    }

    fn write(&mut self, file: &mut File) {
        for _ in 0..self.random.random_range(1..6) {
            file.events.push((file.head().next(), self.next_event));
            self.next_event += 1;
        }
        self.see(file);
    }

    /// A client sees the head.
    fn see(&mut self, file: &File) {
        let current = file.incarnations.last().expect("it is open");
        let version = ResourceVersion::new(file.head(), current.tag);
        let text = version.to_string();
        assert!(text.len() == DIGITS && !text.starts_with('0') && version.value() < 1 << 63, "{text}");
        if self.held.len() > 400 {
            let any = self.random.random_range(0..self.held.len());
            self.held.swap_remove(any);
        }
        self.held.push(Held { version, history: file.history_at(file.head()) });
    }

    /// Every held version is judged by a store. Returns how often I6 was broken.
    fn judge(&mut self, file: &File) -> u64 {
        let (lineage, head) = (file.lineage(), file.head());
        let mut broken = 0;
        for held in &self.held {
            self.checks += 1;
            if let Standing::Issued(revision) = lineage.classify(held.version, head) {
                broken += u64::from(file.history_at(revision) != held.history);
            }
        }
        broken
    }

    fn pass_time(&mut self) {
        self.now_ms += self.random.random_range(1..100_000);
        if !self.sane_clock && self.random.random_bool(0.2) {
            let jump = self.random.random_range(0..200 * 3_600_000);
            self.now_ms = if self.random.random_bool(0.1) { 1000 } else { self.now_ms.saturating_sub(jump) };
        }
    }
}

/// One life of a store with all that can happen to it; returns checks made and I6 violations.
fn live(seed: u64, sane_clock: bool) -> (u64, u64) {
    let mut world = World::new(seed, sane_clock);
    let mut broken = 0;
    let mut file = File::blank();
    world.open(&mut file);
    let mut backups: Vec<File> = Vec::new();
    for _ in 0..world.random.random_range(10..40) {
        world.pass_time();
        match world.random.random_range(0..10) {
            0..5 => world.write(&mut file),
            5 => world.open(&mut file),
            6 => backups.push(file.clone()),
            7 if !backups.is_empty() => {
                let any = world.random.random_range(0..backups.len());
                file = backups[any].clone();
                world.open(&mut file);
            }
            8 if world.random.random_bool(0.2) => {
                file = File::blank();
                world.open(&mut file);
            }
            // A copy, or a second replica, that lives for a while beside the original.
            _ => {
                let mut other = if world.random.random_bool(0.5) { file.clone() } else { File::blank() };
                world.pass_time();
                world.open(&mut other);
                world.write(&mut other);
                world.write(&mut file);
                broken += world.judge(&other);
            }
        }
        broken += world.judge(&file);
    }
    (world.checks, broken)
}

#[test]
fn d1_d3_no_version_of_another_timeline_is_taken_for_ours_with_sane_clocks() {
    let (mut checks, mut broken) = (0, 0);
    for seed in 0..300 {
        let (made, wrong) = live(seed, true);
        checks += made;
        broken += wrong;
    }
    assert!(checks > 100_000, "{checks} checks");
    assert_eq!(broken, 0, "I6 with monotone clocks, {checks} checks");
}

#[test]
fn d9_clocks_that_jump_back_break_i6_no_more_than_tag_and_jitter_allow() {
    let (mut checks, mut broken) = (0, 0);
    for seed in 1000..1400 {
        let (made, wrong) = live(seed, false);
        checks += made;
        broken += wrong;
    }
    assert!(checks > 100_000, "{checks} checks");
    // Two timelines with one clock instant and one tag are 1 in 1023 per pair of openings.
    assert!(broken * 1000 <= checks, "{broken} of {checks}");
}

#[test]
fn d4_above_the_head_is_the_future_and_tag_zero_is_nobodys() {
    let mut world = World::new(1, true);
    let mut file = File::blank();
    world.open(&mut file);
    world.write(&mut file);
    let (lineage, head, tag) = (file.lineage(), file.head(), file.incarnations[0].tag);
    assert_eq!(lineage.classify(ResourceVersion::new(head, tag), head), Standing::Issued(head));
    assert_eq!(lineage.classify(ResourceVersion::new(head.next(), tag), head), Standing::Future);
    let untagged = ResourceVersion::parse(&(head.0 << 10).to_string()).expect("a number");
    assert_eq!(lineage.classify(untagged, head), Standing::Foreign);
    let before = Revision(file.incarnations[0].start.0 - 1);
    assert_eq!(lineage.classify(ResourceVersion::new(before, tag), head), Standing::Foreign);
    assert_eq!(lineage.version_of(head, head), Some(ResourceVersion::new(head, tag)));
    assert_eq!(lineage.version_of(before, head), None);
}

#[test]
fn d9_an_impossible_clock_is_reported_and_never_uses_up_the_revisions() {
    let opening = |ms: u64| Opening {
        now: UNIX_EPOCH + Duration::from_millis(ms),
        entropy: u64::MAX / 3,
        host: String::new(),
    };
    for (ms, trusted) in [(0, false), (1_796_083_200_000, true), (253_402_300_799_000, false)] {
        let begun = begin(&[], Revision::ZERO, &opening(ms));
        assert_eq!(begun.clock_trusted, trusted, "{ms}");
        let version = ResourceVersion::new(begun.incarnation.start, begun.incarnation.tag);
        assert_eq!(version.to_string().len(), DIGITS, "{ms}");
    }
    // A day behind the last opening is reported, an hour is not.
    let now = 1_796_083_200_000;
    let earlier = begin(&[], Revision::ZERO, &opening(now)).incarnation;
    let last = earlier.start;
    for (behind_ms, trusted) in [(3_600_000, true), (90_000_000, false)] {
        let begun = begin(std::slice::from_ref(&earlier), last, &opening(now - behind_ms));
        assert_eq!(begun.clock_trusted, trusted, "{behind_ms}");
        assert!(begun.incarnation.start.0 >= last.0 + START_GAP);
    }
}
