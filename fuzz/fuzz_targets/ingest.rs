//! Bodies of writes: what is accepted is JSON, and what is stored of it is the same value with the same
//! numbers, but for the members the server sets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use shardcache_proxy::ingest::{self, Assigned, CLUSTER_ANNOTATION, SHARD_ANNOTATION};
use shardcache_storage::{Key, PLACEHOLDER};

fuzz_target!(|body: &[u8]| {
    let Ok(object) = ingest::read(body) else { return };
    let sent: Value = serde_json::from_slice(body).expect("what is accepted is JSON");
    let compact: Value = serde_json::from_slice(object.text()).expect("compact text is JSON");
    assert!(compact == sent, "compacting changed {sent}");
    if object.duplicates().is_empty() {
        assert_eq!(numbers(object.text()), numbers(body), "numbers are kept as they are spelled");
    }
    for namespace in ["", "ns"] {
        let key = Key::new("amber", "root", namespace, "x").expect("no NUL");
        let Ok(draft) = object.encode(&key, Assigned::default()) else { continue };
        let stored: Value = serde_json::from_slice(draft.body()).expect("what is stored is JSON");
        let spans = draft.spans();
        let metadata = stored["metadata"].as_object().expect("every object has metadata");
        let text = |member: &str| metadata.get(member).and_then(Value::as_str).unwrap_or("");
        assert_eq!((text("name"), text("namespace")), ("x", namespace));
        assert_eq!(metadata["annotations"][SHARD_ANNOTATION], "amber");
        assert_eq!(metadata["annotations"][CLUSTER_ANNOTATION], "root");
        assert_eq!(text("resourceVersion").as_bytes(), PLACEHOLDER);
        let at = spans.resource_version_at as usize;
        assert_eq!(&draft.body()[at..at + PLACEHOLDER.len()], PLACEHOLDER);
        let part: Value = serde_json::from_slice(&draft.body()[spans.metadata.range()]).expect("metadata");
        assert!(part == stored["metadata"], "the span of metadata is another's");
        assert!(rest(stored.clone()) == rest(sent.clone()), "{stored} was made of {sent}");
        assert_eq!(numbers(draft.body()), numbers(object.text()), "numbers are kept as they are spelled");
        assert!(!draft.body().contains(&b'\n'), "an event is one line");
        // It is a fixed point: what was stored is taken again, and nothing but the version is new.
        let again = ingest::read(draft.body()).expect("what is stored can be sent back");
        let again = again.encode(&key, Assigned::default()).expect("it is no longer than before");
        assert_eq!(again.body(), draft.body());
    }
});

/// An object without the members that the server sets.
fn rest(mut object: Value) -> Value {
    let members = object.as_object_mut().expect("only objects are accepted");
    let mut metadata = match members.shift_remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    for set in ["resourceVersion", "name", "namespace"] {
        metadata.shift_remove(set);
    }
    if let Some(Value::Object(mut annotations)) = metadata.shift_remove("annotations") {
        annotations.shift_remove(SHARD_ANNOTATION);
        annotations.shift_remove(CLUSTER_ANNOTATION);
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), annotations.into());
        }
    }
    members.insert("metadata".to_owned(), metadata.into());
    object
}

/// Every number of a JSON text, as it is spelled.
fn numbers(text: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let length = text[at..].iter().take_while(|byte| b"+-.0123456789eE".contains(byte)).count();
                found.push(&text[at..at + length]);
                at += length;
            }
            _ => at += 1,
        }
    }
    found
}
