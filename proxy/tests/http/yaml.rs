use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{Answer, WIDGETS, World, request};

const CONCRETE: &str = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";
const YAML: &str = "application/yaml";

fn read(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), Some(YAML), "{}", answer.text());
    serde_saphyr::from_str(&answer.text()).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

async fn get(world: &World, path: &str) -> Answer {
    world.call(Method::GET, path, &[("accept", YAML)]).await
}

async fn send(world: &World, method: Method, path: &str, body: &str) -> Answer {
    let headers = [("content-type", YAML)];
    Answer::of(world.send(request(method, path, &headers, Bytes::from(body.to_owned()))).await).await
}

#[tokio::test]
async fn objects_lists_tables_and_errors_come_as_yaml() {
    let world = World::new();
    world.put("s/c/n/a", "", &json!({"color": "red", "big": 12_345_678_901_234_567_u64, "no": "no"})).await;
    let object = format!("{CONCRETE}/a");
    assert_eq!(read(&get(&world, &object).await), world.json(&object).await);
    assert_eq!(read(&get(&world, WIDGETS).await), world.json(WIDGETS).await);
    let headers = [("accept", "application/yaml;as=Table;v=v1;g=meta.k8s.io")];
    let table = world.call(Method::GET, CONCRETE, &headers).await;
    assert_eq!(read(&table)["rows"][0]["cells"], json!(["a", "red", null]));
    let missing = get(&world, &format!("{CONCRETE}/nobody")).await;
    assert_eq!(
        (missing.status, read(&missing)["reason"].clone()),
        (StatusCode::NOT_FOUND, json!("NotFound"))
    );
    assert!(missing.text().starts_with("kind: Status\napiVersion: v1\n"), "{}", missing.text());
}

#[tokio::test]
async fn a_long_list_is_rewritten_frame_by_frame() {
    let world = World::new();
    world.fill(2_000, 700).await;
    let list = get(&world, WIDGETS).await;
    assert!(list.body.len() > 1 << 20);
    assert_eq!(read(&list), world.json(WIDGETS).await);
}

#[tokio::test]
async fn there_is_no_yaml_stream() {
    let world = World::new();
    let answer = get(&world, &format!("{WIDGETS}?watch=true")).await;
    assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE);
    assert_eq!(
        read(&answer)["message"],
        "only the following media types are accepted: application/json;stream=watch"
    );
}

#[tokio::test]
async fn yaml_bodies_are_stored_as_the_json_they_stand_for() {
    let world = World::new();
    let body = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: a, labels: &l {x: 'y'}}\n\
                spec:\n  color: red # a comment\n  selector: *l\n  on: yes\n  big: 18446744073709551615\n";
    let created = send(&world, Method::POST, CONCRETE, body).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    assert_eq!(
        created.json()["spec"],
        json!({"color": "red", "selector": {"x": "y"}, "true": true, "big": 18_446_744_073_709_551_615_u64})
    );
    let version = created.json()["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let changed =
        body.replace("name: a", &format!("name: a, resourceVersion: '{version}'")).replace("red", "blue");
    let updated = send(&world, Method::PUT, &format!("{CONCRETE}/a"), &changed).await;
    assert_eq!((updated.status, &updated.json()["spec"]["color"]), (StatusCode::OK, &json!("blue")));
    let options = "kind: DeleteOptions\napiVersion: v1\npreconditions:\n  uid: someone-else\n";
    let refused = send(&world, Method::DELETE, &format!("{CONCRETE}/a"), options).await;
    assert_eq!(refused.status().0, 409);
    let deleted =
        send(&world, Method::DELETE, &format!("{CONCRETE}/a"), "propagationPolicy: Background").await;
    assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
}

#[tokio::test]
async fn what_is_wrong_with_a_yaml_body_is_said_as_kube_apiserver_says_it() {
    let world = World::new();
    let (code, reason, message) = send(&world, Method::POST, CONCRETE, "a: [b").await.status();
    assert_eq!((code, reason.as_str()), (400, "BadRequest"));
    let expected =
        "the object provided is unrecognized (must be of type Widget): error converting YAML to JSON: yaml: ";
    assert!(message.starts_with(expected), "{message}");
    let twice = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: a}\nspec: {x: 1, x: 2}\n";
    let strict = send(&world, Method::POST, &format!("{CONCRETE}?fieldValidation=Strict"), twice).await;
    let (code, _, message) = strict.status();
    assert_eq!(code, 400);
    assert!(message.ends_with("strict decoding error: duplicate field \"spec.x\""), "{message}");
    let warned = send(&world, Method::POST, CONCRETE, twice).await;
    assert_eq!(warned.status, StatusCode::CREATED);
    assert_eq!(warned.header("warning"), Some("299 - \"duplicate field \\\"spec.x\\\"\""));
    assert_eq!(warned.json()["spec"], json!({"x": 2}));
    let bomb = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(1_000));
    assert_eq!(send(&world, Method::POST, CONCRETE, &bomb).await.status().0, 400);
}
