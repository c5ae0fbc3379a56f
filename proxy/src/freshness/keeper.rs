//! The owner of what has been shown of every cell: push streams feed it, readers wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use shardcache_storage::CellName;
use tokio::sync::{Notify, watch};
use tokio::time::Instant as Deadline;

use super::FreshnessConfig;
use super::clock::{Instant, JUMP, Reading};
use super::confirmation::{Confirmation, Contact};
use super::probe::{Room, Turns};
use super::vouchers::{Renewal, Vouchers};
use crate::push::client::Provider;

/// What has been shown of every cell that is or was pushed since the server was opened.
#[derive(Debug)]
pub(crate) struct Keeper {
    config: FreshnessConfig,
    cells: DashMap<CellName, Arc<Entry>>,
    /// What shards that are not pushed have said of themselves.
    vouchers: Vouchers,
    last: Mutex<Reading>,
    room: Room,
    /// Counts how often everything was doubted.
    doubts: AtomicU64,
}

/// An instant, unless the machine stands still afterwards without knowing: then it means nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    at: Instant,
    doubts: u64,
}

impl Began {
    pub(crate) fn at(self) -> Instant {
        self.at
    }

    /// Whether the machine did not stand still between the two without knowing.
    pub(crate) fn is_comparable(self, other: Self) -> bool {
        self.doubts == other.doubts
    }
}

/// One cell.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    known: Mutex<Known>,
    /// Counts changes that may let a reader go on.
    changed: watch::Sender<u64>,
    /// Wakes the cell's stream: somebody wants a confirmation.
    demand: Notify,
}

/// What is known of a cell beside the store.
#[derive(Clone, Debug, Default)]
struct Known {
    confirmation: Confirmation,
    /// What the last answer was known by.
    evidence: Option<Evidence>,
    turns: Turns,
}

/// What it is known by that the source has nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The pusher has said so, and how it came to know.
    Pusher(Provider),
    /// The source was asked without a pusher.
    DirectProbe,
}

impl Evidence {
    /// As it is written in answers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pusher(provider) => provider.as_str(),
            Self::DirectProbe => "directProbe",
        }
    }
}

impl Known {
    /// Nothing that was shown counts any more, nor what is being shown.
    fn doubt(&mut self) {
        self.confirmation.doubt();
        self.turns.doubt();
    }
}

/// What is known of a cell at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Up to when it is confirmed.
    pub(crate) confirmed: Option<Instant>,
    /// Whether somebody pushes it.
    pub(crate) contact: Contact,
    /// What the last answer was known by.
    pub(crate) evidence: Option<Evidence>,
}

impl Shown {
    const NOTHING: Self = Self { confirmed: None, contact: Contact::Never, evidence: None };
}

impl Keeper {
    pub(crate) fn new(config: FreshnessConfig) -> Self {
        let last = Mutex::new(config.clock.read());
        Self {
            config,
            cells: DashMap::new(),
            vouchers: Vouchers::default(),
            last,
            room: Room::default(),
            doubts: AtomicU64::new(0),
        }
    }

    pub(crate) fn config(&self) -> &FreshnessConfig {
        &self.config
    }

    /// Room for direct probes.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// The time. Where it turns out that the machine stood still without knowing, nothing is confirmed any
    /// more (D44).
    pub(crate) fn now(&self) -> Instant {
        let mut last = self.last.lock();
        // Read under the lock: readings in another order would look like a jump.
        let reading = self.config.clock.read();
        let drift = reading.drift(*last);
        *last = reading;
        if drift > JUMP {
            tracing::warn!(
                ?drift,
                "the wall clock and the time since boot have moved apart: nothing counts as confirmed"
            );
            self.doubt_everything();
        }
        reading.boot
    }

    /// Every cell that is or was pushed since the server was opened, and what is known of it.
    pub(crate) fn of(&self, cell: &CellName, now: Instant) -> Shown {
        self.cells.get(cell).map_or(Shown::NOTHING, |entry| entry.shown(now))
    }

    /// The entry of a cell, to wait for.
    pub(crate) fn entry(&self, cell: &CellName) -> Arc<Entry> {
        if let Some(entry) = self.cells.get(cell) {
            return Arc::clone(&entry);
        }
        Arc::clone(&self.cells.entry(cell.clone()).or_default())
    }

