//! What goes wrong around a shard's Lease without anybody lying: clocks, copies, restored backups.

use http::{Method, StatusCode};
use serde_json::json;
use shardcache_storage::{Push, Store};

use super::{EXPORTS, READ_AFTER, Shard, WRITTEN, claim, everywhere, leases, seeded, version_of};
use crate::harness::eventually;
use crate::push::fresh::{Hands, header, refusal, scene, setting, unconfirmed};
use crate::push::pusher::Door;
use crate::push::source::Source;
use crate::stand::Stand;

fn path(shard: &str) -> String {
    format!("{}/shardcache-{shard}", leases(shard))
}

#[tokio::test(flavor = "multi_thread")]
async fn d44_a_claim_that_is_the_first_to_see_that_the_machine_stood_still_proves_nothing() {
    let (_directory, hands, stand) = scene().await;
    let mut shard = Shard::new(stand.wire(), Source::exports("amber").with(&["a"]));
    shard.begin().await;
    shard.renew().await;
    let before = shard.renewed.clone();
    // Nobody looks at the clock in between.
    hands.jump(3600);
    let forgotten = shard.put(&claim(shard.source.head + 1, &before)).await;
    assert_eq!(forgotten.status, StatusCode::CONFLICT, "{forgotten:?}");
    assert_eq!(header(&shard.wire.get(&shard.source.collection()).await, "x-cache-age"), "unknown");
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_patches_a_lease_says_which_state_of_it_is_meant() {
    let (_directory, _, stand) = scene().await;
    let mut shard = Shard::new(stand.wire(), Source::exports("amber").with(&["a"]));
    shard.begin().await;
    let patch = async |format: &str, patch: serde_json::Value| {
        let format = format!("application/{format}-patch+json");
        let patched = shard.wire.request(Method::PATCH, &path("amber"), &format, patch.to_string()).await;
        patched.expect("answered")
    };
    // Without a version it is a renewal of whatever Lease is there: a restored one, or somebody else's.
    let blind = patch("merge", json!({"spec": {"leaseTransitions": 70_000}})).await;
    assert_eq!(blind.status, StatusCode::BAD_REQUEST, "{blind:?}");
    let blind =
        patch("json", json!([{"op": "add", "path": "/spec/leaseTransitions", "value": 70_000}])).await;
    assert_eq!(blind.status, StatusCode::BAD_REQUEST, "{blind:?}");
    let version = shard.renewed.clone();
    let meant = json!({"metadata": {"resourceVersion": version}, "spec": {"leaseTransitions": 70_000}});
    let renewed = patch("merge", meant.clone()).await;
    assert_eq!(renewed.status, StatusCode::OK, "{renewed:?}");
    assert_eq!(patch("merge", meant).await.status, StatusCode::CONFLICT, "that was another state");
    let tested = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version_of(&renewed)},
        {"op": "replace", "path": "/spec/leaseTransitions", "value": 70_001},
    ]);
    assert_eq!(patch("json", tested).await.status, StatusCode::OK);
    // Other Leases are nobody's business.
    let other =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other"}});
    let made = shard.wire.call(Method::POST, &leases("amber"), other.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let other = format!("{}/other", leases("amber"));
    let blind = json!({"spec": {"leaseTransitions": 1}}).to_string();
    let patched = shard.wire.request(Method::PATCH, &other, "application/merge-patch+json", blind).await;
    assert_eq!(patched.expect("answered").status, StatusCode::OK);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_annotation_that_is_there_twice_the_one_that_is_read_is_judged() {
    let (_directory, _, stand) = scene().await;
    let mut shard = Shard::new(stand.wire(), Source::exports("amber").with(&["a"]));
    shard.begin().await;
    let said = shard.said.clone().expect("it spoke");
    let text = |version: u64| claim(version, "")[WRITTEN].to_string();
    // Parsers keep the last one, and that says less.
    let twice = format!("{},{}:{}", text(said.0), json!(WRITTEN), text(3));
    let lease = shard.lease(&json!({WRITTEN: "twice", READ_AFTER: said.1}));
    let lease = lease.to_string().replace("\"twice\"", &twice);
    let answer = shard.wire.call(Method::PUT, &path("amber"), lease).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{answer:?}");
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_pushed_says_nothing_once_it_is_released() {
    let (_directory, _, stand) = scene().await;
    seeded(&stand, &["amber", "birch"]).await;
    let exports = Source::exports("birch").with(&["x"]);
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("birch", "i1").await;
    control.send(json!({"type": "catalog", "types": [exports.type_name()]}));
    control.settled().await;
    let pushers = (door.synced(&exports, "i1").await, control);
    // Amber's source has a Lease of this name, about something else.
    let mut source = Source::leases("amber");
    source.put("shardcache-amber", "gold");
    let (mut pusher, _) = door.cell(&source, "i1").await;
    let mut frames = source.sync(1);
    frames[1]["cluster"] = "system:shardcache".into();
    frames[1]["object"]["metadata"]["annotations"] = claim(900, "1000");
    // The sync need not end for the object to be there.
    frames.pop();
    pusher.send_all(frames);
    pusher.settled().await;
    pusher.hang_up();
    pusher.ended().await;
    let shard = Shard::new(stand.wire(), Source::exports("amber"));
    let all = everywhere(&shard.source);
    let first = shard.wire.get(&all).await;
    assert_eq!(first.status, StatusCode::INTERNAL_SERVER_ERROR, "a first sync that broke: {first:?}");
    let release = Push::Release { shard: "amber".into(), type_name: None };
    stand.store.push(release).await.expect("it is writable");
    let read = shard.wire.get(&all).await;
    assert_eq!(read.status, StatusCode::INTERNAL_SERVER_ERROR, "{read:?}");
    // Nor is what it has the beginning of what is said by requests.
    let current = shard.wire.get(&path("amber")).await;
    let mut lease = current.json();
    assert!(lease["metadata"]["annotations"][WRITTEN].as_str().expect("it is there").contains(EXPORTS));
    lease["metadata"]["labels"] = json!({"tier": "silver"});
    let kept = shard.wire.call(Method::PUT, &path("amber"), lease.to_string()).await;
    assert_eq!(kept.status, StatusCode::CONFLICT, "{kept:?}");
    drop(pushers);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_before_a_pusher_came_makes_nothing_young_that_it_has_left() {
    let (_directory, _, stand) = scene().await;
    seeded(&stand, &["amber"]).await;
    let mut shard = Shard::new(stand.wire(), Source::exports("amber").with(&["a"]));
    shard.begin().await;
    let all = everywhere(&shard.source);
    // The shard begins to push, from an older state of its source, and is given back.
    let door = Door::http2(&stand).await;
    let mut pusher = door.synced(&Source::exports("amber").with(&["a"]), "i1").await;
    let release = Push::Release { shard: "amber".into(), type_name: None };
    stand.store.push(release).await.expect("it is writable");
    pusher.hang_up();
    eventually("the stream is gone", || async {
        header(&shard.wire.get(&all).await, "x-cache-shards") == "expected=1,synced=1,live=0"
    })
    .await;
    let read = shard.wire.get(&all).await;
    assert_eq!((header(&read, "x-cache-complete"), header(&read, "x-cache-age")), ("true", "unknown"));
    shard.round().await;
    let read = shard.wire.get(&all).await;
    assert_eq!((header(&read, "x-cache-complete"), header(&read, "x-cache-age")), ("true", "1"));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_a_member_that_writes_a_type_by_requests_makes_it_unknown() {
    let (_directory, _, stand) = scene().await;
    seeded(&stand, &["amber"]).await;
    let roles = Source::roles("amber").with(&["r"]);
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("amber", "i1").await;
    control.send(json!({"type": "catalog", "types": [roles.type_name()]}));
    control.settled().await;
    let pushers = (door.synced(&roles, "i1").await, control);
    let mut shard = Shard::new(stand.wire(), Source::exports("amber").with(&["a", "b"]));
    let all = everywhere(&shard.source);
    assert_eq!(header(&shard.wire.get(&all).await, "x-cache-complete"), "true", "it has none");
    // The first of two.
    assert_eq!(shard.write("a").await.status, StatusCode::CREATED);
    let read = shard.wire.get(&all).await;
    assert_eq!((header(&read, "x-cache-complete"), header(&read, "x-cache-age")), ("unknown", "unknown"));
    let source = format!("{all}?freshness=source");
    assert_eq!(refusal(&shard.wire.get(&source).await), unconfirmed("amber"), "nobody can say so");
    shard.begin().await;
    let read = shard.wire.get(&all).await;
    assert_eq!((header(&read, "x-cache-complete"), header(&read, "x-cache-age")), ("true", "1"));
    drop(pushers);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_backup_was_restored_a_claim_about_what_came_after_it_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let setting = setting(&Hands::default());
    let stand = Stand::open(directory.path(), &setting).await;
    let mut shard = Shard::new(stand.wire(), Source::exports("amber").with(&["a"]));
    shard.begin().await;
    shard.renew().await;
    // The Lease is in the backup as it was renewed last; the next write is not.
    let restored = tempfile::tempdir().expect("a directory");
    stand.store.backup(restored.path().join("store.redb")).await.expect("there is room");
    shard.source.put("late", "gold");
    let late = shard.write("late").await;
    assert_eq!(late.status, StatusCode::CREATED);
    shard.acknowledged = version_of(&late);
    stand.close().await;

    let stand = Stand::open(restored.path(), &setting).await;
    shard.wire = stand.wire();
    let said = shard.said.clone().expect("it spoke");
    let renewed = shard.put(&claim(said.0, &said.1)).await;
    assert_eq!(renewed.status, StatusCode::CONFLICT, "{renewed:?}");
    stand.close().await;

    // Where nothing was lost it goes on.
    let stand = Stand::open(directory.path(), &setting).await;
    shard.wire = stand.wire();
    shard.round().await;
    // Who does not say what was answered last is asked for it.
    stand.close().await;
    let stand = Stand::open(directory.path(), &setting).await;
    shard.wire = stand.wire();
    shard.acknowledged = String::new();
    let said = shard.said.clone().expect("it spoke");
    let silent = shard.put(&claim(said.0, &said.1)).await;
    assert_eq!(silent.status, StatusCode::CONFLICT, "{silent:?}");
    stand.close().await;
}
