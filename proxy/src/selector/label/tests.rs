use proptest::prelude::*;

use super::LabelSelector;

/// Labels as `a=1 b=2`, in key order.
fn labels(text: &str) -> Vec<(&str, &str)> {
    text.split_whitespace().map(|label| label.split_once('=').expect("k=v")).collect()
}

fn selects(selector: &str, set: &str) -> bool {
    LabelSelector::parse(selector)
        .unwrap_or_else(|why| panic!("{selector}: {why}"))
        .matches_sorted(labels(set))
}

fn error(selector: &str) -> String {
    LabelSelector::parse(selector).expect_err(selector)
}

/// Twelve label sets; the masks in the table below read from left to right.
const SETS: [&str; 12] = [
    "",
    "a=",
    "a=1",
    "a=2",
    "a=b tier=x",
    "tier=x",
    "tier=y",
    "n=4 tier=",
    "n=5",
    "n=06",
    "n=five",
    "a=1 app.kubernetes.io/name=web in=in tier=x",
];

#[test]
fn b076_the_table_of_selectors_and_label_sets() {
    let table = [
        ("", "111111111111"),
        ("a", "011110000001"),
        ("!a", "100001111110"),
        ("! a", "100001111110"),
        ("a=1", "001000000001"),
        ("a==1", "001000000001"),
        ("a == 1", "001000000001"),
        ("a=", "010000000000"),
        ("a!=", "101111111111"),
        ("a!=1", "110111111110"),
        (" a in ( 1 , 2 ) ", "001100000001"),
        ("a in (1)", "001000000001"),
        ("a in ()", "010000000000"),
        ("a in (,1)", "011000000001"),
        ("a in (1,)", "011000000001"),
        ("a in (1,,2)", "011100000001"),
        ("a notin (1,2)", "110011111110"),
        ("a notin ()", "101111111111"),
        ("tier!=x", "111100111110"),
        ("tier notin (x)", "111100111110"),
        ("!tier", "111100001110"),
        ("tier in (,x)", "000011010001"),
        ("a=1,a=2", "000000000000"),
        ("a,!tier", "011100000000"),
        ("n>4", "000000001100"),
        ("n<6", "000000011000"),
        ("n>4,n<6", "000000001000"),
        ("app.kubernetes.io/name=web", "000000000001"),
        ("app.kubernetes.io/name", "000000000001"),
        ("in in (in)", "000000000001"),
        ("in=in,notin notin (in)", "000000000001"),
        ("a=1,tier!=x", "001000000000"),
        ("tier\t=\nx", "000011000001"),
    ];
    for (selector, expected) in table {
        let mask: String = SETS.iter().map(|set| if selects(selector, set) { '1' } else { '0' }).collect();
        assert_eq!(mask, expected, "{selector:?}");
    }
}

#[test]
fn integers_compare_as_integers_and_everything_else_never() {
    assert!(selects("n>9", "n=10"));
    assert!(!selects("n>9", "n=9"));
    assert!(!selects("n>9", "n=9223372036854775808"));
    assert!(selects("n<9223372036854775807", "n=1"));
    assert!(!selects("n>1", "m=2"));
}

#[test]
fn b077_bad_selectors_are_errors_and_never_select_everything() {
    let long = "a".repeat(64);
    for selector in ["app=_bad", &format!("app={long}"), "a/b/c=1", &long, &format!("{}/a", "b".repeat(254))]
    {
        assert!(error(selector).contains("Invalid value"), "{selector}");
    }
    for selector in [
        ",",
        "a,",
        "a,,b",
        "=",
        "a=b=c",
        "a in",
        "a in (",
        "a in (b",
        "a in (b,",
        "a in (,,)",
        "a in b",
        "(a)",
        "!",
    ] {
        assert!(error(selector).contains("expected"), "{selector}");
    }
    for selector in ["\0app=x", "app=x\0", "a\0", "n>", "n>x", "n<1.5", "é=1", "a=é"] {
        assert!(error(selector).contains("Invalid value"), "{selector:?}");
    }
}

