use http::{Method, StatusCode};
use serde_json::{Value, json};
use shardcache_proxy::cache::CacheConfig;
use shardcache_storage::{MemoryStore, Opening, Revision, TypeName};

use crate::world::{WIDGETS, World, names, put};

fn version_of(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a version");
    assert!(!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()), "B008: {text}");
    text.parse().expect("a number")
}

#[tokio::test]
async fn w5_a_watch_without_a_version_begins_with_the_state_and_misses_nothing() {
    let world = World::new();
    world.put("s/c/n/b", "", &json!({})).await;
    world.put("s/c/n/a", "", &json!({})).await;
    for (round, query) in ["", "resourceVersion=0&", "resourceVersion=&"].into_iter().enumerate() {
        let mut lines = world.watch(query).await;
        let new = format!("c-{round}");
        world.put(&format!("s/c/n/{new}"), "", &json!({})).await;
        assert_eq!(lines.briefs(2).await, ["ADDED a", "ADDED b"], "{query}");
        assert_eq!(lines.brief().await, format!("ADDED {new}"));
        world.delete(&format!("s/c/n/{new}")).await;
        assert_eq!(lines.brief().await, format!("DELETED {new}"));
    }
}

#[tokio::test]
async fn b040_what_was_gone_before_the_watch_is_never_shown() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    world.put("s/c/n/b", "", &json!({})).await;
    world.delete("s/c/n/b").await;
    let mut lines = world.watch("").await;
    assert_eq!(lines.brief().await, "ADDED a");
    world.put("s/c/n/c", "", &json!({})).await;
    assert_eq!(lines.brief().await, "ADDED c");
}

#[tokio::test]
async fn w6_resuming_at_any_version_gives_exactly_what_follows() {
    let world = World::new();
    let start = world.head();
    let mut versions = vec![start.clone()];
    for n in 0..30_usize {
        let path = format!("s/c/n/o-{}", n % 4);
        let version =
            if n % 7 == 6 { world.delete(&path).await } else { world.put(&path, "", &json!(n)).await };
        versions.push(version);
    }
    let mut whole = world.watch(&format!("resourceVersion={start}")).await;
    let mut events = vec![];
    for _ in 0..30 {
        events.push(whole.line().await.expect("an event"));
    }
    for (n, version) in versions.iter().enumerate() {
        let mut resumed = world.watch(&format!("resourceVersion={version}")).await;
        for expected in &events[n..] {
            assert_eq!(resumed.line().await.as_ref(), Some(expected), "after {version}");
        }
    }
    let seen: Vec<u64> = events
        .iter()
        .map(|line| version_of(&serde_json::from_str::<Value>(line).expect("JSON")["object"]))
        .collect();
    let told: Vec<u64> = versions[1..].iter().map(|version| version.parse().expect("a number")).collect();
    assert_eq!(seen, told);
}

#[tokio::test]
async fn b007_every_watcher_gets_the_same_bytes() {
    let world = World::new();
    let head = world.head();
    let mut all = vec![];
    for _ in 0..5 {
        all.push(world.watch(&format!("resourceVersion={head}")).await);
    }
    for n in 0..50 {
        world.put("s/c/n/a", "", &json!({ "n": n })).await;
        let first = all[0].line().await;
        for other in &mut all[1..] {
            assert_eq!(other.line().await, first);
        }
    }
}

#[tokio::test]
async fn b026_w9_an_object_leaving_the_selector_is_deleted_with_previous_content() {
    let world = World::new();
    let mut lines = world.watch("labelSelector=x%3D1").await;
    world.put("s/c/n/a", "x=2", &json!({ "n": 0 })).await;
    let entered = world.put("s/c/n/a", "x=1", &json!({ "n": 1 })).await;
    world.put("s/c/n/a", "x=1", &json!({ "n": 2 })).await;
    let left = world.put("s/c/n/a", "x=2", &json!({ "n": 3 })).await;
    world.put("s/c/n/a", "x=2", &json!({ "n": 4 })).await;
    world.put("s/c/n/a", "x=1", &json!({ "n": 5 })).await;
    let deleted = world.delete("s/c/n/a").await;
    let mut seen = vec![];
    for _ in 0..5 {
        let (kind, object) = lines.event().await;
        seen.push((
            kind,
            object["spec"]["n"].clone(),
            object["metadata"]["labels"]["x"].clone(),
            version_of(&object),
        ));
    }
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let seen: Vec<_> = seen.iter().map(|(kind, n, x, version)| (kind.as_str(), n, x, *version)).collect();
    assert_eq!(seen[0], ("ADDED", &json!(1), &json!("1"), number(&entered)));
    assert_eq!((seen[1].0, seen[1].1), ("MODIFIED", &json!(2)));
    assert_eq!(seen[2], ("DELETED", &json!(2), &json!("1"), number(&left)));
    assert_eq!((seen[3].0, seen[3].1), ("ADDED", &json!(5)));
    assert_eq!(seen[4], ("DELETED", &json!(5), &json!("1"), number(&deleted)));
}

