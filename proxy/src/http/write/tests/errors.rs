//! X1: the errors of wire contract section 6, each with its whole body.

use serde_json::{Value, json};

use super::{Answer, EXPORTS, LEASES, Server, at, export, lease};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A `Status` without details.
fn plain(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

/// A `Status` about one export.
fn about(code: u16, reason: &str, message: &str, name: &str) -> Value {
    let mut status = plain(code, reason, message);
    status["details"] = json!({ "name": name, "group": "apis.kcp.io", "kind": "apiexports" });
    status
}

fn invalid(name: &str, field: &str, reason: &str, text: &str) -> Value {
    let message = format!("APIExport.apis.kcp.io \"{name}\" is invalid: {field}: {text}");
    let mut status = plain(422, "Invalid", &message);
    let cause = json!({ "reason": reason, "message": text, "field": field });
    status["details"] =
        json!({ "name": name, "group": "apis.kcp.io", "kind": "APIExport", "causes": [cause] });
    if name.is_empty() {
        status["details"].as_object_mut().expect("an object").remove("name");
    }
    status
}

/// An object of another kind, without a name.
fn other_kind(kind: &str, text: &str) -> Value {
    let mut status = plain(422, "Invalid", &format!("{kind}.apis.kcp.io \"\" is invalid: kind: {text}"));
    let cause = json!({ "reason": "FieldValueInvalid", "message": text, "field": "kind" });
    status["details"] = json!({ "group": "apis.kcp.io", "kind": kind, "causes": [cause] });
    status
}

#[track_caller]
fn assert_status(answer: &Answer, wanted: &Value) {
    assert_eq!(&answer.body, wanted, "{}", answer.text);
    assert_eq!(Value::from(answer.code), wanted["code"]);
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn x1_bodies_that_cannot_be_read() {
    let server = Server::start();
    let unrecognized = |why: &str, summary: &str| {
        let message =
            format!("the object provided is unrecognized (must be of type APIExport): {why} ({summary})");
        plain(400, "BadRequest", &message)
    };
    let parse = |why: &str| format!("couldn't get version/kind; json parse error: {why}");
    let long = r#"{"apiVersion":"apis.kcp.io/v1alpha1"}"#;
    for (body, wanted) in [
        (&b""[..], unrecognized(&parse("unexpected end of JSON input"), "<empty>")),
        (
            b"{]",
            unrecognized(&parse("invalid character ']' looking for beginning of object key string"), "{]"),
        ),
        (b"\xff\x00", unrecognized(&parse("invalid UTF-8 in the body at byte 0"), "ff00")),
        (
            b"[]",
            unrecognized(
                &parse("json: cannot unmarshal array into Go value of type map[string]interface {}"),
                "5b5d",
            ),
        ),
        (
            br#"{"a":NaN}"#,
            unrecognized(&parse("invalid character 'N' looking for beginning of value"), r#"{"a":NaN}"#),
        ),
        (b"{}", unrecognized("Object 'Kind' is missing in '{}'", "{}")),
        (
            long.as_bytes(),
            unrecognized(
                &format!("Object 'Kind' is missing in '{long}'"),
                r#"{"apiVersion":"apis.kcp.io/v1a ..."#,
            ),
        ),
        (
            br#"{"kind":"APIExport"}"#,
            plain(
                400,
                "BadRequest",
                "the API version in the data () does not match the expected API version (apis.kcp.io/v1alpha1)",
            ),
        ),
        (
            br#"{"kind":"APIExport","apiVersion":"apis.kcp.io/v1beta1"}"#,
            plain(
                400,
                "BadRequest",
                "the API version in the data (apis.kcp.io/v1beta1) does not match the expected API version \
                 (apis.kcp.io/v1alpha1)",
            ),
        ),
        (
            br#"{"kind":"Widget","apiVersion":"apis.kcp.io/v1alpha1"}"#,
            other_kind("Widget", "Invalid value: \"Widget\": must be APIExport"),
        ),
    ] {
        assert_status(&server.send("POST", EXPORTS, &[JSON], body).await, &wanted);
        assert_status(&server.send("PUT", &at("x"), &[JSON], body).await, &wanted);
    }
    assert_eq!(server.api.cache.snapshot().state.len(), 0);
}

#[tokio::test]
async fn x1_nesting_beyond_the_bound() {
    let server = Server::start();
    for depth in [119, 200, 100_000] {
        let spec = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let body = export("deep").to_string().replace(r#""spec":{}"#, &format!(r#""spec":{spec}"#));
        let answer = server.send("POST", EXPORTS, &[JSON], body.as_bytes()).await;
        if depth == 119 {
            answer.expect(201);
        } else {
            assert!(answer.expect(400).message().contains("exceeded max depth of 120"));
        }
    }
}

#[tokio::test]
async fn x1_media_types() {
    let server = Server::start();
    server.create("x").await;
    let body = export("y").to_string();
    let unknown = "the body of the request was in an unknown format - accepted media types include: ";
    for (method, url) in [("POST", EXPORTS), ("PUT", &at("x")), ("DELETE", &at("x"))] {
        for format in ["application/x-yaml", "text/plain", "application/cbor"] {
            let answer = server.send(method, url, &[("content-type", format)], body.as_bytes()).await;
            assert_eq!(answer.message(), format!("{unknown}application/json, application/yaml"));
            assert_eq!((answer.code, &answer.body["reason"]), (415, &"UnsupportedMediaType".into()));
        }
    }
    for format in [
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/apply-patch+cbor",
    ] {
        let answer = server.send("PATCH", &at("x"), &[("content-type", format)], b"{}").await;
        let wanted = format!("{unknown}application/json-patch+json, application/merge-patch+json");
        assert!(answer.message().starts_with(&wanted), "{}", answer.text);
        assert_eq!(answer.code, 415);
    }
    server.send("PATCH", &at("x"), &[], b"{}").await.expect(415);
    let accept = [JSON, ("accept", "application/cbor")];
    server.send("POST", EXPORTS, &accept, body.as_bytes()).await.expect(406);
    server.send("POST", EXPORTS, &[], body.as_bytes()).await.expect(201);
}

#[tokio::test]
async fn x1_what_does_not_match_the_url() {
    let server = Server::start();
    server.create("x").await;
    let mut other_shard = export("x");
    other_shard["metadata"]["annotations"] = json!({ "kcp.io/shard": "ruby" });
    let wanted =
        "the kcp.io/shard annotation of the object (ruby) does not match the shard on the request (amber)";
    assert_status(&server.post(EXPORTS, &other_shard).await, &plain(400, "BadRequest", wanted));
    assert_status(&server.put(&at("x"), &other_shard).await, &plain(400, "BadRequest", wanted));
    let wanted = "the name of the object (y) does not match the name on the URL (x)";
    assert_status(&server.put(&at("x"), &export("y")).await, &plain(400, "BadRequest", wanted));
    let renamed = server.merge(&at("x"), &json!({ "metadata": { "name": "y" } })).await;
    assert_status(&renamed, &plain(400, "BadRequest", wanted));
    let wanted = "the name of the object (x based on URL) was undeterminable: name must be provided";
    assert_status(&server.put(&at("x"), &export("")).await, &plain(400, "BadRequest", wanted));
    let mut moved = lease("x");
    moved["metadata"]["namespace"] = "other".into();
    let wanted = "the namespace of the provided object does not match the namespace sent on the request";
    assert_status(&server.post(LEASES, &moved).await, &plain(400, "BadRequest", wanted));
    server.post(LEASES, &lease("x")).await.expect(201);
    let url = format!("{LEASES}/x");
    assert_status(&server.put(&url, &moved).await, &plain(400, "BadRequest", wanted));
    let patched = server.merge(&url, &json!({ "metadata": { "namespace": "other" } })).await;
    assert_status(&patched, &plain(400, "BadRequest", wanted));
}

#[tokio::test]
async fn x1_metadata_that_is_not_legal() {
    let server = Server::start();
    let mut nameless = export("x");
    nameless["metadata"] = json!({});
    let wanted = invalid(
        "",
        "metadata.name",
        "FieldValueRequired",
        "Required value: name or generateName is required",
    );
    assert_status(&server.post(EXPORTS, &nameless).await, &wanted);
    for bad in ["A", "a:b", "a/b", "."] {
        let answer = server.post(EXPORTS, &export(bad)).await.expect(422);
        assert!(answer.message().starts_with(&format!(
            "APIExport.apis.kcp.io {bad:?} is invalid: metadata.name: Invalid value: {bad:?}: a lowercase RFC 1123"
        )));
    }
    let mut long_uid = export("x");
    long_uid["metadata"]["uid"] = "u".repeat(256).into();
    long_uid["metadata"]["annotations"] = json!({ "kcp.io/shard": "amber" });
    let wanted =
        invalid("x", "metadata.uid", "FieldValueTooLong", "Too long: may not be more than 255 bytes");
    assert_status(&server.post(EXPORTS, &long_uid).await, &wanted);
    let mut versioned = export("x");
    versioned["metadata"]["resourceVersion"] = "7".into();
    let wanted = plain(400, "BadRequest", "resourceVersion should not be set on objects to be created");
    assert_status(&server.post(EXPORTS, &versioned).await, &wanted);
}

#[tokio::test]
async fn x1_objects_that_exist_or_do_not() {
    let server = Server::start();
    let created = server.create("x").await;
    let wanted = about(409, "AlreadyExists", "apiexports.apis.kcp.io \"x\" already exists", "x");
    assert_status(&server.post(EXPORTS, &export("x")).await, &wanted);
    let wanted = about(404, "NotFound", "apiexports.apis.kcp.io \"nope\" not found", "nope");
    let mut leaving = export("leaving");
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    server.post(EXPORTS, &leaving).await.expect(201);
    let text = "object is being deleted: apiexports.apis.kcp.io \"leaving\" already exists";
    assert_status(&server.post(EXPORTS, &leaving).await, &about(409, "AlreadyExists", text, "leaving"));
    let mut update = created;
    update["metadata"]["name"] = "nope".into();
    assert_status(&server.put(&at("nope"), &update).await, &wanted);
    assert_status(&server.merge(&at("nope"), &json!({})).await, &wanted);
    assert_status(&server.delete(&at("nope")).await, &wanted);
}

#[tokio::test]
async fn x1_updates_against_another_state() {
    let server = Server::start();
    let created = server.create("x").await;
    let uid = created["metadata"]["uid"].as_str().expect("assigned");
    let mut update = created.clone();
    for unset in [Value::Null, "".into(), "0".into()] {
        update["metadata"]["resourceVersion"] = unset;
        let text = "Invalid value: 0: must be specified for an update";
        let message = format!("apiexports.apis.kcp.io \"x\" is invalid: metadata.resourceVersion: {text}");
        let mut wanted = about(422, "Invalid", &message, "x");
        let cause =
            json!({ "reason": "FieldValueInvalid", "message": text, "field": "metadata.resourceVersion" });
        wanted["details"]["causes"] = json!([cause]);
        assert_status(&server.put(&at("x"), &update).await, &wanted);
    }
    let modified = about(
        409,
        "Conflict",
        "Operation cannot be fulfilled on apiexports.apis.kcp.io \"x\": the object has been modified; please apply \
         your changes to the latest version and try again",
        "x",
    );
    for other in ["1", "9223372036854775807", "18446744073709551615"] {
        update["metadata"]["resourceVersion"] = other.into();
        assert_status(&server.put(&at("x"), &update).await, &modified);
        let patch = json!({ "metadata": { "resourceVersion": other }, "spec": { "a": 1 } });
        assert_status(&server.merge(&at("x"), &patch).await, &modified);
    }
    update["metadata"]["resourceVersion"] = "abc".into();
    server.put(&at("x"), &update).await.expect(400);
    let mut other = created.clone();
    other["metadata"]["uid"] = "u-2".into();
    let message = format!(
        "Operation cannot be fulfilled on apiexports.apis.kcp.io \"x\": Precondition failed: UID in precondition: \
         u-2, UID in object meta: {uid}"
    );
    assert_status(&server.put(&at("x"), &other).await, &about(409, "Conflict", &message, "x"));
    let wanted =
        invalid("x", "metadata.uid", "FieldValueInvalid", "Invalid value: \"u-2\": field is immutable");
    let patched = server.merge(&at("x"), &json!({ "metadata": { "uid": "u-2" } })).await;
    assert_status(&patched, &wanted);
    assert_eq!(server.get(&at("x")).await.body, created, "nothing was written");
}

#[tokio::test]
async fn x1_methods_and_places_that_take_no_writes() {
    let server = Server::start();
    let object = export("x");
    let (any_shard, any_cluster) = (EXPORTS.replace("amber", "*"), EXPORTS.replace("acme", "%2A"));
    for url in [&any_shard, &any_cluster] {
        for (method, url, action) in [
            ("POST", url.clone(), "create"),
            ("PUT", format!("{url}/x"), "update"),
            ("PATCH", format!("{url}/x"), "patch"),
            ("DELETE", format!("{url}/x"), "delete"),
            ("DELETE", url.clone(), "deletecollection"),
        ] {
            let format = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let body = if method == "DELETE" { String::new() } else { object.to_string() };
            let answer = server.send(method, &url, &[("content-type", format)], body.as_bytes()).await;
            let wanted = format!(
                "{action} through a wildcard is not supported on resources of kind \"apiexports.apis.kcp.io\""
            );
            assert_eq!((answer.code, answer.message()), (405, wanted.as_str()), "{method} {url}");
            assert_eq!(answer.body["reason"], "MethodNotAllowed");
        }
    }
    let everywhere = LEASES.replace("namespaces/default/", "");
    server.post(&everywhere, &lease("x")).await.expect(405);
    server.delete(&everywhere).await.expect(405);
    server.put(&format!("{everywhere}/x"), &lease("x")).await.expect(404);
    server.create("x").await;
    for subresource in ["status", "scale", "a/b"] {
        let url = format!("{}/{subresource}", at("x"));
        server.put(&url, &object).await.expect(404);
        server.merge(&url, &json!({})).await.expect(404);
        server.delete(&url).await.expect(404);
    }
    assert_eq!(server.api.cache.snapshot().state.len(), 1);
}

#[tokio::test]
async fn options_are_judged_before_bodies() {
    let server = Server::start();
    let answer = server.send("POST", &format!("{EXPORTS}?dryRun=maybe"), &[JSON], b"{").await;
    assert_eq!(answer.code, 422, "{}", answer.text);
    let answer = server.send("POST", &format!("{EXPORTS}?fieldValidation=Hard"), &[JSON], b"{").await;
    assert_eq!(answer.code, 422, "{}", answer.text);
}
