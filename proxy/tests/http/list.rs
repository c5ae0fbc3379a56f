use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::io::Read as _;

use crate::world::{WIDGETS, World, names, put};

fn at(scope: &str) -> String {
    format!("/services/cache/{scope}/widgets").replace("/widgets", "/apis/example.dev/v1/widgets")
}

async fn grid() -> World {
    let world = World::new();
    let mut changes = vec![];
    for shard in ["amber", "blue"] {
        for cluster in ["org", "root"] {
            for (name, labels) in [("a", "x=1"), ("b", "x=2")] {
                changes.push(put(&format!("{shard}/{cluster}/n/{name}"), labels, &json!({ "color": name })));
            }
        }
    }
    world.commit(changes).await;
    world
}

fn places(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items
        .iter()
        .map(|item| {
            let metadata = &item["metadata"];
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            [
                &metadata["annotations"]["kcp.io/shard"],
                &metadata["annotations"]["kcp.io/cluster"],
                &metadata["name"],
            ]
            .map(text)
            .join("/")
        })
        .collect()
}

#[tokio::test]
async fn b058_b059_b010_an_empty_list_is_whole() {
    let world = World::new();
    let list = world.json(WIDGETS).await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("WidgetList"), &json!("example.dev/v1")));
    assert_eq!(list["items"], json!([]));
    assert_eq!(list["metadata"], json!({ "resourceVersion": world.head() }));
    for version in ["v1", "v1beta1"] {
        let accept = format!("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
        let partial = world.call(Method::GET, WIDGETS, &[("accept", &accept)]).await.json();
        assert_eq!((&partial["kind"], &partial["items"]), (&json!("PartialObjectMetadataList"), &json!([])));
        assert_eq!(partial["apiVersion"], json!(format!("meta.k8s.io/{version}")));
    }
}

#[tokio::test]
async fn d20_every_scope_lists_exactly_its_objects_in_key_order() {
    let world = grid().await;
    for (scope, expected) in [
        (
            "shards/*/clusters/*",
            vec![
                "amber/org/a",
                "amber/org/b",
                "amber/root/a",
                "amber/root/b",
                "blue/org/a",
                "blue/org/b",
                "blue/root/a",
                "blue/root/b",
            ],
        ),
        ("shards/amber/clusters/*", vec!["amber/org/a", "amber/org/b", "amber/root/a", "amber/root/b"]),
        ("shards/*/clusters/root", vec!["amber/root/a", "amber/root/b", "blue/root/a", "blue/root/b"]),
        ("shards/%2A/clusters/root", vec!["amber/root/a", "amber/root/b", "blue/root/a", "blue/root/b"]),
        ("shards/blue/clusters/org", vec!["blue/org/a", "blue/org/b"]),
        ("shards/blue/clusters/other", vec![]),
    ] {
        assert_eq!(places(&world.json(&at(scope)).await), expected, "{scope}");
    }
    let namespaced = "/services/cache/shards/*/clusters/*/apis/example.dev/v1/namespaces/other/widgets";
    assert_eq!(world.json(namespaced).await["items"], json!([]));
}

#[tokio::test]
async fn selectors_are_anded() {
    let world = grid().await;
    let list = |query: &str| format!("{}?{query}", at("shards/blue/clusters/*"));
    for (query, expected) in [
        ("labelSelector=x%3D1", vec!["blue/org/a", "blue/root/a"]),
        ("labelSelector=x+in+(1,2)&fieldSelector=metadata.name%3Db", vec!["blue/org/b", "blue/root/b"]),
        ("fieldSelector=spec.color%3Da,metadata.namespace%3Dn", vec!["blue/org/a", "blue/root/a"]),
        ("labelSelector=x%3D1&fieldSelector=metadata.name%3Db", vec![]),
    ] {
        assert_eq!(places(&world.json(&list(query)).await), expected, "{query}");
    }
    let unsupported = world.get(&list("fieldSelector=spec.size%3D1")).await.status();
    assert_eq!(unsupported, (400, "BadRequest".into(), "field label not supported: spec.size".into()));
    let other_version = "/services/cache/shards/*/clusters/*/apis/example.dev/v1beta1/widgets";
    let unsupported = world.get(&format!("{other_version}?fieldSelector=spec.color%3Da")).await.status();
    assert_eq!((unsupported.0, unsupported.2.as_str()), (400, "field label not supported: spec.color"));
    assert_eq!(world.get(&list("labelSelector=x%3D(")).await.status().0, 400);
}

