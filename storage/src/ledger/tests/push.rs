//! The rules of D32 to D36, one row of their tables at a time.

use super::super::*;
use super::{cowboys, put, run, state, tag};
use crate::change::Guard;
use crate::key::Key;
use crate::object::tests::draft_of;
use crate::push::{
    Attach, Cell, Digest, Election, Frames, Op, Open, Push, Pushed, PushedType, Tally, Verdict, entry_digest,
};
use crate::roster::RosterChange;

/// A store's writer and one pusher of one cell, stepped by hand.
struct Bench {
    state: State,
    sessions: Sessions,
    events: Vec<Arc<Event>>,
    session: u64,
}

fn key(name: &str) -> Key {
    Key::new("amber", "root", "", name).expect("legal")
}

fn upsert(name: &str, uid: &str, version: u64) -> Op {
    Op::Upsert { key: key(name), version, draft: draft_of(&key(name), uid) }
}

fn delete(name: &str, uid: &str, version: u64) -> Op {
    Op::Delete { key: key(name), version, uid: uid.into() }
}

fn digest(objects: &[(&str, &str, u64)]) -> Digest {
    let entry = |(name, uid, version): &(&str, &str, u64)| entry_digest(key(name).parts(), uid, *version);
    objects.iter().map(entry).fold(Digest::default(), Digest::with)
}

fn sync_end(version: u64, objects: &[(&str, &str, u64)]) -> Op {
    let (count, digest) = (objects.len() as u64, digest(objects));
    Op::SyncEnd { sync: 1, version, count, digest, allow_empty: false }
}

fn progress(version: u64, objects: &[(&str, &str, u64)]) -> Op {
    Op::Progress { version, count: objects.len() as u64, digest: digest(objects) }
}

impl Bench {
    fn new() -> Self {
        Self { state: state(), sessions: Sessions::default(), events: Vec::new(), session: 0 }
    }

    fn push(&mut self, push: Push) -> Pushed {
        let mut stage = Stage::new(&self.state, tag(), &mut self.sessions, |_| 7);
        let pushed = stage.push(push);
        let Staged { state, events, .. } = stage.finish();
        (self.state, self.events) = (state, events);
        pushed
    }

    fn attach(&mut self, instance: &str, election: Option<(&str, u64)>, replaces: Option<u64>) -> Pushed {
        let election = election.map(|(uid, term)| Election { uid: uid.into(), term });
        let (holder, instance) = (format!("h-{instance}").into(), instance.into());
        self.push(Push::Attach(Attach { shard: "amber".into(), holder, instance, election, replaces }))
    }

    fn open(&mut self, term: u64, source: &str, source_head: u64) -> Pushed {
        let described = PushedType { version: "v1".into(), kind: "Cowboy".into(), namespaced: false };
        let cell = CellName::new("amber", cowboys());
        let source = source.into();
        let pushed = self.push(Push::Open(Open { cell, term, source, source_head, described }));
        self.session = pushed.session;
        pushed
    }

    fn frames(&mut self, ops: Vec<Op>) -> Pushed {
        let cell = CellName::new("amber", cowboys());
        self.push(Push::Frames(Frames { cell, term: 1, session: self.session, ops, now_ms: 77 }))
    }

    /// A cell that has followed its source up to version 10: `a` of 5 and `b` of 7.
    fn following() -> Self {
        let mut bench = Self::new();
        bench.attach("i1", None, None);
        bench.open(1, "src", 10);
        let objects = [("a", "ua", 5), ("b", "ub", 7)];
        let mut ops = vec![Op::SyncStart { sync: 1 }];
        ops.extend(objects.iter().map(|(name, uid, version)| upsert(name, uid, *version)));
        ops.push(sync_end(10, &objects));
        assert_eq!(bench.frames(ops).verdict, Verdict::Done);
        bench
    }

    fn cell(&self) -> &Cell {
        self.state.cell(&CellName::new("amber", cowboys())).expect("it was opened")
    }

    /// Names and source versions in key order.
    fn content(&self) -> String {
        let objects = self.state.objects(&cowboys()).into_iter().flat_map(crate::state::Objects::iter);
        objects.flat_map(|o| [o.parts().name.to_owned(), format!("@{} ", o.source().version)]).collect()
    }
}

