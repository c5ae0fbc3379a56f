//! Bug reports from the field (`docs/bug-reports.md`) that need the whole server: restarts, lost and
//! restored stores, new shards, many clients. The others stand beside the code they concern.

use std::collections::BTreeSet;

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use shardcache_storage::{ResourceVersion, Revision, Tag};

use crate::checker::Step;
use crate::harness::{ROLES, Served, collection, eventually, role};
use crate::wire::{Answer, Watch, Wire};

fn everywhere() -> String {
    collection("*", "*", ROLES)
}

async fn create(wire: &Wire, shard: &str, name: &str) -> String {
    let answer =
        wire.call(Method::POST, &collection(shard, "root", ROLES), role(name, "x").to_string()).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    version(&answer.json())
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

async fn list_version(wire: &Wire) -> String {
    version(&wire.get(&everywhere()).await.json())
}

async fn watch(wire: &Wire, query: &str) -> Watch {
    wire.watch(&everywhere(), query).await.expect("the watch is admitted")
}

fn name(step: &Step) -> &str {
    let (Step::Added(object) | Step::Modified(object) | Step::Deleted(object)) = step else {
        panic!("no event: {step:?}")
    };
    object["metadata"]["name"].as_str().expect("a name")
}

async fn expired_in_the_stream(wire: &Wire, from: &str) {
    let mut lost = watch(wire, &format!("resourceVersion={from}")).await;
    assert_eq!(lost.expect().await, Step::Error { code: 410, reason: "Expired".to_owned() });
    assert!(lost.next().await.is_none(), "the stream ends after the error");
}

#[tokio::test]
async fn b002_a_version_of_the_life_before_resumes_and_one_of_a_lost_store_is_expired() {
    let served = Served::start().await;
    for n in 0..50 {
        create(&served.wire(), "s1", &format!("role-{n}")).await;
    }
    let before = list_version(&served.wire()).await;
    let served = served.restart().await;
    let mut resumed = watch(&served.wire(), &format!("resourceVersion={before}")).await;
    create(&served.wire(), "s1", "next").await;
    assert_eq!(name(&resumed.expect().await), "next");

    let served = served.wiped().await;
    expired_in_the_stream(&served.wire(), &before).await;
    let list = served.wire().get(&format!("{}?resourceVersion={before}", everywhere())).await;
    assert_eq!(list.reason(), (410, "Expired".to_owned()));
    served.stop().await;
}

#[tokio::test]
async fn b008_every_version_that_is_shown_is_a_growing_decimal() {
    let served = Served::start().await;
    let wire = served.wire();
    let mut shown = vec![list_version(&wire).await];
    let mut seen = watch(&wire, &format!("resourceVersion={}", shown[0])).await;
    shown.push(create(&wire, "s1", "a").await);
    let path = format!("{}/a", collection("s1", "root", ROLES));
    let changed = wire.request(Method::PATCH, &path, "application/merge-patch+json", r#"{"rules":[]}"#).await;
    shown.push(version(&changed.expect("answered").json()));
    let deleted = wire.call(Method::DELETE, &path, "").await.json();
    shown.push(version(&deleted));
    shown.push(list_version(&wire).await);
    for step in 0..3 {
        let (Step::Added(object) | Step::Modified(object) | Step::Deleted(object)) = seen.expect().await
        else {
            panic!("no event")
        };
        assert_eq!(version(&object), shown[step + 1]);
    }
    for text in &shown {
        let well_formed = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        assert!(well_formed && text.parse::<i64>().is_ok(), "{text}");
    }
    assert!(shown.is_sorted_by(|a, b| (a.len(), a) <= (b.len(), b)), "{shown:?}");
    served.stop().await;
}

#[tokio::test]
async fn b014_versions_after_the_backup_are_of_another_timeline_once_it_is_restored() {
    let served = Served::start().await;
    let wire = served.wire();
    create(&wire, "s1", "kept").await;
    let at_backup = list_version(&wire).await;
    let copies = tempfile::tempdir().expect("a directory");
    let copy = copies.path().join("copy.redb");
    served.api().store.backup(copy.clone()).await.expect("a backup");
    let lost = create(&wire, "s1", "lost").await;
    served.stop().await;

    let restored = Served::restored(&copy).await;
    let wire = restored.wire();
    expired_in_the_stream(&wire, &lost).await;
    let answer = wire.get(&format!("{}?resourceVersion={lost}", everywhere())).await;
    assert_eq!(answer.reason(), (410, "Expired".to_owned()));
    let mut resumed = watch(&wire, &format!("resourceVersion={at_backup}")).await;
    let new = create(&wire, "s1", "new").await;
    assert_eq!(name(&resumed.expect().await), "new");
    assert!((new.len(), &new) > (lost.len(), &lost), "no version is issued twice: {new} after {lost}");
    restored.stop().await;
}

#[tokio::test]
async fn b013_a_version_that_is_not_reached_is_refused_and_never_answered_with_less() {
    let served = Served::start().await;
    let wire = served.wire();
    create(&wire, "s1", "a").await;
    let now: u64 = list_version(&wire).await.parse().expect("a number");
    let now = ResourceVersion::parse(&now.to_string()).expect("a version");
    let tag = now.tag().unwrap_or_else(|| Tag::new(1).expect("legal"));
    let future = ResourceVersion::new(Revision(now.revision().0 + 10), tag);
    for query in [String::new(), "&resourceVersionMatch=NotOlderThan".to_owned()] {
        let answer = wire.get(&format!("{}?resourceVersion={future}{query}", everywhere())).await;
        assert_eq!(answer.reason(), (504, "Timeout".to_owned()));
        assert_eq!(answer.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(answer.headers.get("retry-after").map(http::HeaderValue::as_bytes), Some(b"1".as_slice()));
    }
    // Nor while it ends, is away, and loads again.
    let path = format!("{}?resourceVersion={now}", everywhere());
    let (back, is_back) = tokio::sync::watch::channel(false);
    let (served, ()) = tokio::join!(
        async {
            let served = served.restart().await;
            back.send_replace(true);
            served
        },
        async {
            while !*is_back.borrow() {
                let Ok(answer) = wire.request(Method::GET, &path, "", "").await else { continue };
                match answer.status.as_u16() {
                    200 => assert!(version(&answer.json()) >= now.to_string()),
                    refused => assert!([429, 503, 504].contains(&refused), "{answer:?}"),
                }
            }
        }
    );
    let answer = served.wire().get(&path).await;
    assert_eq!(answer.status, 200);
    assert!(version(&answer.json()) >= now.to_string());
    served.stop().await;
}

#[tokio::test]
async fn b022_a_lone_event_does_not_wait_for_the_next() {
    let served = Served::start().await;
    let wire = served.wire();
    let mut idle = watch(&wire, "").await;
    create(&wire, "s1", "alone").await;
    // `expect` gives up long before another event would come: there is none.
    assert_eq!(name(&idle.expect().await), "alone");
    served.stop().await;
}

#[tokio::test]
async fn b035_streams_that_the_server_ends_are_whole_and_can_be_gone_on_from() {
    let served = Served::start().await;
    let wire = served.wire();
    create(&wire, "s1", "a").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut stream = watch(&wire, query).await;
    assert_eq!(name(&stream.expect().await), "a");
    assert!(matches!(stream.expect().await, Step::Bookmark { initial_end: true, .. }));
    let (served, last) = tokio::join!(served.restart(), async {
        let mut last = None;
        while let Some(step) = stream.next().await {
            last = Some(step.expect("a whole line"));
        }
        last
    });
    let Some(Step::Bookmark { version, initial_end: false }) = last else {
        panic!("a last bookmark: {last:?}")
    };
    let mut resumed = watch(&served.wire(), &format!("resourceVersion={version}")).await;
    create(&served.wire(), "s1", "b").await;
    assert_eq!(name(&resumed.expect().await), "b");
    served.stop().await;
}

#[tokio::test]
async fn b052_after_an_expiry_and_a_restart_new_watches_are_attached() {
    let served = Served::start().await;
    let served = served.wiped().await;
    let wire = served.wire();
    let from = list_version(&wire).await;
    let query = format!("resourceVersion={from}");
    let mut watches = join_all((0..100).map(|_| watch(&wire, &query))).await;
    create(&wire, "s1", "new").await;
    for step in join_all(watches.iter_mut().map(Watch::expect)).await {
        assert_eq!(name(&step), "new");
    }
    served.stop().await;
}

#[tokio::test]
async fn b070_a_new_type_is_served_at_the_commit_that_defines_it() {
    let served = Served::start().await;
    let wire = served.wire();
    let definitions = collection("s1", "root", "apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.dev" },
        "spec": { "group": "example.dev", "scope": "Cluster",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true }] },
    });
    let widgets = collection("s1", "root", "apis/example.dev/v1/widgets");
    assert_eq!(wire.get(&widgets).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        wire.call(Method::POST, &definitions, definition.to_string()).await.status,
        StatusCode::CREATED
    );
    let list = wire.get(&widgets).await;
    assert_eq!((list.status, list.json()["kind"].as_str()), (StatusCode::OK, Some("WidgetList")));
    assert_eq!(list.json()["items"], json!([]));
    served.stop().await;
}

