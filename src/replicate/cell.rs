//! One type on its way from the source to the cache: lists and watches in, frames out.
//!
//! A session is one stream; it ends with an error, or when it is told to. What outlives a session is the
//! mirror, so that an up-to-date cell needs neither a list nor its objects again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use shardcache_proxy::push::client::{Hello, Sum};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::Digest;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::link::{Link, LinkError, Stream};
use super::object::{Facts, Prune};
use super::pusher::{Mirror, Pusher};
use super::report::{Phase, Report};
use super::selection::{Resource, Rule};
use super::source::{Page, Source, SourceError, WatchLine, WatchLines, watch_error};

/// How often the stream says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Pause before everything is listed again when that did not help the last time.
const RESYNC_PAUSE: Duration = Duration::from_secs(5);
/// Pause before the source is asked again after it failed.
const SOURCE_PAUSE: Duration = Duration::from_secs(1);

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
    /// What the last session left: the mirror and the version it is of.
    pub(super) mirror: Arc<Mutex<Option<(Mirror, u64)>>>,
}

/// Where the next thing from the source comes from.
enum Feed {
    /// A request that is on its way: a page of a list, or the begin of a watch.
    Asked(BoxFuture<'static, Result<Taken, SourceError>>),
    /// An open watch.
    Watch(Box<WatchLines>),
}

/// What came from the source.
enum Taken {
    Page(Page),
    Line(Bytes),
    /// The watch has ended in order.
    Ended,
    /// What the source had at a version; `None` if it does not know any more.
    Mirror(Option<Mirror>),
    Began(Box<WatchLines>),
    /// A watch that begins with everything there is.
    ListBegan(Box<WatchLines>),
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
        let mut stream = link.open(&self.shard, Some(&self.resource)).await?;
        let mut pusher = Pusher::new(hello);
        send(&mut pusher, &stream).await?;
        let welcome = next(&mut stream).await?;
        let feed = self.resume(&mut pusher, welcome).await?;
        let mut session =
            Session { cell: self, pusher, feed, kind, barrier: None, asked: None, resynced: None };
        let ended = session.run(&mut stream, stop).await;
        let Session { pusher, .. } = session;
        *self.mirror.lock() = pusher.into_mirror();
        ended
    }

    /// Where to go on: at the server's position if what it has there is what the source had, else with a
    /// list.
    async fn resume(&self, pusher: &mut Pusher, welcome: ServerFrame) -> Result<Feed, CellError> {
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
        let mirrored = match kept.filter(|(_, mirrored)| *mirrored >= position) {
            Some(mirror) => Some(mirror),
            None => self.reader().mirror_at(position).await?.map(|mirror| (mirror, position)),
        };
        match mirrored {
            // A mirror of a later version is compared with the first progress that follows it.
            Some((mirror, mirrored)) if mirrored > position || mirror.sum() == theirs => {
                pusher.resume(position, mirror, mirrored);
                Ok(watch_from(&self.source, position, Duration::ZERO))
            }
            _ => Ok(self.begin_list(pusher)),
        }
    }

    fn begin_list(&self, pusher: &mut Pusher) -> Feed {
        pusher.await_list();
        everything(&self.source, Duration::ZERO)
    }

    fn reader(&self) -> Reader {
        Reader { source: self.source.clone(), rule: self.resource.rule, cluster: self.cluster.clone() }
    }
}

/// What it takes to compare the source with what was sent.
struct Reader {
    source: Source,
    rule: Rule,
    cluster: String,
}

impl Reader {
    /// What the source had at a version; `None` if it does not know any more.
    async fn mirror_at(&self, version: u64) -> Result<Option<Mirror>, SourceError> {
        let mut mirror = Mirror::default();
        let mut token: Option<String> = None;
        loop {
            let page = match self.source.metadata_at(version, token.as_deref()).await {
                Ok(page) => page,
                // Whoever cannot list at a version lists everything.
                Err(SourceError::Expired | SourceError::Unsupported) => return Ok(None),
                Err(error) => return Err(error),
            };
            let content = page.read().map_err(SourceError::Failed)?;
            for item in content.items() {
                let facts = Facts::read(item).map_err(SourceError::Failed)?;
                if facts.is_wanted(self.rule, &self.cluster) {
                    let own = facts.version().map_err(SourceError::Failed)?;
                    mirror.put(facts.place(&self.cluster), facts.uid(), own);
                }
            }
            match content.next() {
                Some(next) => token = Some(next.to_owned()),
                None => return Ok(Some(mirror)),
            }
        }
    }
}

struct Session<'c> {
    cell: &'c Cell,
    pusher: Pusher,
    feed: Feed,
    kind: String,
    /// The barrier to be answered once the position has reached a version.
    barrier: Option<(u64, u64)>,
    /// The barrier whose version is being asked for.
    asked: Option<(u64, BoxFuture<'static, Result<u64, SourceError>>)>,
    /// When the cache asked for everything again.
    resynced: Option<Instant>,
}

