use proptest::prelude::*;
use shardcache_storage::KeyParts;

use super::FieldSelector;

const KEY: KeyParts<'_> = KeyParts { shard: "amber", cluster: "root", namespace: "ns", name: "x" };
const BODY: &str = r#"{"kind":"W","metadata":{"name":"not-read"},"spec":{"color":"r\u0065d","plain":"a,b=c\\d",
    "on":true,"off":false,"n":-42,"big":123456789012345678901234567890,"none":null,"list":["a"],"map":{"a":"b"},
    "deep":{"er":{"x":"y"}}},"type":"Warning","source":{"component":"kubelet"},"reportingComponent":"other"}"#;

fn selects(selector: &str, body: &str) -> bool {
    FieldSelector::parse(selector)
        .unwrap_or_else(|why| panic!("{selector}: {why}"))
        .matches_parts(KEY, body.as_bytes())
}

#[test]
fn b080_name_and_namespace_come_from_the_key() {
    for selector in [
        "",
        ",,",
        "metadata.name=x",
        "metadata.name==x",
        "metadata.name!=y",
        "metadata.namespace=ns",
        "metadata.namespace!=",
        "metadata.name=x,metadata.namespace=ns",
    ] {
        assert!(selects(selector, BODY), "{selector}");
    }
    for selector in [
        "metadata.name=not-read",
        "metadata.name!=x",
        "metadata.namespace=",
        "metadata.name=x,metadata.name=y",
    ] {
        assert!(!selects(selector, BODY), "{selector}");
    }
    assert_eq!(FieldSelector::parse("metadata.name=x").expect("legal").name(), Some("x"));
    assert_eq!(FieldSelector::parse("metadata.name!=x").expect("legal").name(), None);
}

#[test]
fn selectable_fields_compare_as_text_and_missing_ones_as_empty() {
    let table = [
        ("spec.color=red", true),
        ("spec.color!=red", false),
        ("spec.color=blue", false),
        (r"spec.plain=a\,b\=c\\d", true),
        ("spec.on=true", true),
        ("spec.off=false", true),
        ("spec.n=-42", true),
        ("spec.big=123456789012345678901234567890", true),
        ("spec.none=", true),
        ("spec.none=null", false),
        ("spec.list=", true),
        ("spec.map=", true),
        ("spec.deep.er.x=y", true),
        ("spec.absent=", true),
        ("spec.absent!=a", true),
        ("spec.color.absent=", true),
        ("absent.er=", true),
        ("type=Warning", true),
        ("source=kubelet", true),
        ("reportingComponent=other", true),
    ];
    for (selector, expected) in table {
        assert_eq!(selects(selector, BODY), expected, "{selector}");
    }
    assert!(selects("source=other", r#"{"source":{},"reportingComponent":"other"}"#));
    assert!(selects("spec.color=", "not json"));
}

#[test]
fn b080_unknown_fields_are_refused_by_name() {
    let check = |selector: &str, namespaced, selectable: &[&str]| {
        FieldSelector::parse(selector).expect("legal").check(namespaced, selectable)
    };
    assert_eq!(check("metadata.name=x,metadata.namespace!=y,spec.color=z", true, &["spec.color"]), Ok(()));
    assert_eq!(
        check("metadata.namespace=y", false, &["spec.color"]),
        Err("field label not supported: metadata.namespace".to_owned())
    );
    assert_eq!(
        check("spec.size=1", true, &["spec.color"]),
        Err("field label not supported: spec.size".to_owned())
    );
    assert_eq!(check("=1", true, &[]), Err("field label not supported: ".to_owned()));
}

#[test]
fn errors_have_the_texts_of_apimachinery() {
    let table = [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'"),
        ("c,b", "invalid selector: 'c,b'; can't understand 'b'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a===c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\n", r"invalid field selector: invalid escape sequence: \n"),
        (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
    ];
    for (selector, expected) in table {
        let error = FieldSelector::parse(selector);
        assert_eq!(error.expect_err(selector), expected, "{selector}");
    }
}

#[test]
fn spellings_of_one_selector_are_equal() {
    let parse = |text: &str| FieldSelector::parse(text).expect("legal");
    assert_eq!(parse("b=1,a==2,,a=2"), parse("a=2,b=1"));
    assert_ne!(parse("a=2"), parse("a!=2"));
    assert_eq!(parse("=,a=2,!=,=="), parse("a=2"), "nothing equal to nothing is no condition");
    assert_eq!(parse("b!=1,a==x\\,y").to_string(), "a=x\\,y,b!=1");
}

proptest! {
    #[test]
    fn the_canonical_text_parses_to_an_equal_selector(text in "[a-c.=!,\\\\ ]{0,16}") {
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn any_text_survives_as_a_value(value in "\\PC{0,12}", body in "\\PC{0,40}") {
        let json = serde_json::json!({ "spec": { "f": value.as_str() }, "other": body }).to_string();
        let term = super::FieldTerm { field: "spec.f".into(), value: value.as_str().into(), equal: true };
        let selector = FieldSelector::parse(&term.to_string()).expect("escaped");
        prop_assert_eq!(selector.terms(), &[term]);
        prop_assert!(selector.matches_parts(KEY, json.as_bytes()));
    }
}