#[test]
fn d32_terms_are_issued_in_the_order_of_the_rules() {
    let mut bench = Bench::new();
    let first = bench.attach("i1", Some(("lease", 4)), None);
    assert_eq!((first.verdict, first.tenure.term), (Verdict::Done, 1));
    assert_eq!(bench.attach("i1", Some(("lease", 4)), None).tenure.term, 1, "the same process goes on");
    assert_eq!(bench.attach("i2", Some(("lease", 5)), None).verdict, Verdict::Held);
    let stale = bench.attach("i2", Some(("lease", 3)), Some(1));
    assert_eq!(stale.verdict, Verdict::Fenced, "a leader that was replaced, whatever it claims");
    assert_eq!(
        bench.attach("i2", Some(("lease", 5)), Some(7)).verdict,
        Verdict::Held,
        "another term's holder"
    );
    let second = bench.attach("i2", Some(("lease", 5)), Some(1));
    assert_eq!((second.verdict, second.tenure.term), (Verdict::Done, 2));
    let anew = bench.attach("i3", Some(("another lease", 0)), Some(2));
    assert_eq!((anew.verdict, anew.tenure.term), (Verdict::Done, 3), "a Lease made anew starts at 0");
    assert_eq!(bench.attach("i3", Some(("another lease", 6)), None).tenure.term, 3);
    assert_eq!(bench.attach("i4", Some(("another lease", 5)), Some(3)).verdict, Verdict::Fenced);
}

#[test]
fn d32_what_was_under_way_when_another_took_over_is_void() {
    let mut bench = Bench::following();
    let old_session = bench.session;
    bench.attach("i2", None, Some(1));
    let late = bench.frames(vec![upsert("c", "uc", 11), delete("a", "ua", 12)]);
    assert_eq!((late.verdict, late.tenure.term), (Verdict::Fenced, 2));
    assert_eq!(bench.content(), "a@5 b@7 ");
    assert_eq!(bench.open(1, "src", 12).verdict, Verdict::Fenced);
    // Inside one term: an older session of the same cell.
    let mut bench = Bench::following();
    bench.open(1, "src", 12);
    bench.session = old_session;
    assert_eq!(bench.frames(vec![delete("a", "ua", 12)]).verdict, Verdict::Superseded);
    assert_eq!(bench.content(), "a@5 b@7 ");
}

#[test]
fn d33_a_sync_marks_and_sweeps_at_its_end_only() {
    let mut bench = Bench::following();
    let begun = bench.frames(vec![Op::SyncStart { sync: 1 }, upsert("b", "ub", 7), upsert("c", "uc", 12)]);
    assert_eq!(begun.tally, Tally { put: 1, unchanged: 1, ..Tally::default() });
    assert_eq!(bench.content(), "a@5 b@7 c@12 ", "nothing is removed before the end");
    assert!(!bench.cell().cut && bench.cell().is_managed());
    let ended = bench.frames(vec![sync_end(13, &[("b", "ub", 7), ("c", "uc", 12)])]);
    assert_eq!((ended.verdict, ended.tally.deleted), (Verdict::Done, 1));
    assert_eq!(bench.content(), "b@7 c@12 ");
    assert_eq!((bench.cell().position, bench.cell().cut, bench.cell().synced_ms), (13, true, 77));
}

#[test]
fn d33_a_sync_that_changes_nothing_writes_nothing() {
    let mut bench = Bench::following();
    let objects = [("a", "ua", 5), ("b", "ub", 7)];
    let again = bench.frames(vec![
        Op::SyncStart { sync: 1 },
        upsert("a", "ua", 5),
        upsert("b", "ub", 7),
        sync_end(10, &objects),
    ]);
    assert_eq!((again.verdict, again.tally.unchanged), (Verdict::Done, 2));
    assert!(bench.events.is_empty());
    // In a new generation too: the source went back, and has the same.
    let opened = bench.open(1, "src", 9);
    assert_eq!(opened.verdict, Verdict::Resync("SourceRegressed".into()));
    let again = bench.frames(vec![
        Op::SyncStart { sync: 1 },
        upsert("a", "ua", 5),
        upsert("b", "ub", 7),
        sync_end(9, &objects),
    ]);
    assert_eq!((again.verdict, again.tally.unchanged), (Verdict::Done, 2));
    assert!(bench.events.is_empty());
    assert_eq!((bench.cell().generation, bench.cell().synced_generation, bench.cell().position), (2, 2, 9));
}

