//! The push protocol and the replicator, each number beside what bounds it: bare redb, the source's own
//! API server and its watch, one fsync.
//!
//! `just bench-push [WORK …]`, or `cargo bench -p shardcache --bench push [-- WORK …]` with the binary of
//! `tests/reference` in `SHARDCACHE_REFERENCE_BIN`: it is the source. Each work's result is kept, and
//! `docs/benchmarks/push.md` is written from those of the same binaries on the same machine (`report` does
//! only that). `SHARDCACHE_BENCH_SCALE=0.01` tries the harness: it judges no times and writes nothing.
//!
//! Exits 1 without a result when the cache's objects are not the source's, when a client saw an error, or
//! when the machine was too noisy to tell (`benches/harness/verdict.rs`).

mod bare;
#[expect(dead_code, reason = "other benchmarks need more of it")]
#[path = "../harness/lib.rs"]
mod harness;
mod initial;
mod page;
mod pusher;
mod reconnect;
mod replicator;
mod stand;
mod steady;
mod tap;

use std::path::Path;
use std::process::ExitCode;

use harness::report::{Page, Work};
use harness::run::{self, Bench};
use harness::scale::scaled;
use harness::verdict::{Refusal, Row};
use stand::Stand;

/// The server's own, so that bare redb has it as well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run::main::<Stand>()
}

impl Bench for Stand {
    const PAGE: Page = page::PAGE;

    /// The source is kept for the next work that begins with as many objects.
    async fn stand(reference: &Path, work: &Work, before: Option<Self>) -> Result<Self, Refusal> {
        let objects = if work.objects > 0 { scaled(work.objects) } else { 0 };
        match before.filter(|stand| objects > 0 && stand.filled == objects) {
            Some(mut stand) => {
                stand.end_pushing();
                Ok(stand)
            }
            None => Self::start(reference, objects).await,
        }
    }

    async fn perform(&mut self, work: &str) -> Result<Vec<Row>, Refusal> {
        match work {
            "push" => initial::initial(self).await,
            "reconnect" => reconnect::reconnect(self).await,
            "replicator" => replicator::replicator(self).await,
            _ => steady::steady(self).await,
        }
    }
}
