//! B088 and B091 through the whole service: what is written is what is read.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tower_service::Service;

use super::{EXPORTS, Server, at, export};
use crate::body::BytesBody;

/// Lines of a watch from the beginning, as many as asked for.
async fn watch_lines(server: &Server, count: usize) -> Vec<String> {
    let url = format!("{EXPORTS}?watch=true&resourceVersion=0");
    let request = ::http::Request::get(url).body(Full::new(Bytes::new())).expect("legal");
    let response = server.service.clone().call(request).await.expect("infallible");
    let mut body = BytesBody::from(response.into_body());
    let mut text = String::new();
    while text.lines().count() < count || !text.ends_with('\n') {
        let frame = body.frame().await.expect("the watch goes on").expect("whole");
        text.push_str(std::str::from_utf8(&frame.into_data().expect("data")).expect("UTF-8"));
    }
    text.lines().map(str::to_owned).collect()
}

/// Asserts that an object with this spec is the same, byte for byte, wherever it is read.
async fn assert_verbatim(server: &Server, name: &str, spec: &str) {
    let body = export(name).to_string().replace(r#""spec":{}"#, &format!(r#""spec":{spec}"#));
    let created = server.send("POST", EXPORTS, &[], body.as_bytes()).await.expect(201);
    let wanted = format!(r#","spec":{spec}}}"#);
    let read = server.get(&at(name)).await.expect(200);
    assert!(created.text == read.text && read.text.ends_with(&wanted));
    let list = server.get(EXPORTS).await.expect(200);
    assert!(list.text.contains(&read.text));
    let lines = watch_lines(server, 1).await;
    assert_eq!(lines.iter().filter(|line| line.contains(&wanted)).count(), 1);
    assert_eq!(lines[0], format!(r#"{{"type":"ADDED","object":{}}}"#, read.text));
}

#[tokio::test]
async fn b091_numbers_nesting_escapes_and_unknown_fields_survive() {
    let server = Server::start();
    let deep = format!("{}1{}", r#"{"a":["#.repeat(50), "]}".repeat(50));
    let unknown = (0..2000).map(|n| format!(r#""field{n}":{n}"#)).collect::<Vec<_>>().join(",");
    let spec = format!(
        concat!(
            r#"{{"int":9007199254740993,"float":1.0,"one":1,"zero":-0,"huge":1e400,"text":"1e400","tiny":1E-999,"#,
            r#""near":{{"name":1,"Name":2,"name ":3}},"escape":"\u00e9\ud83d\ude00\/ é😀","map":{{}},"list":[],"#,
            r#""nothing":null,"$serde_json::private::Number":"x","deep":{},"more":{{{}}}}}"#
        ),
        deep, unknown
    );
    assert_verbatim(&server, "x", &spec).await;
    // And through the paths that parse: a patch elsewhere leaves it as it is in value.
    let before = server.get(&at("x")).await.body;
    let patched = server.merge(&at("x"), &serde_json::json!({ "status": { "seen": 1 } })).await.expect(200);
    assert_eq!(patched.body["spec"], before["spec"]);
}

#[tokio::test]
async fn b088_large_objects_travel_whole() {
    for size in [900_000, 1_400_000] {
        let server = Server::start();
        assert_verbatim(&server, "large", &format!(r#"{{"blob":"{}"}}"#, "é".repeat(size / 2))).await;
    }
    let server = Server::start();
    let mut annotated = export("annotated");
    annotated["metadata"]["annotations"]["blob"] = "x".repeat((256 << 10) - 4).into();
    let created = server.post(EXPORTS, &annotated).await.expect(201);
    let lines = watch_lines(&server, 1).await;
    assert_eq!(lines[0], format!(r#"{{"type":"ADDED","object":{}}}"#, created.text));
    // What was accepted can be written back, though the cache's own annotations came on top.
    server.put(&at("annotated"), &created.body).await.expect(200);
}

#[tokio::test]
async fn b088_three_megabytes_are_refused_and_nothing_else_suffers() {
    let server = Server::start();
    let small = server.create("small").await;
    let mut large = export("large");
    large["spec"]["blob"] = "x".repeat(3 << 20).into();
    let refused = server.post(EXPORTS, &large).await;
    assert_eq!(refused.body["message"], "Request entity too large: limit is 3145728");
    assert_eq!(refused.expect(413).body["reason"], "RequestEntityTooLarge");
    assert_eq!(server.get(EXPORTS).await.expect(200).body["items"], serde_json::json!([small]));
    let fits = (3 << 20) - export("large").to_string().len() - r#""blob":"""#.len();
    large["spec"]["blob"] = "x".repeat(fits).into();
    server.post(EXPORTS, &large).await.expect(201);
}

#[tokio::test]
async fn an_object_sent_over_many_lines_is_one_line_of_a_watch() {
    let server = Server::start();
    let pretty = serde_json::to_string_pretty(&export("x")).expect("encodes");
    server.send("POST", EXPORTS, &[], pretty.as_bytes()).await.expect(201);
    let lines = watch_lines(&server, 1).await;
    let line = crate::ingest::parse_value(&lines[0]).expect("one line is one event");
    assert_eq!(line["object"]["metadata"]["name"], "x");
}

#[tokio::test]
async fn the_answer_to_a_write_has_the_shape_that_was_asked_for() {
    let server = Server::start();
    let accept = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let created = server.send("POST", EXPORTS, &accept, export("x").to_string().as_bytes()).await.expect(201);
    assert_eq!(created.body["kind"], "PartialObjectMetadata");
    assert_eq!(created.body["metadata"]["name"], "x");
    assert_eq!(created.body.get("spec"), None);
    assert_eq!(created.headers["content-type"], "application/json");
}
