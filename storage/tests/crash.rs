//! The store on a disk that loses power, tears and reorders what was not synced, fails to sync, and
//! fills up. On every reopening: I1 (acknowledged is kept), I3 (a commit boundary), I5 (log = state).
//!
//! Run: `cargo test -p shardcache-storage --test crash`; `CRASH_ROUNDS=10000` for a long run.

#[path = "crash/disk.rs"]
mod disk;
#[path = "crash/full.rs"]
mod full;
#[path = "fixtures/objects.rs"]
mod objects;
#[path = "crash/power.rs"]
mod power;
#[path = "crash/push.rs"]
mod push;
#[path = "fixtures/pushing.rs"]
mod pushing;
#[path = "crash/sync.rs"]
mod sync;
#[path = "crash/witness.rs"]
mod witness;

use std::time::Duration;

use shardcache_storage::{QuickRepair, RedbOptions};

use crate::objects::{START_MS, opening};

/// Options for the `round`-th opening of a store on a simulated disk.
pub(crate) fn options(round: u64, quick_repair: QuickRepair) -> RedbOptions {
    RedbOptions {
        opening: opening(START_MS + round * 60_000, round.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        quick_repair,
        cache_bytes: 1 << 20,
        history_age: Duration::from_hours(1000),
        // Small, so that compaction rides along with the commits.
        history_bytes: 16 << 10,
        ..RedbOptions::new("simulated disk")
    }
}
