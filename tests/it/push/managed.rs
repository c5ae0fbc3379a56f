//! What a pusher has synced only the pusher writes, until an administrator releases it.

use http::Method;
use serde_json::{Value, json};

use super::pusher::{Door, held, served};
use super::source::{Source, control_path};
use crate::harness::{Served, binary};
use crate::stand::{Setting, Stand};
use crate::wire::{Answer, Wire};

const RELEASE: &str = "/services/cache/admin/release";
const GROUP: &str = "rbac.authorization.k8s.io";

/// Every way to write to a collection that has `a`, dry runs included.
async fn write_everyhow(wire: &Wire, source: &Source) -> Vec<(String, Answer)> {
    let collection = source.collection();
    let object = |name: &str| {
        let mut object = source.object("a");
        object["metadata"] = json!({"name": name});
        object.to_string()
    };
    let current = wire.get(&format!("{collection}/a")).await.json().to_string();
    let mut answers = vec![];
    for dry in ["", "?dryRun=All"] {
        for (method, name, kind, body) in [
            (Method::POST, "", "application/json", object("new")),
            (Method::PUT, "/a", "application/json", current.clone()),
            (
                Method::PATCH,
                "/a",
                "application/merge-patch+json",
                r#"{"metadata":{"labels":{"x":"y"}}}"#.into(),
            ),
            (Method::PATCH, "/a", "application/json-patch+json", "[]".into()),
            (Method::DELETE, "/a", "application/json", String::new()),
            (Method::DELETE, "", "application/json", String::new()),
        ] {
            let path = format!("{collection}{name}{dry}");
            let answer = wire.request(method.clone(), &path, kind, body).await.expect("answered");
            answers.push((format!("{method} {path}"), answer));
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn d30_ordinary_writes_to_a_pushed_cell_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let mut source = Source::roles("amber").with(&["a", "b"]);
    let mut pusher = Door::http2(&stand).await.synced(&source, "i1").await;
    let before = stand.wire().list(&source.collection()).await.expect("listed");
    for wire in stand.wires() {
        for (what, answer) in write_everyhow(&wire, &source).await {
            assert_eq!(answer.reason(), (409, "Conflict".into()), "{what}");
            let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains("cell is push-managed by h-i1"), "{what}: {message}");
        }
    }
    let after = stand.wire().list(&source.collection()).await.expect("listed");
    assert_eq!(before, after, "nothing has changed, not even a version");
    // Another type of the shard, and the same type of another one, are everybody's.
    for open in [Source::exports("amber").with(&["a"]), Source::roles("onyx").with(&["a"])] {
        let mut object = open.object("a");
        object["metadata"] = json!({"name": "a"});
        let answer = stand.wire().call(Method::POST, &open.collection(), object.to_string()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    pusher.send(source.put("c", "gold"));
    let ack = pusher.settled().await;
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d30_objects_of_before_are_kept_until_the_first_sync_ends_without_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let (wire, door) = (stand.wire(), Door::http2(&stand).await);
    let source = Source::roles("amber").with(&["a"]);
    let written = |name: &str| {
        let mut object = source.object("a");
        object["metadata"] = json!({"name": name});
        object.to_string()
    };
    for name in ["old", "a"] {
        let answer = wire.call(Method::POST, &source.collection(), written(name)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let (mut pusher, _) = door.cell(&source, "i1").await;
    let mut frames = source.sync(1);
    let end = frames.pop().expect("its end");
    pusher.send_all(frames);
    pusher.settled().await;
    let answer = wire.call(Method::POST, &source.collection(), written("new")).await;
    assert_eq!(answer.status, 409, "none is interleaved with a sync");
    let names =
        |list: crate::checker::List| list.items.into_keys().map(|key| key.0[3].clone()).collect::<Vec<_>>();
    // Of the shard alone nothing is shown that is not whole; among all shards it is only joining.
    let all = source.collection_in("*", "root");
    assert_eq!(names(wire.list(&all).await.expect("listed")), ["a", "old"]);
    assert_eq!(wire.get(&source.collection()).await.reason(), (500, "ServerTimeout".into()));
    pusher.send(end);
    let ack = pusher.settled().await;
    assert_eq!(served(&wire, &source, &ack).await, held(&source));
    drop((pusher, door));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_gives_a_cell_back_to_everybody() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let [wire, admin] = stand.wires();
    let door = Door::http2(&stand).await;
    let source = Source::roles("amber").with(&["a", "b"]);
    let mut exports = Source::exports("amber").with(&["x"]);
    let mut pusher = door.synced(&source, "i1").await;
    let mut other = door.synced(&exports, "i1").await;

    let call =
        async |wire: &Wire, query: &str| wire.call(Method::POST, &format!("{RELEASE}{query}"), "").await;
    let one = format!("?shard=amber&group={GROUP}&resource=clusterroles");
    assert_eq!(call(&wire, &one).await.status, 401, "anonymous on loopback administers nothing");
    assert_eq!(admin.get(&format!("{RELEASE}{one}")).await.status, 405);
    for (query, code) in [
        ("", 400),
        ("?shard=amber&group=g", 400),
        ("?shard=onyx", 404),
        ("?shard=amber&resource=clusterroles", 404),
        ("?shard=*", 404),
    ] {
        assert_eq!(call(&admin, query).await.status.as_u16(), code, "{query}");
    }
    let answer = call(&admin, &one).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["released"], json!([source.type_name()]));
    let status = wire.get(&control_path("amber")).await.json();
    let managed = |at: usize| status["cells"][at]["pushManaged"].as_bool();
    assert_eq!((managed(0), managed(1)), (Some(true), Some(false)), "{status}");

    // At once: the pusher is told though it says nothing, writes work, and what it still sends has no effect.
    let (code, message) = pusher.refused().await;
    assert!(code == 409 && message.contains("released"), "{code} {message}");
    let mut object = source.object("a");
    object["metadata"] = json!({"name": "mine"});
    assert_eq!(wire.call(Method::POST, &source.collection(), object.to_string()).await.status, 201);
    assert_eq!(wire.call(Method::DELETE, &format!("{}/a", source.collection()), "").await.status, 200);
    let mut ghost = source.clone();
    pusher.send(ghost.put("ghost", "gold"));
    assert_eq!(wire.get(&format!("{}/ghost", source.collection())).await.status, 404);
    other.send(exports.put("y", "gold"));
    other.settled().await;

    // The pusher comes back, and takes it again.
    let (mut pusher, welcome) = door.cell(&source, "i1").await;
    assert_eq!(welcome["reason"], "NeverSynced");
    pusher.send_all(source.sync(1));
    let ack = pusher.settled().await;
    assert_eq!(served(&wire, &source, &ack).await, held(&source));
    assert_eq!(wire.call(Method::POST, &source.collection(), object.to_string()).await.status, 409);

    // All of a shard.
    let answer = call(&admin, "?shard=amber").await;
    assert_eq!(answer.json()["released"], json!([exports.type_name(), source.type_name()]));
    assert_eq!(wire.call(Method::POST, &source.collection(), object.to_string()).await.status, 201);
    drop((pusher, other, door));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_releases_over_the_admin_socket() {
    let served = Served::start().await;
    let source = Source::roles("amber").with(&["a"]);
    let door = Door::InProcess(shardcache_proxy::service::ProxyService::new(served.shared_api()));
    let pusher = door.synced(&source, "i1").await;
    let release = async |flags: &[&str]| {
        let mut command = binary();
        command.args(["ctl", "release", "--data-dir"]).arg(served.data_dir()).args(flags);
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        ended.expect("joined").expect("it can be started")
    };
    for (flags, code) in [
        (&["--shard", "amber", "--resource", "clusterroles"][..], 64),
        (&["--shard", "a b"], 64),
        (&["--resource", "v1/namespaces"], 64),
        (&["--shard", "onyx"], 69),
        (&["--shard", "amber", "--resource", "v1/namespaces"], 69),
    ] {
        let output = release(flags).await;
        assert_eq!(
            output.status.code(),
            Some(code),
            "{flags:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let roles = "rbac.authorization.k8s.io/v1/clusterroles";
    let output = release(&["--shard", "amber", "--resource", roles]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, "released clusterroles.rbac.authorization.k8s.io of shard amber\n");
    let wire = served.wire();
    let answer = wire.call(Method::DELETE, &format!("{}/a", source.collection()), "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let list: Value = wire.get(&source.collection()).await.json();
    assert_eq!(list["items"], json!([]));
    drop(pusher);
    served.stop().await;
}
