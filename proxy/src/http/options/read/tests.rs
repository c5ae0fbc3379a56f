use serde_json::json;

use super::*;
use crate::http::options::wants_watch;
use crate::scope::{Part, Scope};
use shardcache_storage::TypeName;

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string()).expect("a number")
}

fn token() -> Token {
    let scope = Scope { shard: Part::Any, cluster: Part::Any, namespace: None };
    Token::new(Some(version(5)), "a\0b\0\0x", &TypeName::new("g", "r"), &scope)
}

fn list(query: &str) -> (ListAt, Option<u64>) {
    let options = ListOptions::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    (options.at, options.limit.map(NonZeroU64::get))
}

fn watch(query: &str) -> WatchFrom {
    WatchOptions::parse(query).unwrap_or_else(|error| panic!("{query}: {error}")).from
}

#[test]
fn d27_every_row_of_the_list_table() {
    let continued = || ListAt::Continue(token());
    let token = token().encode();
    let at = |text: &str| format!("resourceVersion={text}");
    let table = [
        (String::new(), ListAt::MostRecent, None),
        ("limit=5".into(), ListAt::MostRecent, Some(5)),
        ("limit=0".into(), ListAt::MostRecent, None),
        ("limit=-1".into(), ListAt::MostRecent, None),
        (format!("continue={token}"), continued(), None),
        (format!("continue={token}&limit=5"), continued(), Some(5)),
        (at("0"), ListAt::Any, None),
        (at("0&limit=5"), ListAt::Any, None),
        (at("0&resourceVersionMatch=NotOlderThan&limit=5"), ListAt::Any, None),
        (format!("resourceVersion=0&continue={token}&limit=5"), continued(), Some(5)),
        (at("7"), ListAt::NotOlderThan(version(7)), None),
        (at("7&limit=5"), ListAt::Exact(version(7)), Some(5)),
        (at("7&limit=0"), ListAt::NotOlderThan(version(7)), None),
        (at("7&resourceVersionMatch=NotOlderThan"), ListAt::NotOlderThan(version(7)), None),
        (at("7&resourceVersionMatch=NotOlderThan&limit=5"), ListAt::NotOlderThan(version(7)), Some(5)),
        (at("7&resourceVersionMatch=Exact"), ListAt::Exact(version(7)), None),
        (at("7&resourceVersionMatch=Exact&limit=5"), ListAt::Exact(version(7)), Some(5)),
        (at("7&resourceVersion=8"), ListAt::NotOlderThan(version(7)), None),
        ("&limit=500&unknown=1&watch=0".into(), ListAt::MostRecent, Some(500)),
    ];
    for (query, at, limit) in table {
        assert_eq!(list(&query), (at, limit), "{query}");
    }
}

#[test]
fn d27_every_row_of_the_watch_table() {
    let initial = |at_least, end_bookmark| WatchFrom::InitialEvents { at_least, end_bookmark };
    let asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let declined = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let table = [
        (String::new(), initial(Freshness::MostRecent, false)),
        ("allowWatchBookmarks=true".into(), initial(Freshness::MostRecent, true)),
        ("resourceVersion=0".into(), initial(Freshness::Any, false)),
        ("resourceVersion=7".into(), WatchFrom::After(version(7))),
        ("resourceVersion=7&allowWatchBookmarks=1".into(), WatchFrom::After(version(7))),
        ("resourceVersion=7&limit=5&continue=x".into(), WatchFrom::After(version(7))),
        (format!("{asked}&allowWatchBookmarks=true"), initial(Freshness::MostRecent, true)),
        (asked.into(), initial(Freshness::MostRecent, false)),
        (format!("{asked}&resourceVersion=0"), initial(Freshness::Any, false)),
        (format!("{asked}&resourceVersion=7"), initial(Freshness::NotOlderThan(version(7)), false)),
        (declined.into(), WatchFrom::Now { at_least: Freshness::MostRecent }),
        (format!("{declined}&resourceVersion=0"), WatchFrom::Now { at_least: Freshness::Any }),
        (format!("{declined}&resourceVersion=7"), WatchFrom::After(version(7))),
    ];
    for (query, from) in table {
        assert_eq!(watch(&query), from, "{query}");
    }
}

#[test]
fn d27_every_row_of_the_get_table() {
    let at = |query: &str| GetOptions::parse(query).map(|options| options.at);
    assert_eq!(at(""), Ok(Freshness::MostRecent));
    assert_eq!(at("resourceVersion=0&resourceVersionMatch=Exact&watch=true"), Ok(Freshness::Any));
    assert_eq!(at("resourceVersion=7"), Ok(Freshness::NotOlderThan(version(7))));
    assert_eq!(at("resourceVersion=x").expect_err("refused").code, 400);
}

/// One 422: query, then field, cause's reason and text of every error.
type Refusal = (&'static str, &'static [(&'static str, &'static str)]);

fn assert_invalid(error: &ApiError, expected: &[(&str, &str)]) {
    let texts: Vec<_> = expected.iter().map(|(field, text)| format!("{field}: {text}")).collect();
    let text = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
    let causes: Vec<_> = expected
        .iter()
        .map(|(field, text)| {
            let forbidden = text.starts_with("Forbidden");
            let reason = if forbidden { "FieldValueForbidden" } else { "FieldValueNotSupported" };
            json!({"reason": reason, "message": text, "field": field})
        })
        .collect();
    assert_eq!(
        error.status(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("ListOptions.meta.k8s.io \"\" is invalid: {text}"), "reason": "Invalid",
            "details": {"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}, "code": 422,
        })
    );
}

