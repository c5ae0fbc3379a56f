//! What a server has: at a source, in the cache, and what the cache says of it.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::wire::Server;

/// One of the types that are pushed.
#[expect(clippy::struct_field_names, reason = "Kubernetes' own word")]
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

pub(crate) const GROUP: &str = "example.io";
pub(crate) static KINDS: [Kind; 2] = [
    Kind { plural: "gadgets", kind: "Gadget", namespaced: false },
    Kind { plural: "widgets", kind: "Widget", namespaced: true },
];
/// Logical cluster that the replicator puts objects into which name none.
const CLUSTER: &str = "root";
const SHARD: &str = "kcp.io/shard";
const ORIGINAL_VERSION: &str = "cache.kcp.io/original-resource-version";
const ORIGINAL_UID: &str = "cache.kcp.io/original-resource-UID";
/// What the cache adds to objects.
const ADDED: [&str; 4] = [SHARD, "kcp.io/cluster", ORIGINAL_VERSION, ORIGINAL_UID];

/// Shard, namespace and name; without a shard at a source.
pub(crate) type Key = (String, String, String);

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) uid: String,
    /// The server's own.
    pub(crate) version: u64,
    /// The source's.
    pub(crate) source_version: u64,
    /// Everything that source and cache must agree on.
    pub(crate) content: Value,
}

/// All objects of one type.
pub(crate) type View = BTreeMap<Key, Object>;

impl Object {
    /// Takes an object apart; of a source's, `shard` says where it belongs.
    pub(crate) fn read(mut value: Value, shard: Option<&str>) -> (Key, Self) {
        let metadata = value["metadata"].as_object_mut().expect("objects have metadata");
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = metadata.remove("resourceVersion");
        let version = text(version.as_ref()).parse().expect("versions are numbers");
        let uid = text(metadata.get("uid"));
        let (mut found_in, mut source_version) = (shard.unwrap_or_default().to_owned(), version);
        if shard.is_none() {
            let annotations = metadata["annotations"].as_object_mut().expect("the cache annotates");
            found_in = text(annotations.get(SHARD));
            source_version = text(annotations.get(ORIGINAL_VERSION)).parse().expect("a number");
            assert_eq!(text(annotations.get(ORIGINAL_UID)), uid, "the uid is the source's");
            annotations.retain(|name, _| !ADDED.contains(&&**name));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        let key = (found_in, text(metadata.get("namespace")), text(metadata.get("name")));
        (key, Self { uid, version, source_version, content: value })
    }
}

/// All of a type, as a server lists it.
pub(crate) async fn list(
    server: &Server,
    place: &str,
    kind: &Kind,
    shard: Option<&str>,
    query: &str,
) -> Result<View, String> {
    let mut list = server.get(&format!("{place}/apis/{GROUP}/v1/{}{query}", kind.plural)).await?;
    let items = list["items"].take();
    let Value::Array(items) = items else { return Err(format!("{place}: a list without items")) };
    let items = items.into_iter().map(|mut item| {
        // Items of the source's typed lists have these too, but need not.
        for (name, said) in [("apiVersion", format!("{GROUP}/v1")), ("kind", kind.kind.to_owned())] {
            item[name] = said.into();
        }
        Object::read(item, shard)
    });
    Ok(items.collect())
}

/// Where the cache has what a shard, or `*`, pushed.
pub(crate) fn place(shard: &str) -> String {
    let cluster = if shard == "*" { "*" } else { CLUSTER };
    format!("/services/cache/shards/{shard}/clusters/{cluster}")
}

/// Count and digest as `docs/push-protocol.md` has them: the sum modulo 2¹²⁸ over the first 16 bytes of
/// SHA-256 over cluster, namespace, name, uid and version of each object, joined by NUL.
pub(crate) fn sum(view: &View) -> (u64, String) {
    let sum = view.iter().fold(0_u128, |sum, ((_, namespace, name), object)| {
        let entry = format!("{CLUSTER}\0{namespace}\0{name}\0{}\0{}", object.uid, object.source_version);
        let hash = Sha256::digest(entry);
        sum.wrapping_add(u128::from_be_bytes(hash[..16].try_into().expect("16 bytes")))
    });
    (view.len() as u64, format!("{sum:032x}"))
}

/// What the cache says of a shard's pusher.
pub(crate) struct Status(Value);

impl Status {
    pub(crate) async fn of(cache: &Server, shard: &str) -> Result<Self, String> {
        cache.get(&format!("/services/cache/shards/{shard}/push")).await.map(Self)
    }

    pub(crate) fn term(&self) -> u64 {
        self.0["term"].as_u64().expect("a term")
    }

    pub(crate) fn holder(&self) -> &str {
        self.0["holder"].as_str().expect("a holder")
    }

    /// Open streams of the holder: the control stream, and one of each type.
    pub(crate) fn streams(&self) -> u64 {
        self.0["streams"].as_u64().expect("a number")
    }

    fn cell(&self, kind: &Kind) -> &Value {
        let cells = self.0["cells"].as_array().expect("cells");
        cells.iter().find(|cell| cell["resource"] == kind.plural).unwrap_or(&Value::Null)
    }

    pub(crate) fn is_complete(&self, kind: &Kind) -> bool {
        self.cell(kind)["complete"] == true
    }

    pub(crate) fn sum(&self, kind: &Kind) -> (u64, String) {
        let cell = self.cell(kind);
        (cell["count"].as_u64().unwrap_or(0), cell["digest"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn position(&self, kind: &Kind) -> u64 {
        self.cell(kind)["position"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn generation(&self, kind: &Kind) -> u64 {
        self.cell(kind)["generation"].as_u64().unwrap_or(0)
    }
}
