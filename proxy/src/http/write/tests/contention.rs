//! Optimistic locking, and what does not count as a change.

use futures::future::join_all;
use serde_json::{Value, json};

use super::{EXPORTS, Server, at, export};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_of_concurrent_updates_of_one_version_exactly_one_wins() {
    let server = Server::start();
    let mut object = server.create("x").await;
    for round in 0..10 {
        let writers = (0..16).map(|writer| {
            let mut mine = object.clone();
            mine["spec"] = json!({ "round": round, "writer": writer });
            let server = server.clone();
            tokio::spawn(async move { server.put(&at("x"), &mine).await })
        });
        let answers: Vec<_> =
            join_all(writers).await.into_iter().map(|done| done.expect("no panic")).collect();
        let won: Vec<_> = answers.iter().filter(|answer| answer.code == 200).collect();
        assert_eq!(won.len(), 1, "round {round}");
        for lost in answers.iter().filter(|answer| answer.code != 200) {
            assert_eq!((lost.code, &lost.body["reason"]), (409, &"Conflict".into()));
        }
        let read = server.get(&at("x")).await.expect(200).body;
        assert_eq!(read, won[0].body);
        object = read;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_creations_of_one_name_exactly_one_wins() {
    let server = Server::start();
    let writers = (0..16).map(|_| {
        let server = server.clone();
        tokio::spawn(async move { server.post(EXPORTS, &export("x")).await })
    });
    let mut codes: Vec<_> =
        join_all(writers).await.into_iter().map(|done| done.expect("no panic").code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [vec![201], vec![409; 15]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_patches_without_a_version_are_applied_on_top_of_each_other() {
    let server = Server::start();
    server.create("x").await;
    let writers = (0..5).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            let field = format!("w{writer}");
            server.merge(&at("x"), &json!({ "spec": { field: true } })).await.expect(200);
        })
    });
    for done in join_all(writers).await {
        done.expect("no panic");
    }
    let spec = server.get(&at("x")).await.expect(200).body["spec"].clone();
    assert_eq!(spec.as_object().map(serde_json::Map::len), Some(5), "{spec}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_update_and_deletions_of_one_version_exactly_one_wins() {
    let server = Server::start();
    for round in 0..40 {
        let object = server.create("x").await;
        let version = &object["metadata"]["resourceVersion"];
        let options = json!({ "preconditions": { "resourceVersion": version } }).to_string();
        let mut changed = object.clone();
        changed["spec"] = json!({ "round": round });
        // In turn, the update is sent first and last.
        let racers = (0..6).map(|racer| {
            let (server, options, changed) = (server.clone(), options.clone(), changed.clone());
            tokio::spawn(async move {
                if racer == (round % 2) * 5 {
                    return (true, server.put(&at("x"), &changed).await);
                }
                let json_body = [("content-type", "application/json")];
                (false, server.send("DELETE", &at("x"), &json_body, options.as_bytes()).await)
            })
        });
        let answers: Vec<_> =
            join_all(racers).await.into_iter().map(|done| done.expect("no panic")).collect();
        let won: Vec<_> = answers.iter().filter(|(_, answer)| answer.code == 200).collect();
        assert_eq!(won.len(), 1, "round {round}");
        let read = server.get(&at("x")).await;
        let is_update = won[0].0;
        // Whoever came late met another version, or nothing.
        let late = if is_update { 409 } else { 404 };
        assert!(answers.iter().all(|(_, answer)| [200, late].contains(&answer.code)), "round {round}");
        if is_update {
            assert_eq!(read.expect(200).body["spec"]["round"], round);
            server.delete(&at("x")).await.expect(200);
        } else {
            read.expect(404);
        }
    }
}

/// The same object with everything that does not count written differently.
fn rewritten(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        concat!(
            "{{\n \"spec\": {{ \"b\" : \"\\u0041\", \"a\" : 1.0 }},\n \"kind\":\"APIExport\",",
            "\"metadata\":{{\"name\":\"x\",\"resourceVersion\":{},\"generation\":1}}, \"apiVersion\":\"{}\"}}\n"
        ),
        metadata["resourceVersion"], "apis.kcp.io/v1alpha2",
    )
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_version_and_makes_no_event() {
    let server = Server::start();
    let mut first = export("x");
    first["spec"] = serde_json::from_str(r#"{"a":1.0,"b":"A"}"#).expect("JSON");
    let created = server.post(EXPORTS, &first).await.expect(201);
    let head = server.head();
    let same = server.put(&at("x"), &created.body).await.expect(200);
    assert_eq!(same.body, created.body);
    // No uid, creationTimestamp or kcp annotations, another served version, other order and spelling.
    let newer = EXPORTS.replace("v1alpha1", "v1alpha2") + "/x";
    let sloppy = rewritten(&created.body);
    let same = server.send("PUT", &newer, &[], sloppy.as_bytes()).await.expect(200);
    assert_eq!(same.version(), created.version());
    for patch in [json!({}), json!({ "spec": { "b": "A" } }), json!({ "spec": { "nope": null } })] {
        let same = server.merge(&at("x"), &patch).await.expect(200);
        assert_eq!(same.body, created.body);
    }
    assert_eq!(server.head(), head, "nothing was written");
    assert_eq!(server.api.metrics.write.unchanged.get(), 5);
}

#[tokio::test]
async fn a_change_that_floats_would_hide_is_a_change() {
    let server = Server::start();
    let mut object = server.create("x").await;
    let mut versions = vec![object["metadata"]["resourceVersion"].clone()];
    for spec in [r#"{"n":1}"#, r#"{"n":1.0}"#, r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#] {
        object["spec"] = crate::ingest::parse_value(spec).expect("JSON");
        object = server.put(&at("x"), &object).await.expect(200).body;
        assert!(!versions.contains(&object["metadata"]["resourceVersion"]), "{spec}");
        versions.push(object["metadata"]["resourceVersion"].clone());
    }
}

#[tokio::test]
async fn an_update_based_on_a_version_is_refused_once_another_came_between() {
    let server = Server::start();
    let old = server.create("x").await;
    let mut new = old.clone();
    new["spec"] = json!({ "a": 1 });
    server.put(&at("x"), &new).await.expect(200);
    // Also where the stale update would have changed nothing at its time.
    for stale in [&old, &new] {
        let refused = server.put(&at("x"), stale).await.expect(409);
        assert_eq!(refused.body["reason"], "Conflict");
    }
}

#[tokio::test]
async fn what_the_server_gave_is_carried_over_an_update_without_it() {
    let server = Server::start();
    let created = server.create("x").await;
    let mut update = export("x");
    update["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    update["metadata"]["creationTimestamp"] = Value::Null;
    update["spec"] = json!({ "a": 1 });
    let updated = server.put(&at("x"), &update).await.expect(200).body;
    for field in ["uid", "creationTimestamp", "generation", "annotations"] {
        assert_eq!(updated["metadata"][field], created["metadata"][field], "{field}");
    }
    let head = server.head();
    update["metadata"]["resourceVersion"] = updated["metadata"]["resourceVersion"].clone();
    assert_eq!(
        server.put(&at("x"), &update).await.expect(200).body,
        updated,
        "a second time it is no change"
    );
    assert_eq!(server.head(), head);
    update["metadata"]["generation"] = 7.into();
    let sent = server.put(&at("x"), &update).await.expect(200).body;
    assert_eq!(sent["metadata"]["generation"], 7, "what is sent is the sender's");
}
