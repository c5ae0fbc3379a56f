//! Every YAML document of the real kcp installation goes through ingest unharmed.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::*;
use super::{check_spans, key};

fn data_dir() -> PathBuf {
    let root = std::env::var_os("SHARDCACHE_TEST_DATA").map(PathBuf::from);
    root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data")).join("kcp")
}

fn yaml_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            found.push(path);
        }
    }
}

#[test]
fn every_real_object_is_taken_and_keeps_its_content() {
    let dir = data_dir();
    if !dir.is_dir() {
        eprintln!("SKIPPED: no real data at {}; set SHARDCACHE_TEST_DATA", dir.display());
        return;
    }
    let mut files = Vec::new();
    yaml_files(&dir, &mut files);
    let mut objects = 0;
    for file in &files {
        let yaml = std::fs::read_to_string(file).expect("readable");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap_or_default();
        for value in documents {
            let Some(name) = value["metadata"]["name"].as_str().map(str::to_owned) else { continue };
            let pretty = serde_json::to_string_pretty(&value).expect("encodes");
            let object =
                read(pretty.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let namespace = object.namespace().into_owned();
            let draft = object.encode(&key(&namespace, &name), Assigned::default()).expect("fits");
            let mut stored = check_spans(&draft);
            let mut sent = value;
            for object in [&mut stored, &mut sent] {
                let metadata = object["metadata"].as_object_mut().expect("named");
                metadata.remove("resourceVersion");
                metadata.remove("annotations");
            }
            assert_eq!(stored, sent, "{}", file.display());
            objects += 1;
        }
    }
    assert!(objects > 50, "only {objects} objects in {} files of {}", files.len(), dir.display());
}