impl Session<'_> {
    async fn run(&mut self, stream: &mut Stream, stop: &CancellationToken) -> Result<(), CellError> {
        let mut progress = interval(PROGRESS_EVERY);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        loop {
            if stopping && self.pusher.is_idle() && !self.pusher.has_output() {
                return Ok(());
            }
            tokio::select! {
                biased;
                frame = stream.input.recv() => {
                    let frame = frame.ok_or_else(|| LinkError("the cache has ended the stream".to_owned()))??;
                    self.told(frame)?;
                }
                permit = stream.output.reserve(), if self.pusher.has_output() => {
                    let permit = permit.map_err(|_| LinkError("the cache takes no more".to_owned()))?;
                    permit.send(self.pusher.take().into());
                }
                () = stop.cancelled(), if !stopping => stopping = true,
                _ = progress.tick() => self.pusher.progress(None),
                head = answered(&mut self.asked) => {
                    let (id, _) = self.asked.take().expect("it was answered");
                    self.barrier = Some((id, head?));
                    self.answer_barrier();
                }
                taken = take(&mut self.feed), if self.pusher.may_send() && !stopping => self.source(taken)?,
            }
        }
    }

    /// The server said something.
    fn told(&mut self, frame: ServerFrame) -> Result<(), CellError> {
        match frame {
            ServerFrame::Ack { seq, .. } => self.pusher.acked(seq),
            ServerFrame::Throttle { window } => self.pusher.set_window(window),
            ServerFrame::Barrier { id } => {
                let source = self.cell.source.clone();
                self.asked = Some((id, async move { source.head().await }.boxed()));
            }
            ServerFrame::Resync { reason } => {
                tracing::warn!(resource = %self.cell.resource, reason, "the cache asks for everything again");
                self.cell.report.resynced();
                self.feed = self.cell.begin_list(&mut self.pusher);
                // Something is wrong that a list does not mend: not in a circle without a pause.
                if self.resynced.is_some_and(|at| at.elapsed() < 2 * RESYNC_PAUSE) {
                    self.feed = everything(&self.cell.source, RESYNC_PAUSE);
                }
                self.resynced = Some(Instant::now());
            }
            other => return Err(stopped(other)),
        }
        Ok(())
    }

    fn answer_barrier(&mut self) {
        if let Some((id, head)) = self.barrier
            && !self.pusher.is_syncing()
            && self.pusher.position() >= head
        {
            self.pusher.progress(Some(id));
            self.barrier = None;
        }
    }

    /// The source said something.
    fn source(&mut self, taken: Result<Taken, SourceError>) -> Result<(), CellError> {
        match taken {
            Ok(Taken::Page(page)) => {
                self.list_begins();
                self.page(&page).map_err(SourceError::Failed)?;
            }
            Ok(Taken::ListBegan(lines)) => {
                self.list_begins();
                self.feed = Feed::Watch(lines);
            }
            Ok(Taken::Line(line)) => match self.event(&line) {
                Err(SourceError::Expired) => self.feed = self.cell.begin_list(&mut self.pusher),
                Err(error) => self.broke_off(error)?,
                Ok(()) => {}
            },
            Ok(Taken::Began(lines)) => {
                self.cell.report.phase(&self.cell.resource, Phase::Live);
                self.feed = Feed::Watch(lines);
            }
            Ok(Taken::Mirror(mirror)) if mirror.as_ref().map(Mirror::sum) == Some(self.pusher.sum()) => {
                self.feed = self.watch(Duration::ZERO);
            }
            Ok(Taken::Mirror(_)) => {
                tracing::warn!(resource = %self.cell.resource, "the source is not what it was: everything is listed");
                self.feed = self.cell.begin_list(&mut self.pusher);
            }
            Ok(Taken::Ended) if self.pusher.is_syncing() => {
                return Err(SourceError::Failed("the list broke off".to_owned()).into());
            }
            Ok(Taken::Ended) => self.feed = self.watch(Duration::ZERO),
            // A watch of a version that is gone, or a page of a list that took too long.
            Err(SourceError::Expired) => self.feed = self.cell.begin_list(&mut self.pusher),
            Err(error) => self.broke_off(error)?,
        }
        self.answer_barrier();
        Ok(())
    }

    /// The source has failed. It may come back as another one: restored from a backup, and written to since,
    /// which its versions do not show (D36). So it is asked what it had at our position.
    fn broke_off(&mut self, error: SourceError) -> Result<(), CellError> {
        // One that is behind us begins another generation with the next hello.
        if self.pusher.is_syncing() || error == SourceError::Behind {
            return Err(error.into());
        }
        tracing::warn!(resource = %self.cell.resource, %error, "the source has failed");
        self.cell.report.phase(&self.cell.resource, Phase::Waiting);
        if self.pusher.awaits_list() {
            self.feed = everything(&self.cell.source, SOURCE_PAUSE);
            return Ok(());
        }
        let (cell, position) = (self.cell.reader(), self.pusher.position());
        self.feed = Feed::Asked(
            async move {
                sleep(SOURCE_PAUSE).await;
                cell.mirror_at(position).await.map(Taken::Mirror)
            }
            .boxed(),
        );
        Ok(())
    }

    /// Something of the list is here: only now is the copy between two states.
    fn list_begins(&mut self) {
        if self.pusher.awaits_list() {
            self.pusher.sync_start();
            self.cell.report.phase(&self.cell.resource, Phase::Syncing { remaining: 0 });
        }
    }

    fn watch(&self, pause: Duration) -> Feed {
        watch_from(&self.cell.source, self.pusher.position(), pause)
    }

    fn page(&mut self, page: &Page) -> Result<(), String> {
        let content = page.read()?;
        for item in content.items() {
            let facts = Facts::read(item)?;
            self.upsert(&facts, item)?;
        }
        let resource = &self.cell.resource;
        self.cell.report.phase(resource, Phase::Syncing { remaining: content.remaining() });
        if let Some(token) = content.next() {
            self.feed = list_from(&self.cell.source, Some(token.to_owned()), Duration::ZERO);
        } else {
            self.pusher.sync_end(content.version()?);
            self.feed = self.watch(Duration::ZERO);
        }
        Ok(())
    }

    fn event(&mut self, line: &[u8]) -> Result<(), SourceError> {
        let unreadable =
            |error: serde_json::Error| SourceError::Failed(format!("an event cannot be read: {error}"));
        let WatchLine { kind, object } = serde_json::from_slice(line).map_err(unreadable)?;
        let object = object.get();
        if kind == "ERROR" {
            return Err(watch_error(object));
        }
        let facts = Facts::read(object)?;
        let version = facts.version()?;
        match &*kind {
            "BOOKMARK" if self.pusher.is_syncing() => {
                if facts.ends_initial_events() {
                    self.pusher.sync_end(version);
                    self.cell.report.phase(&self.cell.resource, Phase::Live);
                }
            }
            "BOOKMARK" => self.pusher.reached(version),
            "DELETED" => self.pusher.remove(facts.place(&self.cell.cluster), facts.uid(), version),
            "ADDED" | "MODIFIED" if facts.is_wanted(self.cell.resource.rule, &self.cell.cluster) => {
                self.upsert(&facts, object)?;
            }
            "ADDED" | "MODIFIED" => {
                self.pusher.remove(facts.place(&self.cell.cluster), facts.uid(), version);
            }
            other => {
                return Err(SourceError::Failed(format!("a watch does not have events of type {other}")));
            }
        }
        Ok(())
    }

    fn upsert(&mut self, facts: &Facts<'_>, object: &str) -> Result<(), String> {
        let cell = self.cell;
        if !facts.is_wanted(cell.resource.rule, &cell.cluster) {
            return Ok(());
        }
        let text = facts.text(object, &cell.resource.api_version(), &self.kind, cell.prune)?;
        self.pusher.upsert(facts.place(&cell.cluster), facts.uid(), facts.version()?, &text);
        cell.report.pushed(&cell.resource, text.len());
        Ok(())
    }
}

