use http::{Method, StatusCode};
use serde_json::json;

use crate::world::World;

const AMBER: &str = "/services/cache/shards/s/clusters/c/apis/example.dev";

#[tokio::test]
async fn an_object_is_served_byte_for_byte_as_stored() {
    let world = World::new();
    let version = world.put("s/c/n/a", "", &json!({ "n": 1 })).await;
    let stored = world.service.api().cache.snapshot();
    let stored = stored.state.types().next().and_then(|(_, objects)| objects.iter().next()).cloned();
    let answer = world.get(&format!("{AMBER}/v1/namespaces/n/widgets/a")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.body, stored.expect("one object").body());
    assert_eq!(answer.json()["metadata"]["resourceVersion"], json!(version));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, private"));
}

#[tokio::test]
async fn another_served_version_differs_in_api_version_only() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({ "fill": "x".repeat(2000) })).await;
    let v1 = world.json(&format!("{AMBER}/v1/namespaces/n/widgets/a")).await;
    let mut beta = world.json(&format!("{AMBER}/v1beta1/namespaces/n/widgets/a")).await;
    assert_eq!(beta["apiVersion"], json!("example.dev/v1beta1"));
    beta["apiVersion"] = v1["apiVersion"].clone();
    assert_eq!(beta, v1);
}

#[tokio::test]
async fn metadata_clients_get_partial_object_metadata() {
    let world = World::new();
    world.put("s/c/n/a", "x=1", &json!({ "n": 1 })).await;
    let whole = world.json(&format!("{AMBER}/v1/namespaces/n/widgets/a")).await;
    let path = format!("{AMBER}/v1/namespaces/n/widgets/a");
    for version in ["v1", "v1beta1"] {
        let accept = format!("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v={version}");
        let partial = world.call(Method::GET, &path, &[("accept", &accept)]).await.json();
        let expected = json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": whole["metadata"],
        });
        assert_eq!(partial, expected);
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    let path = format!("{AMBER}/v1/namespaces/n/widgets/a");
    let (get, head) = (world.get(&path).await, world.call(Method::HEAD, &path, &[]).await);
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()));
    assert_eq!(head.header("content-type"), get.header("content-type"));
}

#[tokio::test]
async fn versions_are_judged_before_the_object_is_looked_for() {
    let world = World::new();
    let version: u64 = world.put("s/c/n/a", "", &json!({})).await.parse().expect("a number");
    let path = format!("{AMBER}/v1/namespaces/n/widgets/a?resourceVersion=");
    for good in [String::new(), "0".to_owned(), version.to_string()] {
        assert_eq!(world.get(&format!("{path}{good}")).await.status, StatusCode::OK, "{good}");
    }
    let future = version + (1000 << 10);
    let answer = world.get(&format!("{path}{future}")).await;
    let (code, reason, message) = answer.status();
    assert_eq!((code, reason.as_str()), (504, "Timeout"));
    assert_eq!(message, format!("Timeout: Too large resource version: {future}, current: {version}"));
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], json!("ResourceVersionTooLarge"));
    assert_eq!(
        (answer.json()["details"]["retryAfterSeconds"].as_u64(), answer.header("retry-after")),
        (Some(1), Some("1"))
    );
    let foreign = world.get(&format!("{path}5")).await.status();
    assert_eq!((foreign.0, foreign.1.as_str()), (410, "Expired"));
    assert_eq!(world.get(&format!("{path}abc")).await.status().0, 400);
}

#[tokio::test]
async fn b083_a_name_through_a_wildcard_is_refused_with_a_way_out() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({})).await;
    for scope in ["shards/*/clusters/c", "shards/s/clusters/*", "shards/%2A/clusters/%2A"] {
        let path = format!("/services/cache/{scope}/apis/example.dev/v1/namespaces/n/widgets/a");
        let (code, reason, message) = world.get(&path).await.status();
        assert_eq!((code, reason.as_str()), (400, "BadRequest"), "{scope}");
        assert!(message.contains("fieldSelector=metadata.name"), "{message}");
    }
}

#[tokio::test]
async fn what_does_not_exist_is_404_with_kubes_details() {
    let world = World::new();
    let answer = world.get(&format!("{AMBER}/v1/namespaces/n/widgets/b")).await;
    let expected = (404, "NotFound".to_owned(), "widgets.example.dev \"b\" not found".to_owned());
    assert_eq!(answer.status(), expected);
    let details = json!({ "name": "b", "group": "example.dev", "kind": "widgets" });
    assert_eq!(answer.json()["details"], details);
}

#[tokio::test]
async fn people_get_indented_json() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({ "n": 1 })).await;
    let path = format!("{AMBER}/v1/namespaces/n/widgets/a");
    let compact = world.get(&path).await;
    for (path, headers) in
        [(format!("{path}?pretty=true"), vec![]), (path.clone(), vec![("user-agent", "curl/8.0")])]
    {
        let pretty = world.call(Method::GET, &path, &headers).await;
        let expected = serde_json::to_string_pretty(&compact.json()).expect("JSON") + "\n";
        assert_eq!(pretty.text(), expected);
    }
    world.fill(100, 3000).await;
    let list = "/services/cache/shards/*/clusters/*/apis/example.dev/v1/widgets";
    let headers = [("user-agent", "curl/8.0"), ("accept-encoding", "gzip")];
    let packed = world.call(Method::GET, list, &headers).await;
    let mut pretty = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut pretty)
        .expect("gzip");
    assert_eq!(pretty, serde_json::to_string_pretty(&world.json(list).await).expect("JSON") + "\n");
}