#[tokio::test]
async fn w10_a_recreated_object_is_deleted_and_added() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    let before = world.head();
    world.delete("s/c/n/a").await;
    world.put("s/c/n/a", "", &json!({})).await;
    let mut lines = world.watch(&format!("resourceVersion={before}")).await;
    assert_eq!(lines.briefs(2).await, ["DELETED a", "ADDED a"]);
}

#[tokio::test]
async fn b044_w7_a_version_before_the_history_is_an_expired_error_in_the_stream() {
    let world = World::new();
    let first = world.put("s/c/n/a", "", &json!({})).await;
    let second = world.put("s/c/n/b", "", &json!({})).await;
    let widgets = TypeName::new("example.dev", "widgets");
    let to = Revision(second.parse::<u64>().expect("a number") >> 10);
    let floor = world.store.compact(widgets.clone(), to).await.expect("compacts");
    let world = World::over(std::sync::Arc::clone(&world.store), |_| {}, CacheConfig::default());
    while world.service.api().cache.snapshot().state.floor(&widgets) < floor {
        tokio::task::yield_now().await;
    }
    let mut lines = world.watch(&format!("resourceVersion={first}")).await;
    let (kind, status) = lines.event().await;
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert_eq!(status["message"], json!(format!("too old resource version: {first} ({second})")));
    assert_eq!(lines.line().await, None);
    // B046: what was just listed can be watched.
    let head = world.head();
    let mut lines = world.watch(&format!("resourceVersion={head}")).await;
    world.put("s/c/n/c", "", &json!({})).await;
    assert_eq!(lines.brief().await, "ADDED c");
}

#[tokio::test]
async fn d4_d5_versions_of_the_future_and_of_other_timelines_are_refused_in_the_stream() {
    let world = World::new();
    let head: u64 = world.put("s/c/n/a", "", &json!({})).await.parse().expect("a number");
    let other = World::over(MemoryStore::new(Opening::from_system()), |_| {}, CacheConfig::default());
    for n in 0..5 {
        other.put(&format!("s/c/n/{n}"), "", &json!({})).await;
    }
    let foreign = (head - (1 << 40)).to_string();
    for version in [(head + 1024).to_string(), u64::MAX.to_string(), foreign, "5".to_owned()] {
        for query in
            ["", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"]
        {
            let mut lines = world.watch(&format!("resourceVersion={version}{query}")).await;
            let (kind, status) = lines.event().await;
            assert_eq!(
                (kind.as_str(), &status["code"], &status["reason"]),
                ("ERROR", &json!(410), &json!("Expired")),
                "{version}{query}"
            );
            assert_eq!(lines.line().await, None);
        }
    }
    assert_eq!(world.get(&format!("{WIDGETS}?watch=1&resourceVersion=abc")).await.status().0, 400);
}

#[tokio::test]
async fn w15_b043_events_are_single_compact_lines_whatever_is_asked_for() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({ "text": "line\nbreak ü €  " })).await;
    let headers = [
        ("accept-encoding", "gzip"),
        ("user-agent", "curl/8.0"),
        ("accept", "application/json;stream=watch"),
    ];
    let mut lines = world.watch_at(&format!("{WIDGETS}?watch=true&pretty=true"), &headers).await;
    assert_eq!(lines.headers["content-type"], "application/json");
    assert_eq!(lines.headers["cache-control"], "no-cache, private");
    assert!(!lines.headers.contains_key("content-encoding") && !lines.headers.contains_key("content-length"));
    for n in 0..100 {
        world.put("s/c/n/a", "", &json!({ "text": "ü€".repeat(n) })).await;
    }
    for _ in 0..101 {
        let line = lines.line().await.expect("an event");
        let event: Value = serde_json::from_str(&line).expect("one document");
        assert!(!line.is_empty() && event["object"]["apiVersion"] == "example.dev/v1", "{line}");
    }
}

#[tokio::test]
async fn other_versions_and_metadata_clients_see_their_form_of_every_event() {
    let world = World::new();
    let before = world.head();
    world.put("s/c/n/a", "", &json!({ "n": 0 })).await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let mut beta = world.watch_at(&format!("{beta}?watch=true"), &[]).await;
    let accept = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let accept_beta = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1")];
    let query = format!("timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={before}");
    let path = format!("{WIDGETS}?watch=true&{query}");
    let mut partial = world.watch_at(&path, &accept).await;
    let mut partial_beta = world.watch_at(&path, &accept_beta).await;
    world.put("s/c/n/a", "", &json!({ "n": 1 })).await;
    world.delete("s/c/n/a").await;
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let (seen, object) = beta.event().await;
        assert_eq!((seen.as_str(), &object["apiVersion"]), (kind, &json!("example.dev/v1beta1")));
        let (seen, object) = partial.event().await;
        assert_eq!((seen.as_str(), &object["kind"]), (kind, &json!("PartialObjectMetadata")));
        assert_eq!((&object["apiVersion"], object.get("spec")), (&json!("meta.k8s.io/v1"), None));
        assert_eq!(object["metadata"]["name"], json!("a"));
        let (seen, older) = partial_beta.event().await;
        assert_eq!((seen.as_str(), &older["apiVersion"]), (kind, &json!("meta.k8s.io/v1beta1")));
        assert_eq!(older["metadata"], object["metadata"]);
    }
    for (lines, version) in [(partial, "meta.k8s.io/v1"), (partial_beta, "meta.k8s.io/v1beta1")] {
        let mut lines = lines;
        let (seen, object) = lines.event().await;
        assert_eq!((seen.as_str(), &object["kind"]), ("BOOKMARK", &json!("PartialObjectMetadata")));
        assert_eq!(object["apiVersion"], json!(version));
    }
}

