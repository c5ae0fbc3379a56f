//! Rounds: first one server, then the other, and what the rest of the machine did meanwhile.

use std::time::{Duration, Instant};

use crate::pair::{Pair, Peer, Side};
use crate::server::{TICKS, cpu_seconds};
use crate::verdict::{FOREIGN_MAX, Refusal, quiet};
use crate::{full_scale, note};

/// How long a round waits for a quiet moment, and how long such a moment is.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(3);
const QUIET_MOMENT: Duration = Duration::from_millis(500);

/// One turn of one server: wall-clock seconds, and CPU seconds of the server's process.
pub(crate) struct Turn {
    began: Instant,
    cpu: f64,
}

impl Turn {
    pub(crate) fn begin(peer: &Peer) -> Self {
        Self { began: Instant::now(), cpu: peer.server.cpu_seconds() }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn cpu(&self, peer: &Peer) -> f64 {
        peer.server.cpu_seconds() - self.cpu
    }
}

/// The values of all rounds, by quantity: ours and theirs.
pub(crate) struct Series<const N: usize> {
    pub(crate) ours: [Vec<f64>; N],
    pub(crate) theirs: [Vec<f64>; N],
}

/// Runs `turn` for both servers in `rounds` rounds, the first one alternating. A round in which other
/// programs took too much of the machine is thrown away and repeated; as many again are, not more.
pub(crate) async fn rounds<const N: usize>(
    pair: &mut Pair,
    rounds: usize,
    mut turn: impl AsyncFnMut(&mut Peer, usize) -> Result<[f64; N], Refusal>,
) -> Result<Series<N>, Refusal> {
    let mut series = Series { ours: [const { vec![] }; N], theirs: [const { vec![] }; N] };
    let (mut kept, mut disturbed) = (0, 0);
    while kept < rounds {
        until_quiet(pair).await;
        let machine = Machine::begin();
        // The time of processes that end within the round stays theirs: `CPU` of killed servers is kept.
        let mut known = known_cpu(pair);
        let ours_first = (kept + disturbed) % 2 == 0;
        let order = if ours_first { [Side::Ours, Side::Theirs] } else { [Side::Theirs, Side::Ours] };
        let (mut ours, mut theirs) = ([0.0; N], [0.0; N]);
        for side in order {
            let number = kept + disturbed;
            match side {
                Side::Ours => ours = turn(&mut pair.ours, number).await?,
                Side::Theirs => theirs = turn(&mut pair.theirs, number).await?,
            }
        }
        known = known_cpu(pair) - known;
        let foreign = machine.foreign(known);
        note(&format!("  ours {ours:.4?}, theirs {theirs:.4?}, others {foreign:.3}"));
        if full_scale() && !quiet(foreign, disturbed, rounds)? {
            disturbed += 1;
            continue;
        }
        pair.foreign = pair.foreign.max(foreign);
        for at in 0..N {
            series.ours[at].push(ours[at]);
            series.theirs[at].push(theirs[at]);
        }
        kept += 1;
    }
    Ok(series)
}

/// Waits until other programs leave the machine alone for a moment, at most [`QUIET_WAIT_MAX`].
async fn until_quiet(pair: &Pair) {
    let began = Instant::now();
    while full_scale() && began.elapsed() < QUIET_WAIT_MAX {
        let (machine, known) = (Machine::begin(), known_cpu(pair));
        tokio::time::sleep(QUIET_MOMENT).await;
        if machine.foreign(known_cpu(pair) - known) <= FOREIGN_MAX {
            return;
        }
    }
}

/// CPU seconds that the servers and this process used so far, ended servers included.
fn known_cpu(pair: &Pair) -> f64 {
    let servers = pair.ours.server.cpu_seconds() + pair.theirs.server.cpu_seconds();
    servers + cpu_seconds("self") + ended_children()
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
