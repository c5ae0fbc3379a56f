//! One push stream, from its hello to its end.
//!
//! Owns the stream's place in the protocol: the next `seq`, the frames that wait, the batches that are
//! with the store. Reads only while the pusher's window and the server's budget allow it, so a slow store
//! slows pushers and nobody else. Ends when the pusher says `bye` or goes away, when a rule is broken, when
//! somebody else holds the shard, when nothing is heard for [`super::PushConfig::idle_timeout`], or when
//! the server drains.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use http_body::Body as HttpBody;
use shardcache_storage::{
    Attach, CellName, Frames, Op, Open, Push, Pushed, PushedType, SessionEnd, StorageError, Tally, Verdict,
};
use tokio::time::{Instant, timeout_at};

use super::budget::Part;
use super::client::{self, ClientFrame, Hello};
use super::control::Control;
use super::decode::{self, CellType};
use super::end::{End, check_seq, draining, fenced, replaced, silent};
use super::lines::Lines;
use super::outlet::Outlet;
use super::presence::Attached;
use super::server::ServerFrame;
use super::vouch::{Answered, Vouch};
use crate::http::limits::Share;
use crate::http::store_error;
use crate::metrics::labels::{FrameOutcome, PushEnd};
use crate::service::Api;
use crate::status::ApiError;

/// Batches of one stream that may be with the store.
const BATCHES_MAX: usize = 4;

/// What a stream is of.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// The shard.
    Control {
        /// Its name.
        shard: Box<str>,
    },
    /// One type of it.
    Cell {
        /// The shard.
        shard: Box<str>,
        /// The type.
        type_name: shardcache_storage::TypeName,
        /// Version of the objects that will come.
        version: String,
    },
}

impl Subject {
    fn shard(&self) -> &str {
        match self {
            Self::Control { shard } | Self::Cell { shard, .. } => shard,
        }
    }
}

/// Serves a stream whose sender may write for the shard.
pub(crate) async fn serve<B>(api: Arc<Api>, subject: Subject, body: B, mut outlet: Outlet, _share: Share)
where
    B: HttpBody + Unpin,
    B::Error: std::fmt::Display,
{
    let mut lines = Lines::new(body, api.config.push.frame_bytes_max);
    let end = match begin(&api, &subject, &mut lines, &mut outlet).await {
        Ok(Begun::Control(control)) => control.run(&mut lines, &mut outlet).await,
        Ok(Begun::Cell(session)) => session.run(&mut lines, &mut outlet).await,
        Err(end) => end,
    };
    let (reason, last) = match end {
        End::Quiet(reason) => (reason, None),
        End::Told(reason, frame) => (reason, Some(frame)),
    };
    api.metrics.push.ends.get_or_create(&reason.into()).inc();
    if let Some(frame) = last {
        tracing::info!(shard = subject.shard(), reason = reason.as_str(), ?frame, "a push stream ends");
        outlet.last(&frame);
    }
}

enum Begun<'a> {
    Control(Control<'a>),
    Cell(Box<Session<'a>>),
}

/// The hello: who pushes, whether it may, and where it goes on.
async fn begin<'a, B>(
    api: &'a Arc<Api>,
    subject: &Subject,
    lines: &mut Lines<B>,
    outlet: &mut Outlet,
) -> Result<Begun<'a>, End>
where
    B: HttpBody + Unpin,
    B::Error: std::fmt::Display,
{
    let config = &api.config.push;
    let first = tokio::select! {
        biased;
        () = api.drained() => return Err(draining()),
        () = outlet.closed() => return Err(End::Quiet(PushEnd::Gone)),
        first = tokio::time::timeout(config.silence, lines.next()) => first.map_err(|_| silent())??,
    };
    let Some(first) = first else { return Err(End::Quiet(PushEnd::Gone)) };
    let (seq, frame) = client::read(&first).map_err(ApiError::bad_request)?;
    let ClientFrame::Hello(hello) = frame else {
        return Err(ApiError::bad_request("type: the first frame of a stream is a hello").into());
    };
    check_seq(seq, 1)?;
    // Before anything is taken from the holder that there is.
    let cell = hello_of(api, subject, &hello)?;
    let shard = subject.shard();
    let mut tenure = api.cache.snapshot().state.tenure(shard).cloned().unwrap_or_default();
    let (attached, replaceable) = loop {
        let replaceable = api.presence.replaceable(shard, &tenure, hello.takeover, config);
        let attach = Attach {
            shard: shard.into(),
            holder: hello.holder.as_str().into(),
            instance: hello.instance.as_str().into(),
            election: hello.election.clone(),
            replaces: replaceable.ok(),
        };
        let attached = api.store.push(Push::Attach(attach)).await.map_err(|error| store_error(&error))?;
        // The snapshot was behind what the writer judged by: the question was about an older holder.
        if attached.verdict == Verdict::Held && attached.tenure.term > tenure.term {
            tenure = attached.tenure;
            continue;
        }
        break (attached, replaceable);
    };
    let term = attached.tenure.term;
    match attached.verdict {
        Verdict::Held => {
            let holder = &attached.tenure.holder;
            let wait = replaceable.err().unwrap_or(config.silence).as_millis().div_ceil(1000).max(1);
            let message = format!(
                "shard {shard} is held by {holder}; it may be replaced in {wait} s if nothing is heard"
            );
            let mut error = ApiError::new(409, "Conflict", message);
            error.details.retry_after_seconds = wait as u32;
            return Err(error.into());
        }
        Verdict::Fenced => return Err(fenced(&attached)),
        _ => {}
    }
    let presence = api.presence.attach(shard, &attached.tenure, hello.takeover && term > tenure.term);
    let (begun, welcome) = if let Some(cell) = cell {
        open(api, cell, &hello, term, presence).await?
    } else {
        let welcome = ServerFrame::Welcome {
            term,
            window: config.window_bytes as u64,
            r#gen: None,
            position: None,
            need_sync: false,
            reason: None,
            count: None,
            digest: None,
        };
        (Begun::Control(Control { api, shard: shard.into(), term, presence, seq: 1 }), welcome)
    };
    outlet.tell(&welcome).await?;
    Ok(begun)
}

