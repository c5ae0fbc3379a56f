//! What the stream of a type shows of its source: when it asks (`barrier`), and what an answer proves.
//!
//! Between the stream's task and the keeper of [`crate::freshness`]: nothing is asked while the copy is
//! between two states, and nothing counts before readers see the objects that it is about.

use shardcache_storage::CellName;
use tokio::time::Instant;

use super::client::Provider;
use super::server::ServerFrame;
use crate::freshness::keeper::Witness;
use crate::service::Api;

/// A barrier that a frame answers, and how the pusher came to its answer.
pub(super) type Answered = (u64, Option<Provider>);

/// What one stream shows.
pub(super) struct Vouch<'a> {
    api: &'a Api,
    witness: Witness<'a>,
    /// Whether the position holds, as of the last batch that is done.
    complete: bool,
    /// When the cell is confirmed even if nobody asks.
    confirm_at: Instant,
}

impl<'a> Vouch<'a> {
    /// A stream begins; `complete` unless a sync must come first.
    pub(super) fn new(api: &'a Api, cell: &CellName, stream: u64, complete: bool) -> Self {
        let witness = api.freshness.open(cell, stream);
        if complete {
            witness.want();
        } else {
            // What was shown of another lineage of the source says nothing of this one.
            witness.doubt();
        }
        let confirm_at = Instant::now() + api.config.freshness.confirm_interval;
        Self { api, witness, complete, confirm_at }
    }

    /// The barrier that is to be sent now, if one is.
    pub(super) fn due(&mut self) -> Option<ServerFrame> {
        let id = if self.complete { self.witness.begin()? } else { return None };
        self.confirm_at = Instant::now() + self.api.config.freshness.confirm_interval;
        self.api.metrics.freshness.barriers.inc();
        Some(ServerFrame::Barrier { id })
    }

    /// Resolves when [`Self::due`] should be asked again. Cancel safe.
    pub(super) async fn demanded(&self) {
        if self.complete {
            self.witness.demanded(self.confirm_at).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the position holds, as of the last batch that is done.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The copy is not the source.
    pub(super) fn doubt(&self) {
        self.witness.doubt();
    }

    /// A batch is done, and readers see what it has changed.
    pub(super) fn shown(&mut self, complete: bool, answered: Option<Answered>) {
        match (self.complete, complete) {
            (false, true) => {
                self.witness.want();
                self.witness.changed();
            }
            (true, false) => self.witness.doubt(),
            _ => {}
        }
        self.complete = complete;
        if complete && let Some((id, provider)) = answered {
            self.api.metrics.freshness.confirmations.inc();
            self.witness.answered(id, provider);
        }
    }
}
