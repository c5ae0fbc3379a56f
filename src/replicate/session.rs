//! A stream that was welcomed: what the source has goes out, and barriers are answered.
//!
//! Owns the feed that is followed, and what may take its place. One task; everything that is decided is
//! decided in [`Pusher`] and [`Ways`].

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use shardcache_proxy::push::client::Provider;
use shardcache_proxy::push::server::ServerFrame;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::barrier::{Barrier, ROLL_TIME, Way, Ways};
use super::cell::{Cell, CellError, stopped};
use super::direct;
use super::feed::{Asked, Feed, Taken};
use super::link::{LinkError, Stream};
use super::object::Facts;
use super::pusher::{Mirror, Pusher};
use super::report::Phase;
use super::source::{Page, SourceError, WatchLine, WatchLines, watch_error};

/// How often the stream says how far it is while it moves.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// How often it does while nothing moves and no barrier is answered: the control stream says that we are
/// there, this only that the stream is, which the cache ends after a minute of silence. Looked at with the above.
const STILL_EVERY: Duration = Duration::from_secs(30);
/// Pause before everything is listed again when that did not help the last time.
const RESYNC_PAUSE: Duration = Duration::from_secs(5);
/// Pause before the source is asked again after it failed; twice as long each time, up to the longest.
const SOURCE_PAUSE: Duration = Duration::from_secs(1);
const SOURCE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A stream after its welcome.
pub(super) struct Session<'c> {
    cell: &'c Cell,
    pusher: Pusher,
    feed: Feed,
    kind: String,
    /// When the stream last said where it is.
    said: Instant,
    /// The newest barrier, until it is answered. Its answer is one to those before it.
    barrier: Option<Barrier>,
    /// The version that it asks for, while that is read.
    head: Option<BoxFuture<'static, u64>>,
    /// A bookmark that was asked for, until it should have come.
    direct: Option<BoxFuture<'static, ()>>,
    /// A watch that is being opened, to be followed in place of the feed.
    rolling: Option<Asked<WatchLines>>,
    /// The position it begins at.
    rolled_from: u64,
    /// What the source has, while its metadata are read.
    newest: Option<Asked<Option<(Mirror, u64)>>>,
    ways: Ways,
    /// When the cache asked for everything again.
    resynced: Option<Instant>,
    /// When the watch began.
    began: Instant,
    /// When the source last failed, and the pause that followed.
    paused: Option<(Instant, Duration)>,
}

impl<'c> Session<'c> {
    pub(super) fn new(cell: &'c Cell, pusher: Pusher, feed: Feed, kind: String) -> Self {
        Self {
            cell,
            pusher,
            feed,
            kind,
            said: Instant::now(),
            barrier: None,
            head: None,
            direct: None,
            rolling: None,
            rolled_from: 0,
            newest: None,
            ways: Ways::default(),
            resynced: None,
            began: Instant::now(),
            paused: None,
        }
    }

    /// What the next session goes on with.
    pub(super) fn into_mirror(self) -> Option<(Mirror, u64)> {
        self.pusher.into_mirror()
    }

