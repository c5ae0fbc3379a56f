//! The same work by shardcache and by a real apiserver (`tests/reference`), one after the other and
//! interleaved, on the same disk and by the same client.
//!
//! `just bench-peers [WORK …]`, or `cargo bench -p shardcache --bench peers [-- WORK …]` with the
//! reference's binary in `SHARDCACHE_REFERENCE_BIN`. Each work's result is kept, and `docs/benchmarks/peers.md`
//! is written from those of the same binaries on the same machine (`report` does only that).
//! `SHARDCACHE_BENCH_SCALE=0.01` tries the harness: it judges no times and writes nothing.
//!
//! Exits 1 without a result when the servers' objects differ, when a client saw an error, or when the
//! machine was too noisy to tell (`benches/harness/verdict.rs`).

#[expect(dead_code, reason = "other benchmarks need more of it")]
#[path = "../harness/lib.rs"]
mod harness;
mod measure;
mod page;
mod pair;
mod reads;
mod restart;
mod watchers;
mod writes;

use std::path::Path;
use std::process::ExitCode;

use harness::report::{Page, Work};
use harness::run::{self, Bench};
use harness::scale::scaled;
use harness::verdict::{Refusal, Row};
use pair::Pair;

fn main() -> ExitCode {
    run::main::<Pair>()
}

impl Bench for Pair {
    const PAGE: Page = page::PAGE;

    /// The servers are kept for the next work if it begins with the same objects.
    async fn stand(reference: &Path, work: &Work, before: Option<Self>) -> Result<Self, Refusal> {
        if let Some(pair) = before.filter(|pair| pair.begins == work.objects && work.objects > 0) {
            return Ok(pair);
        }
        let mut pair = Self::start(reference.to_owned()).await?;
        pair.begins = work.objects;
        if work.objects > 0 {
            pair.fill(scaled(work.objects), scaled(restart::WATCHERS)).await?;
        }
        Ok(pair)
    }

    async fn perform(&mut self, work: &str) -> Result<Vec<Row>, Refusal> {
        match work {
            "list" => reads::list(self).await,
            "gzip" => reads::gzip(self).await,
            "selector" => reads::selector(self).await,
            "watch-list" => reads::watch_list(self).await,
            "watchers" => watchers::everything(self).await,
            "disjoint" => watchers::disjoint(self).await,
            "creates" => writes::creates(self).await,
            "latency" => writes::latency(self).await,
            "memory" => restart::memory(self).await,
            _ => restart::restart(self).await,
        }
    }
}
