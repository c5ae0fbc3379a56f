//! Retention arithmetic, hand-stepped.

use super::*;

fn entry(revision: u64, previous: u64, frees: u32) -> Entry {
    Entry { revision: Revision(revision), previous: Revision(previous), frees, deletion: false }
}

fn deletion(revision: u64, previous: u64, frees: u32) -> Entry {
    Entry { deletion: true, ..entry(revision, previous, frees) }
}

fn names() -> (TypeName, TypeName) {
    (TypeName::new("", "a"), TypeName::new("", "b"))
}

fn history(of_a: &[Entry], of_b: &[Entry]) -> History {
    let (a, b) = names();
    let mut history = History::default();
    for entry in of_a {
        history.record(&a, *entry);
    }
    for entry in of_b {
        history.record(&b, *entry);
    }
    history
}

fn floors(plan: &Plan) -> Vec<(String, u64)> {
    plan.floors().map(|(name, floor)| (name.qualified(), floor.0)).collect()
}

fn removals(plan: &Plan) -> Vec<u64> {
    plan.removals().map(|revision| revision.0).collect()
}

#[test]
fn d15_age_forgets_up_to_the_cutoff_in_every_type() {
    let mut history =
        history(&[entry(1, 0, 0), entry(3, 1, 10), deletion(5, 3, 20)], &[entry(2, 0, 0), entry(6, 2, 7)]);
    assert!(!history.is_due(Revision(0), 100));
    assert!(history.is_due(Revision(1), 100));
    let plan = history.plan(Revision(5), 100);
    assert_eq!(floors(&plan), [("a".to_owned(), 5), ("b".to_owned(), 2)]);
    assert_eq!(removals(&plan), [1, 3, 5], "superseded states, and the deletion itself");
    assert_eq!((history.events(), history.superseded_bytes()), (1, 7));
    assert_eq!(history.oldest(), Some(Revision(6)));
    assert_eq!(history.lowest_floor(), Some(Revision(2)));
    assert!(history.plan(Revision(5), 100).is_empty());
}

#[test]
fn d15_bytes_are_paid_by_the_type_that_has_the_most() {
    let of_a: Vec<_> = (1..=100).map(|i| entry(i * 2, i * 2 - 2, 10)).collect();
    let of_b = [entry(1, 0, 0), entry(3, 1, 300)];
    let mut history = history(&of_a, &of_b);
    assert_eq!(history.superseded_bytes(), 1300);
    let plan = history.plan(Revision::ZERO, 800);
    let (_, b) = names();
    assert_eq!(history.floor(&b), Revision::ZERO, "the quiet type keeps everything");
    assert_eq!(history.superseded_bytes(), 750, "down to a little below the limit");
    assert_eq!(floors(&plan), [("a".to_owned(), 110)]);
    assert!(!history.is_due(Revision::ZERO, 800), "there is room until the next time");
}

#[test]
fn a_plan_is_bounded_and_the_next_one_goes_on() {
    let of_a: Vec<_> = (1..=2500).map(|i| entry(i, i - 1, 1)).collect();
    let mut history = history(&of_a, &[]);
    let mut rounds = 0;
    while history.is_due(Revision(2400), u64::MAX) {
        let plan = history.plan(Revision(2400), u64::MAX);
        assert!(!plan.is_empty() && removals(&plan).len() <= REMOVALS_MAX);
        rounds += 1;
    }
    assert_eq!((rounds, history.events()), (3, 100));
}

#[test]
fn a_plan_that_failed_is_put_back_whole() {
    let (a, b) = names();
    let of_a: Vec<_> = (1..=50).map(|i| entry(i * 2, i * 2 - 2, 10)).collect();
    let of_b: Vec<_> = (1..=50).map(|i| deletion(i * 2 + 1, 1, 5)).collect();
    let mut history = history(&of_a, &of_b);
    drop(history.plan(Revision(10), u64::MAX));
    let before = format!("{:?}", history.types);
    let counts = (history.events(), history.superseded_bytes());
    let plan = history.plan(Revision(20), 300);
    assert!(!plan.is_empty());
    history.restore(plan);
    assert_eq!(format!("{:?}", history.types), before);
    assert_eq!((history.events(), history.superseded_bytes()), counts);
    assert_eq!((history.floor(&a), history.floor(&b)), (Revision(10), Revision(9)));
}

#[test]
fn reading_is_refused_below_the_floor_and_bounded_above_it() {
    let (a, _) = names();
    let mut history = history(&[entry(1, 0, 0), entry(3, 1, 1), entry(5, 3, 1), entry(9, 5, 1)], &[]);
    drop(history.plan_type(&a, Revision(4)));
    assert_eq!(history.between(&a, Revision(2), Revision(9), 10), Err(Revision(3)));
    let revisions = |after, up_to, max| history.between(&a, Revision(after), Revision(up_to), max);
    assert_eq!(revisions(3, 9, 10), Ok((vec![Revision(5), Revision(9)], false)));
    assert_eq!(revisions(3, 9, 1), Ok((vec![Revision(5)], true)));
    assert_eq!(revisions(5, 8, 10), Ok((vec![], false)));
    assert_eq!(revisions(9, 4, 10), Ok((vec![], false)), "backwards is empty");
}

#[test]
fn ages_turn_into_revisions_with_the_last_commit_covered() {
    let mut ages = Ages::new(10_000, [(Revision(5), 1_000)]);
    assert_eq!(ages.row_for(Revision(6), 1_500), None, "one row per second");
    ages.record(Revision(6), 1_500, None);
    assert_eq!(ages.next_in_ms(1_500), Some(9_500));
    assert_eq!(ages.cutoff(10_999), Revision::ZERO);
    assert_eq!(ages.cutoff(11_000), Revision(5));
    assert_eq!(ages.passed(), [Revision(5)]);
    assert_eq!(ages.next_in_ms(11_000), Some(500));
    assert_eq!(ages.cutoff(11_500), Revision(6), "the tail needs no row");
    assert_eq!(ages.next_in_ms(11_500), None);
    let row = ages.row_for(Revision(8), 12_000);
    assert_eq!(row, Some((Revision(8), 12_000)));
    ages.record(Revision(8), 12_000, row);
    assert_eq!(ages.cutoff(22_000), Revision(8));
    ages.removed();
    assert!(ages.passed().is_empty());
}

#[test]
fn a_long_age_has_coarser_rows() {
    let day_ms = 24 * 3_600_000;
    let mut ages = Ages::new(day_ms, []);
    let mut rows = 0;
    for second in 0..10_000u64 {
        let row = ages.row_for(Revision(second + 1), second * 1000);
        rows += u32::from(row.is_some());
        ages.record(Revision(second + 1), second * 1000, row);
    }
    assert!((400..=420).contains(&rows), "one per 24 s: {rows}");
}
