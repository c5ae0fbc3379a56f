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
mod measure;
mod objects;
mod origin;
mod pair;
mod reads;
mod report;
mod restart;
#[expect(dead_code, reason = "shared with benches/load, which needs more of it")]
#[path = "../load/server.rs"]
mod server;
mod verdict;
mod watchers;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use origin::Origin;
use pair::Pair;
use report::Outcome;
use verdict::{Refusal, Row};

/// A work, what it is called in the report, and how many objects of 2 KiB there are before it begins.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) objects: usize,
}

/// Works of as many objects stand together: they share the servers.
pub(crate) const WORKS: [Work; 10] = [
    Work { name: "list", title: "full LIST, 50k × 2 KiB, `resourceVersion=0`", objects: reads::OBJECTS },
    Work { name: "gzip", title: "the same, client accepts gzip", objects: reads::OBJECTS },
    Work { name: "selector", title: "LIST with a label selector that matches 1 %", objects: reads::OBJECTS },
    Work {
        name: "watch-list",
        title: "watch-list of 50k objects, 20 clients at once",
        objects: reads::OBJECTS,
    },
    Work { name: "watchers", title: "1,000 match-all watchers, 1 KiB events", objects: 0 },
    Work { name: "disjoint", title: "10k watchers on disjoint label selectors, 1 KiB events", objects: 0 },
    Work { name: "creates", title: "durable creates of 2 KiB", objects: 0 },
    Work { name: "latency", title: "500 durable writes/s of 1 KiB, one watcher", objects: 0 },
    Work { name: "memory", title: "100k × 2 KiB at rest, after a restart", objects: restart::OBJECTS },
    Work {
        name: "restart",
        title: "SIGKILL with 100k objects and 1,000 watchers",
        objects: restart::OBJECTS,
    },
];

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
    let is_known = |name: &str| name == "report" || WORKS.iter().any(|work| work.name == name);
    if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
        let names = WORKS.map(|work| work.name).join(" ");
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
    for work in WORKS.iter().filter(|work| wanted.is_empty() || wanted.iter().any(|name| name == work.name)) {
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

/// Progress, for whoever waits.
pub(crate) fn note(line: &str) {
    eprintln!("{line}");
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its report")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// What `SHARDCACHE_BENCH_SCALE` makes everything smaller by.
fn scale() -> f64 {
    std::env::var("SHARDCACHE_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

/// Whether times count.
pub(crate) fn full_scale() -> bool {
    scale() >= 1.0
}

/// A size under `SHARDCACHE_BENCH_SCALE`, at least 1.
#[expect(clippy::cast_sign_loss, reason = "sizes are never negative")]
pub(crate) fn scaled(full: usize) -> usize {
    ((full as f64 * scale().min(1.0)) as usize).max(1)
}

/// How often something is repeated within a turn: as sizes.
pub(crate) fn repetitions(full: usize) -> usize {
    scaled(full)
}

/// Rounds: one is enough to try the harness.
pub(crate) fn scaled_rounds(full: usize) -> usize {
    if full_scale() { full } else { 1 }
}
