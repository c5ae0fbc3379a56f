//! Freshness and completeness (D37–D44): how current an answer is, whether it can be the whole, and what is
//! said where it is neither.
//!
//! ```text
//!            want(t)              barrier                  progress, committed
//! reader ────────────► keeper ─────────────► push::session ────────────────────► keeper ──► reader
//!  (admit)             (one per cell)                                                        │
//!                                                      snapshot afterwards: the answer  ◄────┘
//! ```
//!
//! - [`level`] is what was asked for, in the query, a header, the path or by the server's settings.
//! - `confirmation` is the pure machine of one cell: what has been shown of it, by whom, up to when.
//! - `keeper` owns one for each cell, and the clock; push streams feed it, readers wait for it.
//! - [`probe`] asks the source itself where there is no pusher to be asked.
//! - `lease` is what a shard that is not pushed says of itself, `vouchers` owns when it said so.
//! - `standing` is D40's table: in which state a cell is, as store and keeper know it together.
//! - `view` sums cells up for the scope of an answer: complete or not, how old, who is missing.
//! - `admit` lets a read through, makes it wait, or refuses it (D41).
//! - [`shardview`] writes what is known of each shard as an object, for informers.
//! - `report` says all that in the headers of an answer, `document` at `/services/cache/freshness`, `measure`
//!   in metrics and readiness.
//!
//! Rules that hold everywhere: an age is never below the true one; heartbeats prove nothing; stale data is
//! served with its age, absent data is refused and never shown as empty.

pub mod clock;
pub mod level;
pub mod probe;
pub mod shardview;

pub(crate) mod admit;
pub(crate) mod confirmation;
pub(crate) mod document;
pub(crate) mod keeper;
pub(crate) mod lease;
pub(crate) mod measure;
pub(crate) mod report;
pub(crate) mod standing;
pub(crate) mod view;
pub(crate) mod vouchers;

use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use level::Level;
use probe::DirectProbe;

/// How fresh answers are by default, and how long one is waited for.
#[derive(Clone, Debug)]
pub struct FreshnessConfig {
    /// What a read of one shard gets that says nothing of its version.
    pub unset_concrete: Level,
    /// The same for a read of all shards.
    pub unset_wildcard: Level,
    /// Longest time a read waits for confirmation; the client's own timeout may be shorter.
    pub patience: Duration,
    /// A cell that nobody asked about is confirmed this often while its pusher lives; at least 1 s.
    pub confirm_interval: Duration,
    /// Age above which a cell that is being pushed is `Lagging`.
    pub lagging_after: Duration,
    /// Time after the end of a stream in which the pusher may come back before the cell is `Disconnected`.
    pub disconnected_after: Duration,
    /// Time for the answer to a barrier, after which another one is tried.
    pub barrier_patience: Duration,
    /// Asks shards themselves whose pushers are gone, if that is wanted.
    pub direct_probe: Option<Arc<dyn DirectProbe>>,
    /// Age of any cell that was synced above which the server calls itself not ready; `None`: none.
    pub staleness_max: Option<Duration>,
    /// Whether every cell is measured by itself, not only every shard.
    pub measures_cells: bool,
    /// The two clocks that ages are measured by.
    pub clock: Clock,
}

impl Default for FreshnessConfig {
    fn default() -> Self {
        Self {
            unset_concrete: Level::Source,
            unset_wildcard: Level::Store,
            patience: Duration::from_secs(3),
            confirm_interval: Duration::from_mins(1),
            lagging_after: Duration::from_secs(90),
            disconnected_after: Duration::from_secs(15),
            barrier_patience: Duration::from_secs(10),
            direct_probe: None,
            staleness_max: None,
            measures_cells: false,
            clock: Clock::system(),
        }
    }
}
