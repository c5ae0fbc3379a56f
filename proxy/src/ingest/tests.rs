use serde_json::{Value, json};
use shardcache_storage::{Draft, Key, PLACEHOLDER};

use super::*;

mod properties;
mod real_data;

pub(super) fn key(namespace: &str, name: &str) -> Key {
    Key::new("amber", "root:acme", namespace, name).expect("no NUL")
}

fn encode(body: &str) -> String {
    let object = read(body.as_bytes()).expect("legal");
    let draft = object.encode(&key("", "x"), Assigned::default()).expect("fits");
    check_spans(&draft);
    String::from_utf8(draft.body().to_vec()).expect("UTF-8")
}

/// Asserts that the spans of a draft hold what they claim, by parsing the draft's body.
pub(super) fn check_spans(draft: &Draft) -> Value {
    let body = std::str::from_utf8(draft.body()).expect("UTF-8");
    let value = parse_value(body).expect("a draft is JSON");
    let spans = draft.spans();
    let at = spans.resource_version_at as usize;
    assert_eq!(&draft.body()[at..at + PLACEHOLDER.len()], PLACEHOLDER, "{body}");
    assert_eq!(value["metadata"]["resourceVersion"], json!("0000000000000000000"), "{body}");
    let part = |span: Span| &body[span.range()];
    assert_eq!(parse_value(part(spans.metadata)).expect("metadata"), value["metadata"], "{body}");
    assert_eq!(part(spans.api_version), value["apiVersion"].as_str().unwrap_or(""), "{body}");
    assert_eq!(part(spans.uid), value["metadata"]["uid"].as_str().unwrap_or(""), "{body}");
    assert_eq!(draft.uid(), value["metadata"]["uid"].as_str().unwrap_or(""), "{body}");
    assert!(!body.contains('\n'), "one line: {body}");
    value
}

#[test]
fn a_compact_object_is_kept_byte_for_byte_around_what_is_put_in() {
    assert_eq!(
        encode(r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"x"},"spec":{"b":1.0,"a":1e400}}"#),
        concat!(
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"x","annotations":{"kcp.io/shard":"amber","#,
            r#""kcp.io/cluster":"root:acme"},"resourceVersion":"0000000000000000000"},"spec":{"b":1.0,"a":1e400}}"#
        )
    );
}

#[test]
fn what_is_there_is_replaced_in_place() {
    let sent = concat!(
        r#"{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"7","annotations":{"z":"1","#,
        r#""kcp.io/cluster":"elsewhere","kcp.io/shard":"amber"},"name":"x","uid":"u-1"}}"#
    );
    assert_eq!(
        encode(sent),
        concat!(
            r#"{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"0000000000000000000","annotations":{"z":"1","#,
            r#""kcp.io/cluster":"root:acme","kcp.io/shard":"amber"},"name":"x","uid":"u-1"}}"#
        )
    );
}

