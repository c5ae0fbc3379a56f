//! Deletions: preconditions, answers, collections.

use serde_json::{Value, json};

use super::{EXPORTS, LEASES, Server, at, export, lease};

#[tokio::test]
async fn the_answer_to_a_deletion_names_the_object_and_the_version_at_which_it_is_gone() {
    let server = Server::start();
    let created = server.create("x").await;
    let before = created["metadata"]["resourceVersion"].as_str().expect("set").to_owned();
    let answer = server.delete(&at("x")).await.expect(200);
    let version = answer.version();
    assert!(version > before, "{version} {before}");
    assert_eq!(
        answer.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": { "resourceVersion": version }, "status": "Success",
            "details": {
                "name": "x", "group": "apis.kcp.io", "kind": "apiexports", "uid": created["metadata"]["uid"],
            },
        })
    );
    let list = server.get(EXPORTS).await.expect(200);
    assert_eq!((list.version(), &list.body["items"]), (version, &json!([])));
}

#[tokio::test]
async fn preconditions_guard_a_deletion() {
    let server = Server::start();
    let created = server.create("x").await;
    let uid = created["metadata"]["uid"].as_str().expect("assigned");
    let version = created["metadata"]["resourceVersion"].as_str().expect("set");
    let json_body = [("content-type", "application/json")];
    let delete = |preconditions: Value, query: &'static str| {
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions });
        let server = server.clone();
        async move {
            let url = format!("{}{query}", at("x"));
            server.send("DELETE", &url, &json_body, options.to_string().as_bytes()).await
        }
    };
    let conflict = "Operation cannot be fulfilled on apiexports.apis.kcp.io \"x\": ";
    let wrong_uid = format!(
        "{conflict}the UID in the precondition (u-2) does not match the UID in record ({uid}). The object might have \
         been deleted and then recreated"
    );
    let wrong_version = |sent: &str| {
        format!(
            "{conflict}the ResourceVersion in the precondition ({sent}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )
    };
    for query in ["", "?dryRun=All"] {
        for (preconditions, message) in [
            (json!({ "uid": "u-2" }), wrong_uid.clone()),
            (json!({ "uid": "u-2", "resourceVersion": version }), wrong_uid.clone()),
            (json!({ "uid": uid, "resourceVersion": "7" }), wrong_version("7")),
            (json!({ "resourceVersion": "abc" }), wrong_version("abc")),
        ] {
            let answer = delete(preconditions, query).await;
            assert_eq!(answer.body["reason"], "Conflict");
            assert_eq!(answer.expect(409).message(), message);
        }
    }
    delete(json!({ "uid": uid, "resourceVersion": version }), "").await.expect(200);
    delete(json!({ "uid": uid }), "").await.expect(404);
}

#[tokio::test]
async fn options_that_a_cache_has_no_use_for_are_accepted() {
    let server = Server::start();
    for (query, body) in [
        ("?gracePeriodSeconds=30", ""),
        ("?propagationPolicy=Foreground", ""),
        ("?orphanDependents=true", ""),
        ("", r#"{"gracePeriodSeconds":0,"propagationPolicy":"Background"}"#),
        ("", r#"{"kind":"DeleteOptions","apiVersion":"apis.kcp.io/v1alpha1","propagationPolicy":"Orphan"}"#),
    ] {
        server.create("x").await;
        server.send("DELETE", &format!("{}{query}", at("x")), &[], body.as_bytes()).await.expect(200);
        server.get(&at("x")).await.expect(404);
    }
    server.create("x").await;
    for body in ["{", "[]", r#"{"kind":"Widget"}"#, "\u{1}"] {
        server.send("DELETE", &at("x"), &[], body.as_bytes()).await.expect(400);
    }
    server.delete(&format!("{}?propagationPolicy=Never", at("x"))).await.expect(422);
    server.get(&at("x")).await.expect(200);
}

#[tokio::test]
async fn a_collection_is_deleted_as_far_as_it_is_selected() {
    let server = Server::start();
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")] {
        let mut object = export(name);
        object["metadata"]["labels"] = json!({ "color": color });
        server.post(EXPORTS, &object).await.expect(201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("a list").iter();
        items.map(|item| item["metadata"]["name"].as_str().expect("named").to_owned()).collect()
    };
    let before = server.get(EXPORTS).await.expect(200);
    let deleted = server.delete(&format!("{EXPORTS}?labelSelector=color%3Dred&limit=2")).await.expect(200);
    assert_eq!(
        (&deleted.body["kind"], &deleted.body["apiVersion"]),
        (&"APIExportList".into(), &"apis.kcp.io/v1alpha1".into())
    );
    assert_eq!(names(&deleted.body), ["a", "c"]);
    assert_eq!(deleted.body["items"][0], before.body["items"][0], "as it was");
    let left = server.get(EXPORTS).await.expect(200);
    assert_eq!(names(&left.body), ["b", "d"]);
    assert_eq!(deleted.version(), left.version(), "the version of the last deletion");
    let one = server.delete(&format!("{EXPORTS}?fieldSelector=metadata.name%3Dd")).await.expect(200);
    assert_eq!(names(&one.body), ["d"]);
    server.delete(&format!("{EXPORTS}?fieldSelector=spec.color%3Dred")).await.expect(400);
    assert_eq!(names(&server.delete(EXPORTS).await.expect(200).body), ["b"]);
    let nothing = server.delete(EXPORTS).await.expect(200);
    assert_eq!(nothing.body["items"], json!([]));
    assert_ne!(nothing.version(), "");
}

#[tokio::test]
async fn deleting_a_collection_at_a_version_spares_what_changed_since() {
    let server = Server::start();
    server.create("a").await;
    let b = server.create("b").await;
    let version = server.get(EXPORTS).await.expect(200).version();
    let mut changed = b;
    changed["spec"] = json!({ "new": true });
    server.put(&at("b"), &changed).await.expect(200);
    server.create("c").await;
    let url = format!("{EXPORTS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let deleted = server.delete(&url).await.expect(200).body;
    assert_eq!(deleted["items"].as_array().map(Vec::len), Some(1));
    server.get(&at("a")).await.expect(404);
    server.get(&at("b")).await.expect(200);
    server.get(&at("c")).await.expect(200);
}

#[tokio::test]
async fn a_large_collection_goes_in_batches_and_stays_in_its_scope() {
    let server = Server::start();
    let elsewhere = LEASES.replace("namespaces/default", "namespaces/other");
    server.post(&elsewhere, &lease("kept")).await.expect(201);
    for n in 0..1_203 {
        server.post(LEASES, &lease(&format!("l{n:04}"))).await.expect(201);
    }
    let deleted = server.delete(LEASES).await.expect(200).body;
    assert_eq!(deleted["items"].as_array().map(Vec::len), Some(1_203));
    assert_eq!(server.get(LEASES).await.expect(200).body["items"], json!([]));
    server.get(&format!("{elsewhere}/kept")).await.expect(200);
}

#[tokio::test]
async fn an_object_created_anew_has_another_identity() {
    let server = Server::start();
    let first = server.create("x").await;
    server.delete(&at("x")).await.expect(200);
    let second = server.create("x").await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let mut stale = first;
    stale["metadata"]["resourceVersion"] = second["metadata"]["resourceVersion"].clone();
    server.put(&at("x"), &stale).await.expect(409);
}