/// Whether a hello says what its stream needs; the type of a type's stream.
fn hello_of(api: &Api, subject: &Subject, hello: &Hello) -> Result<Option<CellType>, ApiError> {
    let Subject::Cell { shard, type_name, version } = subject else { return Ok(None) };
    if hello.source.is_empty() {
        return Err(ApiError::bad_request("source: is required on the stream of a type"));
    }
    CellType::agreed(&api.cache.snapshot().types, shard, type_name, version, hello).map(Some)
}

async fn open<'a>(
    api: &'a Arc<Api>,
    cell: CellType,
    hello: &Hello,
    term: u64,
    mut presence: Attached<'a>,
) -> Result<(Begun<'a>, ServerFrame), End> {
    let name = CellName::new(&cell.shard, cell.name.clone());
    let described = PushedType {
        version: cell.version.as_str().into(),
        kind: cell.kind.as_str().into(),
        namespaced: cell.namespaced,
    };
    let source = hello.source.as_str().into();
    let open = Open { cell: name.clone(), term, source, source_head: hello.source_head, described };
    presence.reads(false);
    let opened = api.store.push(Push::Open(open)).await.map_err(|error| store_error(&error))?;
    let reason = match &opened.verdict {
        Verdict::Done => None,
        Verdict::Resync(reason) => Some(reason.to_string()),
        _ => return Err(fenced(&opened)),
    };
    let known = opened.cell.clone().unwrap_or_default();
    let window = api.config.push.window_bytes;
    let welcome = ServerFrame::Welcome {
        term,
        window: window as u64,
        r#gen: Some(known.generation),
        position: reason.is_none().then(|| known.position.to_string()),
        need_sync: reason.is_some(),
        reason: reason.clone(),
        count: Some(known.count),
        digest: Some(known.digest.to_string()),
    };
    let counted = Counted::new(api);
    let vouch = Vouch::new(api, &name, opened.session, reason.is_none());
    let session = Session {
        api,
        cell,
        name,
        term,
        number: opened.session,
        ended: opened.ended,
        presence,
        seq: 1,
        window,
        unacked: 0,
        waiting: Batch::default(),
        running: FuturesOrdered::new(),
        sent: VecDeque::new(),
        vouch,
        quiet_since: Instant::now(),
        _counted: counted,
    };
    Ok((Begun::Cell(Box::new(session)), welcome))
}

/// The stream of a cell.
struct Session<'a> {
    api: &'a Api,
    cell: CellType,
    name: CellName,
    term: u64,
    /// Number of the session at the writer.
    number: u64,
    /// Its end there, until it has come.
    ended: Option<SessionEnd>,
    presence: Attached<'a>,
    /// Number of the last frame.
    seq: u64,
    window: usize,
    /// Bytes of frames that no ack has told of.
    unacked: usize,
    waiting: Batch,
    running: FuturesOrdered<BoxFuture<'static, Result<Pushed, StorageError>>>,
    /// What is with the store, in order.
    sent: VecDeque<Sent>,
    /// What the stream shows of the source.
    vouch: Vouch<'a>,
    /// Since when nothing was heard, nor done for the pusher.
    quiet_since: Instant,
    /// The last field: who counts no stream finds that what it showed has ended, too.
    _counted: Counted<'a>,
}