    /// A stream of the cell begins.
    pub(crate) fn open(&self, cell: &CellName, stream: u64) -> Witness<'_> {
        let entry = self.entry(cell);
        self.vouchers.superseded(cell);
        entry.change(|known| known.confirmation.open(stream));
        Witness { keeper: self, entry, stream }
    }

    /// What shards that are not pushed have said of themselves.
    pub(crate) fn vouchers(&self) -> &Vouchers {
        &self.vouchers
    }

    /// Now, for something that ends later.
    pub(crate) fn begin(&self) -> Began {
        let at = self.now();
        Began { at, doubts: self.doubts.load(Ordering::SeqCst) }
    }

    /// A shard's Lease was renewed: what that shows is known, and who waits for it looks again.
    pub(crate) fn renewed(&self, shard: &str, began: Began, renewal: &Renewal) {
        // Looks at the clock before it is asked whether that stood still.
        self.now();
        if self.doubts.load(Ordering::SeqCst) != began.doubts {
            return;
        }
        self.vouchers.renewed(shard, began.at, renewal);
        // It may have stood still in between, and who noticed has found nothing to forget yet.
        if self.doubts.load(Ordering::SeqCst) != began.doubts {
            self.vouchers.distrust(shard);
        }
        for type_name in renewal.claim.written.keys() {
            if let Some(entry) = self.cells.get(&CellName::new(shard, type_name.clone())) {
                entry.change(|_| ());
            }
        }
    }

    fn doubt_everything(&self) {
        self.doubts.fetch_add(1, Ordering::SeqCst);
        self.vouchers.distrust_everybody();
        for entry in &self.cells {
            entry.change(Known::doubt);
        }
    }
}

impl Entry {
    pub(crate) fn shown(&self, now: Instant) -> Shown {
        let known = self.known.lock();
        Shown {
            confirmed: known.confirmation.confirmed(),
            contact: known.confirmation.contact(now),
            evidence: known.evidence,
        }
    }

    /// Told of whatever may let a reader go on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Wants everything before an instant to be confirmed.
    pub(crate) fn want(&self, instant: Instant) {
        self.known.lock().confirmation.want(instant);
        self.demand.notify_one();
    }

    /// Takes the turn to probe the cell, for a reader that arrived at some time and needs everything before
    /// `since`; `false` if a probe runs, or if one has ended meanwhile whose outcome is the reader's.
    pub(crate) fn begin_probe(&self, since: Instant, arrived: Instant) -> bool {
        let mut known = self.known.lock();
        let is_needed =
            known.confirmation.confirmed() < Some(since) && known.turns.refusal(arrived).is_none();
        is_needed && known.turns.begin()
    }

    /// Why a probe failed that began after the reader had arrived.
    pub(crate) fn probe_refusal(&self, arrived: Instant) -> Option<Arc<str>> {
        self.known.lock().turns.refusal(arrived)
    }

    /// The turn to probe the cell is over; without an outcome nothing was learnt.
    pub(crate) fn probed(&self, began: Instant, outcome: Option<Result<(), Arc<str>>>) {
        self.change(|known| {
            if let Some(confirmed) = known.turns.end(began, outcome) {
                known.confirmation.shown(confirmed);
                known.evidence = Some(Evidence::DirectProbe);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock());
        self.changed.send_modify(|count| *count += 1);
    }
}

/// The open stream of a cell, as far as it can show something; ends when it is dropped.
pub(crate) struct Witness<'a> {
    keeper: &'a Keeper,
    entry: Arc<Entry>,
    stream: u64,
}

impl Witness<'_> {
    /// The stream wants to be asked how far the source is.
    pub(crate) fn want(&self) {
        self.entry.want(self.keeper.now());
    }

    /// The number of the barrier that is to be sent now, if one is.
    pub(crate) fn begin(&self) -> Option<u64> {
        let now = self.keeper.now();
        let mut known = self.entry.known.lock();
        known.confirmation.begin(self.stream, now, self.keeper.config.barrier_patience)
    }

    /// Resolves when [`Self::begin`] should be asked again: somebody wants something, a barrier was not
    /// answered in time, or it is time that the cell is confirmed all the same. Cancel safe.
    pub(crate) async fn demanded(&self, anyway_at: Deadline) {
        let gives_up = {
            let now = self.keeper.now();
            self.entry.known.lock().confirmation.gives_up_in(now, self.keeper.config.barrier_patience)
        };
        let (timer, anyway) = match gives_up {
            Some(left) => (Deadline::now() + left, false),
            None => (anyway_at, true),
        };
        tokio::select! {
            () = self.entry.demand.notified() => {}
            () = tokio::time::sleep_until(timer) => if anyway {
                self.want();
            },
        }
    }

    /// The progress that answers a barrier is committed and shown, and the cell is complete.
    pub(crate) fn answered(&self, id: u64, provider: Option<Provider>) {
        self.entry.change(|known| {
            known.confirmation.answered(self.stream, id);
            known.evidence = provider.map(Evidence::Pusher).or(known.evidence);
        });
    }

    /// The copy is not the source, or the source is another one.
    pub(crate) fn doubt(&self) {
        self.entry.change(Known::doubt);
    }

    /// Something else of the cell has changed that readers wait for, such as the end of a sync.
    pub(crate) fn changed(&self) {
        self.entry.change(|_| ());
    }
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        let now = self.keeper.now();
        self.entry.change(|known| known.confirmation.close(self.stream, now));
    }
}

/// How long something is ago that readers are told of: never less than it is.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