#[test]
fn forbidden_combinations_of_list_are_422_with_kube_s_body() {
    let table: [Refusal; 7] = [
        (
            "resourceVersionMatch=NotOlderThan",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )],
        ),
        (
            "resourceVersion=7&resourceVersionMatch=Exact&continue=x",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            )],
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )],
        ),
        (
            "resourceVersion=7&resourceVersionMatch=x",
            &[(
                "resourceVersionMatch",
                "Unsupported value: \"x\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            )],
        ),
        (
            "sendInitialEvents=false",
            &[("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")],
        ),
        (
            "resourceVersionMatch=Exact",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )],
        ),
        (
            "resourceVersionMatch=x&continue=y&sendInitialEvents",
            &[
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                ),
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                ),
                (
                    "resourceVersionMatch",
                    "Unsupported value: \"x\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
                ),
                ("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"),
            ],
        ),
    ];
    for (query, expected) in table {
        assert_invalid(&ListOptions::parse(query).expect_err(query), expected);
    }
}

#[test]
fn forbidden_combinations_of_watch_are_422_with_kube_s_body() {
    let table: [Refusal; 6] = [
        (
            // What a watch without a version means is filled in first.
            "continue=x",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            )],
        ),
        (
            "sendInitialEvents=true",
            &[(
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )],
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )],
        ),
        (
            "resourceVersion=7&resourceVersionMatch=Exact",
            &[
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
                ("resourceVersionMatch", "Unsupported value: \"Exact\": supported values: \"NotOlderThan\""),
            ],
        ),
        (
            "sendInitialEvents=false&resourceVersionMatch=Exact",
            &[
                (
                    "resourceVersionMatch",
                    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
                ("resourceVersionMatch", "Unsupported value: \"Exact\": supported values: \"NotOlderThan\""),
            ],
        ),
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
            &[(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            )],
        ),
    ];
    for (query, expected) in table {
        assert_invalid(&WatchOptions::parse(query).expect_err(query), expected);
    }
}

#[test]
fn malformed_parameters_are_400_with_kube_s_message() {
    let token = token().encode();
    let version = |text: &str, why: &str| {
        format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": \
             {why}"
        )
    };
    let both = [
        ("resourceVersion=abc".to_owned(), version("abc", "invalid syntax")),
        ("resourceVersion=-1".to_owned(), version("-1", "invalid syntax")),
        ("resourceVersion=007".to_owned(), version("007", "invalid syntax")),
        (
            "resourceVersion=18446744073709551616".to_owned(),
            version("18446744073709551616", "value out of range"),
        ),
        ("limit=x".to_owned(), "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
        ("timeoutSeconds=".to_owned(), "strconv.ParseInt: parsing \"\": invalid syntax".to_owned()),
        (
            "labelSelector=a+b".to_owned(),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned(),
        ),
        ("fieldSelector=x".to_owned(), "invalid selector: 'x'; can't understand 'x'".to_owned()),
        (
            "shardSelector=+".to_owned(),
            "invalid shard selector: empty shard selector is not allowed; omit the parameter for unfiltered lists"
                .to_owned(),
        ),
    ];
    for (query, message) in both {
        let expected = ApiError::bad_request(message);
        assert_eq!(ListOptions::parse(&query).expect_err(&query), expected);
        assert_eq!(WatchOptions::parse(&query).expect_err(&query), expected);
    }
    let list = [
        (
            format!("continue={token}&resourceVersion=7"),
            "specifying resource version is not allowed when using continue",
        ),
        (
            format!("continue={token}&resourceVersion=abc"),
            "specifying resource version is not allowed when using continue",
        ),
        ("timeout=x".to_owned(), "invalid timeout specified in the request URL"),
    ];
    for (query, message) in list {
        assert_eq!(ListOptions::parse(&query).expect_err(&query), ApiError::bad_request(message));
    }
    let error = ListOptions::parse("continue=!").expect_err("refused");
    assert!(error.message.starts_with("invalid continue token: continue key is not valid: "), "{error}");
}

#[test]
fn selectors_and_deadlines_are_decoded() {
    let range = "shardRange(object.metadata.uid,+'0x0000000000000000',+'0x8000000000000000')";
    let query = format!(
        "labelSelector=a%3D1%2C%21b&fieldSelector=metadata.name%3Dx&shardSelector={range}&timeout=30s"
    );
    let options = ListOptions::parse(&query).expect("legal");
    assert_eq!(options.labels.to_string(), "a=1,!b");
    assert_eq!(options.fields.name(), Some("x"));
    assert!(options.shards.is_some_and(|shards| shards.contains(1) && !shards.contains(1 << 63)));
    assert_eq!(options.timeout, Some(Duration::from_secs(30)));
    let none = ListOptions::parse("labelSelector=&fieldSelector=&shardSelector=").expect("legal");
    assert!(none.labels.is_empty() && none.fields.is_empty() && none.shards.is_none());

    let timeout = |query: &str| WatchOptions::parse(query).expect("legal").timeout;
    assert_eq!(timeout("timeoutSeconds=299"), Some(Duration::from_secs(299)));
    assert_eq!(timeout("timeoutSeconds=0&timeout=x"), None);
    assert_eq!(timeout("timeoutSeconds=-1"), None);
    assert!(
        wants_watch("watch=True")
            && wants_watch("limit=5&watch")
            && !wants_watch("watch=false")
            && !wants_watch("")
    );
}

#[test]
fn b077_a_broken_escape_never_widens_a_selector() {
    assert_eq!(ListOptions::parse("labelSelector=app%3").expect_err("refused").code, 400);
    assert_eq!(ListOptions::parse("labelSelector=app=%ff").expect_err("refused").code, 400);
    assert_eq!(ListOptions::parse("fieldSelector=%zz").expect_err("refused").code, 400);
}