#[test]
fn errors_have_the_texts_of_apimachinery() {
    let value_rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                      must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                      regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let name_rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                     is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let table = [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("a=(", "unable to parse requirement: found '(', expected: identifier".to_owned()),
        ("a in b", "unable to parse requirement: found 'b' expected: '('".to_owned()),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'".to_owned()),
        ("a=1 b", "found 'b', expected: ',' or 'end of string'".to_owned()),
        ("!a=1", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("a,", "found '', expected: identifier after ','".to_owned()),
        (")", "found ')', expected: !, identifier, or 'end of string'".to_owned()),
        (
            "app=_bad",
            format!("unable to parse requirement: values[0][app]: Invalid value: \"_bad\": {value_rule}"),
        ),
        (
            "a/b/c",
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key {name_rule} with an \
                 optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        ),
        (
            "n>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
             an integer"
                .to_owned(),
        ),
    ];
    for (selector, expected) in table {
        assert_eq!(error(selector), expected, "{selector:?}");
    }
}

#[test]
fn spellings_of_one_selector_are_equal() {
    for (left, right) in [
        ("a=1", "a in (1)"),
        ("a==1", "a=1"),
        ("a!=1", "a notin (1,1)"),
        ("b,a", "a,b"),
        ("a in (2,1)", "a in (1,2,1)"),
        ("a,a", "a"),
        ("a in ()", "a="),
    ] {
        assert_eq!(LabelSelector::parse(left), LabelSelector::parse(right), "{left} {right}");
    }
    let canonical = LabelSelector::parse(" z , !y , b in (3,1,2), a notin (2,1), c==5, d!=6, e>7, f<8, g=")
        .expect("legal");
    assert_eq!(canonical.to_string(), "a notin (1,2),b in (1,2,3),c=5,d!=6,e>7,f<8,g=,!y,z");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "in", "notin", "[a-z]{1,3}/[A-Z][a-z_.-]{0,3}[0-9]"]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[0-9]", "in", "notin", "[a-b]"]
}

fn requirement() -> impl Strategy<Value = String> {
    (name(), prop::collection::btree_set(value(), 1..4), 0_u8..9).prop_map(|(key, values, form)| {
        let values: Vec<_> = values.into_iter().collect();
        match form {
            0 => key,
            1 => format!("!{key}"),
            2 => format!("{key}={}", values[0]),
            3 => format!("{key} == {}", values[0]),
            4 => format!("{key}!={}", values[0]),
            5 => format!("{key}>{}", values.len()),
            6 => format!("{key} <{}", values.len()),
            7 => format!("{key} in ({})", values.join(",")),
            _ => format!("{key} notin ( {})", values.join(" , ")),
        }
    })
}

/// Evaluates one requirement as the documentation words it, without the code under test.
fn brute_force(selector: &str, set: &[(String, String)]) -> bool {
    LabelSelector::parse(selector).expect("legal").requirements().iter().all(|requirement| {
        let value = set.iter().find(|(key, _)| **key == *requirement.key).map(|(_, value)| value.as_str());
        let number = |text: &str| text.parse::<i64>().ok();
        let listed = |value: &str| requirement.values.iter().any(|candidate| **candidate == *value);
        match (requirement.operator, value) {
            (super::Operator::Exists, value) => value.is_some(),
            (super::Operator::DoesNotExist, value) => value.is_none(),
            (super::Operator::In, value) => value.is_some_and(listed),
            (super::Operator::NotIn, value) => value.is_none_or(|value| !listed(value)),
            (super::Operator::GreaterThan, Some(value)) => {
                number(value).is_some_and(|value| value > number(&requirement.values[0]).expect("an integer"))
            }
            (super::Operator::LessThan, Some(value)) => {
                number(value).is_some_and(|value| value < number(&requirement.values[0]).expect("an integer"))
            }
            (_, None) => false,
        }
    })
}

proptest! {
    #[test]
    fn the_canonical_text_parses_to_an_equal_selector(requirements in prop::collection::vec(requirement(), 0..5)) {
        let selector = LabelSelector::parse(&requirements.join(",")).expect("legal");
        let text = selector.to_string();
        prop_assert_eq!(LabelSelector::parse(&text).expect(&text), selector);
    }

    #[test]
    fn matching_agrees_with_brute_force(
        requirements in prop::collection::vec(requirement(), 0..4),
        set in prop::collection::btree_map(name(), value(), 0..6),
    ) {
        let text = requirements.join(",");
        let set: Vec<_> = set.into_iter().collect();
        let selector = LabelSelector::parse(&text).expect("legal");
        let found = selector.matches_sorted(set.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        prop_assert_eq!(found, brute_force(&text, &set), "{} on {:?}", text, set);
    }

    #[test]
    fn arbitrary_text_never_panics_and_what_parses_survives_the_round_trip(text in "[a-c=!(),<> /._\\-in0-9é]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
