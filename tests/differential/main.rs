//! The same requests to shardcache and to a real Kubernetes apiserver, and every difference accounted for.
//!
//! `scripts/` holds what is asked, in the notation of [`script`]; a script runs from an empty collection
//! against both servers ([`run`]), what is unique to a server is made comparable ([`normal`]), and the two
//! transcripts are compared leaf by leaf ([`compare`]). A difference that `docs/differences.md` does not
//! have fails, and so does a row of that table that no script meets any more ([`table`]). [`random`] makes
//! up requests of its own and shrinks those that disagree.
//!
//! The apiserver is the program in `tests/reference`; `SHARDCACHE_REFERENCE_BIN` names its binary, and
//! without it everything here is skipped with a line that says so.

mod compare;
mod normal;
mod openapi;
mod process;
mod random;
mod run;
mod script;
mod servers;
mod table;
mod watch;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::servers::Pair;
use crate::table::Table;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All scripts, by file name.
fn scripts() -> Vec<script::Script> {
    let directory = root().join("tests/differential/scripts");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("scripts are there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let only = std::env::var("SHARDCACHE_SCRIPT").unwrap_or_default();
    let parse = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("readable");
        script::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    files
        .into_iter()
        .flat_map(parse)
        .filter(|script| only.split(',').any(|only| script.name.starts_with(only)))
        .collect()
}

/// Scripts of this name wait for what comes once a minute; they run beside the others.
const SLOW: &str = "slow-";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_scripts_get_the_answers_of_a_kube_apiserver() {
    let scripts: Vec<_> = scripts().into_iter().filter(|script| script.name.starts_with(SLOW)).collect();
    if scripts.is_empty() {
        return;
    }
    let Some(pair) = Pair::start("the slow part of the differential suite").await else { return };
    let mut table = Table::read(&root().join("docs/differences.md"));
    let mut unmeant = vec![];
    for script in &scripts {
        let differences = pair.differences(script).await;
        unmeant.extend(differences.into_iter().filter(|difference| !table.covers(difference)));
    }
    pair.stop();
    assert!(unmeant.is_empty(), "differences that docs/differences.md does not have: {unmeant:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_script_gets_the_answers_of_a_kube_apiserver() {
    let Some(pair) = Pair::start("the differential suite").await else { return };
    let mut table = Table::read(&root().join("docs/differences.md"));
    let mut report = String::new();
    let scripts: Vec<_> = scripts().into_iter().filter(|script| !script.name.starts_with(SLOW)).collect();
    for script in &scripts {
        for difference in pair.differences(script).await {
            if !table.covers(&difference) {
                writeln!(report, "{difference}").expect("a string takes everything");
            }
        }
    }
    eprintln!("{} scripts, {} steps", scripts.len(), scripts.iter().map(|s| s.steps.len()).sum::<usize>());
    if std::env::var_os("SHARDCACHE_SCRIPT").is_none() {
        for row in table.unmet() {
            writeln!(report, "docs/differences.md says so, but no script meets it: {row}").expect("as above");
        }
    }
    pair.stop();
    assert!(
        report.is_empty(),
        "differences that docs/differences.md does not have, or not any more:\n{report}"
    );
}

/// Made-up scripts for `SHARDCACHE_DIFFERENTIAL_SECONDS` (default 20), from `SHARDCACHE_SEED` if it is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_requests_get_the_answers_of_a_kube_apiserver() {
    let Some(pair) = Pair::start("made-up requests").await else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seconds = number("SHARDCACHE_DIFFERENTIAL_SECONDS").unwrap_or(20);
    let seed = number("SHARDCACHE_SEED").unwrap_or_else(rand::random);
    eprintln!("SHARDCACHE_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: u32::MAX,
        failure_persistence: None,
        max_shrink_iters: 400,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let table = std::cell::RefCell::new(Table::read(&root().join("docs/differences.md")));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut ran = 0;
    let mut failure = String::new();
    // Case by case, because proptest knows no clock.
    while Instant::now() < until && failure.is_empty() {
        let tree = proptest::strategy::Strategy::new_tree(&random::cases(), &mut runner).expect("a case");
        let outcome = runner.run_one(tree, |case| {
            let text = case.script();
            let script = &script::parse(&text).unwrap_or_else(|error| panic!("{error} of\n{text}"))[0];
            let differences = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(pair.differences(script))
            });
            let unmeant = differences.into_iter().find(|difference| !table.borrow_mut().covers(difference));
            unmeant.map_or(Ok(()), |found| Err(TestCaseError::fail(format!("{found}\n{text}"))))
        });
        ran += 1;
        if let Err(error) = outcome {
            failure = error.to_string();
        }
    }
    eprintln!("{ran} made-up scripts");
    pair.stop();
    assert!(failure.is_empty(), "SHARDCACHE_SEED={seed}: {failure}");
}