#[test]
fn d33_an_empty_list_empties_a_cell_only_if_it_may() {
    for (allow_empty, content) in [(false, "a@5 b@7 "), (true, "")] {
        let mut bench = Bench::following();
        let end = Op::SyncEnd { sync: 1, version: 11, count: 0, digest: Digest::default(), allow_empty };
        let pushed = bench.frames(vec![Op::SyncStart { sync: 1 }, end]);
        assert_eq!(bench.content(), content);
        assert_eq!(matches!(pushed.verdict, Verdict::Broken(_)), !allow_empty);
    }
}

#[test]
fn d33_a_list_that_is_not_what_was_sent_removes_nothing() {
    for wrong in [&[("b", "ub", 7), ("c", "uc", 9)][..], &[("b", "ub", 8)], &[("b", "ux", 7)], &[]] {
        let mut bench = Bench::following();
        let end = Op::SyncEnd {
            sync: 1,
            version: 11,
            count: wrong.len() as u64,
            digest: digest(wrong),
            allow_empty: true,
        };
        let pushed = bench.frames(vec![Op::SyncStart { sync: 1 }, upsert("b", "ub", 7), end]);
        assert!(matches!(pushed.verdict, Verdict::Resync(_)), "{wrong:?}");
        assert_eq!(bench.content(), "a@5 b@7 ");
        assert_eq!((bench.cell().generation, bench.cell().cut), (2, false));
        let lost = bench.frames(vec![upsert("d", "ud", 12), sync_end(12, &[])]);
        assert_eq!((lost.verdict, lost.tally.ignored), (Verdict::Done, 2), "what was on its way");
    }
}

#[test]
fn d33_a_large_sweep_is_several_commits_and_not_cut_until_the_last() {
    let mut bench = Bench::new();
    bench.attach("i1", None, None);
    bench.open(1, "src", 10);
    let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), "u", 5)).collect();
    let mut ops = vec![Op::SyncStart { sync: 1 }];
    ops.extend(names.iter().map(|name| upsert(name, "u", 5)));
    ops.push(sync_end(10, &objects));
    assert_eq!(bench.frames(ops).verdict, Verdict::Done);
    let end = || sync_end(11, &objects[..1]);
    let mut pushed = bench.frames(vec![Op::SyncStart { sync: 1 }, upsert("n0", "u", 5), end()]);
    let mut parts = Vec::new();
    while pushed.verdict == Verdict::Sweeping {
        assert!(!bench.cell().cut);
        parts.push(pushed.tally.deleted);
        pushed = bench.frames(vec![end()]);
    }
    assert_eq!((parts, pushed.tally.deleted), (vec![3, 3], 1));
    assert_eq!((bench.content().as_str(), bench.cell().cut, bench.cell().count), ("n0@5 ", true, 1));
}

#[test]
fn d33_events_may_follow_the_end_of_a_list_whose_sweep_goes_on() {
    let mut bench = Bench::new();
    bench.attach("i1", None, None);
    bench.open(1, "src", 10);
    let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), "u", 5)).collect();
    let mut ops = vec![Op::SyncStart { sync: 1 }];
    ops.extend(names.iter().map(|name| upsert(name, "u", 5)));
    ops.push(sync_end(10, &objects));
    assert_eq!(bench.frames(ops).verdict, Verdict::Done);
    // What comes behind the end in the same request, or in one that was on its way.
    let end = || sync_end(11, &objects[..1]);
    let begun = vec![
        Op::SyncStart { sync: 1 },
        upsert("n0", "u", 5),
        end(),
        upsert("late", "ul", 12),
        upsert("n0", "u", 11),
        progress(12, &[("n0", "u", 5), ("late", "ul", 12)]),
    ];
    let pushed = bench.frames(begun);
    assert_eq!((pushed.verdict, pushed.tally.duplicate), (Verdict::Sweeping, 1));
    assert!(!bench.cell().cut);
    let pushed = bench.frames(vec![delete("n0", "u", 13), progress(14, &[("late", "ul", 12)])]);
    assert_eq!((pushed.verdict, bench.cell().position), (Verdict::Done, 14));
    while bench.frames(vec![end()]).verdict == Verdict::Sweeping {
        assert!(!bench.cell().cut);
    }
    assert_eq!((bench.content().as_str(), bench.cell().cut, bench.cell().position), ("late@12 ", true, 14));
    assert_eq!(bench.frames(vec![progress(15, &[("late", "ul", 12)])]).verdict, Verdict::Done);
}