/// Counts an open stream.
struct Counted<'a>(&'a Api);

impl<'a> Counted<'a> {
    fn new(api: &'a Api) -> Self {
        api.metrics.push.sessions.inc();
        Self(api)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.metrics.push.sessions.dec();
    }
}

/// Frames that are about to be handed to the store.
#[derive(Default)]
struct Batch {
    /// Number of the first frame.
    begins: u64,
    ops: Vec<Op>,
    bytes: usize,
    /// The last of them, if it ends a sync: nothing follows it before it is done.
    sync_end: Option<Op>,
    /// The last barrier that one of them answers.
    answers: Option<Answered>,
}

/// A batch that is with the store.
#[derive(Default)]
struct Sent {
    /// Number of the first frame, and of the last.
    begins: u64,
    seq: u64,
    bytes: usize,
    /// To be asked for again while the store has not removed everything.
    sync_end: Option<Op>,
    /// The barrier that it answers.
    answers: Option<Answered>,
    /// Its part of the server's budget.
    _room: Option<Part>,
}

impl Drop for Session<'_> {
    /// However the stream ends, so does its session at the writer: a first sync that broke off gives the
    /// type back to ordinary writers. Queued by the call itself; nobody waits for the answer.
    fn drop(&mut self) {
        drop(self.api.store.push(Push::Close { cell: self.name.clone(), session: self.number }));
    }
}