#[tokio::test]
async fn b074_many_clients_without_a_version_at_one_moment_get_state_and_events() {
    const CLIENTS: usize = 300;
    const WRITES: usize = 50;
    let served = Served::start().await;
    create(&served.wire(), "s1", "first").await;
    let opened = (0..CLIENTS).map(|_| async { watch(&served.wire(), "").await });
    let mut watches = join_all(opened).await;
    for n in 0..WRITES {
        create(&served.wire(), "s1", &format!("role-{n}")).await;
    }
    let read = watches.iter_mut().map(|watch| async move {
        let mut names = BTreeSet::new();
        for _ in 0..=WRITES {
            assert!(names.insert(name(&watch.expect().await).to_owned()), "nothing comes twice");
        }
        names.len()
    });
    assert_eq!(join_all(read).await, [WRITES + 1; CLIENTS]);
    served.stop().await;
}

#[tokio::test]
async fn b089_what_one_client_asked_for_changes_nothing_for_another() {
    const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let served = Served::start().await;
    let wire = served.wire();
    create(&wire, "s1", "a").await;
    let whole = wire.get(&everywhere()).await.body;
    for _ in 0..20 {
        let request =
            http::Request::get(format!("{}{}", served.url(), everywhere())).header("accept", METADATA);
        let Wire::Tcp(client, _) = &wire else { panic!("a socket") };
        let stripped = client.request(request.body(http_body_util::Full::default()).expect("legal")).await;
        assert_eq!(stripped.expect("answered").status(), StatusCode::OK);
        assert_eq!(wire.get(&everywhere()).await.body, whole);
    }
    served.stop().await;
}

