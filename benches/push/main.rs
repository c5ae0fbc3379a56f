//! The push protocol and the replicator, each number beside what bounds it: bare redb, the source's own
//! API server and its watch, one fsync.
//!
//! `just bench-push [WORK …]`, or `cargo bench -p shardcache --bench push [-- WORK …]` with the binary of
//! `tests/reference` in `SHARDCACHE_REFERENCE_BIN`: it is the source. Each work's result is kept, and
//! `docs/benchmarks/push.md` is written from those of the same binaries on the same machine (`report` does
//! only that). `SHARDCACHE_BENCH_SCALE=0.01` tries the harness: it judges no times and writes nothing.
//!
//! Exits 1 without a result when the cache's objects are not the source's, when a client saw an error, or
//! when the machine was too noisy to tell ([`verdict`]).

mod bare;
#[expect(dead_code, reason = "shared with benches/load and benches/peers, which need more of it")]
#[path = "../load/client.rs"]
mod client;
mod initial;
#[path = "../peers/machine.rs"]
mod machine;
#[path = "../peers/objects.rs"]
mod objects;
#[path = "../peers/origin.rs"]
mod origin;
mod page;
mod pusher;
mod reconnect;
mod replicator;
#[path = "../peers/report.rs"]
mod report;
#[path = "../peers/scale.rs"]
mod scale;
#[path = "../peers/seed.rs"]
mod seed;
#[expect(dead_code, reason = "as above")]
#[path = "../load/server.rs"]
mod server;
mod stand;
mod steady;
mod tap;
#[path = "../peers/verdict.rs"]
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use origin::Origin;
pub(crate) use page::PAGE;
use report::Outcome;
pub(crate) use scale::{full_scale, note, print, repetitions, scaled, scaled_rounds};
use stand::Stand;
use verdict::{Refusal, Row};

/// The server's own, so that bare redb has it as well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    match runtime.block_on(run(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            note(&format!("NOTHING REPORTED: {refusal}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(wanted: &[String]) -> Result<(), Refusal> {
    let is_known = |name: &str| name == "report" || PAGE.works.iter().any(|work| work.name == name);
    if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
        let names: Vec<_> = PAGE.works.iter().map(|work| work.name).collect();
        let names = names.join(" ");
        return Err(Refusal::Impossible(format!("there is no work {unknown}; there are: {names}")));
    }
    let Some(reference) = std::env::var_os("SHARDCACHE_REFERENCE_BIN").map(PathBuf::from) else {
        note(
            "SKIPPED: SHARDCACHE_REFERENCE_BIN does not name the binary of tests/reference (`just bench-push`)",
        );
        return Ok(());
    };
    let origin = Origin::gather(&reference).await?;
    // The source is kept for the next work that begins with as many objects.
    let mut standing: Option<Stand> = None;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    for work in PAGE.works.iter().filter(|work| is_wanted(work.name)) {
        note(&format!("{}: {}", work.name, work.title));
        let objects = if work.objects > 0 { scaled(work.objects) } else { 0 };
        let kept = standing.take().filter(|stand| objects > 0 && stand.filled == objects);
        let mut stand = match kept {
            Some(stand) => stand,
            None => Stand::start(&reference, objects).await?,
        };
        stand.foreign = 0.0;
        let rows = perform(work.name, &mut stand).await?;
        let outcome = Outcome::judged(work, rows, stand.foreign, origin.clone())?;
        print(&report::table(std::slice::from_ref(&outcome)));
        outcome.keep()?;
        stand.end_pushing();
        standing = Some(stand);
    }
    drop(standing);
    report::write(&origin)
}

async fn perform(work: &str, stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    match work {
        "push" => initial::initial(stand).await,
        "reconnect" => reconnect::reconnect(stand).await,
        "replicator" => replicator::replicator(stand).await,
        _ => steady::steady(stand).await,
    }
}