impl Session<'_> {
    async fn run<B>(mut self, lines: &mut Lines<B>, outlet: &mut Outlet) -> End
    where
        B: HttpBody + Unpin,
        B::Error: std::fmt::Display,
    {
        loop {
            if let Err(end) = self.turn(lines, outlet).await {
                return end;
            }
        }
    }

    /// Does the next thing there is to do.
    async fn turn<B>(&mut self, lines: &mut Lines<B>, outlet: &mut Outlet) -> Result<(), End>
    where
        B: HttpBody + Unpin,
        B::Error: std::fmt::Display,
    {
        if let Some(barrier) = self.vouch.due() {
            outlet.tell(&barrier).await?;
        }
        let sweeps = self.sent.back().is_some_and(|sent| sent.sync_end.is_some());
        let full = self.api.config.push.window_bytes;
        let reads = self.running.len() < BATCHES_MAX && self.unacked < self.window && !sweeps;
        self.presence.reads(reads);
        tokio::select! {
            biased;
            () = self.api.drained() => Err(draining()),
            holder = self.presence.fenced() => Err(replaced(holder)),
            () = outlet.closed() => Err(End::Quiet(PushEnd::Gone)),
            Some(done) = self.running.next(), if !self.running.is_empty() => self.done(done, outlet).await,
            () = over(&mut self.ended) => {
                // Why, the writer says to who asks.
                self.ended = None;
                self.sent.push_back(Sent::default());
                self.submit(Vec::new());
                Ok(())
            }
            () = self.api.push_budget.relieved(), if self.window < full => self.set_window(full, outlet).await,
            () = self.vouch.demanded() => Ok(()),
            line = timeout_at(self.quiet_since + self.api.config.push.idle_timeout, lines.next()), if reads => {
                match line.map_err(|_| silent())?? {
                    Some(line) => self.take(&line, lines, outlet).await,
                    None => Err(End::Quiet(PushEnd::Gone)),
                }
            }
        }
    }

    /// Takes a line and all others that are here already, and hands them over.
    async fn take<B>(&mut self, line: &[u8], lines: &mut Lines<B>, outlet: &mut Outlet) -> Result<(), End>
    where
        B: HttpBody + Unpin,
        B::Error: std::fmt::Display,
    {
        self.presence.heard();
        self.quiet_since = Instant::now();
        let mut wrong = self.add(line).err();
        while wrong.is_none() && self.waiting.sync_end.is_none() && !self.is_full() {
            match lines.buffered() {
                Ok(Some(line)) => wrong = self.add(&line).err(),
                Ok(None) => break,
                Err(error) => wrong = Some(error.into()),
            }
        }
        // What came before the frame that is wrong, or the goodbye, is still done.
        self.hand_over(outlet).await?;
        let Some(end) = wrong else { return Ok(()) };
        while let Some(done) = self.running.next().await {
            self.done(done, outlet).await?;
        }
        Err(end)
    }

    fn is_full(&self) -> bool {
        decode::is_full(self.waiting.ops.len(), self.waiting.bytes, &self.api.config.push)
    }

    /// Adds one frame to the batch.
    fn add(&mut self, line: &[u8]) -> Result<(), End> {
        let (seq, frame) = client::read(line).map_err(ApiError::bad_request)?;
        check_seq(seq, self.seq + 1)?;
        let op = match frame {
            ClientFrame::Upsert(upsert) => self.cell.upsert(&upsert)?,
            ClientFrame::Delete(delete) => self.cell.delete(&delete)?,
            ClientFrame::SyncStart { sync } => Op::SyncStart { sync },
            ClientFrame::SyncEnd { sync, version, sum, allow_empty } => {
                let op = Op::SyncEnd { sync, version, count: sum.count, digest: sum.digest, allow_empty };
                self.waiting.sync_end = Some(op.clone());
                op
            }
            ClientFrame::Progress { at: Some((version, sum)), barrier, provider } => {
                self.waiting.answers = barrier.map(|id| (id, provider)).or(self.waiting.answers);
                Op::Progress { version, count: sum.count, digest: sum.digest }
            }
            ClientFrame::Progress { at: None, .. } => {
                return Err(ApiError::bad_request("rv: is required on the stream of a type").into());
            }
            ClientFrame::Bye => {
                self.seq = seq;
                return Err(End::Quiet(PushEnd::Bye));
            }
            ClientFrame::Hello(_) | ClientFrame::Catalog(_) => {
                return Err(ApiError::bad_request("type: not here on the stream of a type").into());
            }
        };
        self.seq = seq;
        if self.waiting.ops.is_empty() {
            self.waiting.begins = seq;
        }
        self.waiting.bytes += line.len() + 1;
        self.waiting.ops.push(op);
        self.api.metrics.push.bytes.inc_by(line.len() as u64);
        Ok(())
    }

    async fn hand_over(&mut self, outlet: &mut Outlet) -> Result<(), End> {
        let Batch { begins, ops, bytes, sync_end, answers } = std::mem::take(&mut self.waiting);
        if ops.is_empty() {
            return Ok(());
        }
        if let Some((position, version)) = self.is_known(&ops) {
            let ack = ServerFrame::Ack { seq: self.seq, position: Some(position), cache_rv: version };
            outlet.tell(&ack).await?;
            self.vouch.shown(true, answers);
            return Ok(());
        }
        let room = self.room(bytes, outlet).await?;
        self.unacked += bytes;
        self.sent.push_back(Sent { begins, seq: self.seq, bytes, sync_end, answers, _room: Some(room) });
        self.submit(ops);
        Ok(())
    }

    /// The position and the cache's version, if all that is said is what readers see already: that the source
    /// stands still. The writer would change nothing, and is not asked: idle types are many, and say so often.
    ///
    /// That the shard is still its pusher's, and the stream the cell's, is known as of the state that is shown;
    /// who comes after that cannot tell this from an answer that came a moment earlier.
    fn is_known(&self, ops: &[Op]) -> Option<(String, String)> {
        let [Op::Progress { version, count, digest }] = ops else { return None };
        let snapshot = self.api.cache.snapshot();
        let cell = snapshot.state.cell(&self.name).filter(|cell| cell.is_managed() && cell.cut)?;
        let is_same = (cell.position, cell.count, cell.digest) == (*version, *count, *digest);
        let holds = snapshot.state.tenure(self.name.shard()).is_some_and(|tenure| tenure.term == self.term);
        // What is with the store may end otherwise, and a sync may be due that the state does not tell of yet.
        let is_idle = self.running.is_empty() && self.sent.is_empty() && self.vouch.is_complete();
        (is_same && holds && is_idle)
            .then(|| (cell.position.to_string(), snapshot.resource_version().to_string()))
    }

    /// A part of the server's budget for what waits; the pusher is told to slow down if it has to wait.
    async fn room(&mut self, bytes: usize, outlet: &mut Outlet) -> Result<Part, End> {
        let budget = Arc::clone(&self.api.push_budget);
        if let Some(room) = budget.try_take(bytes) {
            return Ok(room);
        }
        self.api.metrics.push.throttled.inc();
        let config = &self.api.config.push;
        let less = (self.window / 2).max(config.frame_bytes_max.min(config.window_bytes));
        if less < self.window {
            self.set_window(less, outlet).await?;
        }
        self.presence.reads(false);
        let mut waiting = pin!(budget.take(bytes));
        loop {
            // Batches that are done give their parts back: who waits and holds on to them would wait for
            // others who do the same.
            tokio::select! {
                biased;
                () = self.api.drained() => return Err(draining()),
                holder = self.presence.fenced() => return Err(replaced(holder)),
                () = outlet.closed() => return Err(End::Quiet(PushEnd::Gone)),
                Some(done) = self.running.next(), if !self.running.is_empty() => self.done(done, outlet).await?,
                room = &mut waiting => return Ok(room),
            }
        }
    }

    async fn set_window(&mut self, bytes: usize, outlet: &mut Outlet) -> Result<(), End> {
        self.window = bytes;
        outlet.tell(&ServerFrame::Throttle { window: bytes as u64 }).await
    }

    fn submit(&mut self, ops: Vec<Op>) {
        let frames =
            Frames { cell: self.name.clone(), term: self.term, session: self.number, ops, now_ms: now_ms() };
        self.running.push_back(self.api.store.push(Push::Frames(frames)));
    }

    /// The store has done the oldest batch.
    async fn done(&mut self, done: Result<Pushed, StorageError>, outlet: &mut Outlet) -> Result<(), End> {
        let pushed = done.map_err(|error| store_error(&error))?;
        self.quiet_since = Instant::now();
        self.count(&pushed.tally);
        if pushed.verdict == Verdict::Sweeping
            && let Some(op) = self.sent.front().and_then(|sent| sent.sync_end.clone())
        {
            // The same again, until nothing is left to be removed; its batch stays the oldest.
            self.submit(vec![op]);
            return Ok(());
        }
        let sent = self.sent.pop_front().expect("as many as are running");
        self.unacked -= sent.bytes;
        match &pushed.verdict {
            Verdict::Fenced | Verdict::Held => return Err(fenced(&pushed)),
            Verdict::Superseded => {
                let error = ApiError::new(
                    409,
                    "Conflict",
                    "another stream of this type has begun, or it was released",
                );
                return Err(End::Told(PushEnd::Superseded, ServerFrame::Error { status: error.status() }));
            }
            Verdict::Broken(problem) => {
                if pushed.done > 0 {
                    ack(self.api, sent.begins + pushed.done as u64 - 1, &pushed, outlet).await?;
                }
                return Err(ApiError::bad_request(&**problem).into());
            }
            Verdict::Resync(reason) => {
                self.api.metrics.push.resyncs.inc();
                self.vouch.doubt();
                tracing::warn!(cell = ?self.name, %reason, "the copy is not the source: it is synced again");
                outlet.tell(&ServerFrame::Resync { reason: reason.to_string() }).await?;
            }
            Verdict::Done | Verdict::Sweeping => {}
        }
        ack(self.api, sent.seq, &pushed, outlet).await?;
        let complete = pushed.cell.as_ref().is_some_and(|cell| cell.cut);
        self.vouch.shown(complete, sent.answers.filter(|_| pushed.verdict == Verdict::Done));
        Ok(())
    }

    fn count(&self, tally: &Tally) {
        let Tally { put, deleted, unchanged, duplicate, stale, ignored } = *tally;
        for (outcome, count) in [
            (FrameOutcome::Put, put),
            (FrameOutcome::Deleted, deleted),
            (FrameOutcome::Unchanged, unchanged),
            (FrameOutcome::Duplicate, duplicate),
            (FrameOutcome::Stale, stale),
            (FrameOutcome::Ignored, ignored),
        ] {
            self.api.metrics.push.frames.get_or_create(&outcome.into()).inc_by(count);
        }
    }
}

/// Resolves when a session has ended at the writer and nobody knows yet.
async fn over(end: &mut Option<SessionEnd>) {
    match end {
        Some(end) => end.ended().await,
        None => std::future::pending().await,
    }
}

/// Says that every frame up to one is done.
async fn ack(api: &Api, seq: u64, pushed: &Pushed, outlet: &mut Outlet) -> Result<(), End> {
    // As after an ordinary write, who lists from now on sees it.
    let shown = api.cache.published(pushed.version.revision());
    tokio::time::timeout(api.config.request_timeout, shown)
        .await
        .map_err(|_| ApiError::timeout("what was pushed is not shown yet", 1))?;
    let complete = pushed.cell.as_ref().filter(|cell| cell.cut);
    let position = complete.map(|cell| cell.position.to_string());
    outlet.tell(&ServerFrame::Ack { seq, position, cache_rv: pushed.version.to_string() }).await
}

#[expect(clippy::disallowed_methods, reason = "the end of a sync is noted for people, by the wall clock")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}