#[tokio::test]
async fn b094_b103_a_shard_that_was_never_seen_joins_open_watches() {
    let served = Served::start().await;
    let wire = served.wire();
    create(&wire, "s1", "old").await;
    let from = list_version(&wire).await;
    let query = format!("resourceVersion={from}");
    let mut watches = join_all((0..50).map(|_| watch(&wire, &query))).await;
    for n in 0..10 {
        create(&wire, "s9", &format!("new-{n}")).await;
    }
    for watch in &mut watches {
        for n in 0..10 {
            let Step::Added(object) = watch.expect().await else { panic!("ADDED") };
            assert_eq!(object["metadata"]["name"], format!("new-{n}"));
            assert_eq!(object["metadata"]["annotations"]["kcp.io/shard"], "s9");
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn b113_a_write_is_in_every_read_that_asks_for_its_version() {
    let served = Served::start().await;
    let wire = served.wire();
    for n in 0..20 {
        let (name, path) = (format!("role-{n}"), collection("s1", "root", ROLES));
        let written = create(&wire, "s1", &name).await;
        for query in ["", "?resourceVersion=0", &format!("?resourceVersion={written}")] {
            assert_eq!(version(&wire.get(&format!("{path}/{name}{query}")).await.json()), written);
        }
        let held: Answer = wire.get(&format!("{path}/{name}")).await;
        let again = wire.call(Method::PUT, &format!("{path}/{name}"), held.body).await;
        assert_eq!(version(&again.json()), written, "an update that changes nothing keeps the version");
    }
    served.stop().await;
}

#[tokio::test]
async fn b056_a_large_list_is_streamed_and_others_are_served_meanwhile() {
    const OBJECTS: usize = 60;
    let served = Served::start().await;
    let wire = served.wire();
    for n in 0..OBJECTS {
        let mut body = role(&format!("large-{n}"), "x");
        body["padding"] = json!("x".repeat(1 << 20));
        let answer = wire.call(Method::POST, &collection("s1", "root", ROLES), body.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED);
    }
    let slow = wire.watch(&everywhere(), "resourceVersion=0").await.expect("admitted");
    let path = everywhere();
    let (list, other) = tokio::join!(wire.get(&path), wire.get("/readyz"));
    assert_eq!(list.json()["items"].as_array().map(Vec::len), Some(OBJECTS));
    assert_eq!(other.status, StatusCode::OK);
    drop(slow);
    eventually("the abandoned watch is gone", || async {
        served.metric("shardcache_http_in_flight{class=\"watch\"") == 0.0
    })
    .await;
    served.stop().await;
}
