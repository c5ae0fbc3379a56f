//! One type on its way from the source to the cache: lists and watches in, frames out.
//!
//! A session is one stream; it ends with an error, or when it is told to. What outlives a session is the
//! mirror, so that an up-to-date cell needs neither a list nor its objects again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shardcache_proxy::push::client::{Hello, Sum};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::Digest;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::compare::Reader;
use super::direct::RequestProgress;
use super::feed::Feed;
use super::link::{Link, LinkError, Stream};
use super::object::Prune;
use super::pusher::{Mirror, Pusher};
use super::report::{Phase, Report};
use super::selection::Resource;
use super::session::Session;
use super::source::{Source, SourceError};

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CellError {
    /// The source does not answer.
    #[error("source: {0}")]
    Source(#[from] SourceError),
    /// The cache cannot be reached, or has closed the stream.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// Somebody else pushes the shard.
    #[error("{holder} pushes the shard in term {term}")]
    Fenced {
        /// Its term.
        term: u64,
        /// Its name.
        holder: String,
    },
    /// Somebody else holds the shard, and is heard.
    #[error("{message}")]
    Held {
        /// By whom, as the cache says it.
        message: String,
        /// How long it may not be replaced.
        wait: Duration,
    },
    /// It was told to end.
    #[error("it was told to end")]
    Stopped,
    /// The cache refuses what is pushed.
    #[error("the cache: {0}")]
    Refused(String),
}

/// What is pushed where. Clones share the mirror; only one of them pushes at a time.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) shard: String,
    pub(super) cluster: String,
    pub(super) resource: Resource,
    pub(super) source: Source,
    pub(super) prune: Prune,
    pub(super) report: Arc<Report>,
    /// Turns of the types to compare their metadata.
    pub(super) turns: Arc<Semaphore>,
    /// The source, if it says on demand how far its watches are.
    pub(super) progress: Option<Arc<dyn RequestProgress>>,
    /// What the last session left: the mirror and the version it is of.
    pub(super) mirror: Arc<Mutex<Option<(Mirror, u64)>>>,
}

impl Cell {
    /// One stream, from its hello on; ends in order when `stop` is set.
    pub(super) async fn session(
        &self,
        link: &Link,
        hello: &Hello,
        stop: &CancellationToken,
    ) -> Result<(), CellError> {
        self.report.phase(&self.resource, Phase::Connecting);
        let (kind, namespaced) = self.source.describe().await?;
        let source_head = self.source.head().await?;
        let hello = Hello {
            source_head,
            kind: Some(kind.clone()),
            namespaced: Some(namespaced),
            takeover: false,
            ..hello.clone()
        };
        let stream = link.open(&self.shard, Some(&self.resource)).await?;
        self.converse(stream, hello, kind, stop).await
    }

    /// The same on a stream that was opened.
    pub(super) async fn converse(
        &self,
        mut stream: Stream,
        hello: Hello,
        kind: String,
        stop: &CancellationToken,
    ) -> Result<(), CellError> {
        let source_head = hello.source_head;
        let mut pusher = Pusher::new(hello);
        send(&mut pusher, &stream).await?;
        let welcome = next(&mut stream).await?;
        let feed = self.resume(&mut pusher, source_head, welcome).await?;
        let mut session = Session::new(self, pusher, feed, kind);
        let ended = session.run(&mut stream, stop).await;
        *self.mirror.lock() = session.into_mirror();
        ended
    }

    /// Where to go on: at the server's position if what it has there is what the source had, else with a
    /// list.
    async fn resume(
        &self,
        pusher: &mut Pusher,
        source_head: u64,
        welcome: ServerFrame,
    ) -> Result<Feed, CellError> {
        let ServerFrame::Welcome { window, position, need_sync, count, digest, .. } = welcome else {
            return Err(stopped(welcome));
        };
        pusher.set_window(window);
        let position = position.as_deref().and_then(|position| position.parse::<u64>().ok());
        let Some(position) = position.filter(|_| !need_sync) else { return Ok(self.begin_list(pusher)) };
        let theirs = Sum {
            count: count.unwrap_or_default(),
            digest: digest.and_then(|digest| digest.parse().ok()).unwrap_or_else(Digest::default),
        };
        let kept = self.mirror.lock().take();
        // A mirror of a version that the source has not come to is of another source.
        let mirrored = match kept.filter(|(_, mirrored)| (position..=source_head).contains(mirrored)) {
            Some(mirror) => Some(mirror),
            None => self.reader().mirror(Some(position)).await?.map(|(mirror, _)| (mirror, position)),
        };
        if let Some((mirror, mirrored)) = mirrored
            && pusher.resume(position, theirs, mirror, mirrored)
        {
            return Ok(Feed::watch(&self.source, pusher.position(), Duration::ZERO));
        }
        Ok(self.begin_list(pusher))
    }

    pub(super) fn begin_list(&self, pusher: &mut Pusher) -> Feed {
        pusher.await_list();
        Feed::everything(&self.source, Duration::ZERO)
    }

    pub(super) fn reader(&self) -> Reader {
        Reader {
            source: self.source.clone(),
            rule: self.resource.rule,
            cluster: self.cluster.clone(),
            turns: Arc::clone(&self.turns),
        }
    }
}

async fn send(pusher: &mut Pusher, stream: &Stream) -> Result<(), LinkError> {
    let bytes = pusher.take().into();
    stream.output.send(bytes).await.map_err(|_| LinkError("the cache takes no more".to_owned()))
}

async fn next(stream: &mut Stream) -> Result<ServerFrame, LinkError> {
    stream.input.recv().await.unwrap_or_else(|| Err(LinkError("the cache has ended the stream".to_owned())))
}

/// What a frame that ends a stream means.
pub(super) fn stopped(frame: ServerFrame) -> CellError {
    match frame {
        ServerFrame::Fenced { term, holder } => CellError::Fenced { term, holder },
        ServerFrame::Error { status } => {
            let message = status.get("message").and_then(|message| message.as_str());
            let message = message.unwrap_or("an error without a text").to_owned();
            let code = status.get("code").and_then(serde_json::Value::as_u64);
            let wait = status.pointer("/details/retryAfterSeconds").and_then(serde_json::Value::as_u64);
            match wait.filter(|_| code == Some(409)) {
                Some(seconds) => CellError::Held { message, wait: Duration::from_secs(seconds) },
                None => CellError::Refused(message),
            }
        }
        other => CellError::Refused(format!("an unexpected frame: {other:?}")),
    }
}
