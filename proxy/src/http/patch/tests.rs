use serde_json::json;

use super::*;
use crate::ingest::{DEPTH_MAX, parse_value};

fn decode(format: PatchFormat, body: &str) -> Result<Patch, ApiError> {
    Patch::decode(format, body.as_bytes()).map(|(patch, _)| patch)
}

fn apply(format: PatchFormat, patch: &str, to: &str) -> Result<String, ApiError> {
    let mut value = parse_value(to).expect("JSON");
    decode(format, patch)?.apply(&mut value)?;
    Ok(value.to_string())
}

/// Appendix A of RFC 7386, without the cases whose patch is no object (which are malformed here).
#[test]
fn merge_patches_do_what_the_rfc_says() {
    for (to, patch, wanted) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        // Beyond the RFC: digits and the order of keys stay.
        (r#"{"z":1e400,"y":1.0,"x":0}"#, r#"{"y":null,"w":-0}"#, r#"{"z":1e400,"x":0,"w":-0}"#),
    ] {
        assert_eq!(apply(PatchFormat::Merge, patch, to).expect("applies"), wanted, "{to} {patch}");
    }
}

#[test]
fn what_is_not_a_patch_is_malformed() {
    for (format, body, why) in [
        (
            PatchFormat::Merge,
            "[]",
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            PatchFormat::Merge,
            "null",
            "json: cannot unmarshal null into Go value of type map[string]interface {}",
        ),
        (PatchFormat::Merge, "{", "unexpected end of JSON input"),
        (PatchFormat::Json, "{}", "json: cannot unmarshal object into Go value of type []interface {}"),
        (
            PatchFormat::Json,
            "[1]",
            "operation 0: json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        (PatchFormat::Json, r#"[{"path":"/a"}]"#, "operation 0: op is missing, or not a string"),
        (PatchFormat::Json, r#"[{"op":"remove"}]"#, "operation 0: path is missing, or not a string"),
        (
            PatchFormat::Json,
            r#"[{"op":"move","path":"/a"}]"#,
            "operation 0: from is missing, or not a string",
        ),
        (PatchFormat::Json, r#"[{"op":"add","path":"/a"}]"#, "operation 0: add without a value"),
        (PatchFormat::Json, r#"[{"op":"x","path":"/a"}]"#, r#"operation 0: unknown op "x""#),
        (
            PatchFormat::Json,
            r#"[{"op":"remove","path":"a"}]"#,
            r#"operation 0: path "a" is not a JSON pointer"#,
        ),
        (
            PatchFormat::Json,
            r#"[{"op":"remove","path":"/a~2"}]"#,
            r#"operation 0: path "/a~2" is not a JSON pointer"#,
        ),
    ] {
        let error = decode(format, body).expect_err(body);
        assert_eq!((error.code, error.message), (400, format!("error decoding patch: {why}")), "{body}");
    }
    let nested = format!(r#"{{"a":{}1{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    assert_eq!(decode(PatchFormat::Merge, &nested).expect_err("too deep").code, 400);
}

#[test]
fn operations_are_bounded_in_number() {
    let patch =
        |count: usize| format!("[{}]", vec![r#"{"op":"test","path":"","value":{}}"#; count].join(","));
    assert!(apply(PatchFormat::Json, &patch(10_000), "{}").is_ok());
    let error = decode(PatchFormat::Json, &patch(10_001)).expect_err("too many");
    assert_eq!(
        (error.code, &*error.message),
        (413, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001")
    );
}

#[test]
fn what_does_not_fit_is_kube_s_generic_422() {
    let error = apply(PatchFormat::Json, r#"[{"op":"test","path":"/a","value":1}]"#, r#"{"a":2}"#)
        .expect_err("differs");
    assert_eq!(
        error.status(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": "the server rejected our request due to an error in our request",
            "details": { "causes": [{
                "reason": "UnexpectedServerResponse",
                "message": "operation 0 at path \"/a\": value did not match",
            }] },
        })
    );
}

#[test]
fn numbers_are_compared_and_kept_by_their_digits() {
    let patch = r#"[{"op":"test","path":"/a","value":1.0},{"op":"copy","from":"/a","path":"/b"}]"#;
    assert_eq!(apply(PatchFormat::Json, patch, r#"{"a":1.0}"#).expect("applies"), r#"{"a":1.0,"b":1.0}"#);
    assert!(apply(PatchFormat::Json, patch, r#"{"a":1}"#).is_err());
    let odd = r#"[{"op":"add","path":"/a","value":{"$serde_json::private::Number":"1"}}]"#;
    assert_eq!(
        apply(PatchFormat::Json, odd, "{}").expect("applies"),
        r#"{"a":{"$serde_json::private::Number":"1"}}"#
    );
}

#[test]
fn copies_cannot_multiply_an_object() {
    let operations: Vec<_> =
        (0..60).map(|n| json!({ "op": "copy", "from": "/a", "path": format!("/a/k{n}") })).collect();
    let error = apply(PatchFormat::Json, &json!(operations).to_string(), r#"{"a":{}}"#).expect_err("doubles");
    // The nesting bound strikes first here; the byte bound where copies lie side by side.
    assert!(matches!(error.code, 413 | 422));
    let side_by_side = json!([
        { "op": "copy", "from": "/a", "path": "/b" }, { "op": "copy", "from": "/a", "path": "/c" },
    ]);
    let object = format!(r#"{{"a":"{}"}}"#, "x".repeat(2 << 20));
    let error = apply(PatchFormat::Json, &side_by_side.to_string(), &object).expect_err("four megabytes");
    assert_eq!(error.code, 413);
    let many = format!(r#"{{"a":[{}]}}"#, vec!["0"; 400_000].join(","));
    let moves = json!([
        { "op": "move", "from": "/a", "path": "/b" }, { "op": "move", "from": "/b", "path": "/a" },
        { "op": "move", "from": "/a", "path": "/b" },
    ]);
    let error = apply(PatchFormat::Json, &moves.to_string(), &many).expect_err("over a million values");
    assert_eq!(error.code, 413);
}

#[test]
fn elements_that_make_room_are_accounted_for() {
    let long = format!(r#"{{"a":[{}]}}"#, vec!["0"; 400_000].join(","));
    for operation in [r#"{"op":"remove","path":"/a/0"}"#, r#"{"op":"add","path":"/a/0","value":1}"#] {
        let patch = |count: usize| format!("[{}]", vec![operation; count].join(","));
        assert!(apply(PatchFormat::Json, &patch(20), &long).is_ok());
        assert_eq!(apply(PatchFormat::Json, &patch(10_000), &long).expect_err("too long").code, 413);
        let short = format!(r#"{{"a":[{}]}}"#, vec!["0"; 1_000].join(","));
        assert!(apply(PatchFormat::Json, &patch(1_000), &short).is_ok());
    }
}

#[test]
fn operations_cannot_nest_deeper_than_an_object_may() {
    let deepen = |levels: usize| {
        let mut operations = Vec::new();
        for _ in 0..levels {
            operations.push(json!({ "op": "add", "path": "/b", "value": {} }));
            operations.push(json!({ "op": "move", "from": "/a", "path": "/b/a" }));
            operations.push(json!({ "op": "move", "from": "/b", "path": "/a" }));
        }
        json!(operations).to_string()
    };
    assert!(apply(PatchFormat::Json, &deepen(50), r#"{"a":1}"#).is_ok());
    for levels in [DEPTH_MAX + 1, 3_000] {
        assert_eq!(apply(PatchFormat::Json, &deepen(levels), r#"{"a":1}"#).expect_err("too deep").code, 422);
    }
    let value = format!("{}{}", "[".repeat(DEPTH_MAX - 3), "]".repeat(DEPTH_MAX - 3));
    let add = format!(r#"[{{"op":"add","path":"/a/b/c/d","value":{value}}}]"#);
    assert_eq!(apply(PatchFormat::Json, &add, r#"{"a":{"b":{"c":{}}}}"#).expect_err("too deep").code, 422);
}

#[test]
fn testing_for_null_holds_where_a_member_is_absent() {
    let test = |path: &str| format!(r#"[{{"op":"test","path":"{path}","value":null}}]"#);
    for (path, holds) in
        [("/none", true), ("/null", true), ("/a", false), ("/none/deeper", false), ("/list/7", false)]
    {
        let outcome = apply(PatchFormat::Json, &test(path), r#"{"a":1,"null":null,"list":[]}"#);
        assert_eq!(outcome.is_ok(), holds, "{path}");
    }
}

#[test]
fn replacing_a_member_that_is_not_there_adds_it_as_kube_does() {
    let replace = |path: &str| format!(r#"[{{"op":"replace","path":"{path}","value":1}}]"#);
    let on = |path: &str| apply(PatchFormat::Json, &replace(path), r#"{"a":{"b":2},"list":[]}"#);
    assert_eq!(on("/a/c").expect("applies"), r#"{"a":{"b":2,"c":1},"list":[]}"#);
    assert_eq!(on("/a/b").expect("applies"), r#"{"a":{"b":1},"list":[]}"#);
    for bad in ["/none/deeper", "/list/0"] {
        on(bad).expect_err(bad);
    }
}

#[test]
fn duplicate_keys_are_named_and_the_last_wins() {
    let body = br#"[{"op":"add","path":"/a","value":1,"value":{"x":1,"x":2}}]"#;
    let (patch, duplicates) = Patch::decode(PatchFormat::Json, body).expect("legal");
    assert_eq!(duplicates, ["[0].value", "[0].value.x"]);
    let mut value = json!({});
    patch.apply(&mut value).expect("applies");
    assert_eq!(value, json!({ "a": { "x": 2 } }));
}
