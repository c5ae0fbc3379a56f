//! A run of a benchmark that writes a page must refuse rather than report what it does not know.

#[expect(dead_code, reason = "only the harness itself is refused by the machine")]
#[path = "../../benches/harness/verdict.rs"]
mod verdict;

use verdict::{Better, FOREIGN_MAX, Goal, Refusal, Row, equal, quiet};

fn row(better: Better, ours: &[f64], theirs: &[f64], goal: Goal) -> Row {
    let (ours, theirs) = (ours.to_vec(), theirs.to_vec());
    Row { what: "work".into(), unit: "s".into(), better, ours, theirs, goal: Some(goal) }
}

fn list(items: &[(&str, &str, &str)]) -> Vec<u8> {
    let items: Vec<_> = items
        .iter()
        .map(|(name, version, spec)| {
            format!(
                r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}","labels":{{"a":"b"}}}},"spec":{spec}}}"#
            )
        })
        .collect();
    format!(r#"{{"items":[{}]}}"#, items.join(",")).into_bytes()
}

#[test]
fn equal_sets_are_equal_whatever_their_order_and_versions() {
    let ours = list(&[("a", "7", r#"{"x":1,"y":[1,2]}"#), ("b", "8", "{}")]);
    let theirs = list(&[("b", "1", "{}"), ("a", "2", r#"{"y":[1,2],"x":1}"#)]);
    equal("list", &ours, &theirs, 2).expect("equal");
}

#[test]
fn unequal_sets_are_refused() {
    let whole = [("a", "1", r#"{"x":1}"#), ("b", "1", "{}")];
    let refused = |ours: &[_], theirs: &[_], count| {
        matches!(equal("list", &list(ours), &list(theirs), count), Err(Refusal::Unequal { .. }))
    };
    assert!(refused(&whole[..1], &whole, 2), "one is missing in ours");
    assert!(refused(&whole, &whole[..1], 2), "one is missing in theirs");
    assert!(refused(&[("a", "1", r#"{"x":2}"#), whole[1]], &whole, 2), "one is not the same");
    assert!(refused(&[("a", "1", r#"{"x":"1"}"#), whole[1]], &whole, 2), "a text is no number");
    assert!(refused(&whole, &whole, 3), "equal, but one that was written is in neither");
    assert!(refused(&[whole[0], whole[0], whole[1]], &whole, 2), "one is there twice");
}

#[test]
fn what_is_no_list_is_refused() {
    let whole = list(&[("a", "1", "{}")]);
    let cut = &whole[..whole.len() - 2];
    assert!(matches!(equal("list", cut, &whole, 1), Err(Refusal::Client(_))));
    let status = br#"{"kind":"Status","code":429}"#;
    assert!(matches!(equal("list", status, status, 0), Err(Refusal::Client(_))));
}

#[test]
fn a_spread_above_the_bound_is_refused() {
    let steady = [1.0, 1.1, 0.9, 1.0, 1.05];
    let noisy = [1.0, 2.0, 0.5, 1.9, 0.6];
    let judged = |ours, theirs, goal| row(Better::Less, ours, theirs, goal).judge();
    judged(&steady, &steady, Goal::Gain(1.0)).expect("steady");
    assert!(matches!(judged(&noisy, &steady, Goal::Gain(1.0)), Err(Refusal::Spread { .. })));
    assert!(matches!(judged(&steady, &noisy, Goal::Gain(1.0)), Err(Refusal::Spread { .. })));
    assert!(judged(&[0.0, f64::NAN, f64::NAN], &steady, Goal::Gain(10.0)).is_err(), "no number");
}

#[test]
fn a_spread_that_cannot_change_the_verdict_is_not_refused() {
    let (steady, noisy) = ([1.0, 1.1, 0.9, 1.0, 1.05], [100.0, 200.0, 50.0, 190.0, 60.0]);
    row(Better::Less, &steady, &noisy, Goal::Gain(10.0)).judge().expect("met by each round against each");
    row(Better::Less, &noisy, &steady, Goal::Gain(10.0)).judge().expect("missed by each");
    assert!(row(Better::Less, &steady, &noisy, Goal::Gain(100.0)).judge().is_err(), "met by some");
}

#[test]
fn one_bad_round_of_five_is_not_a_spread() {
    row(Better::Less, &[1.0, 1.1, 9.0, 1.0, 1.05], &[1.0; 5], Goal::Gain(1.0)).judge().expect("four agree");
}

#[test]
fn a_share_is_judged_by_the_size_of_theirs() {
    let about_zero = [-0.01, 0.02, 0.0, 0.01, 0.03];
    row(Better::Less, &about_zero, &[1.0; 5], Goal::Share(0.015)).judge().expect("little against 1");
    assert!(row(Better::Less, &about_zero, &[1.0; 5], Goal::Gain(60.0)).judge().is_err());
}

#[test]
fn a_disturbed_round_is_repeated_and_too_many_are_refused() {
    assert!(quiet(FOREIGN_MAX, 0, 2).expect("quiet"));
    assert!(!quiet(FOREIGN_MAX + 0.01, 1, 2).expect("may be repeated"));
    assert!(matches!(quiet(FOREIGN_MAX + 0.01, 2, 2), Err(Refusal::Disturbed { disturbed: 3, .. })));
    assert!(quiet(f64::NAN, 2, 2).is_err(), "what cannot be told is not quiet");
}

#[test]
fn goals_are_met_by_medians() {
    let met = |better, ours: f64, theirs: f64, goal| row(better, &[ours], &[theirs], goal).met();
    assert_eq!(met(Better::Less, 1.0, 10.0, Goal::Gain(10.0)), Some(true));
    assert_eq!(met(Better::Less, 1.1, 10.0, Goal::Gain(10.0)), Some(false));
    assert_eq!(met(Better::More, 30.0, 10.0, Goal::Gain(3.0)), Some(true));
    assert_eq!(met(Better::More, 10.0, 30.0, Goal::Gain(3.0)), Some(false));
    assert_eq!(met(Better::Less, 0.7, 1.0, Goal::Share(0.7)), Some(true));
    assert_eq!(met(Better::Less, 0.8, 1.0, Goal::Share(0.7)), Some(false));
    assert_eq!(met(Better::Less, 0.0, 1000.0, Goal::Ours(0.0)), Some(true));
    assert_eq!(met(Better::Less, 1.0, 1000.0, Goal::Ours(0.0)), Some(false));
}
