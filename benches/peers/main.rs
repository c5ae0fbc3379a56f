//! The same work by shardcache and by a real apiserver (`tests/reference`), one after the other and
//! interleaved, on the same disk and by the same client.
//!
//! `just bench-peers [WORK …]`, or `cargo bench -p shardcache --bench peers [-- WORK …]` with the
//! reference's binary in `SHARDCACHE_REFERENCE_BIN`. Each work's result is kept, and `docs/benchmarks/peers.md`
//! is written from those of the same binaries on the same machine (`report` does only that).
//! `SHARDCACHE_BENCH_SCALE=0.01` tries the harness: it judges no times and writes nothing.
//!
//! Exits 1 without a result when the servers' objects differ, when a client saw an error, or when the
//! machine was too noisy to tell ([`verdict`]).

#[path = "../load/client.rs"]
mod client;
mod machine;
mod measure;
mod objects;
mod origin;
mod page;
mod pair;
mod reads;
mod report;
mod restart;
mod scale;
mod seed;
#[expect(dead_code, reason = "shared with benches/load, which needs more of it")]
#[path = "../load/server.rs"]
mod server;
mod verdict;
mod watchers;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use origin::Origin;
pub(crate) use page::PAGE;
use pair::Pair;
use report::Outcome;
pub(crate) use scale::{full_scale, note, print, repetitions, scaled, scaled_rounds};
use verdict::{Refusal, Row};

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
            "SKIPPED: SHARDCACHE_REFERENCE_BIN does not name the binary of tests/reference (`just bench-peers`)",
        );
        return Ok(());
    };
    raise_open_files()?;
    let origin = Origin::gather(&reference).await?;
    // The servers are kept for the next work if it begins with the same objects.
    let mut standing: Option<(usize, Pair)> = None;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    for work in PAGE.works.iter().filter(|work| is_wanted(work.name)) {
        note(&format!("{}: {}", work.name, work.title));
        let kept = standing.take().filter(|(objects, _)| *objects == work.objects && work.objects > 0);
        let mut pair = if let Some((_, pair)) = kept {
            pair
        } else {
            let mut pair = Pair::start(reference.clone()).await?;
            if work.objects > 0 {
                pair.fill(scaled(work.objects), scaled(restart::WATCHERS)).await?;
            }
            pair
        };
        pair.foreign = 0.0;
        let rows = perform(work.name, &mut pair).await?;
        let outcome = Outcome::judged(work, rows, pair.foreign, origin.clone())?;
        print(&report::table(std::slice::from_ref(&outcome)));
        outcome.keep()?;
        standing = Some((work.objects, pair));
    }
    drop(standing);
    report::write(&origin)
}

async fn perform(work: &str, pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    match work {
        "list" => reads::list(pair).await,
        "gzip" => reads::gzip(pair).await,
        "selector" => reads::selector(pair).await,
        "watch-list" => reads::watch_list(pair).await,
        "watchers" => watchers::everything(pair).await,
        "disjoint" => watchers::disjoint(pair).await,
        "creates" => writes::creates(pair).await,
        "latency" => writes::latency(pair).await,
        "memory" => restart::memory(pair).await,
        _ => restart::restart(pair).await,
    }
}

/// Lets this process, and the servers that it starts, hold a connection for each watcher.
fn raise_open_files() -> Result<(), Refusal> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = (scaled(watchers::DISJOINT) + 1_000) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Refusal::Impossible(format!(
            "this machine allows {limit:?} open files, a connection for each watcher needs {needed}"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .map_err(|error| Refusal::Client(error.into()))
}
