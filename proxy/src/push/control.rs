//! The control stream of a shard: which types there are, and that their pusher lives.

use bytes::BytesMut;
use http_body::Body as HttpBody;
use shardcache_storage::{Push, Pushed, Verdict};

use super::client::{self, ClientFrame};
use super::end::{End, check_seq, draining, fenced, replaced, silent};
use super::lines::{LineError, Lines};
use super::outlet::Outlet;
use super::presence::Attached;
use super::server::ServerFrame;
use crate::http::store_error;
use crate::metrics::labels::PushEnd;
use crate::service::Api;
use crate::status::ApiError;

/// The control stream of a shard.
pub(super) struct Control<'a> {
    pub(super) api: &'a Api,
    pub(super) shard: Box<str>,
    pub(super) term: u64,
    pub(super) presence: Attached<'a>,
    /// Number of the last frame.
    pub(super) seq: u64,
}

impl Control<'_> {
    /// Serves it to its end.
    pub(super) async fn run<B>(mut self, lines: &mut Lines<B>, outlet: &mut Outlet) -> End
    where
        B: HttpBody + Unpin,
        B::Error: std::fmt::Display,
    {
        let idle = self.api.config.push.idle_timeout;
        loop {
            let line = tokio::select! {
                biased;
                () = self.api.drained() => return draining(),
                holder = self.presence.fenced() => return replaced(holder),
                () = outlet.closed() => return End::Quiet(PushEnd::Gone),
                line = tokio::time::timeout(idle, lines.next()) => line,
            };
            let told = match self.frame(line).await {
                Ok(ack) => outlet.tell(&ack).await,
                Err(end) => Err(end),
            };
            if let Err(end) = told {
                return end;
            }
        }
    }

    async fn frame(
        &mut self,
        line: Result<Result<Option<BytesMut>, LineError>, tokio::time::error::Elapsed>,
    ) -> Result<ServerFrame, End> {
        let Some(line) = line.map_err(|_| silent())?? else { return Err(End::Quiet(PushEnd::Gone)) };
        self.presence.heard();
        let (seq, frame) = client::read(&line).map_err(ApiError::bad_request)?;
        self.seq += 1;
        check_seq(seq, self.seq)?;
        let version = match frame {
            ClientFrame::Catalog(types) => {
                let push = Push::Catalog { shard: self.shard.clone(), term: self.term, types };
                self.presence.reads(false);
                let pushed = self.api.store.push(push).await.map_err(|error| store_error(&error))?;
                self.presence.reads(true);
                if pushed.verdict != Verdict::Done {
                    return Err(fenced(&pushed));
                }
                self.shown(&pushed).await?;
                pushed.version
            }
            ClientFrame::Progress { at: None, barrier: None, .. } => {
                self.api.cache.snapshot().resource_version()
            }
            ClientFrame::Bye => {
                self.presence.goodbye();
                return Err(End::Quiet(PushEnd::Bye));
            }
            _ => return Err(ApiError::bad_request("type: not on a control stream").into()),
        };
        Ok(ServerFrame::Ack { seq, position: None, cache_rv: version.to_string() })
    }

    /// Waits until readers see a catalog: it has no event that would say so.
    async fn shown(&self, pushed: &Pushed) -> Result<(), ApiError> {
        let shown = self.api.cache.showing(|snapshot| {
            let seen = snapshot.state.tenure(&self.shard);
            seen.is_some_and(|seen| seen.term > self.term || seen.catalog == pushed.tenure.catalog)
        });
        tokio::time::timeout(self.api.config.request_timeout, shown)
            .await
            .map_err(|_| ApiError::timeout("the catalog is not shown yet", 1))?;
        Ok(())
    }
}