    /// Until the stream ends, or all is said and `stop` is set.
    pub(super) async fn run(
        &mut self,
        stream: &mut Stream,
        stop: &CancellationToken,
    ) -> Result<(), CellError> {
        let mut progress = interval(PROGRESS_EVERY);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        loop {
            if stopping && self.pusher.is_idle() && !self.pusher.has_output() {
                return Ok(());
            }
            let is_ready = self.pusher.may_send() && !stopping;
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
                _ = progress.tick() => self.sign(),
                head = answer(&mut self.head) => self.asks_for(head)?,
                // What a watch has goes before its successor.
                taken = self.feed.take(), if is_ready => self.source(taken)?,
                () = answer(&mut self.direct), if is_ready => self.unspoken(),
                opened = answer(&mut self.rolling), if is_ready => self.rolled(opened),
                newest = answer(&mut self.newest), if is_ready => self.compare(newest),
                () = until(self.ways.patience()), if is_ready => {
                    self.ways.unhelpful(Instant::now());
                    self.confirm();
                }
            }
        }
    }

    /// The server said something.
    fn told(&mut self, frame: ServerFrame) -> Result<(), CellError> {
        match frame {
            ServerFrame::Ack { seq, .. } => self.pusher.acked(seq),
            ServerFrame::Throttle { window } => self.pusher.set_window(window),
            ServerFrame::Barrier { id } => {
                let (since, provider) = (Instant::now(), Provider::Watch);
                // What a list will replace says nothing of the source.
                let floor = if self.pusher.lists() { 0 } else { self.pusher.position() };
                self.barrier = Some(Barrier { id, since, floor, head: None, provider, is_asked: false });
                self.direct = None;
                self.head = Some(newest(self.cell));
            }
            ServerFrame::Resync { reason } => {
                tracing::warn!(resource = %self.cell.resource, reason, "the cache asks for everything again");
                self.cell.report.resynced();
                // Something is wrong that a list does not mend: not in a circle without a pause.
                let again = self.resynced.is_some_and(|at| at.elapsed() < 2 * RESYNC_PAUSE);
                self.begin_list(if again { RESYNC_PAUSE } else { Duration::ZERO });
                self.resynced = Some(Instant::now());
            }
            other => return Err(stopped(other)),
        }
        Ok(())
    }

    /// Says how far the stream is, if that is another place than before, or was long ago.
    fn sign(&mut self) {
        let is_due = self.pusher.has_moved() || self.said.elapsed() >= STILL_EVERY;
        if is_due && self.pusher.progress(None) {
            self.said = Instant::now();
        }
    }

    /// The barrier asks for this version.
    fn asks_for(&mut self, head: u64) -> Result<(), CellError> {
        if let Some(barrier) = &mut self.barrier {
            // Another source, though its watch has not broken off: the next hello begins a generation.
            if head < barrier.floor {
                return Err(SourceError::Behind.into());
            }
            barrier.head = Some(head);
            if self.ways.is_rolling() && self.pusher.position() < head {
                barrier.provider = Provider::RollingWatch;
            }
        }
        self.confirm();
        Ok(())
    }

    /// Answers the barrier if the position is there, else sees to it that it comes there.
    fn confirm(&mut self) {
        let Some(Barrier { id, since, head: Some(head), provider, .. }) = self.barrier else { return };
        if self.pusher.position() >= head && self.pusher.progress(Some((id, provider))) {
            self.said = Instant::now();
            self.cell.report.confirmed(provider, since.elapsed());
            (self.barrier, self.direct) = (None, None);
            (self.rolling, self.newest) = (None, None);
            self.ways.answered(provider, Instant::now());
            return;
        }
        // A list that is under way, or a watch that begins, goes first.
        let follows = matches!(self.feed, Feed::Watch(_)) && !self.pusher.lists();
        if !follows || self.direct.is_some() || self.rolling.is_some() || self.newest.is_some() {
            return;
        }
        if let Some(source) = &self.cell.progress
            && let Some(barrier) = self.barrier.as_mut().filter(|barrier| !barrier.is_asked)
        {
            (barrier.is_asked, barrier.provider) = (true, Provider::Direct);
            self.direct = Some(direct::ask(source, &self.cell.resource));
            return;
        }
        match self.ways.next(Instant::now()) {
            Some(Way::Roll(at)) => {
                let (source, from) = (self.cell.source.clone(), self.pusher.position());
                self.rolled_from = from;
                self.rolling = Some(
                    async move {
                        sleep_until(at).await;
                        source.watch(from, ROLL_TIME).await
                    }
                    .boxed(),
                );
            }
            Some(Way::Compare(at)) => self.newest = Some(self.cell.reader().newest(at)),
            None => {}
        }
    }

    /// The source was asked for a bookmark, and none came.
    fn unspoken(&mut self) {
        if let Some(barrier) = &mut self.barrier {
            barrier.provider = Provider::Watch;
        }
        self.confirm();
    }

    /// A rolling watch was opened. It takes the place of the one before if it begins where that one is now:
    /// so nothing comes twice, and nothing is left out.
    fn rolled(&mut self, opened: Result<WatchLines, SourceError>) {
        let now = Instant::now();
        match opened {
            // Something came meanwhile. Another one is opened, unless that was enough.
            Ok(_) if self.rolled_from != self.pusher.position() => {}
            Ok(lines) => {
                self.turn_to(Feed::Watch(Box::new(lines)));
                self.ways.rolled(now);
                if let Some(barrier) = &mut self.barrier {
                    barrier.provider = Provider::RollingWatch;
                }
            }
            // The watch that there is still knows what comes next.
            Err(SourceError::Expired) => self.ways.unhelpful(now),
            Err(error) => {
                tracing::warn!(resource = %self.cell.resource, %error, "the source cannot be watched anew");
                self.ways.failed(now);
            }
        }
        self.confirm();
    }

    /// The source's metadata are here: if they are what was sent, everything up to their version was.
    fn compare(&mut self, newest: Result<Option<(Mirror, u64)>, SourceError>) {
        let now = Instant::now();
        self.ways.compared(now);
        let resource = &self.cell.resource;
        match newest {
            // The watch knows more.
            Ok(Some((_, version))) if version < self.pusher.reaches() => {}
            Ok(Some((mirror, version))) if mirror.sum() == self.pusher.sum() => {
                self.pusher.reached(version);
                if let Some(barrier) = &mut self.barrier {
                    barrier.provider = Provider::MetadataDiff;
                }
                // Not the watch that there is: it may still have events of before, which change nothing.
                self.turn_to(Feed::watch(&self.cell.source, version, Duration::ZERO));
            }
            Ok(Some(_)) if self.ways.differs(self.pusher.position(), now) => {
                tracing::warn!(%resource, "the source's watch does not tell what the source has: everything is listed");
                self.begin_list(Duration::ZERO);
            }
            // Events are on their way, or the watch has lost some.
            Ok(Some(_)) => self.turn_to(self.watch()),
            Ok(None) => {}
            Err(error) => tracing::warn!(%resource, %error, "the source's metadata cannot be read"),
        }
        self.confirm();
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
                self.turn_to(Feed::Watch(lines));
            }
            Ok(Taken::Line(line)) => match self.event(&line) {
                Err(SourceError::Expired) => self.begin_list(Duration::ZERO),
                Err(error) => self.broke_off(error)?,
                Ok(()) => {}
            },
            Ok(Taken::Began(lines)) => {
                self.cell.report.phase(&self.cell.resource, Phase::Live);
                self.began = Instant::now();
                self.turn_to(Feed::Watch(lines));
            }
            Ok(Taken::Mirror(mirror)) if mirror.as_ref().map(Mirror::sum) == Some(self.pusher.sum()) => {
                self.turn_to(self.watch());
            }
            Ok(Taken::Mirror(_)) => {
                tracing::warn!(resource = %self.cell.resource, "the source is not what it was: everything is listed");
                self.begin_list(Duration::ZERO);
            }
            Ok(Taken::Ended) if self.pusher.is_syncing() => {
                return Err(SourceError::Failed("the list broke off".to_owned()).into());
            }
            Ok(Taken::Ended) => {
                let lasted = self.began.elapsed() >= SOURCE_PAUSE;
                let pause = if lasted { Duration::ZERO } else { self.pause() };
                self.turn_to(Feed::watch(&self.cell.source, self.pusher.position(), pause));
            }
            // A watch of a version that is gone, or a page of a list that took too long.
            Err(SourceError::Expired) => self.begin_list(Duration::ZERO),
            Err(error) => self.broke_off(error)?,
        }
        self.confirm();
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
        let pause = self.pause();
        if self.pusher.awaits_list() {
            self.turn_to(Feed::everything(&self.cell.source, pause));
            return Ok(());
        }
        let (reader, position) = (self.cell.reader(), self.pusher.position());
        self.turn_to(Feed::Asked(
            async move {
                sleep(pause).await;
                let mirror = reader.mirror(Some(position)).await?;
                Ok(Taken::Mirror(mirror.map(|(mirror, _)| mirror)))
            }
            .boxed(),
        ));
        Ok(())
    }

    /// A pause before the source is asked again: longer each time, unless it was well in between.
    fn pause(&mut self) -> Duration {
        let pause = match self.paused {
            Some((at, last)) if at.elapsed() < 4 * last => (2 * last).min(SOURCE_PAUSE_MAX),
            _ => SOURCE_PAUSE,
        };
        self.paused = Some((Instant::now(), pause));
        pause
    }

    /// Goes on with another feed. What was to take the old one's place, or to be compared with it, is off.
    fn turn_to(&mut self, feed: Feed) {
        self.feed = feed;
        self.ways.left(Instant::now());
        (self.rolling, self.newest) = (None, None);
    }

    /// The copy is not the source, or nobody knows.
    fn begin_list(&mut self, pause: Duration) {
        self.pusher.await_list();
        self.turn_to(Feed::everything(&self.cell.source, pause));
    }

    /// Something of the list is here: only now is the copy between two states.
    fn list_begins(&mut self) {
        if self.pusher.awaits_list() {
            self.pusher.sync_start();
            self.cell.report.phase(&self.cell.resource, Phase::Syncing { remaining: 0 });
        }
    }

    fn watch(&self) -> Feed {
        Feed::watch(&self.cell.source, self.pusher.position(), Duration::ZERO)
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
            self.turn_to(Feed::page(&self.cell.source, token.to_owned()));
        } else {
            self.pusher.sync_end(content.version()?);
            self.turn_to(self.watch());
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
            "BOOKMARK" => {
                self.pusher.reached(version);
                self.ways.heard(Instant::now());
            }
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

/// The source's newest version, by a read that begins now. A source that fails is asked again: whoever
/// waits for a barrier gives up by itself.
fn newest(cell: &Cell) -> BoxFuture<'static, u64> {
    let (source, resource) = (cell.source.clone(), cell.resource.clone());
    async move {
        let mut has_failed = false;
        loop {
            match source.head().await {
                Ok(head) => return head,
                Err(error) if has_failed => tracing::debug!(%resource, %error, "the source still fails"),
                Err(error) => tracing::warn!(%resource, %error, "the source does not say how far it is"),
            }
            has_failed = true;
            sleep(SOURCE_PAUSE).await;
        }
    }
    .boxed()
}

/// What was asked for, if something was. Cancel safe.
async fn answer<T>(asked: &mut Option<BoxFuture<'static, T>>) -> T {
    let answer = match asked {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    };
    *asked = None;
    answer
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