#[tokio::test]
async fn s_shards_partition_a_list_and_are_echoed() {
    let world = World::new();
    world.fill(48, 10).await;
    let all = world.json(WIDGETS).await;
    for parts in [1_u128, 2, 3, 4, 7, 64] {
        let mut seen = vec![];
        for part in 0..parts {
            let bound = |n: u128| (n << 64) / parts;
            let selector = format!(
                "shardRange(object.metadata.uid, '0x{:016x}', '0x{:016x}')",
                bound(part),
                bound(part + 1)
            );
            let path = format!("{WIDGETS}?shardSelector={}", selector.replace(' ', "%20"));
            let list = world.json(&path).await;
            assert_eq!(list["metadata"]["shardInfo"], json!({ "selector": selector }));
            assert_eq!(list["metadata"]["resourceVersion"], all["metadata"]["resourceVersion"]);
            seen.extend(names(&list).into_iter().map(str::to_owned));
            let page = world.json(&format!("{path}&limit=1")).await;
            assert_eq!(page["metadata"]["shardInfo"], json!({ "selector": selector }));
            assert!(page["metadata"].get("remainingItemCount").is_none());
        }
        seen.sort();
        assert_eq!(seen, names(&all), "{parts} parts");
    }
    let error = world.get(&format!("{WIDGETS}?shardSelector=x")).await.status();
    assert_eq!(error.0, 400);
    assert!(error.2.starts_with("invalid shard selector: "), "{}", error.2);
}

#[tokio::test]
async fn a_list_of_any_size_and_form_is_the_objects_between_commas() {
    let world = World::new();
    for (count, size) in [(1, 0), (40, 10), (70, 4000), (999, 100), (1100, 300), (1200, 1500)] {
        world.fill(count, size).await;
        let list = world.json(WIDGETS).await;
        assert!(names(&list).len() >= count);
        let snapshot = world.service.api().cache.snapshot();
        let objects = snapshot.state.types().next().expect("widgets").1;
        let bodies: Vec<String> =
            objects.iter().map(|o| String::from_utf8(o.body().to_vec()).expect("UTF-8")).collect();
        let answer = world.get(WIDGETS).await;
        let expected = format!(
            r#"{{"kind":"WidgetList","apiVersion":"example.dev/v1","metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#,
            snapshot.resource_version(),
            bodies.join(",")
        );
        assert!(answer.text() == expected, "{count} objects of {size}");
        let beta = world.json(&WIDGETS.replace("/v1/", "/v1beta1/")).await;
        assert_eq!(names(&beta), names(&list));
        assert!(
            beta["items"].as_array().expect("items").iter().all(|i| i["apiVersion"] == "example.dev/v1beta1")
        );
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let partial = world.call(Method::GET, WIDGETS, &[("accept", accept)]).await.json();
        assert_eq!(names(&partial), names(&list));
        let metadata = list["items"].as_array().expect("items").iter();
        let metadata: Vec<_> = metadata.map(|item| json!({ "metadata": item["metadata"] })).collect();
        assert_eq!(partial["items"], json!(metadata));
        // Custom resources have no protobuf, so who would take it gets what all get.
        let accept = "application/vnd.kubernetes.protobuf,application/json";
        let answer = world.call(Method::GET, WIDGETS, &[("accept", accept)]).await;
        assert!(answer.text() == expected, "{count} objects of {size}");
    }
}

#[tokio::test]
async fn frames_are_large_and_bounded() {
    let world = World::new();
    world.fill(3000, 2000).await;
    let path = format!("{WIDGETS}?watch=true&resourceVersion=0");
    let mut lines = world.watch_at(&path, &[]).await;
    for _ in 0..3000 {
        lines.line().await.expect("an event");
    }
    let full = &lines.frames[..lines.frames.len() - 1];
    assert!(full.iter().all(|bytes| (16 << 10..256 << 10).contains(bytes)), "{full:?}");
}

#[tokio::test]
async fn gzip_is_for_large_bodies_of_clients_that_accept_it() {
    let world = World::new();
    world.fill(200, 1000).await;
    let plain = world.get(WIDGETS).await;
    assert!(plain.body.len() > 128 << 10);
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    let packed = world.call(Method::GET, WIDGETS, &[("accept-encoding", "gzip")]).await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = vec![];
    // One member: a decoder that stops after the first one must have everything.
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).expect("gzip");
    assert!(unpacked == plain.body);
    let small = format!("{WIDGETS}?limit=5");
    let small = world.call(Method::GET, &small, &[("accept-encoding", "gzip, deflate")]).await;
    assert_eq!(small.header("content-encoding"), None);
    assert_eq!(small.status, StatusCode::OK);
}

#[tokio::test]
async fn b004_a_quiet_type_knows_the_versions_of_a_busy_one() {
    let world = World::new();
    let version = world.fill(100, 1).await;
    let quiet = format!(
        "/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports?resourceVersion={version}"
    );
    let list = world.json(&quiet).await;
    assert_eq!(list["metadata"]["resourceVersion"], json!(version));
}
