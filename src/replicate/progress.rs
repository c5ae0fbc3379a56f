//! Progress for people: a bar per type while it is synced, on a terminal; a line of log elsewhere, and one
//! status line from time to time.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio_util::task::AbortOnDropHandle;

use super::report::{Phase, Report};

/// How often bars move.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// How often there is a status line where there are no bars.
const STATUS_EVERY: Duration = Duration::from_secs(30);

/// Shows progress until it is dropped or ended.
pub(super) struct Progress {
    task: AbortOnDropHandle<()>,
    bars: Option<MultiProgress>,
}

impl Progress {
    pub(super) fn start(report: Arc<Report>, shard: &str) -> Self {
        let shard = shard.to_owned();
        let (task, bars) = if std::io::stderr().is_terminal() {
            let bars = MultiProgress::new();
            (tokio::spawn(draw(report, bars.clone(), shard)), Some(bars))
        } else {
            (tokio::spawn(log(report, shard)), None)
        };
        Self { task: AbortOnDropHandle::new(task), bars }
    }

    /// Leaves the terminal as it was.
    pub(super) fn end(self) {
        drop(self.task);
        if let Some(bars) = self.bars {
            drop(bars.clear());
        }
    }
}

async fn draw(report: Arc<Report>, all: MultiProgress, shard: String) {
    let style = |template: &str| ProgressStyle::with_template(template).expect("the template is legal");
    let status = all.add(ProgressBar::new_spinner().with_style(style("{msg}")));
    let mut bars: HashMap<String, ProgressBar> = HashMap::new();
    loop {
        let types = report.types();
        for (name, known) in &types {
            if let Phase::Syncing { remaining } = known.phase {
                let bar = bars.entry(name.clone()).or_insert_with(|| {
                    let bar = ProgressBar::new(0).with_message(name.clone());
                    all.add(bar.with_style(style("{msg:40} {bar:30} {pos}/{len} {per_sec} {eta}")))
                });
                bar.set_length(known.objects + remaining);
                bar.set_position(known.objects);
            } else if let Some(bar) = bars.remove(name) {
                bar.finish_and_clear();
            }
        }
        status.set_message(summary(&report, &shard));
        tokio::time::sleep(DRAW_EVERY).await;
    }
}

async fn log(report: Arc<Report>, shard: String) {
    let mut synced: HashMap<String, bool> = HashMap::new();
    let mut last = None;
    loop {
        for (name, known) in report.types() {
            let live = known.phase == Phase::Live;
            if live && synced.insert(name.clone(), true) != Some(true) {
                let seconds = known.since.elapsed().as_secs_f64();
                tracing::info!(shard, resource = name, objects = known.objects, seconds, "live");
            } else if !live {
                synced.insert(name, false);
            }
        }
        if last.is_none_or(|last: tokio::time::Instant| last.elapsed() >= STATUS_EVERY) {
            last = Some(tokio::time::Instant::now());
            tracing::info!("{}", summary(&report, &shard));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn summary(report: &Report, shard: &str) -> String {
    let types = report.types();
    let live = types.values().filter(|known| known.phase == Phase::Live).count();
    match report.term() {
        0 if report.stands_by() => format!("shard {shard}: standing by"),
        0 => format!("shard {shard}: not pushed by this replica yet"),
        term => format!("shard {shard}: term {term}, {live} of {} types live", types.len()),
    }
}
