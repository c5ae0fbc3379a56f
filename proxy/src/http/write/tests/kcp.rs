//! kcp's `TestCacheServerAllScenarios` (kcp-cache-server 7.2, numbers 6 to 12), case by case.

use serde_json::json;

use super::{EXPORTS, Server, at, export};

#[tokio::test]
async fn schema_is_not_enforced() {
    let server = Server::start();
    let no_type = json!({ "metadata": { "name": "a" } });
    server.post(EXPORTS, &no_type).await.expect(400);
    let no_name = json!({ "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport" });
    server.post(EXPORTS, &no_name).await.expect(422);
    let mut foreign = export("foreign");
    foreign["status"] = json!({ "abc": [1, { "d": null }] });
    foreign["foreign"] = json!({ "field": "x" });
    server.post(EXPORTS, &foreign).await.expect(201);
    let read = server.get(&at("foreign")).await.expect(200).body;
    for field in ["spec", "status", "foreign", "kind", "apiVersion"] {
        assert_eq!(read[field], foreign[field], "{field}");
    }
}

#[tokio::test]
async fn shard_and_cluster_names_are_assigned() {
    let server = Server::start();
    let created = server.create("named").await;
    let read = server.get(&at("named")).await.expect(200).body;
    assert_eq!(created, read);
    assert_eq!(read["metadata"]["annotations"], json!({ "kcp.io/shard": "amber", "kcp.io/cluster": "acme" }));
}

#[tokio::test]
async fn uid_generation_and_creation_time_of_a_copy_are_kept() {
    let server = Server::start();
    let mut copy = export("copy");
    copy["metadata"]["annotations"] = json!({ "kcp.io/shard": "amber" });
    copy["metadata"]["uid"] = "3".into();
    copy["metadata"]["generation"] = 11.into();
    copy["metadata"]["creationTimestamp"] = "2020-01-02T03:04:05Z".into();
    let created = server.post(EXPORTS, &copy).await.expect(201).body;
    for field in ["uid", "generation", "creationTimestamp"] {
        assert_eq!(created["metadata"][field], copy["metadata"][field], "{field}");
    }
}

#[tokio::test]
async fn a_copy_without_uid_and_creation_time_is_given_them_but_no_generation() {
    let server = Server::start();
    let mut copy = export("copy");
    copy["metadata"]["annotations"] = json!({ "kcp.io/shard": "amber" });
    copy["metadata"]["creationTimestamp"] = serde_json::Value::Null;
    let created = server.post(EXPORTS, &copy).await.expect(201).body;
    assert_eq!(created["metadata"]["uid"].as_str().map(str::len), Some(36));
    assert!(created["metadata"]["creationTimestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!(created["metadata"].get("generation"), None);
}

#[tokio::test]
async fn uid_generation_and_creation_time_of_what_is_no_copy_are_assigned() {
    let server = Server::start();
    let mut own = export("own");
    own["metadata"]["uid"] = "3".into();
    own["metadata"]["generation"] = 11.into();
    own["metadata"]["creationTimestamp"] = "2020-01-02T03:04:05Z".into();
    let created = server.post(EXPORTS, &own).await.expect(201).body;
    for field in ["uid", "generation", "creationTimestamp"] {
        assert_ne!(created["metadata"][field], own["metadata"][field], "{field}");
    }
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["metadata"]["uid"].as_str().map(str::len), Some(36));
}

#[tokio::test]
async fn generation_is_not_raised_by_a_spec_change() {
    let server = Server::start();
    let mut object = server.create("x").await;
    object["spec"] = json!({ "latestResourceSchemas": ["v1.widgets"] });
    let updated = server.put(&at("x"), &object).await.expect(200).body;
    assert_eq!(updated["metadata"]["generation"], object["metadata"]["generation"]);
    let read = server.get(&at("x")).await.expect(200).body;
    assert_eq!(read["metadata"]["generation"], object["metadata"]["generation"]);
    assert_eq!(read["spec"], object["spec"]);
}

#[tokio::test]
async fn deletion_does_not_wait_for_finalizers() {
    let server = Server::start();
    let mut object = export("held");
    object["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    server.post(EXPORTS, &object).await.expect(201);
    let gone = server.delete(&at("held")).await.expect(200);
    assert_eq!(gone.body["status"], "Success");
    server.get(&at("held")).await.expect(404);
}

#[tokio::test]
async fn spec_and_status_are_updated_together() {
    let server = Server::start();
    let mut object = server.create("x").await;
    object["spec"] = json!({ "a": 1 });
    object["status"] = json!({ "b": 2 });
    server.put(&at("x"), &object).await.expect(200);
    let read = server.get(&at("x")).await.expect(200).body;
    assert_eq!((&read["spec"], &read["status"]), (&object["spec"], &object["status"]));
}
