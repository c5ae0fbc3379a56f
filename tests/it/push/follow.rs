//! The way it is meant: a catalog, a first sync, then event after event, and what readers see of it.

use serde_json::{Value, json};

use super::fresh::live;
use super::pusher::{Door, held, served};
use super::source::{Source, control_path};
use crate::checker::{Replay, Step};
use crate::stand::{Setting, Stand};

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_pushed_and_seen_through_both_doors() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let wire = stand.wire();
    for (door, shard) in Door::both(&stand).await.into_iter().zip(["amber", "onyx"]) {
        let mut source = Source::widgets(shard).with(&["a", "b"]);
        let (mut control, welcome) = door.control(shard, "i1").await;
        assert_eq!(welcome, json!({"type": "welcome", "term": 1, "window": 8 << 20, "needSync": false}));
        control.send(json!({"type": "catalog", "types": [source.type_name()]}));
        control.settled().await;

        let (mut pusher, welcome) = door.cell(&source, "i1").await;
        assert_eq!((&welcome["needSync"], &welcome["reason"]), (&json!(true), &json!("NeverSynced")));
        assert_eq!(
            (&welcome["term"], &welcome["gen"], welcome.get("position")),
            (&json!(1), &json!(1), None)
        );
        pusher.send_all(source.sync(7));
        let ack = pusher.settled().await;
        assert_eq!(ack["position"], source.head.to_string());
        assert_eq!(served(&wire, &source, &ack).await, held(&source));

        // What is served is what was sent, and where it is from.
        let object = wire.get(&format!("{}/a", source.collection())).await.json();
        let annotations = &object["metadata"]["annotations"];
        let thing = &source.objects["a"];
        for (name, value) in [
            ("kcp.io/shard", shard.to_owned()),
            ("kcp.io/cluster", "root".to_owned()),
            ("cache.kcp.io/original-resource-version", thing.version.to_string()),
            ("cache.kcp.io/original-resource-UID", thing.uid.clone()),
        ] {
            assert_eq!(annotations[name], value, "{object}");
        }
        assert_eq!(annotations.as_object().map(serde_json::Map::len), Some(4));
        assert_eq!(object["metadata"]["uid"], thing.uid);
        assert_ne!(object["metadata"]["resourceVersion"], thing.version.to_string());

        // Following: a watch sees each event as what it is.
        let list = wire.list(&source.collection()).await.expect("listed");
        let mut client = Replay::after(&list);
        let from = format!("resourceVersion={}&allowWatchBookmarks=true", list.version);
        let mut watch = wire.watch(&source.collection(), &from).await.expect("watched");
        pusher.send(source.put("c", "iron"));
        pusher.send(source.put("a", "iron"));
        pusher.send(source.delete("b"));
        source.head += 5;
        pusher.send(source.progress());
        let ack = pusher.settled().await;
        assert_eq!(ack["position"], source.head.to_string());
        assert_eq!(served(&wire, &source, &ack).await, held(&source));
        let mut seen = vec![];
        while seen.len() < 3 {
            let step = watch.expect().await;
            client.step(&step).unwrap_or_else(|violation| panic!("{violation}"));
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match &step {
                Step::Added(object) => seen.push(format!("+{}", name(object))),
                Step::Modified(object) => seen.push(format!("~{}", name(object))),
                Step::Deleted(object) => seen.push(format!("-{}", name(object))),
                Step::Bookmark { .. } => {}
                Step::Error { .. } => panic!("{step:?}"),
            }
        }
        assert_eq!(seen, ["+c", "~a", "-b"]);
        client.equals(&wire.list(&source.collection()).await.expect("listed")).expect("replayed");
        for mut stream in [pusher, control] {
            stream.send(json!({"type": "bye"}));
            stream.ended().await;
        }
    }
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_frame_is_in_every_list_that_is_asked_for_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let mut source = Source::roles("amber");
    let mut pusher = Door::InProcess(stand.service()).synced(&source, "i1").await;
    for round in 0..200 {
        pusher.send(source.put("a", &format!("t{round}")));
        let ack = pusher.settled().await;
        let shown = stand.api.cache.snapshot().resource_version().to_string();
        assert!(*shown >= *ack["cacheRV"].as_str().expect("text"), "round {round}: {shown} {ack}");
    }
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b058_b059_a_pushed_type_is_served_although_it_is_empty() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let wire = stand.wire();
    let source = Source::widgets("amber");
    assert_eq!(wire.get(&source.collection()).await.status, 404, "nobody knows it");
    let pusher = Door::http2(&stand).await.synced(&source, "i1").await;
    for place in ["amber", "*"] {
        let path = source.collection_in(place, if place == "*" { "*" } else { "root" });
        let list = wire.get(&path).await;
        assert_eq!(list.status, 200, "{path}");
        assert_eq!((&list.json()["kind"], &list.json()["items"]), (&json!("WidgetList"), &json!([])));
        let group = path.trim_end_matches("/widgets");
        let resources = wire.get(group).await.json();
        assert_eq!(resources["resources"][0]["name"], "widgets", "{resources}");
        assert_eq!(resources["resources"][0]["namespaced"], true);
    }
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_shard_says_who_pushes_and_how_far_each_type_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let (wire, door) = (stand.wire(), Door::http2(&stand).await);
    let path = control_path("amber");
    assert_eq!(wire.get(&path).await.reason(), (404, "NotFound".into()));
    let (roles, widgets) = (Source::roles("amber").with(&["a", "b"]), Source::widgets("amber").with(&["w"]));
    let (mut control, _) = door.control("amber", "i1").await;
    control.send(json!({"type": "catalog", "types": [widgets.type_name(), roles.type_name()]}));
    control.settled().await;
    let pusher = door.synced(&roles, "i1").await;
    let (mut other, _) = door.cell(&widgets, "i1").await;
    other.send(json!({"type": "syncStart", "sync": 1}));
    other.settled().await;
    let status = super::pusher::status_until(&wire, "amber", |status| {
        status["cells"].as_array().is_some_and(|cells| cells.len() == 2)
            && status["cells"][0]["complete"] == true
    })
    .await;
    assert_eq!((&status["shard"], &status["term"]), (&json!("amber"), &json!(1)));
    assert_eq!((&status["holder"], &status["instance"]), (&json!("h-i1"), &json!("i1")));
    assert_eq!((&status["election"], &status["streams"]), (&Value::Null, &json!(3)));
    assert!(status["heardSecondsAgo"].as_f64().is_some_and(|ago| ago < 20.0), "{status}");
    assert_eq!(status["catalog"], json!([roles.type_name(), widgets.type_name()]));
    assert_eq!(
        status["cells"][0],
        json!({
            "group": "rbac.authorization.k8s.io", "resource": "clusterroles", "version": "v1",
            "kind": "ClusterRole", "pushManaged": true, "generation": 1, "complete": true,
            "position": roles.head.to_string(), "count": 2, "digest": roles.digest().to_string(),
            "source": "src",
        })
    );
    let widget = &status["cells"][1];
    assert_eq!((&widget["pushManaged"], &widget["complete"]), (&json!(false), &json!(false)), "{widget}");
    drop((control, pusher, other));
    super::pusher::status_until(&wire, "amber", |status| status["streams"] == 0).await;
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_again_is_acknowledged_and_what_is_new_is_judged() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let mut source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    for _ in 0..3 {
        for _ in 0..10 {
            pusher.send(source.progress());
            assert_eq!(pusher.settled().await["position"], source.head.to_string());
        }
        source.head += 1;
    }
    let mut other = source.progress();
    other["count"] = 7.into();
    pusher.send(other);
    pusher.until("resync").await;
    // Nothing that is said again counts while a sync is due.
    pusher.send(source.progress());
    assert_eq!(pusher.settled().await.get("position"), None);
    drop(pusher);
    stand.close().await;
}
