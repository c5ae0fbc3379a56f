//! The checker against a correct history and against one planted fault each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

fn object(name: &str, version: Version, value: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Thing",
        "metadata": {
            "name": name, "resourceVersion": version.to_string(),
            "annotations": { "kcp.io/shard": "amber", "kcp.io/cluster": "root" },
        },
        "spec": { "value": value },
    })
}

/// A small correct world: its log, one line per version, and the list at each version.
struct World {
    steps: Vec<Step>,
    lists: BTreeMap<Version, List>,
    written: Written,
}

fn world() -> World {
    let script = [
        (11, "a", Some(1)),
        (12, "b", Some(1)),
        (13, "a", Some(2)),
        (14, "a", Some(3)),
        (15, "b", None),
        (16, "c", Some(1)),
        (17, "b", Some(9)),
    ];
    let key = |name: &str| ItemKey::new("amber", "root", "", name);
    let mut items: BTreeMap<ItemKey, Value> = BTreeMap::new();
    let mut world = World { steps: vec![], lists: BTreeMap::new(), written: Written::new() };
    world.lists.insert(10, List { version: 10, items: BTreeMap::new() });
    for (version, name, value) in script {
        let step = if let Some(value) = value {
            let new = object(name, version, value);
            world.written.insert(version, (key(name), Some(new.clone())));
            match items.insert(key(name), new.clone()) {
                None => Step::Added(new),
                Some(_) => Step::Modified(new),
            }
        } else {
            world.written.insert(version, (key(name), None));
            let mut old = items.remove(&key(name)).expect("the script deletes what exists");
            old["metadata"]["resourceVersion"] = json!(version.to_string());
            Step::Deleted(old)
        };
        world.steps.push(step);
        world.lists.insert(version, List { version, items: items.clone() });
    }
    world.steps.push(Step::Bookmark { version: 17, initial_end: false });
    world
}

fn judge(steps: Vec<Step>) -> Result<Report, Violation> {
    let lists = world().lists;
    check(&Trace { start: Start::At(10), steps }, |version| lists.get(&version).cloned())
}

fn key(name: &str) -> ItemKey {
    ItemKey::new("amber", "root", "", name)
}

#[test]
fn a_correct_trace_passes_and_says_what_it_rests_on() {
    assert_eq!(judge(world().steps), Ok(Report { changes: 7, compared: 2 }));
}

#[test]
fn a_planted_gap_is_found() {
    for lost in [0, 1, 3, 4, 5, 6] {
        let mut steps = world().steps;
        steps.remove(lost);
        assert!(judge(steps).is_err(), "the loss of step {lost} went unnoticed");
    }
}

#[test]
fn a_gap_that_a_later_change_covers_up_is_found_against_what_was_written() {
    let World { mut steps, lists, written } = world();
    steps.remove(2);
    let mut replay = Replay::after(&lists[&10]);
    for step in &steps {
        replay.step(step).expect("every transition is legal");
    }
    replay.equals(&lists[&17]).expect("and the end is right");
    assert_eq!(replay.contains(&written), Err(Violation::Lost { version: 13, key: key("a") }));
}

#[test]
fn a_planted_duplicate_is_found() {
    for twice in 0..7 {
        let mut steps = world().steps;
        steps.insert(twice + 1, steps[twice].clone());
        assert!(
            matches!(judge(steps), Err(Violation::NotIncreasing { .. })),
            "the repetition of step {twice} went unnoticed"
        );
    }
}

#[test]
fn a_planted_reorder_is_found() {
    for first in 0..6 {
        let mut steps = world().steps;
        steps.swap(first, first + 1);
        assert!(judge(steps).is_err(), "swapping steps {first} and the next went unnoticed");
    }
}

#[test]
fn a_stale_object_body_is_found_at_the_next_bookmark_and_against_what_was_written() {
    let World { mut steps, lists, written } = world();
    steps[3] = Step::Modified(object("a", 14, 2));
    assert_eq!(judge(steps.clone()), Err(Violation::Differs { version: 17, key: key("a") }));
    let mut replay = Replay::after(&lists[&10]);
    for step in &steps {
        replay.step(step).expect("every transition is legal");
    }
    assert_eq!(replay.contains(&written), Err(Violation::Altered { version: 14, key: key("a") }));
}

#[test]
fn a_deletion_with_another_content_is_found() {
    let mut steps = world().steps;
    steps[4] = Step::Deleted(object("b", 15, 7));
    assert_eq!(judge(steps), Err(Violation::DeletedOther { key: key("b"), version: 15 }));
}

#[test]
fn a_deletion_under_the_version_of_the_last_state_is_found() {
    let mut steps = world().steps;
    steps[4] = Step::Deleted(object("b", 12, 1));
    assert_eq!(judge(steps), Err(Violation::NotIncreasing { version: 12, last: 14 }));
}

#[test]
fn illegal_transitions_are_found() {
    let added = |version| Step::Added(object("a", version, 1));
    let modified = Step::Modified(object("z", 11, 1));
    let deleted = Step::Deleted(object("z", 11, 1));
    assert_eq!(
        judge(vec![added(11), added(12)]),
        Err(Violation::AddedPresent { key: key("a"), version: 12 })
    );
    assert_eq!(judge(vec![modified]), Err(Violation::ModifiedAbsent { key: key("z"), version: 11 }));
    assert_eq!(judge(vec![deleted]), Err(Violation::DeletedAbsent { key: key("z"), version: 11 }));
}

#[test]
fn a_bookmark_that_overtakes_an_event_is_found() {
    let mut steps = world().steps;
    steps.swap(6, 7);
    assert!(judge(steps.clone()).is_err());
    // Also without any list to compare with.
    let lists = world().lists;
    let only_start = |version| (version == 10).then(|| lists[&10].clone());
    assert_eq!(
        check(&Trace { start: Start::At(10), steps }, only_start),
        Err(Violation::BehindBookmark { version: 17, bookmark: 17 })
    );
}

