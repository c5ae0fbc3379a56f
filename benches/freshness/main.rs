//! What freshness costs: a read that is bounded in its staleness, one that the source has to confirm, 1,000 of
//! those at once, and 20,000 cells that stay confirmed while nothing happens.
//!
//! `just bench-freshness [WORK …]`, or `cargo bench -p shardcache --bench freshness [-- WORK …]` with the
//! binary of `tests/reference` in `SHARDCACHE_REFERENCE_BIN`: it is the source. Each work's result is kept,
//! and `docs/benchmarks/freshness.md` is written from those of the same binaries on the same machine (`report`
//! does only that). `SHARDCACHE_BENCH_SCALE=0.01` tries the harness: it judges no times and writes nothing.
//!
//! Exits 1 without a result when an answer is not what its level promises, when a client saw an error, or
//! when the machine was too noisy to tell (`benches/harness/verdict.rs`).

mod confirmed;
mod direct;
#[expect(dead_code, reason = "other benchmarks need more of it")]
#[path = "../harness/lib.rs"]
mod harness;
mod herd;
mod idle;
mod page;
mod pairs;
mod shards;
mod source;
mod stand;

use std::path::Path;
use std::process::ExitCode;

use harness::report::{Page, Work};
use harness::run::{self, Bench};
use harness::verdict::{Refusal, Row};
use stand::Stand;

fn main() -> ExitCode {
    run::main::<Stand>()
}

impl Bench for Stand {
    const PAGE: Page = page::PAGE;

    async fn stand(reference: &Path, _work: &Work, _before: Option<Self>) -> Result<Self, Refusal> {
        Self::new(reference)
    }

    async fn perform(&mut self, work: &str) -> Result<Vec<Row>, Refusal> {
        match work {
            "confirmed" => confirmed::confirmed(self).await,
            "source" => source::source(self).await,
            "herd" => herd::herd(self).await,
            _ => idle::idle(self).await,
        }
    }
}
