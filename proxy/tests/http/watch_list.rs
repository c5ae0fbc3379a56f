use serde_json::{Value, json};

use crate::world::{WIDGETS, World};

const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

fn ends_initial(bookmark: &Value) -> bool {
    bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"] == json!("true")
}

#[tokio::test]
async fn b034_w1_initial_events_end_with_one_annotated_bookmark_and_equal_the_list_there() {
    let world = World::new();
    world.fill(1500, 400).await;
    for query in ["", "&resourceVersion=0", "&resourceVersion=HEAD"] {
        let query = query.replace("HEAD", &world.head());
        let mut lines = world.watch(&format!("{STREAM}{query}")).await;
        let mut items = vec![];
        let bookmark = loop {
            let (kind, object) = lines.event().await;
            if kind == "BOOKMARK" {
                break object;
            }
            assert_eq!(kind, "ADDED");
            items.push(object);
        };
        assert!(ends_initial(&bookmark), "{bookmark}");
        assert_eq!(
            (&bookmark["kind"], &bookmark["apiVersion"]),
            (&json!("Widget"), &json!("example.dev/v1"))
        );
        let version = bookmark["metadata"]["resourceVersion"].as_str().expect("a version");
        let list =
            world.json(&format!("{WIDGETS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
        assert_eq!(json!(items), list["items"]);
        world.put("s/c/n/new", "", &json!({ "query": query })).await;
        let (kind, object) = lines.event().await;
        assert!(matches!(kind.as_str(), "ADDED" | "MODIFIED"));
        assert_eq!(object["metadata"]["name"], json!("new"));
    }
}

#[tokio::test]
async fn w2_an_empty_collection_is_complete_at_once() {
    let world = World::new();
    let mut lines = world.watch(STREAM).await;
    let (kind, bookmark) = lines.event().await;
    assert_eq!(kind, "BOOKMARK");
    let expected = json!({
        "kind": "Widget", "apiVersion": "example.dev/v1",
        "metadata": { "resourceVersion": world.head(), "annotations": { "k8s.io/initial-events-end": "true" } },
    });
    assert_eq!(bookmark, expected);
}

#[tokio::test]
async fn w3_without_bookmarks_nothing_marks_the_end() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    let mut lines =
        world.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1").await;
    assert_eq!(lines.brief().await, "ADDED a");
    assert_eq!(lines.line().await, None);
}

#[tokio::test]
async fn w4_forbidden_combinations_are_422() {
    let world = World::new();
    for query in [
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=NotOlderThan&resourceVersion=5",
        "sendInitialEvents=true&resourceVersionMatch=other",
    ] {
        let answer = world.get(&format!("{WIDGETS}?watch=true&{query}")).await;
        let (code, reason, message) = answer.status();
        assert_eq!((code, reason.as_str()), (422, "Invalid"), "{query}: {message}");
        assert!(message.starts_with("ListOptions.meta.k8s.io \"\" is invalid: "), "{message}");
    }
    let (code, reason, _) = world.get(&format!("{WIDGETS}?sendInitialEvents=true")).await.status();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
}

#[tokio::test]
async fn send_initial_events_false_starts_from_now() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    for version in ["", "&resourceVersion=0"] {
        let query = format!("sendInitialEvents=false&resourceVersionMatch=NotOlderThan{version}");
        let mut lines = world.watch(&query).await;
        world.put("s/c/n/b", "", &json!({ "version": version })).await;
        assert!(lines.brief().await.ends_with(" b"), "{version}");
    }
}

#[tokio::test]
async fn b041_a_resumed_stream_has_no_initial_phase_and_a_new_one_has_exactly_one() {
    let world = World::with(|config| config.bookmark_interval = std::time::Duration::from_millis(20));
    world.put("s/c/n/a", "", &json!({})).await;
    let mut lines = world.watch(STREAM).await;
    assert_eq!(lines.brief().await, "ADDED a");
    let (_, bookmark) = lines.event().await;
    assert!(ends_initial(&bookmark));
    let version = bookmark["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    drop(lines);
    world.put("s/c/n/b", "", &json!({})).await;
    let mut resumed = world.watch(&format!("resourceVersion={version}&allowWatchBookmarks=true")).await;
    assert_eq!(resumed.brief().await, "ADDED b");
    for _ in 0..5 {
        let (kind, object) = resumed.event().await;
        assert!(kind == "BOOKMARK" && object["metadata"].get("annotations").is_none(), "{object}");
    }
    let mut again = world.watch(&format!("{STREAM}&resourceVersion={version}")).await;
    assert_eq!(again.briefs(2).await, ["ADDED a", "ADDED b"]);
    let mut marked = 0;
    for _ in 0..6 {
        let (kind, object) = again.event().await;
        assert_eq!(kind, "BOOKMARK");
        marked += usize::from(ends_initial(&object));
    }
    assert_eq!(marked, 1);
}

#[tokio::test]
async fn a_selector_applies_to_initial_and_later_events() {
    let world = World::new();
    world.put("s/c/n/a", "x=1", &json!({})).await;
    world.put("s/c/n/b", "x=2", &json!({})).await;
    let mut lines = world.watch(&format!("{STREAM}&labelSelector=x%3D2")).await;
    assert_eq!(lines.briefs(2).await, ["ADDED b", "BOOKMARK"]);
    world.put("s/c/n/a", "x=2", &json!({})).await;
    assert_eq!(lines.brief().await, "ADDED a");
}
