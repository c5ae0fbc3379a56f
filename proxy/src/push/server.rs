//! Frames of the server: writing them, and reading them for those who push.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One frame of the server.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ServerFrame {
    /// The answer to `hello`: where to resume. On the control stream only `term` and `window`.
    Welcome {
        /// The holder's term.
        term: u64,
        /// Bytes that may be sent without an ack.
        window: u64,
        /// Generation of the source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        r#gen: Option<u64>,
        /// Source version up to which the cell is complete; absent if a sync is needed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<String>,
        /// Whether the cell needs a sync.
        #[serde(default)]
        need_sync: bool,
        /// Why it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Number of objects in the cell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
        /// Their digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// Everything up to `seq` is durable.
    Ack {
        /// Number of a frame of the pusher.
        seq: u64,
        /// Source version up to which the cell is complete, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<String>,
        /// The cache's version that contains it.
        #[serde(rename = "cacheRV")]
        cache_rv: String,
    },
    /// Read the source's head now, and answer with `progress` that names this barrier.
    Barrier {
        /// Number of the barrier.
        id: u64,
    },
    /// The cell needs a sync.
    Resync {
        /// Why.
        reason: String,
    },
    /// Somebody else holds the shard; the stream ends.
    Fenced {
        /// The holder's term.
        term: u64,
        /// The holder.
        holder: String,
    },
    /// From now on so many bytes may be sent without an ack.
    Throttle {
        /// Bytes.
        window: u64,
    },
    /// Something is wrong; the stream ends.
    Error {
        /// A Kubernetes `Status`.
        status: Value,
    },
}

impl ServerFrame {
    /// The frame as a line.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("writing to memory cannot fail");
        line.push(b'\n');
        line
    }

    /// Reads a line.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("not a frame of a server: {error}"))
    }
}