#[test]
fn d42_a_type_is_awaited_until_the_sweep_of_its_first_sync_is_over() {
    let mut bench = Bench::new();
    let names = ["m", "n", "o", "p", "q"];
    bench.state = run(&bench.state, names.iter().map(|name| put(name, "", Guard::default())).collect()).state;
    bench.push(Push::Roster(RosterChange::Expect { shard: "amber".into() }));
    bench.attach("i1", None, None);
    bench.push(Push::Catalog { shard: "amber".into(), term: 1, types: vec![cowboys()] });
    bench.open(1, "src", 10);
    let end = || Op::SyncEnd { sync: 1, version: 10, count: 0, digest: digest(&[]), allow_empty: true };
    let waits = |bench: &Bench| bench.state.awaited(&cowboys()).count();
    assert_eq!(bench.frames(vec![Op::SyncStart { sync: 1 }, end()]).verdict, Verdict::Sweeping);
    assert_eq!(waits(&bench), 1, "what the source does not have is still there");
    assert_eq!(bench.frames(vec![end()]).verdict, Verdict::Done);
    assert_eq!(waits(&bench), 0);
}

#[test]
fn d34_the_table_row_by_row() {
    let mut bench = Bench::following();
    let none = Tally::default();
    let rows = [
        (upsert("a", "ua", 10), Tally { duplicate: 1, ..none }, "a@5 b@7 ", 10),
        (delete("a", "ua", 9), Tally { duplicate: 1, ..none }, "a@5 b@7 ", 10),
        (upsert("a", "ua", 11), Tally { put: 1, ..none }, "a@11 b@7 ", 11),
        (delete("x", "ux", 12), Tally { stale: 1, ..none }, "a@11 b@7 ", 12),
        (delete("a", "another", 13), Tally { stale: 1, ..none }, "a@11 b@7 ", 13),
        (delete("a", "ua", 14), Tally { deleted: 1, ..none }, "b@7 ", 14),
        (upsert("a", "ua2", 15), Tally { put: 1, ..none }, "a@15 b@7 ", 15),
    ];
    for (op, tally, content, position) in rows {
        let pushed = bench.frames(vec![op]);
        assert_eq!((pushed.verdict, pushed.tally), (Verdict::Done, tally));
        assert_eq!((bench.content().as_str(), bench.cell().position), (content, position));
    }
    let other_uid = bench.frames(vec![upsert("b", "ub2", 16)]);
    assert_eq!((other_uid.tally.put, bench.events.len()), (1, 2), "another object: deleted, then created");
    let (count, digest) = (bench.cell().count, bench.cell().digest);
    assert_eq!((count, digest), (2, self::digest(&[("a", "ua2", 15), ("b", "ub2", 16)])));
}

#[test]
fn d34_an_older_list_does_not_bring_an_older_object_back() {
    let mut bench = Bench::following();
    bench.frames(vec![upsert("b", "new", 15)]);
    let pushed = bench.frames(vec![Op::SyncStart { sync: 2 }, upsert("b", "ub", 7)]);
    assert_eq!((pushed.tally.stale, bench.content().as_str()), (1, "a@5 b@15 "));
}

#[test]
fn d34_progress_moves_the_position_and_compares() {
    let objects = [("a", "ua", 5), ("b", "ub", 7)];
    let mut bench = Bench::following();
    assert_eq!(bench.frames(vec![progress(20, &objects)]).verdict, Verdict::Done);
    assert_eq!(bench.cell().position, 20);
    for wrong in
        [progress(19, &objects), progress(21, &objects[..1]), progress(21, &[("a", "ua", 5), ("b", "ub", 8)])]
    {
        let mut bench = Bench::following();
        bench.frames(vec![progress(20, &objects)]);
        let pushed = bench.frames(vec![wrong, upsert("c", "uc", 30)]);
        assert!(matches!(pushed.verdict, Verdict::Resync(_)));
        assert_eq!((pushed.tally.ignored, bench.content().as_str()), (1, "a@5 b@7 "));
        assert_eq!((bench.cell().generation, bench.cell().cut), (2, false));
    }
}

