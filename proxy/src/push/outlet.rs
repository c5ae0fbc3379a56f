//! What a stream says to its pusher: a short queue from the stream's task to the answer's body.
//!
//! The stream runs in a task of its own, because a body is only asked for more while its reader has room:
//! a pusher that does not read must not keep its stream from ending, nor from giving back what others
//! wait for. It may leave so many frames unread for [`super::PushConfig::idle_timeout`].

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::end::End;
use super::server::ServerFrame;
use crate::body::{Body, BodyError};
use crate::metrics::labels::PushEnd;
use crate::service::Api;

/// Frames that may wait to be read.
const FRAMES_MAX: usize = 64;

/// Where a stream puts its frames.
pub(crate) struct Outlet {
    api: Arc<Api>,
    to: mpsc::Sender<Bytes>,
}

/// An answer's body, and a task that fills it. Who drops the body ends the task.
pub(crate) fn body<F>(api: &Arc<Api>, stream: impl FnOnce(Outlet) -> F) -> Body
where
    F: Future<Output = ()> + Send + 'static,
{
    let (to, mut lines) = mpsc::channel(FRAMES_MAX);
    let task = tokio::spawn(stream(Outlet { api: Arc::clone(api), to }));
    Body::produced(None, async move |mut sink| {
        while let Some(line) = lines.recv().await {
            sink.send(line.into()).await;
        }
        task.await.map_err(|_| BodyError::Panicked)
    })
}

impl Outlet {
    /// Says something, once there is room.
    pub(super) async fn tell(&mut self, frame: &ServerFrame) -> Result<(), End> {
        let api = Arc::clone(&self.api);
        tokio::select! {
            biased;
            sent = self.to.send(frame.line().into()) => sent.map_err(|_| End::Quiet(PushEnd::Gone)),
            () = api.drained() => Err(End::Quiet(PushEnd::Drain)),
            () = tokio::time::sleep(api.config.push.idle_timeout) => Err(End::Quiet(PushEnd::Stalled)),
        }
    }

    /// Says the last thing, if there is room.
    pub(super) fn last(self, frame: &ServerFrame) {
        // Nobody reads it otherwise, and the stream ends all the same.
        let _ = self.to.try_send(frame.line().into());
    }

    /// Resolves when nobody is there to be told anything.
    pub(super) async fn closed(&self) {
        self.to.closed().await;
    }
}
