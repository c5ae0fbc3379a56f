//! `docs/push-protocol.schema.json` and the examples of `docs/push-protocol.md`: both tell the truth.

use std::path::Path;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Value, json};
use shardcache_proxy::push::client::{self, ClientFrame, Delete, Hello, Provider, Sum, Upsert};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::{Digest, Election, KeyParts, TypeName, entry_digest};

/// Who sends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Pusher,
    Server,
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        serde_json::from_str(&document("push-protocol.schema.json")).expect("the schema is JSON")
    })
}

fn validator(from: From) -> &'static Validator {
    static VALIDATORS: OnceLock<[Validator; 2]> = OnceLock::new();
    let [pusher, server] = VALIDATORS.get_or_init(|| {
        ["clientFrame", "serverFrame"].map(|root| {
            let mut schema = schema().clone();
            schema["oneOf"] = json!([{ "$ref": format!("#/$defs/{root}") }]);
            jsonschema::validator_for(&schema).expect("the schema is one")
        })
    });
    match from {
        From::Pusher => pusher,
        From::Server => server,
    }
}

/// A line that the schema allows, all of whose fields it describes.
pub(super) fn valid(from: From, line: &[u8]) -> Value {
    let text = String::from_utf8_lossy(line).into_owned();
    let frame: Value = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    let errors: Vec<String> = validator(from).iter_errors(&frame).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{from:?} sent {text}, but: {}", errors.join("; "));
    let kind = frame["type"].as_str().expect("the schema says so");
    let prefix = if from == From::Pusher { "client" } else { "server" };
    let name = format!("{prefix}{}{}", kind[..1].to_uppercase(), &kind[1..]);
    let described = &schema()["$defs"][&name]["properties"];
    for field in frame.as_object().expect("the schema says so").keys() {
        assert!(described.get(field).is_some(), "the schema does not describe {kind}.{field}");
    }
    frame
}

#[test]
fn the_schema_refuses_what_is_no_frame() {
    for (from, frame) in [
        (From::Pusher, json!({"type": "hallo", "seq": 1, "holder": "h", "instance": "i"})),
        (From::Pusher, json!({"type": "hello", "seq": 1, "instance": "i"})),
        (From::Pusher, json!({"type": "bye"})),
        (From::Pusher, json!({"type": "bye", "seq": 0})),
        (From::Pusher, json!({"type": "progress", "seq": 2, "rv": "5"})),
        (From::Pusher, json!({"type": "progress", "seq": 2, "rv": 5, "count": 0, "digest": "0".repeat(32)})),
        (
            From::Pusher,
            json!({"type": "progress", "seq": 2, "rv": "05", "count": 0, "digest": "0".repeat(32)}),
        ),
        (
            From::Pusher,
            json!({"type": "progress", "seq": 2, "rv": "5", "count": 0, "digest": "0".repeat(32),
            "provider": "watch"}),
        ),
        (
            From::Pusher,
            json!({"type": "progress", "seq": 2, "rv": "5", "count": 0, "digest": "0".repeat(32),
            "barrier": 1, "provider": "hearsay"}),
        ),
        (From::Pusher, json!({"type": "welcome", "term": 1, "window": 1, "needSync": false})),
        (From::Server, json!({"type": "bye", "seq": 3})),
        (
            From::Server,
            json!({"type": "welcome", "term": 1, "window": 1, "gen": 1, "needSync": true,
            "count": 0, "digest": "0".repeat(32)}),
        ),
        (
            From::Server,
            json!({"type": "welcome", "term": 1, "window": 1, "gen": 1, "needSync": false,
            "count": 0, "digest": "0".repeat(32)}),
        ),
        (From::Server, json!({"type": "error", "status": {"kind": "Status"}})),
    ] {
        assert!(!validator(from).is_valid(&frame), "{frame}");
    }
}