#[test]
fn d35_a_position_counts_inside_one_lineage_of_the_source() {
    let mut bench = Bench::new();
    bench.attach("i1", None, None);
    assert_eq!(bench.open(1, "src", 10).verdict, Verdict::Resync("NeverSynced".into()));
    let mut bench = Bench::following();
    assert_eq!(bench.open(1, "src", 10).verdict, Verdict::Done);
    assert_eq!(bench.open(1, "src", 9).verdict, Verdict::Resync("SourceRegressed".into()));
    let mut bench = Bench::following();
    assert_eq!(bench.open(1, "other", 99).verdict, Verdict::Resync("SourceChanged".into()));
    assert_eq!((bench.cell().generation, bench.content().as_str()), (2, "a@5 b@7 "), "stays until the sweep");
    // The restored source has a at a lower version, and no b.
    let objects = [("a", "ua", 3)];
    let synced = bench.frames(vec![Op::SyncStart { sync: 1 }, upsert("a", "ua", 3), sync_end(4, &objects)]);
    assert_eq!((synced.verdict, bench.content().as_str(), bench.cell().position), (Verdict::Done, "a@3 ", 4));
    let mut bench = Bench::following();
    bench.frames(vec![Op::SyncStart { sync: 1 }]);
    assert_eq!(bench.open(1, "src", 10).verdict, Verdict::Resync("SyncIncomplete".into()));
    assert_eq!(bench.cell().generation, 1);
}

#[test]
fn d31_frames_out_of_order_end_the_session_and_nothing_else() {
    let fresh = || {
        let mut bench = Bench::new();
        bench.attach("i1", None, None);
        bench.open(1, "src", 10);
        bench
    };
    let cases: Vec<(Bench, Vec<Op>, usize)> = vec![
        (fresh(), vec![upsert("c", "uc", 11)], 0),
        (fresh(), vec![progress(11, &[])], 0),
        (Bench::following(), vec![sync_end(11, &[])], 0),
        (Bench::following(), vec![Op::SyncStart { sync: 2 }, sync_end(11, &[])], 1),
        (Bench::following(), vec![Op::SyncStart { sync: 1 }, progress(11, &[]), delete("a", "ua", 12)], 1),
    ];
    for (mut bench, ops, right) in cases {
        let before = bench.content();
        let pushed = bench.frames(ops);
        assert!(matches!(pushed.verdict, Verdict::Broken(_)), "{:?}", pushed.verdict);
        assert_eq!(bench.content(), before);
        assert_eq!(bench.frames(vec![progress(11, &[])]).verdict, Verdict::Superseded, "it has ended");
        assert_eq!(pushed.done, right, "frames before the wrong one");
    }
}

#[test]
fn d30_ordinary_writes_are_refused_from_the_first_sync_on_until_released() {
    let refused = |bench: &mut Bench| {
        let mut stage = Stage::new(&bench.state, tag(), &mut bench.sessions, |_| 7);
        match stage.change(put("z", "", Guard::default())) {
            Err(Refusal::PushManaged { holder }) => Some(holder),
            other => other.map(|_| None).expect("no other refusal"),
        }
    };
    let mut bench = Bench::new();
    bench.attach("i1", None, None);
    bench.open(1, "src", 10);
    assert_eq!(refused(&mut bench), None, "nothing has been synced yet");
    bench.frames(vec![Op::SyncStart { sync: 1 }]);
    assert_eq!(refused(&mut bench).as_deref(), Some("h-i1"), "none is interleaved with a sync");
    let (cell, session) = (CellName::new("amber", cowboys()), bench.session);
    bench.push(Push::Close { cell, session });
    assert_eq!(refused(&mut bench), None, "it broke off, and nothing was complete");
    let mut bench = Bench::following();
    assert_eq!(refused(&mut bench).as_deref(), Some("h-i1"));
    bench.push(Push::Release { shard: "amber".into(), type_name: Some(cowboys()) });
    assert_eq!(refused(&mut bench), None);
    assert_eq!(bench.frames(vec![upsert("c", "uc", 11)]).verdict, Verdict::Superseded);
    assert_eq!(bench.open(1, "src", 12).verdict, Verdict::Resync("NeverSynced".into()));
}

#[test]
fn d33_objects_of_before_the_first_push_are_counted_and_swept() {
    let mut bench = Bench::new();
    let mut stage = Stage::new(&bench.state, tag(), &mut bench.sessions, |_| 7);
    for name in ["a", "old"] {
        stage.change(put(name, "", Guard::default())).expect("nobody pushes yet");
    }
    bench.state = stage.finish().state;
    bench.attach("i1", None, None);
    bench.open(1, "src", 10);
    let pushed =
        bench.frames(vec![Op::SyncStart { sync: 1 }, upsert("a", "ua", 5), sync_end(10, &[("a", "ua", 5)])]);
    assert_eq!((pushed.verdict, bench.content().as_str()), (Verdict::Done, "a@5 "));
    assert_eq!((bench.cell().count, bench.cell().digest), (1, digest(&[("a", "ua", 5)])));
}
