//! PATCH through the service; the patches themselves are tested in `http::patch`.

use serde_json::json;

use super::{EXPORTS, Server, at};

#[tokio::test]
async fn a_merge_patch_sets_and_removes_and_leaves_the_rest() {
    let server = Server::start();
    let mut object = server.create("x").await;
    object["spec"] = json!({ "a": { "b": 1, "c": 2 }, "list": [1, 2], "gone": true });
    let object = server.put(&at("x"), &object).await.expect(200).body;
    let patch = json!({ "spec": { "a": { "b": null, "d": 3 }, "list": [3], "gone": null }, "status": { "ok": true } });
    let patched = server.merge(&at("x"), &patch).await.expect(200).body;
    assert_eq!(patched["spec"], json!({ "a": { "c": 2, "d": 3 }, "list": [3] }));
    assert_eq!(patched["status"], json!({ "ok": true }));
    assert_eq!(patched["metadata"]["generation"], object["metadata"]["generation"]);
    assert!(patched["metadata"]["resourceVersion"].as_str() > object["metadata"]["resourceVersion"].as_str());
    assert_eq!(server.get(&at("x")).await.expect(200).body, patched);
}

#[tokio::test]
async fn a_json_patch_is_applied_in_order_or_not_at_all() {
    let server = Server::start();
    let created = server.create("x").await;
    let patch = json!([
        { "op": "test", "path": "/apiVersion", "value": "apis.kcp.io/v1alpha1" },
        { "op": "add", "path": "/spec/list", "value": [1] },
        { "op": "add", "path": "/spec/list/-", "value": 2 },
        { "op": "copy", "from": "/spec/list", "path": "/spec/more" },
        { "op": "move", "from": "/spec/list", "path": "/spec/moved" },
        { "op": "replace", "path": "/spec/moved/0", "value": 0 },
        { "op": "remove", "path": "/spec/more/1" },
        { "op": "add", "path": "/metadata/labels", "value": { "a~b/c": "x" } },
        { "op": "remove", "path": "/metadata/labels" },
        { "op": "test", "path": "/spec/absent", "value": null }
    ]);
    let patched = server.json_patch(&at("x"), &patch).await.expect(200).body;
    assert_eq!(patched["spec"], json!({ "moved": [0, 2], "more": [1] }));
    for (bad, code) in [
        (
            json!([{ "op": "add", "path": "/spec/new", "value": 1 }, { "op": "test", "path": "/spec/new", "value": 2 }]),
            422,
        ),
        (json!([{ "op": "remove", "path": "/spec/none" }]), 422),
        (json!([{ "op": "add", "path": "/spec/none/deeper", "value": 1 }]), 422),
        (json!([{ "op": "replace", "path": "/spec/moved/7", "value": 1 }]), 422),
        (json!([{ "op": "add", "path": "spec", "value": 1 }]), 400),
        (json!([{ "op": "frobnicate", "path": "/spec" }]), 400),
        (json!([{ "op": "add", "path": "/spec/new" }]), 400),
        (json!([1]), 400),
        (json!({ "spec": {} }), 400),
    ] {
        server.json_patch(&at("x"), &bad).await.expect(code);
    }
    let read = server.get(&at("x")).await.expect(200).body;
    assert_eq!(read, patched, "nothing of a failed patch stays");
    assert_ne!(read["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn the_result_of_a_patch_is_judged_like_any_object() {
    let server = Server::start();
    let created = server.create("x").await;
    for (patch, code) in [
        (json!({ "kind": "Widget" }), 422),
        (json!({ "kind": null }), 400),
        (json!({ "apiVersion": "apis.kcp.io/v1alpha2" }), 400),
        (json!({ "metadata": { "name": null } }), 400),
        (json!({ "metadata": { "labels": { "-": "x" } } }), 422),
        (json!({ "metadata": { "labels": { "a": 1 } } }), 422),
        (json!({ "metadata": { "finalizers": "x" } }), 422),
        (json!({ "metadata": { "annotations": { "kcp.io/shard": "ruby" } } }), 400),
        (json!({ "metadata": { "resourceVersion": null } }), 422),
        (json!({ "metadata": null }), 400),
    ] {
        server.merge(&at("x"), &patch).await.expect(code);
    }
    assert_eq!(server.get(&at("x")).await.expect(200).body, created);
}

#[tokio::test]
async fn what_the_server_owns_survives_a_patch_that_removes_it() {
    let server = Server::start();
    let created = server.create("x").await;
    let patch = json!({ "metadata": { "uid": null, "creationTimestamp": null, "annotations": null }, "spec": { "a": 1 } });
    let patched = server.merge(&at("x"), &patch).await.expect(200).body;
    for field in ["uid", "creationTimestamp", "annotations"] {
        assert_eq!(patched["metadata"][field], created["metadata"][field], "{field}");
    }
}

#[tokio::test]
async fn a_patch_that_names_a_version_means_that_version() {
    let server = Server::start();
    let created = server.create("x").await;
    let version = &created["metadata"]["resourceVersion"];
    let on_version = |n: i32| json!({ "metadata": { "resourceVersion": version }, "spec": { "n": n } });
    server.merge(&at("x"), &on_version(1)).await.expect(200);
    let refused = server.merge(&at("x"), &on_version(2)).await.expect(409);
    assert_eq!(refused.body["reason"], "Conflict");
    assert_eq!(server.get(&at("x")).await.expect(200).body["spec"], json!({ "n": 1 }));
}

#[tokio::test]
async fn a_patch_sees_the_object_in_the_version_of_the_url() {
    let server = Server::start();
    server.create("x").await;
    let newer = EXPORTS.replace("v1alpha1", "v1alpha2") + "/x";
    let patch = json!([
        { "op": "test", "path": "/apiVersion", "value": "apis.kcp.io/v1alpha2" },
        { "op": "add", "path": "/spec/a", "value": 1 }
    ]);
    let patched = server.json_patch(&newer, &patch).await.expect(200).body;
    assert_eq!(patched["apiVersion"], "apis.kcp.io/v1alpha2");
    let read = server.get(&at("x")).await.expect(200).body;
    assert_eq!((&read["apiVersion"], &read["spec"]), (&"apis.kcp.io/v1alpha1".into(), &json!({ "a": 1 })));
}

#[tokio::test]
async fn duplicate_fields_in_a_patch_are_warned_of_or_refused() {
    let server = Server::start();
    let created = server.create("x").await;
    let merge = [("content-type", "application/merge-patch+json")];
    let body = br#"{"spec":{"a":1,"a":2}}"#;
    let strict = server.send("PATCH", &format!("{}?fieldValidation=Strict", at("x")), &merge, body).await;
    assert_eq!(
        strict.expect(422).message(),
        r#" "" is invalid: patch: Invalid value: "{\"spec\":{\"a\":1,\"a\":2}}": strict decoding error: duplicate field "spec.a""#
    );
    assert_eq!(server.get(&at("x")).await.body, created);
    let warned = server.send("PATCH", &at("x"), &merge, body).await.expect(200);
    assert_eq!(warned.headers["warning"], r#"299 - "duplicate field \"spec.a\"""#);
    assert_eq!(warned.body["spec"], json!({ "a": 2 }));
}