/// Every example of the document is a frame, by the schema and by the server, and each kind has one.
#[test]
fn the_examples_of_the_document_are_frames() {
    let document = document("push-protocol.md");
    let blocks = document.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut kinds: Vec<String> = vec![];
    for line in blocks.flat_map(str::lines) {
        let from = if line.contains("\"seq\"") && !line.starts_with("{\"type\":\"ack\"") {
            From::Pusher
        } else {
            From::Server
        };
        let frame = valid(from, line.as_bytes());
        kinds.push(frame["type"].as_str().expect("text").to_owned());
        match from {
            From::Pusher => drop(client::read(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"))),
            From::Server => {
                drop(ServerFrame::read(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}")));
            }
        }
    }
    let defined = schema()["$defs"].as_object().expect("definitions").keys();
    for name in defined.filter(|name| !name.ends_with("Frame")) {
        let Some(kind) = name.strip_prefix("client").or_else(|| name.strip_prefix("server")) else {
            continue;
        };
        let kind = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
        assert!(kinds.contains(&kind), "no example of {kind}");
        assert!(document.contains(&format!("`{kind}`")), "{kind} is not explained");
    }
}

/// The worked example: what the document computes by hand is what the server computes.
#[test]
fn d36_the_digest_of_the_document_is_the_servers() {
    let document = document("push-protocol.md");
    let key = |cluster, namespace, name| KeyParts { shard: "amber", cluster, namespace, name };
    let web = key("2vkqn4aabrd1ih5x", "default", "web");
    let uid = "5f6f33d6-2f5b-4d4d-9a62-6d6d39d3f1c1";
    let first = entry_digest(key("root", "", "a"), "u1", 42);
    let (second, later) = (entry_digest(web, uid, 107), entry_digest(web, uid, 108));
    let sum = Digest::default().with(first).with(second);
    for (what, digest) in [
        ("`root` | | `a` | `u1` | 42 |", first),
        ("`web` | `5f6f33d6-2f5b-4d4d-9a62-6d6d39d3f1c1` | 107 |", second),
        ("| sum |", sum),
        ("its old number is subtracted and", later),
        ("added:", sum.without(second).with(later)),
    ] {
        let line = format!("{what} `{digest}`");
        assert!(document.contains(&line), "the document does not say: {line}");
    }
}

/// What our own pushers write.
#[test]
fn frames_of_our_own_pushers_are_valid() {
    let key = KeyParts { shard: "amber", cluster: "root", namespace: "", name: "a" };
    let sum = Sum { count: 1, digest: Digest::default().with(entry_digest(key, "u", 3)) };
    let hello = Hello {
        holder: "h".into(),
        instance: "i".into(),
        election: Some(Election { uid: "lease".into(), term: 3 }),
        takeover: true,
        source: "etcd".into(),
        source_head: 7,
        kind: Some("ClusterRole".into()),
        namespaced: Some(false),
    };
    let control = Hello { holder: "h".into(), instance: "i".into(), ..Hello::default() };
    let object = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
    let upsert = Upsert { version: 3, cluster: "root".into(), namespace: None, name: None, object };
    let delete = Delete {
        version: 4,
        cluster: "root".into(),
        namespace: "".into(),
        name: "a".into(),
        uid: "u".into(),
    };
    for frame in [
        ClientFrame::Hello(Box::new(hello)),
        ClientFrame::Hello(Box::new(control)),
        ClientFrame::Catalog(vec![TypeName::new("", "namespaces"), TypeName::with_identity("g", "r", "id")]),
        ClientFrame::SyncStart { sync: 1 },
        ClientFrame::Upsert(upsert),
        ClientFrame::Delete(delete),
        ClientFrame::SyncEnd { sync: 1, version: 9, sum, allow_empty: true },
        ClientFrame::Progress { at: Some((9, sum)), barrier: None, provider: None },
        ClientFrame::Progress { at: None, barrier: None, provider: None },
        ClientFrame::Bye,
    ]
    .into_iter()
    .chain(Provider::ALL.map(|provider| ClientFrame::Progress {
        at: Some((9, sum)),
        barrier: Some(1),
        provider: Some(provider),
    })) {
        let mut line = vec![];
        frame.write(5, &mut line);
        valid(From::Pusher, &line);
        let (seq, read) = client::read(&line[..line.len() - 1]).expect("it reads what it writes");
        assert_eq!((seq, format!("{read:?}")), (5, format!("{frame:?}")));
    }
}

/// Whoever pushes may be newer than who reads it.
#[test]
fn a_provider_that_is_not_known_here_is_no_error() {
    let digest = "0".repeat(32);
    for (provider, expected) in
        [("\"rollingWatch\"", Some(Provider::RollingWatch)), ("\"hearsay\"", None), ("null", None)]
    {
        let line = format!(
            r#"{{"type":"progress","seq":2,"rv":"5","count":0,"digest":"{digest}","barrier":1,"provider":{provider}}}"#
        );
        let (_, frame) = client::read(line.as_bytes()).expect("a frame");
        let ClientFrame::Progress { barrier: Some(1), provider, .. } = frame else { panic!("{frame:?}") };
        assert_eq!(provider, expected, "{line}");
    }
}