#[test]
fn odd_metadata_is_filled_in() {
    let full = r#""annotations":{"kcp.io/shard":"amber","kcp.io/cluster":"root:acme"},"resourceVersion":"0000000000000000000"}"#;
    for (sent, wanted) in [
        (r"{}", format!(r#"{{"metadata":{{"name":"x",{full}}}"#)),
        (r#"{"a":1}"#, format!(r#"{{"a":1,"metadata":{{"name":"x",{full}}}"#)),
        (r#"{"metadata":null}"#, format!(r#"{{"metadata":{{"name":"x",{full}}}"#)),
        (r#"{"metadata":{}}"#, format!(r#"{{"metadata":{{"name":"x",{full}}}"#)),
        (r#"{"metadata":{"namespace":"n"}}"#, format!(r#"{{"metadata":{{"name":"x",{full}}}"#)),
        (r#"{"metadata":{"namespace":"n","name":"x"}}"#, format!(r#"{{"metadata":{{"name":"x",{full}}}"#)),
        (r#"{"metadata":{"name":"x","namespace":"n"}}"#, format!(r#"{{"metadata":{{"name":"x",{full}}}"#)),
        (
            r#"{"metadata":{"annotations":null,"name":"x"}}"#,
            concat!(
                r#"{"metadata":{"annotations":{"kcp.io/shard":"amber","kcp.io/cluster":"root:acme"},"#,
                r#""name":"x","resourceVersion":"0000000000000000000"}}"#
            )
            .into(),
        ),
    ] {
        assert_eq!(encode(sent), wanted, "{sent}");
    }
}

#[test]
fn the_server_s_values_win_where_it_assigns_them() {
    let body =
        br#"{"metadata":{"uid":"mine","creationTimestamp":null,"name":"","namespace":null},"spec":{}}"#;
    let object = read(body).expect("legal");
    let assigned = Assigned {
        uid: Some("u-9"),
        creation_timestamp: Some("2026-01-01T00:00:00Z"),
        generation: Some(1),
        original: None,
    };
    let draft = object.encode(&key("ns", "x-abcde"), assigned).expect("fits");
    let value = check_spans(&draft);
    assert_eq!(
        value,
        json!({"metadata": {
            "uid": "u-9", "creationTimestamp": "2026-01-01T00:00:00Z", "name": "x-abcde", "namespace": "ns",
            "generation": 1, "resourceVersion": "0000000000000000000",
            "annotations": {"kcp.io/shard": "amber", "kcp.io/cluster": "root:acme"},
        }, "spec": {}})
    );
    assert_eq!(draft.uid(), "u-9");
}

#[test]
fn a_uid_and_api_version_written_with_escapes_are_stored_plainly() {
    let body = r#"{"apiVersion":"v\u0031","metadata":{"name":"x","uid":"\u0061-1"}}"#;
    let draft =
        read(body.as_bytes()).expect("legal").encode(&key("", "x"), Assigned::default()).expect("fits");
    check_spans(&draft);
    assert_eq!(draft.uid(), "a-1");
}

#[test]
fn white_space_between_tokens_goes_and_white_space_in_strings_stays() {
    let sent = "\r\n { \"a\" :\t[ 1 , 2 ,\n {} , [ ] ] , \"b c\" : \" \\n x \" ,\"metadata\" : { \"name\" : \"x\" } } \n";
    let wanted = concat!(
        r#"{"a":[1,2,{},[]],"b c":" \n x ","metadata":{"name":"x","annotations":{"kcp.io/shard":"amber","#,
        r#""kcp.io/cluster":"root:acme"},"resourceVersion":"0000000000000000000"}}"#
    );
    assert_eq!(encode(sent), wanted);
}

#[test]
fn b091_values_that_typed_paths_lose_are_kept() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let unknown = (0..2000).map(|n| format!(r#""field{n}":{n}"#)).collect::<Vec<_>>().join(",");
    let spec = format!(
        concat!(
            r#"{{"int":9007199254740993,"float":1.0,"one":1,"zero":-0,"huge":1e400,"text":"1e400","deep":{deep},"#,
            r#""near":{{"name":1,"Name":2,"name ":3}},"escape":"\u00e9\ud83d\ude00\/","emptyMap":{{}},"emptyList":[],"#,
            r#""nothing":null,"$serde_json::private::Number":{{"$serde_json::private::Number":"x"}},"more":{{{unknown}}}}}"#
        ),
        deep = deep,
        unknown = unknown
    );
    let body = encode(&format!(r#"{{"metadata":{{"name":"x"}},"spec":{spec}}}"#));
    assert!(body.ends_with(&format!(r#","spec":{spec}}}"#)));
}

#[test]
fn of_duplicate_keys_the_last_is_kept_and_all_are_named() {
    let body = concat!(
        r#"{"metadata":{"name":"x","labels":{"a":"1","\u0061":"2"}},"spec":{"n":1,"n":2,"#,
        r#""list":[{},{"k":[[{"d":0,"d":1e400}]]}]},"spec":{"n":3,"n":4}}"#
    );
    let object = read(body.as_bytes()).expect("legal");
    assert_eq!(
        object.duplicates(),
        ["metadata.labels.a", "spec.n", "spec.list[1].k[0][0].d", "spec", "spec.n"]
    );
    let value = parse_value(std::str::from_utf8(object.text()).expect("UTF-8")).expect("JSON");
    assert_eq!(value, json!({"metadata": {"name": "x", "labels": {"a": "2"}}, "spec": {"n": 4}}));
    assert_eq!(object.labels().collect::<Vec<_>>(), [("a".into(), "2".into())]);
}

#[test]
fn duplicates_among_very_many_keys_are_found_in_reasonable_time() {
    let mut members: Vec<_> = (0..200_000).map(|n| format!(r#""k{n}":0"#)).collect();
    members[3] = r#""k1":0"#.into();
    members[150_000] = r#""k7":0"#.into();
    members[199_999] = r#""\u006b7":0"#.into();
    let body = format!(r#"{{"spec":{{{}}}}}"#, members.join(","));
    assert_eq!(read(body.as_bytes()).expect("legal").duplicates(), ["spec.k1", "spec.k7", "spec.k7"]);
    let all_same = format!(r#"{{"spec":{{{}}}}}"#, vec![r#""k":0"#; 300_000].join(","));
    assert_eq!(read(all_same.as_bytes()).expect("legal").duplicates().len(), 100);
}

#[test]
fn nesting_is_bounded_and_never_overflows_the_stack() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!(r#"{{"spec":{}0{}}}"#, open.repeat(depth - 1), close.repeat(depth - 1))
    };
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let at_limit = nested(open, close, DEPTH_MAX);
        assert!(read(at_limit.as_bytes()).is_ok());
        assert!(parse_value(&at_limit).is_ok());
        let above = nested(open, close, DEPTH_MAX + 1);
        let wanted = "exceeded max depth of 120";
        assert_eq!(read(above.as_bytes()).err(), Some(IngestError::Json(wanted.into())));
        assert_eq!(parse_value(&above), Err(wanted.into()));
        let bomb = format!(r#"{{"spec":{}"#, open.repeat(500_000));
        assert_eq!(read(bomb.as_bytes()).err(), Some(IngestError::Json(wanted.into())));
    }
}

#[test]
fn what_is_not_json_is_refused_with_go_s_words() {
    for (body, wanted) in [
        ("", "unexpected end of JSON input"),
        (" \n", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        (r#"{"a":"#, "unexpected end of JSON input"),
        (r#"{"a"#, "unexpected end of JSON input"),
        ("[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("null", "json: cannot unmarshal null into Go value of type map[string]interface {}"),
        (r#""a""#, "json: cannot unmarshal string into Go value of type map[string]interface {}"),
        ("true", "json: cannot unmarshal bool into Go value of type map[string]interface {}"),
        ("12", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("apiVersion: v1", "invalid character 'a' looking for beginning of value"),
        ("\u{feff}{}", "invalid character 'ï' looking for beginning of value"),
        (r"{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        (r"{,}", "invalid character ',' looking for beginning of object key string"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
        (r#"{"a":[1 2]}"#, "invalid character '2' after array element"),
        (r#"{"a":[1,]}"#, "invalid character ']' looking for beginning of value"),
        (r#"{"a":NaN}"#, "invalid character 'N' looking for beginning of value"),
        (r#"{"a":Infinity}"#, "invalid character 'I' looking for beginning of value"),
        (r#"{"a":-Infinity}"#, "invalid character 'I' in numeric literal"),
        (r#"{"a":nan}"#, "invalid character 'a' in literal null (expecting 'u')"),
        (r#"{"a":'x'}"#, r"invalid character '\'' looking for beginning of value"),
        (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
        (r#"{"a":+1}"#, "invalid character '+' looking for beginning of value"),
        (r#"{"a":.5}"#, "invalid character '.' looking for beginning of value"),
        (r#"{"a":1.}"#, "invalid character '}' after decimal point in numeric literal"),
        (r#"{"a":1e}"#, "invalid character '}' in exponent of numeric literal"),
        (r#"{"a":0x1}"#, "invalid character 'x' after object key:value pair"),
        ("{\"a\":\"x\ny\"}", r"invalid character '\n' in string literal"),
        ("{\"a\":\"x\0y\"}", r"invalid character '\x00' in string literal"),
        (r#"{"a":"\x"}"#, "invalid character 'x' in string escape code"),
        (r#"{"a":"\u12g4"}"#, r"invalid character 'g' in \u hexadecimal character escape"),
        (r#"{"a":"\ud800"}"#, r"half of a surrogate pair in \u hexadecimal character escape"),
        (r#"{"a":"\ud800\u0041"}"#, r"half of a surrogate pair in \u hexadecimal character escape"),
        (r#"{"a":"\udc00"}"#, r"half of a surrogate pair in \u hexadecimal character escape"),
        (r"{} {}", "invalid character '{' after top-level value"),
        (r"{}}", "invalid character '}' after top-level value"),
    ] {
        assert_eq!(read(body.as_bytes()).err(), Some(IngestError::Json(wanted.into())), "{body}");
    }
    assert_eq!(read(b"{\"a\":\"\xff\"}").err(), Some(IngestError::Utf8(6)));
    assert_eq!(read(b"{\"a\":\"\xed\xa0\x80\"}").err(), Some(IngestError::Utf8(6)));
}

#[test]
fn metadata_of_the_wrong_type_is_refused() {
    for (metadata, wanted) in [
        ("1", "json: cannot unmarshal number into Go struct field metadata of type ObjectMeta"),
        ("[]", "json: cannot unmarshal array into Go struct field metadata of type ObjectMeta"),
        (
            r#"{"name":1}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
        ),
        (r#"{"uid":{}}"#, "json: cannot unmarshal object into Go struct field ObjectMeta.uid of type string"),
        (
            r#"{"resourceVersion":7}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.resourceVersion of type string",
        ),
        (
            r#"{"generation":1.5}"#,
            "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.generation of type int64",
        ),
        (
            r#"{"generation":9223372036854775808}"#,
            "json: cannot unmarshal number 9223372036854775808 into Go struct field ObjectMeta.generation of type int64",
        ),
        (
            r#"{"labels":[]}"#,
            "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string",
        ),
        (
            r#"{"labels":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (
            r#"{"labels":{"a":null}}"#,
            "json: cannot unmarshal null into Go struct field ObjectMeta.labels of type string",
        ),
        (
            r#"{"annotations":{"a":true}}"#,
            "json: cannot unmarshal bool into Go struct field ObjectMeta.annotations of type string",
        ),
        (
            r#"{"creationTimestamp":"yesterday"}"#,
            r#"metadata.creationTimestamp: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse it"#,
        ),
        (
            r#"{"deletionTimestamp":17}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.deletionTimestamp of type string",
        ),
    ] {
        assert_refused(metadata, wanted);
    }
}

fn assert_refused(metadata: &str, wanted: &str) {
    let body = format!(r#"{{"metadata":{metadata}}}"#);
    assert_eq!(read(body.as_bytes()).err(), Some(IngestError::Field(wanted.into())), "{body}");
}

#[test]
fn lists_in_metadata_that_clients_could_not_decode_are_refused() {
    for (metadata, wanted) in [
        (
            r#"{"finalizers":"a"}"#,
            "json: cannot unmarshal Go struct field ObjectMeta.finalizers: invalid type: string \"a\", expected a sequence",
        ),
        (
            r#"{"ownerReferences":[{"uid":1}]}"#,
            "json: cannot unmarshal Go struct field ObjectMeta.ownerReferences: invalid type: integer `1`, expected a string",
        ),
        (
            r#"{"managedFields":[{"fieldsV1":[]}]}"#,
            "json: cannot unmarshal Go struct field ObjectMeta.managedFields: invalid type: sequence, expected an object",
        ),
        (
            r#"{"managedFields":[{"time":"now"}]}"#,
            "json: cannot unmarshal Go struct field ObjectMeta.managedFields: not an RFC 3339 time",
        ),
    ] {
        assert_refused(metadata, wanted);
    }
    for metadata in [
        r#"{"name":null,"labels":null,"annotations":null,"generation":null,"creationTimestamp":null}"#,
        r#"{"finalizers":null,"ownerReferences":[],"managedFields":[{}],"selfLink":"/x","custom":[1]}"#,
        r#"{"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"u","controller":true,"extra":1}]}"#,
        r#"{"managedFields":[{"manager":"m","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:a":{"f:b":{}}}}]}"#,
    ] {
        assert!(read(format!(r#"{{"metadata":{metadata}}}"#).as_bytes()).is_ok(), "{metadata}");
    }
}
