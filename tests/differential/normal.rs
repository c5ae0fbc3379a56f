//! Makes the transcripts of two servers comparable: what every server makes up for itself becomes the order
//! in which it appears.
//!
//! - resourceVersions become their rank among all that the script met, so equal stays equal and order stays
//!   order; bookmarks may carry any version that is not older than what came before them, and that is checked;
//! - uids become their order of appearance, times of now and random suffixes become a word;
//! - our own group is taken out of the lists of discovery: lists of different length are compared as one;
//! - resources in discovery are sorted by name, because kube-apiserver lists them as its map happens to;
//! - our `kcp.io/shard` and `kcp.io/cluster` annotations and our path prefix are taken out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::openapi::essence;
use crate::script::{Action, Script};
use crate::servers::PLACE;

/// What the server of one transcript made up.
#[derive(Default)]
struct MadeUp {
    versions: BTreeSet<u64>,
    uids: HashMap<String, usize>,
}

/// The transcript without what is unique to its server.
pub(crate) fn normalised(script: &Script, mut transcript: Vec<Value>) -> Vec<Value> {
    let mut made_up = MadeUp::default();
    for (step, answer) in script.steps.iter().zip(&mut transcript) {
        judge_bookmarks(answer);
        if let Some(essence) = essence(&answer["body"]) {
            answer["body"] = essence;
        }
        if matches!(&step.action, Action::Request { method, .. } if method == "DELETE")
            && let Some(version) = answer.pointer_mut("/body/metadata/resourceVersion")
        {
            // Of a deletion, which only one of the servers tells; of a collection, they tell different ones.
            *version = "<version>".into();
        }
        made_up.collect(answer);
    }
    let ranks: BTreeMap<u64, usize> =
        (1..).zip(&made_up.versions).map(|(rank, version)| (*version, rank)).collect();
    for answer in &mut transcript {
        replace(answer, &ranks, &made_up.uids);
    }
    transcript
}

/// Replaces the versions of bookmarks by whether they keep their promise.
fn judge_bookmarks(answer: &mut Value) {
    let Some(events) = answer.get_mut("events").and_then(Value::as_array_mut) else { return };
    let mut newest = 0;
    for event in events {
        let is_bookmark = event["type"] == "BOOKMARK";
        let mut told = newest;
        for place in ["/object/metadata/resourceVersion", "/object/rows/0/object/metadata/resourceVersion"] {
            let Some(version) = event.pointer_mut(place) else { continue };
            let number = version.as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if is_bookmark {
                *version = if number >= newest && number > 0 { "not older" } else { "OLDER" }.into();
            }
            told = told.max(number);
        }
        newest = told;
    }
}

impl MadeUp {
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value.as_str()) {
                        ("resourceVersion", Some(text)) => self.versions.extend(text.parse::<u64>()),
                        ("uid", Some(text)) if is_uuid(text) => {
                            let next = self.uids.len() + 1;
                            self.uids.entry(text.to_owned()).or_insert(next);
                        }
                        _ => self.collect(value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

fn replace(value: &mut Value, ranks: &BTreeMap<u64, usize>, uids: &HashMap<String, usize>) {
    match value {
        Value::Object(fields) => {
            if let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) {
                let before = annotations.len();
                annotations.retain(|name, _| !matches!(name.as_str(), "kcp.io/shard" | "kcp.io/cluster"));
                if annotations.is_empty() && before > 0 {
                    fields.remove("annotations");
                }
            }
            sort(fields);
            for cell in fields.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten() {
                if cell.as_str().is_some_and(is_age) {
                    *cell = "<age>".into();
                }
            }
            for (name, value) in fields {
                match name.as_str() {
                    "continue" if value.as_str().is_some_and(|token| !token.is_empty()) => {
                        *value = "<token>".into();
                    }
                    "audit-id" if value.as_str().is_some_and(is_uuid) => *value = "<uuid>".into(),
                    "etag" if value.is_string() => *value = "<etag>".into(),
                    _ => replace(value, ranks, uids),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, ranks, uids)),
        Value::String(text) => *text = plain(text, ranks, uids),
        _ => {}
    }
}

/// The group of the types that the server itself writes.
const OWN_GROUP: &str = "cache.shardcache.dev";

/// Sorts what discovery documents list as a map happens to, without the group that is ours alone.
fn sort(fields: &mut Map<String, Value>) {
    let names: [(&str, &[&str]); 3] =
        [("resources", &["/name", "/resource"]), ("groups", &["/name"]), ("items", &["/metadata/name"])];
    let is_discovery = fields.get("kind").is_none_or(|kind| {
        kind == "APIGroupList" || kind == "APIResourceList" || kind == "APIGroupDiscoveryList"
    });
    for (field, pointers) in names.into_iter().filter(|_| is_discovery) {
        let Some(members) = fields.get_mut(field).and_then(Value::as_array_mut) else { continue };
        let name = |member: &Value| pointers.iter().find_map(|pointer| member.pointer(pointer)).cloned();
        members.retain(|member| name(member).is_none_or(|name| name != OWN_GROUP));
        members.sort_by_key(|member| name(member).map(|name| name.to_string()));
    }
}

/// Seconds, as `Table` has them in the cells of dates.
fn is_age(text: &str) -> bool {
    text.strip_suffix('s')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// A text without what its server made up.
fn plain(text: &str, ranks: &BTreeMap<u64, usize>, uids: &HashMap<String, usize>) -> String {
    if is_now(text) {
        return "<now>".to_owned();
    }
    let mut text = text.replace(PLACE, "");
    if let Some(at) = text.find("?hash=") {
        text.replace_range(at.., "?hash=<hash>");
    }
    for (uid, order) in uids {
        text = text.replace(uid.as_str(), &format!("<uid {order}>"));
    }
    if let Some((base, _)) = text.split_once("gen-").filter(|(_, suffix)| is_suffix(suffix)) {
        text = format!("{base}gen-<suffix>");
    }
    for (before, after) in [(", current: ", ""), ("too old resource version: ", " ("), (" (", ")")] {
        if let Some(at) = text.find(before).map(|at| at + before.len()) {
            let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 && text[at + digits..].starts_with(after) && text.contains("resource version") {
                text.replace_range(at..at + digits, "<version>");
            }
        }
    }
    ranked(&text, ranks)
}

/// Runs of digits that are a version the script met become its rank.
fn ranked(text: &str, ranks: &BTreeMap<u64, usize>) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        plain.push_str(&rest[..at]);
        let digits = rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        let run = &rest[at..at + digits];
        let is_word = plain.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.')
            || rest[at + digits..].starts_with(|c: char| c.is_ascii_alphabetic());
        match run.parse().ok().and_then(|number: u64| ranks.get(&number)) {
            // Small numbers are counts and codes more often than versions.
            Some(rank) if !is_word && digits >= VERSION_DIGITS => {
                plain.extend(["<version ", &rank.to_string(), ">"]);
            }
            _ => plain.push_str(run),
        }
        rest = &rest[at + digits..];
    }
    plain + rest
}

/// Fewer digits than any version of a server that has declared its types.
const VERSION_DIGITS: usize = 2;

fn is_suffix(text: &str) -> bool {
    let suffix = text.split('"').next().unwrap_or_default();
    suffix.len() == 5 && suffix.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b))
}

/// Whether this is a time of the last day or two.
fn is_now(text: &str) -> bool {
    let shape = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && bytes.iter().zip(shape).all(|(b, s)| if *s == b'0' { b.is_ascii_digit() } else { b == s });
    shaped && text[..4].parse::<u32>().is_ok_and(|year| (2026..2100).contains(&year))
}