#[test]
fn bookmarks_may_stand_still_but_not_go_back() {
    let mark = |version| Step::Bookmark { version, initial_end: false };
    assert!(judge(vec![mark(10), mark(10)]).is_ok());
    let lists = world().lists;
    let only_start = |version| (version == 10).then(|| lists[&10].clone());
    let steps = vec![mark(12), mark(11)];
    assert_eq!(
        check(&Trace { start: Start::At(10), steps }, only_start),
        Err(Violation::BookmarkBack { version: 11, last: 12 })
    );
}

#[test]
fn initial_events_end_with_the_first_bookmark_which_is_marked() {
    let lists = world().lists;
    let exact = |version: Version| lists.get(&version).cloned();
    let run = |steps| check(&Trace { start: Start::Initial { marked: true }, steps }, exact);
    let (a, c) = (object("a", 14, 3), object("c", 16, 1));
    let marked = |version| Step::Bookmark { version, initial_end: true };
    let all = vec![Step::Added(a.clone()), Step::Added(c.clone()), marked(16)];
    assert_eq!(run(all), Ok(Report { changes: 0, compared: 2 }));
    let plain = vec![Step::Added(a.clone()), Step::Bookmark { version: 16, initial_end: false }];
    assert_eq!(run(plain), Err(Violation::Initial("a bookmark before the marked one")));
    let early = vec![Step::Added(a.clone()), Step::Modified(a.clone())];
    assert_eq!(run(early), Err(Violation::Initial("a change before the marked bookmark")));
    let shuffled = vec![Step::Added(c.clone()), Step::Added(a.clone())];
    assert_eq!(run(shuffled), Err(Violation::Initial("out of order")));
    let low = vec![Step::Added(c.clone()), marked(15)];
    assert_eq!(run(low), Err(Violation::BookmarkBack { version: 15, last: 16 }));
    let twice = vec![Step::Added(a), Step::Added(c), marked(16), marked(16)];
    assert_eq!(run(twice), Err(Violation::Initial("a marked bookmark that is not the first")));
}

#[test]
fn initial_events_without_a_mark_end_where_the_first_change_begins() {
    let lists = world().lists;
    let exact = |version: Version| lists.get(&version).cloned();
    let run = |steps| check(&Trace { start: Start::Initial { marked: false }, steps }, exact);
    let steps = vec![
        Step::Added(object("a", 14, 3)),
        Step::Added(object("c", 16, 1)),
        Step::Added(object("b", 17, 9)),
    ];
    assert_eq!(run(steps.clone()), Ok(Report { changes: 1, compared: 1 }));
    let mut again = steps;
    again.push(Step::Modified(object("a", 15, 4)));
    assert_eq!(run(again), Err(Violation::NotIncreasing { version: 15, last: 17 }));
}

#[test]
fn nothing_follows_an_error() {
    let error = Step::Error { code: 410, reason: "Expired".into() };
    assert!(judge(vec![error.clone()]).is_ok());
    assert_eq!(judge(vec![error.clone(), error]), Err(Violation::AfterError));
}

#[test]
fn a_client_goes_on_after_an_error_where_it_stood() {
    let World { steps, lists, written } = world();
    let mut replay = Replay::after(&lists[&10]);
    for (cut, step) in steps.iter().enumerate() {
        assert_eq!(replay.resume_at(), Some((10 + cut as Version).min(17)));
        replay.step(&Step::Error { code: 500, reason: "InternalError".into() }).expect("may come any time");
        replay.resumed();
        replay.step(step).expect("the next step is legal");
        if cut == 2 {
            assert_eq!(replay.items().len(), 2);
        }
    }
    assert_eq!(replay.contains(&written), Ok(()));
    assert_eq!(replay.equals(&lists[&17]), Ok(()));
}

#[test]
fn clients_that_saw_one_version_differently_do_not_agree() {
    let World { steps, lists, .. } = world();
    let replay = |steps: &[Step]| {
        let mut replay = Replay::after(&lists[&10]);
        for step in steps {
            replay.step(step).expect("legal");
        }
        replay
    };
    let good = replay(&steps);
    assert_eq!(agree(&good, &replay(&steps[..3])), Ok(()));
    let mut altered = steps;
    altered[2] = Step::Modified(object("a", 13, 99));
    assert_eq!(agree(&good, &replay(&altered)), Err(Violation::Altered { version: 13, key: key("a") }));
}

#[test]
fn lines_and_lists_are_read_as_served() {
    let line = br#"{"type":"BOOKMARK","object":{"kind":"Thing","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    assert_eq!(Step::parse(line), Ok(Step::Bookmark { version: 5, initial_end: true }));
    let line = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    assert_eq!(Step::parse(line), Ok(Step::Error { code: 410, reason: "Expired".into() }));
    for line in ["", "{}", r#"{"type":"BOOKMARK","object":{}}"#, r#"{"type":"OTHER","object":{}}"#] {
        assert!(Step::parse(line.as_bytes()).is_err(), "{line}");
    }
    let list = |items: Value| json!({ "metadata": { "resourceVersion": "20" }, "items": items });
    assert!(List::parse(&[list(json!([object("a", 1, 1)])), list(json!([object("b", 20, 1)]))]).is_ok());
    assert!(List::parse(&[list(json!([object("b", 1, 1), object("a", 1, 1)]))]).is_err());
    assert!(List::parse(&[list(json!([object("a", 21, 1)]))]).is_err());
    assert!(List::parse(&[list(Value::Null)]).is_err());
}
