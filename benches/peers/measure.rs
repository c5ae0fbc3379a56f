//! Rounds: first one server, then the other.

use std::time::Instant;

use crate::harness::machine::undisturbed;
use crate::harness::scale::note;
use crate::harness::verdict::Refusal;
use crate::pair::{Pair, Peer, Side};

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

/// Runs `turn` for both servers in so many rounds, the first one alternating.
pub(crate) async fn rounds<const N: usize>(
    pair: &mut Pair,
    rounds: usize,
    mut turn: impl AsyncFnMut(&mut Peer, usize) -> Result<[f64; N], Refusal>,
) -> Result<Series<N>, Refusal> {
    let results = undisturbed(pair, rounds, async |pair: &mut Pair, number| {
        let order = if number % 2 == 0 { [Side::Ours, Side::Theirs] } else { [Side::Theirs, Side::Ours] };
        let (mut ours, mut theirs) = ([0.0; N], [0.0; N]);
        for side in order {
            match side {
                Side::Ours => ours = turn(&mut pair.ours, number).await?,
                Side::Theirs => theirs = turn(&mut pair.theirs, number).await?,
            }
        }
        note(&format!("  ours {ours:.4?}, theirs {theirs:.4?}"));
        Ok((ours, theirs))
    })
    .await?;
    let mut series = Series { ours: [const { vec![] }; N], theirs: [const { vec![] }; N] };
    for (ours, theirs) in results {
        for at in 0..N {
            series.ours[at].push(ours[at]);
            series.theirs[at].push(theirs[at]);
        }
    }
    Ok(series)
}
