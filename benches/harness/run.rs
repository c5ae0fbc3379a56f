//! A benchmark from its command line to its page: the works that are wanted, one after the other.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::machine::{Stand, allow_open_files};
use super::origin::Origin;
use super::report::{self, Outcome, Page, Work};
use super::scale::{note, print};
use super::verdict::{Refusal, Row};

/// Longest time for anything that is waited for: what takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(10);

/// A benchmark, as the servers that its works need.
pub(crate) trait Bench: Stand + Sized {
    /// What is measured.
    const PAGE: Page;

    /// What a work begins with; what the one before has left, if that can be used.
    async fn stand(reference: &Path, work: &Work, before: Option<Self>) -> Result<Self, Refusal>;

    /// Does one work of the page.
    async fn perform(&mut self, work: &str) -> Result<Vec<Row>, Refusal>;
}

/// Runs the works that the command line names, or all; without the reference's binary it says so and does
/// nothing. Exits 1 where nothing may be reported.
pub(crate) fn main<B: Bench>() -> ExitCode {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    match runtime.block_on(run::<B>(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            note(&format!("NOTHING REPORTED: {refusal}"));
            ExitCode::FAILURE
        }
    }
}

async fn run<B: Bench>(wanted: &[String]) -> Result<(), Refusal> {
    let page = &B::PAGE;
    let is_known = |name: &str| name == "report" || page.works.iter().any(|work| work.name == name);
    if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
        let names: Vec<_> = page.works.iter().map(|work| work.name).collect();
        let names = names.join(" ");
        return Err(Refusal::Impossible(format!("there is no work {unknown}; there are: {names}")));
    }
    let Some(reference) = std::env::var_os("SHARDCACHE_REFERENCE_BIN").map(PathBuf::from) else {
        note(&format!(
            "SKIPPED: SHARDCACHE_REFERENCE_BIN does not name the binary of tests/reference (`{}`)",
            page.command
        ));
        return Ok(());
    };
    allow_open_files((page.connections)())?;
    let origin = Origin::gather(&reference).await?;
    let mut standing: Option<B> = None;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    for work in page.works.iter().filter(|work| is_wanted(work.name)) {
        note(&format!("{}: {}", work.name, work.title));
        let mut stand = B::stand(&reference, work, standing.take()).await?;
        *stand.foreign() = 0.0;
        let rows = stand.perform(work.name).await?;
        let outcome = Outcome::judged(work, rows, *stand.foreign(), origin.clone())?;
        print(&report::table(page, std::slice::from_ref(&outcome)));
        outcome.keep(page)?;
        standing = Some(stand);
    }
    drop(standing);
    report::write(page, &origin)
}

/// Refuses what takes too long.
pub(crate) async fn within<T>(
    what: &str,
    waiting: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let late = || Refusal::Impossible(format!("{what}: not within {} s", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| late())?
}