/// The next thing from the source. Cancel safe.
async fn take(feed: &mut Feed) -> Result<Taken, SourceError> {
    match feed {
        Feed::Asked(asked) => asked.await,
        Feed::Watch(lines) => match lines.next().await {
            Ok(Some(line)) => Ok(Taken::Line(line.freeze())),
            Ok(None) => Ok(Taken::Ended),
            Err(error) => Err(SourceError::Failed(error.to_string())),
        },
    }
}

/// The version asked for, if one was. Cancel safe.
async fn answered(
    asked: &mut Option<(u64, BoxFuture<'static, Result<u64, SourceError>>)>,
) -> Result<u64, SourceError> {
    match asked {
        Some((_, head)) => head.await,
        None => std::future::pending().await,
    }
}

/// Everything there is: as a watch that begins with it, else in pages.
fn everything(source: &Source, pause: Duration) -> Feed {
    let source = source.clone();
    Feed::Asked(
        async move {
            sleep(pause).await;
            match source.watch_list().await? {
                Some(lines) => Ok(Taken::ListBegan(Box::new(lines))),
                None => source.page(None).await.map(Taken::Page),
            }
        }
        .boxed(),
    )
}

fn list_from(source: &Source, token: Option<String>, pause: Duration) -> Feed {
    let source = source.clone();
    Feed::Asked(
        async move {
            sleep(pause).await;
            source.page(token.as_deref()).await.map(Taken::Page)
        }
        .boxed(),
    )
}

fn watch_from(source: &Source, version: u64, pause: Duration) -> Feed {
    let source = source.clone();
    Feed::Asked(
        async move {
            sleep(pause).await;
            source.watch(version).await.map(|lines| Taken::Began(Box::new(lines)))
        }
        .boxed(),
    )
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
            CellError::Refused(message.unwrap_or("an error without a text").to_owned())
        }
        other => CellError::Refused(format!("an unexpected frame: {other:?}")),
    }
}
