//! The object: its content, and how it is read from the store and written to it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::json;
use shardcache_storage::{Draft, Key, Object};

use crate::ingest::{self, Assigned};
use crate::types;

/// Logical cluster of the objects, in every shard's partition.
const CLUSTER: &str = "system:shardcache";

/// `status` of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    /// The shard's role in the roster.
    pub(super) role: Cow<'static, str>,
    /// Whether somebody outside the store has said which shards there ought to be: else a shard that is not
    /// known may be missing.
    pub(super) seeded: bool,
    /// Whether the shard has said which types it pushes: else any may be missing from `types`.
    pub(super) catalogued: bool,
    /// The gravest state of its types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Cow<'static, str>>,
    /// The types it pushes, in name order.
    pub(super) types: Vec<TypeStatus>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypeStatus {
    pub(super) group: Box<str>,
    pub(super) resource: Box<str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub(super) identity: Box<str>,
    /// As D40 names it.
    pub(super) state: Cow<'static, str>,
    /// Lineage of the source; 0: nobody has pushed it yet.
    pub(super) generation: u64,
    /// Whether the copy is one state of the source, and not between two.
    pub(super) cut: bool,
    /// The lineage that was synced last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) synced_generation: u64,
    /// The uid of the shard's Lease, if that speaks for the type and nobody pushes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) vouched_by: Option<Box<str>>,
    /// A version at which that lineage was synced; absent until it was.
    #[serde(default, rename = "syncedAtRV", skip_serializing_if = "Option::is_none")]
    pub(super) synced_at: Option<Box<str>>,
}

/// A view that is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) uid: String,
    /// Its `creationTimestamp`.
    pub(super) created: String,
    pub(super) status: Status,
}

/// What is read of an object.
#[derive(Deserialize)]
struct Stored {
    metadata: Metadata,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    creation_timestamp: String,
}

impl Written {
    /// Reads an object; `None` if a server of another version wrote it in another form.
    pub(super) fn read(object: &Object) -> Option<Self> {
        let Stored { metadata, status } = serde_json::from_slice(object.body_bytes()).ok()?;
        Some(Self { uid: metadata.uid, created: metadata.creation_timestamp, status })
    }

    /// The object as it is to be stored.
    pub(super) fn draft(&self, key: &Key) -> Draft {
        let info = types::shardviews();
        let value = json!({
            "apiVersion": info.api_version(&info.storage_version),
            "kind": info.kind,
            "metadata": {"name": key.parts().name},
            "status": self.status,
        });
        let assigned = Assigned {
            uid: Some(&self.uid),
            creation_timestamp: Some(&self.created),
            generation: Some(1),
            original: None,
        };
        let object = ingest::read_value(&value).expect("an object with plain metadata");
        object
            .encode(key, assigned)
            .expect("names are short, and types fit their catalog frame, which is smaller")
    }
}

/// The key of a shard's view.
pub(super) fn key(shard: &str) -> Key {
    Key::new(shard, CLUSTER, "", shard).expect("names of shards are checked wherever they come in")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
