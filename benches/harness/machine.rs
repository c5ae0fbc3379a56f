//! The rest of the machine: rounds that others disturbed do not count.

use std::time::{Duration, Instant};

use super::scale::{full_scale, note};
use super::server::{TICKS, cpu_seconds};
use super::verdict::{FOREIGN_MAX, Refusal, quiet};

/// How long a round waits for a quiet moment, and how long such a moment is.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(3);
const QUIET_MOMENT: Duration = Duration::from_millis(500);
/// Memory is settled when it moves less than this part in a second.
const SETTLED: f64 = 0.005;
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// The servers of a work.
pub(crate) trait Stand {
    /// CPU seconds that those which run used so far.
    fn cpu_seconds(&self) -> f64;
    /// The most of the machine that other programs took in a round that counts.
    fn foreign(&mut self) -> &mut f64;
}

/// Runs `round` so often. One in which other programs took too much of the machine is thrown away and
/// repeated; as many again are, not more.
pub(crate) async fn undisturbed<S: Stand, T>(
    stand: &mut S,
    rounds: usize,
    mut round: impl AsyncFnMut(&mut S, usize) -> Result<T, Refusal>,
) -> Result<Vec<T>, Refusal> {
    let (mut kept, mut disturbed) = (vec![], 0);
    while kept.len() < rounds {
        let number = kept.len() + disturbed;
        let (value, foreign) = observed(stand, async |stand: &mut S| round(stand, number).await).await?;
        if full_scale() && !quiet(foreign, disturbed, rounds)? {
            disturbed += 1;
            continue;
        }
        *stand.foreign() = stand.foreign().max(foreign);
        kept.push(value);
    }
    Ok(kept)
}

/// Runs something at a quiet moment; what it gives, and the part of the machine that other programs took.
pub(crate) async fn observed<S: Stand, T>(
    stand: &mut S,
    work: impl AsyncFnOnce(&mut S) -> Result<T, Refusal>,
) -> Result<(T, f64), Refusal> {
    until_quiet(stand).await;
    // The time of processes that end meanwhile stays theirs: that of children is kept.
    let (machine, known) = (Machine::begin(), known_cpu(stand));
    let value = work(stand).await?;
    let foreign = machine.foreign(known_cpu(stand) - known);
    note(&format!("  others {foreign:.3}"));
    Ok((value, foreign))
}

/// Waits until other programs leave the machine alone for a moment, at most [`QUIET_WAIT_MAX`].
async fn until_quiet(stand: &impl Stand) {
    let began = Instant::now();
    while full_scale() && began.elapsed() < QUIET_WAIT_MAX {
        let (machine, known) = (Machine::begin(), known_cpu(stand));
        tokio::time::sleep(QUIET_MOMENT).await;
        if machine.foreign(known_cpu(stand) - known) <= FOREIGN_MAX {
            return;
        }
    }
}

/// A number of bytes once it does not move any more, or after half a minute.
pub(crate) async fn settled(read: impl Fn() -> u64) -> u64 {
    let began = Instant::now();
    let mut before = read();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = read();
        let moved = now.abs_diff(before) as f64 / before.max(1) as f64;
        if moved < SETTLED || began.elapsed() > SETTLE_MAX || !full_scale() {
            return now;
        }
        before = now;
    }
}

/// CPU seconds that the servers and this process used so far, ended servers included.
fn known_cpu(stand: &impl Stand) -> f64 {
    stand.cpu_seconds() + cpu_seconds("self") + ended_children()
}

/// CPU seconds of children that ended and were waited for.
fn ended_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / TICKS
}

/// The whole machine since a moment.
struct Machine {
    began: Instant,
    busy: f64,
}

impl Machine {
    fn begin() -> Self {
        Self { began: Instant::now(), busy: busy_seconds() }
    }

    /// The part of all cores' time that went neither to `known` nor to idling.
    fn foreign(&self, known: f64) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let all = self.began.elapsed().as_secs_f64() * cores;
        ((busy_seconds() - self.busy - known) / all).max(0.0)
    }
}

/// Seconds that the cores worked for programs or that the hypervisor took from them, summed. Interrupts
/// are left out: those of the loopback are the load itself.
fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let at = |index: usize| ticks.get(index).copied().unwrap_or(f64::NAN);
    (at(0) + at(1) + at(2) + at(7)) / TICKS
}

/// Lets this process, and the servers that it starts, hold so many connections.
pub(crate) fn allow_open_files(connections: usize) -> Result<(), Refusal> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// What is open beside them.
    const OTHERS: usize = 1_000;
    let needed = (connections + OTHERS) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Refusal::Impossible(format!(
            "this machine allows {limit:?} open files, {connections} connections need {needed}"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .map_err(|error| Refusal::Client(error.into()))
}