#[tokio::test]
async fn s_watches_of_disjoint_shards_share_the_events_between_them() {
    let world = World::new();
    let mut shards = vec![];
    for (start, end) in [("0000000000000000", "8000000000000000"), ("8000000000000000", "10000000000000000")]
    {
        let selector = format!("shardRange(object.metadata.uid,%20'0x{start}',%20'0x{end}')");
        shards.push(world.watch(&format!("shardSelector={selector}&resourceVersion={}", world.head())).await);
    }
    let mut expected = vec![];
    for n in 0..24 {
        world.put(&format!("s/c/n/{n:02}"), "", &json!({})).await;
        world.put(&format!("s/c/n/{n:02}"), "", &json!({ "n": n })).await;
        world.delete(&format!("s/c/n/{n:02}")).await;
        expected.extend([format!("ADDED {n:02}"), format!("MODIFIED {n:02}"), format!("DELETED {n:02}")]);
    }
    // What each shard must get is what a list through the same hash range would hold.
    world.commit((0..24).map(|n| put(&format!("s/c/n/{n:02}"), "", &json!({}))).collect()).await;
    let selector = "shardRange(object.metadata.uid,%20'0x0000000000000000',%20'0x8000000000000000')";
    let low = world.json(&format!("{WIDGETS}?shardSelector={selector}")).await;
    let low: Vec<String> = names(&low).into_iter().map(str::to_owned).collect();
    assert!(!low.is_empty() && low.len() < 24);
    let mine = |brief: &String| low.contains(&brief.rsplit(' ').next().expect("a name").to_owned());
    let (first, second): (Vec<_>, Vec<_>) = expected.into_iter().partition(mine);
    assert_eq!(shards[0].briefs(first.len()).await, first);
    assert_eq!(shards[1].briefs(second.len()).await, second);
}

#[tokio::test]
async fn the_legacy_watch_prefix_watches_whatever_the_query_says() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    world.put("s/c/n/b", "", &json!({})).await;
    let prefix = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/watch";
    let mut all = world.watch_at(&format!("{prefix}/widgets"), &[]).await;
    assert_eq!(all.briefs(2).await, ["ADDED a", "ADDED b"]);
    let mut one = world.watch_at(&format!("{prefix}/namespaces/n/widgets/b"), &[]).await;
    assert_eq!(one.brief().await, "ADDED b");
    let other = format!("{prefix}/namespaces/n/widgets/b?fieldSelector=metadata.name%3Da");
    let expected = "fieldSelector metadata.name doesn't match requested name";
    assert_eq!(world.get(&other).await.status(), (400, "BadRequest".into(), expected.into()));
    let ordinary =
        "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets/b?watch=true";
    assert_eq!(world.get(ordinary).await.status, StatusCode::OK);
}

#[tokio::test]
async fn selectable_fields_select_lists_watches_and_deletions() {
    let world = World::new();
    let red = "fieldSelector=spec.color%3Dred";
    world.put("s/c/n/a", "", &json!({"color": "red"})).await;
    world.put("s/c/n/b", "", &json!({"color": "blue"})).await;
    let mut lines = world.watch(red).await;
    assert_eq!(lines.brief().await, "ADDED a");
    world.put("s/c/n/b", "", &json!({"color": "red"})).await;
    world.put("s/c/n/a", "", &json!({"color": 3})).await;
    world.put("s/c/n/c", "", &json!({})).await;
    world.put("s/c/n/c", "", &json!({"color": "red"})).await;
    assert_eq!(lines.briefs(3).await, ["ADDED b", "DELETED a", "ADDED c"]);
    let collection = "/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";
    let answer = world.call(Method::DELETE, &format!("{collection}?{red}"), &[]).await;
    assert_eq!((answer.status, names(&answer.json())), (StatusCode::OK, vec!["b", "c"]));
    assert_eq!(lines.briefs(2).await, ["DELETED b", "DELETED c"]);
    let number = world.json(&format!("{collection}?fieldSelector=spec.color%3D3")).await;
    assert_eq!(names(&number), ["a"], "a number is selected by its digits");
    let other_version = collection.replace("/v1/", "/v1beta1/");
    let refused = world.call(Method::DELETE, &format!("{other_version}?{red}"), &[]).await;
    assert_eq!(refused.status().0, 400, "each version has its own fields");
}
