//! The push protocol (D30–D36): how a shard's replicator streams objects in, exactly and fenced.
//!
//! ```text
//!            lines                 frames                  storage::Push
//! pusher ──────────► lines ──────► client ──► decode ─────► session ─────► Store::push
//!        ◄────────── server ◄───────────────────────────────────┘   ack, resync, fenced, …
//! ```
//!
//! `POST /services/cache/shards/<shard>/push` is one full-duplex stream, NDJSON both ways: with a type in
//! the query it is the stream of a cell, without one the shard's control stream. `docs/push-protocol.md`
//! specifies every frame, state and error; what is here follows it. The rules themselves are the store's
//! writer's, in log order; here is what needs a clock, a socket or JSON: liveness, windows, parsing.

pub mod client;
pub mod lines;
pub mod server;

pub(crate) mod budget;
pub(crate) mod control;
pub(crate) mod decode;
pub(crate) mod end;
pub(crate) mod outlet;
pub(crate) mod presence;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod vouch;

use std::time::Duration;

/// Content type of both directions.
pub const NDJSON: &str = "application/x-ndjson";

/// Bounds and timings of push streams.
#[derive(Clone, Debug)]
pub struct PushConfig {
    /// Bytes of one line.
    pub frame_bytes_max: usize,
    /// Bytes that a pusher may have sent on one stream without an `ack`.
    pub window_bytes: usize,
    /// Bytes of frames that wait for the store, over all streams; at the bound streams wait.
    pub bytes_in_flight_max: usize,
    /// A holder of whom nothing was heard for this long may be replaced.
    pub silence: Duration,
    /// A stream on which nothing was heard for this long ends, and one whose pusher does not read what it
    /// is told for as long.
    pub idle_timeout: Duration,
    /// Shortest time between two takeovers of one shard.
    pub takeover_interval: Duration,
    /// Most push streams; one more is answered 429.
    pub streams_max: usize,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            frame_bytes_max: 3 << 20,
            window_bytes: 8 << 20,
            bytes_in_flight_max: 64 << 20,
            silence: Duration::from_secs(15),
            idle_timeout: Duration::from_mins(1),
            takeover_interval: Duration::from_secs(5),
            streams_max: 100_000,
        }
    }
}
