//! What has been shown of one cell (D38, D39). Pure.
//!
//! The server notes an instant, sends a barrier, and the pusher reads the source's head after receiving
//! it. Once the pusher's progress to that head is committed, every write that the source had completed
//! before the instant is in the cache: its version is at most the head. No clock but the server's counts.
//!
//! At most one barrier runs and one waits, whatever the number of readers: a barrier that already runs began
//! before a reader came and proves nothing to it, so all who come meanwhile wait for the next one.

use std::time::Duration;

use super::clock::Instant;

/// Confirmation of one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Confirmation {
    /// Every write that the source completed before this is in the cache.
    confirmed: Option<Instant>,
    /// The open stream of the cell.
    stream: Option<u64>,
    /// When the last stream ended; `None`: there was none since the server was opened.
    lost: Option<Instant>,
    running: Option<Barrier>,
    /// The newest instant that somebody wants to be confirmed.
    wanted: Option<Instant>,
    /// Number of the last barrier.
    last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Barrier {
    id: u64,
    began: Instant,
}

/// Whether somebody pushes a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// Nobody has since the server was opened.
    Never,
    /// A stream is open.
    Open,
    /// The last stream ended so long ago.
    Lost(Duration),
}

impl Confirmation {
    /// The instant up to which the cell is confirmed.
    pub(crate) fn confirmed(&self) -> Option<Instant> {
        self.confirmed
    }

    /// Whether somebody pushes the cell.
    pub(crate) fn contact(&self, now: Instant) -> Contact {
        match (self.stream, self.lost) {
            (Some(_), _) => Contact::Open,
            (None, Some(lost)) => Contact::Lost(now.since(lost)),
            (None, None) => Contact::Never,
        }
    }

    /// A stream begins, in place of any before it. What was confirmed stays so: the past does not change.
    pub(crate) fn open(&mut self, stream: u64) {
        self.stream = Some(stream);
        self.running = None;
        self.last = 0;
    }

    /// A stream has ended; nothing if another one has begun since.
    pub(crate) fn close(&mut self, stream: u64, now: Instant) {
        if self.stream == Some(stream) {
            self.stream = None;
            self.running = None;
            self.lost = Some(now);
        }
    }

    /// Somebody wants everything before an instant, which is not in the future, to be confirmed.
    pub(crate) fn want(&mut self, instant: Instant) {
        self.wanted = self.wanted.max(Some(instant));
    }

    /// Whether a barrier is to be sent on this stream; one that was not answered for `patience` is given up.
    pub(crate) fn is_due(&self, stream: u64, now: Instant, patience: Duration) -> bool {
        let runs = self.running.is_some_and(|barrier| now.since(barrier.began) < patience);
        self.stream == Some(stream) && !runs && self.wanted > self.confirmed
    }

    /// Begins a barrier, if one is to be sent on this stream: its number, from 1 in every stream.
    pub(crate) fn begin(&mut self, stream: u64, now: Instant, patience: Duration) -> Option<u64> {
        if !self.is_due(stream, now, patience) {
            return None;
        }
        self.last += 1;
        self.running = Some(Barrier { id: self.last, began: now });
        Some(self.last)
    }

    /// Time until a barrier that runs is given up; `None`: none runs.
    pub(crate) fn gives_up_in(&self, now: Instant, patience: Duration) -> Option<Duration> {
        self.running.map(|barrier| patience.saturating_sub(now.since(barrier.began)))
    }

    /// The progress that answers a barrier is committed, and the cell was complete then.
    pub(crate) fn answered(&mut self, stream: u64, id: u64) {
        if self.stream != Some(stream) {
            return;
        }
        if let Some(barrier) = self.running.take_if(|barrier| barrier.id == id) {
            self.confirmed = self.confirmed.max(Some(barrier.began));
        }
    }

    /// The source itself has shown that it has nothing else since before an instant.
    pub(crate) fn shown(&mut self, instant: Instant) {
        self.confirmed = self.confirmed.max(Some(instant));
    }

    /// Nothing that was shown counts any more: the copy was not the source, or the clock stood still.
    pub(crate) fn doubt(&mut self) {
        self.confirmed = None;
        self.running = None;
    }
}

#[cfg(test)]
#[path = "confirmation/tests.rs"]
mod tests;
