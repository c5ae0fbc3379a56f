//! X3: generateName, dryRun and fieldValidation.

use std::collections::BTreeSet;

use ::http::HeaderValue;
use serde_json::{Value, json};

use super::{EXPORTS, Server, at, export};

fn unnamed(generate_name: &str) -> Value {
    let mut object = export("");
    object["metadata"] = json!({ "generateName": generate_name });
    object
}

#[tokio::test]
async fn x3_names_are_generated() {
    let server = Server::start();
    let mut names = BTreeSet::new();
    for _ in 0..20 {
        let created = server.post(EXPORTS, &unnamed("web-")).await.expect(201).body;
        let name = created["metadata"]["name"].as_str().expect("named").to_owned();
        assert_eq!((name.len(), &name[..4]), (9, "web-"));
        assert_eq!(created["metadata"]["generateName"], "web-");
        assert_eq!(server.get(&at(&name)).await.expect(200).body, created);
        names.insert(name);
    }
    assert_eq!(names.len(), 20);
    let mut both = unnamed("web-");
    both["metadata"]["name"] = "given".into();
    assert_eq!(server.post(EXPORTS, &both).await.expect(201).body["metadata"]["name"], "given");
    let long = server.post(EXPORTS, &unnamed(&"a".repeat(100))).await.expect(201).body;
    assert_eq!(long["metadata"]["name"].as_str().map(str::len), Some(63));
    server.post(EXPORTS, &unnamed("A_")).await.expect(422);
}

#[tokio::test]
async fn x3_a_dry_run_answers_and_stores_nothing() {
    let server = Server::start();
    let existing = server.create("x").await;
    let head = server.head();
    let dry = |url: &str| format!("{url}?dryRun=All");
    let created = server.post(&dry(EXPORTS), &export("y")).await.expect(201).body;
    assert_eq!(created["metadata"]["uid"].as_str().map(str::len), Some(36));
    assert_eq!(created["metadata"].get("resourceVersion"), None);
    assert_eq!(created["metadata"]["annotations"]["kcp.io/shard"], "amber");
    let generated = server.post(&dry(EXPORTS), &unnamed("web-")).await.expect(201).body;
    assert_eq!(generated["metadata"]["name"].as_str().map(str::len), Some(9));
    server.post(&dry(EXPORTS), &export("x")).await.expect(409);

    let mut update = existing.clone();
    update["spec"] = json!({ "a": 1 });
    let updated = server.put(&dry(&at("x")), &update).await.expect(200).body;
    assert_eq!(updated, update, "the version stays");
    update["metadata"]["resourceVersion"] = "17".into();
    server.put(&dry(&at("x")), &update).await.expect(409);
    server.put(&dry(&at("y")), &export("y")).await.expect(404);
    let patched = server.merge(&dry(&at("x")), &json!({ "spec": { "a": 1 } })).await.expect(200).body;
    assert_eq!(patched["spec"], json!({ "a": 1 }));
    let deleted = server.delete(&dry(&at("x"))).await.expect(200).body;
    assert_eq!((&deleted["status"], &deleted["metadata"]), (&"Success".into(), &json!({})));
    server.delete(&dry(&at("y"))).await.expect(404);
    let listed = server.delete(&dry(EXPORTS)).await.expect(200).body;
    assert_eq!(listed["items"], json!([existing]));

    assert_eq!(server.head(), head);
    assert_eq!(server.get(&at("x")).await.expect(200).body, existing);
    server.get(&at("y")).await.expect(404);
}

const TWICE: &str = concat!(
    r#"{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExport","metadata":{"name":"twice","labels":{"a":"1","a":"2"}},"#,
    r#""spec":{"x":1,"x":2.50}}"#
);

#[tokio::test]
async fn x3_duplicate_fields_are_refused_when_validation_is_strict() {
    let server = Server::start();
    let answer =
        server.send("POST", &format!("{EXPORTS}?fieldValidation=Strict"), &[], TWICE.as_bytes()).await;
    assert_eq!(
        answer.expect(400).message(),
        "APIExport in version \"v1alpha1\" cannot be handled as a APIExport: strict decoding error: duplicate field \
         \"metadata.labels.a\", duplicate field \"spec.x\""
    );
    server.get(&at("twice")).await.expect(404);
    let fine = server.post(&format!("{EXPORTS}?fieldValidation=Strict"), &export("fine")).await.expect(201);
    assert_eq!(fine.headers.get("warning"), None);
}

#[tokio::test]
async fn x3_duplicate_fields_are_warned_of_and_the_last_is_stored() {
    let server = Server::start();
    for (name, query, warned) in
        [("a", "", true), ("b", "?fieldValidation=Warn", true), ("c", "?fieldValidation=Ignore", false)]
    {
        let body = TWICE.replace("twice", name);
        let answer =
            server.send("POST", &format!("{EXPORTS}{query}"), &[], body.as_bytes()).await.expect(201);
        let warnings: Vec<_> = answer.headers.get_all("warning").iter().collect();
        let wanted =
            [r#"299 - "duplicate field \"metadata.labels.a\"""#, r#"299 - "duplicate field \"spec.x\"""#];
        assert_eq!(warnings, if warned { &wanted[..] } else { &[] }, "{query}");
        let read = server.get(&at(name)).await.expect(200);
        assert!(read.text.contains(r#""spec":{"x":2.50}"#), "{}", read.text);
        assert!(read.text.contains(r#""labels":{"a":"2"}"#), "{}", read.text);
    }
    let selected = server.get(&format!("{EXPORTS}?labelSelector=a%3D2")).await.expect(200).body;
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn warnings_are_bounded_and_legal_in_a_header() {
    let server = Server::start();
    let twice = |key: String| format!(r#""{key}":0,"{key}":0"#);
    let long = "k".repeat(300);
    let members: Vec<_> = (0..200).map(|n| twice(format!("{long}{n}"))).collect();
    let spec = format!("{{{},{}}}", twice(r#"quo\"te\n"#.into()), members.join(","));
    let body = export("x").to_string().replace(r#""spec":{}"#, &format!(r#""spec":{spec}"#));
    let answer = server.send("POST", EXPORTS, &[], body.as_bytes()).await.expect(201);
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().map(HeaderValue::as_bytes).collect();
    assert!((10..=18).contains(&warnings.len()), "{}", warnings.len());
    assert_eq!(warnings[0], br#"299 - "duplicate field \"spec.quo\"te?\"""#);
    assert!(warnings.iter().map(|text| text.len()).sum::<usize>() < 8192);
}
