//! A shard being pushed: one connection, its control stream, and a session per type, for as long as this
//! process holds the shard.

use std::sync::Arc;
use std::time::Duration;

use shardcache_proxy::push::client::{ClientFrame, Hello};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::{Election, TypeName};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::cell::{Cell, CellError, stopped};
use super::link::{Link, LinkError, Stream, Target};
use super::report::{Phase, Report};

/// How often the control stream gives a sign of life.
const SIGN_EVERY: Duration = Duration::from_secs(5);
const SIGN: ClientFrame<'static> = ClientFrame::Progress { at: None, barrier: None, provider: None };
/// Shortest and longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a hello waits for its answer.
const BEGIN_TIME: Duration = Duration::from_secs(10);
/// How long the end waits for what was sent to be durable.
const END_TIME: Duration = Duration::from_secs(10);

/// What is needed to push a shard.
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) hello: Hello,
    pub(super) report: Arc<Report>,
    /// The types.
    pub(super) cells: Vec<Cell>,
}

impl Shard {
    /// Pushes until `stop` is set, or somebody else takes over. Failures are waited out.
    pub(super) async fn run(&mut self, election: Option<Election>, stop: CancellationToken) -> CellError {
        let mut pause = PAUSE_MIN;
        // Who has won an election may take over once; afterwards it is the holder, or has lost.
        let mut takeover = election.is_some();
        self.hello.election = election;
        loop {
            let began = tokio::time::Instant::now();
            let error = match self.hold(takeover, stop.clone()).await {
                Ok(()) => return CellError::Stopped,
                Err(error @ CellError::Fenced { .. }) => return error,
                Err(error) => error,
            };
            takeover = false;
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            let rest = if let CellError::Held { wait, .. } = &error {
                // Nothing has failed: whoever holds it pushes it.
                if self.report.standing_by() {
                    tracing::info!(shard = self.name, reason = %error, "standing by");
                }
                (*wait).clamp(PAUSE_MIN, PAUSE_MAX)
            } else {
                self.report.holds(0);
                self.report.failed();
                tracing::warn!(shard = self.name, %error, pause_ms = pause.as_millis() as u64, "pushing again after a pause");
                let rest = pause;
                pause = (pause * 2).min(PAUSE_MAX);
                rest
            };
            let stopped = stop.clone();
            tokio::select! {
                () = stopped.cancelled() => return error,
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// One connection.
    async fn hold(&self, takeover: bool, stop: CancellationToken) -> Result<(), CellError> {
        let link = Link::connect(&self.target).await?;
        let stream = link.open(&self.name, None).await?;
        let hello = Hello { takeover, source: String::new(), ..self.hello.clone() };
        let types = self.cells.iter().map(|cell| cell.resource.type_name()).collect();
        let mut control = Control { stream, seq: 0 };
        let begun = tokio::select! {
            begun = tokio::time::timeout(BEGIN_TIME, control.begin(hello, types)) => begun,
            () = stop.cancelled() => return Ok(()),
        };
        let term = begun.map_err(|_| LinkError("the cache does not answer a hello".to_owned()))??;
        self.report.holds(term);
        tracing::info!(shard = self.name, term, "pushing");
        // Cells are told to end by their own signal, so that the goodbye comes last.
        let ending = CancellationToken::new();
        let mut sessions = JoinSet::new();
        for cell in self.cells.clone() {
            let (link, hello, ending) = (link.clone(), self.hello.clone(), ending.clone());
            sessions.spawn(async move { again(&cell, &link, &hello, ending).await });
        }
        let stopped = stop;
        let mut ended = tokio::select! {
            () = stopped.cancelled() => Ok(()),
            error = control.run() => Err(error),
            Some(session) = sessions.join_next() => {
                session.unwrap_or_else(|error| Err(CellError::Refused(format!("a session broke: {error}"))))
            }
        };
        ending.cancel();
        let rest = async { while sessions.join_next().await.is_some() {} };
        if tokio::time::timeout(END_TIME, rest).await.is_err() && ended.is_ok() {
            ended = Err(LinkError("what was sent last may not be durable".to_owned()).into());
        }
        if ended.is_ok() {
            control.bye().await;
        }
        ended
    }
}

/// Sessions of one type on a connection, one after the other: a source that fails, or refuses a type, is no
/// reason to give up the others.
async fn again(cell: &Cell, link: &Link, hello: &Hello, stop: CancellationToken) -> Result<(), CellError> {
    let mut pause = PAUSE_MIN;
    loop {
        let began = tokio::time::Instant::now();
        let error = match cell.session(link, hello, &stop).await {
            Ok(()) => return Ok(()),
            Err(error @ CellError::Source(_)) => {
                // It may come back as another one.
                *cell.mirror.lock() = None;
                error
            }
            Err(error @ CellError::Refused(_)) => error,
            Err(error) => return Err(error),
        };
        if stop.is_cancelled() {
            return Err(error);
        }
        cell.report.phase(&cell.resource, Phase::Waiting);
        cell.report.failed();
        if began.elapsed() > PAUSE_MAX {
            pause = PAUSE_MIN;
        }
        tracing::warn!(resource = %cell.resource, %error, "pushing the type again after a pause");
        tokio::select! {
            () = stop.cancelled() => return Err(error),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The control stream.
struct Control {
    stream: Stream,
    seq: u64,
}

impl Control {
    /// Says hello and which types there are; the term.
    async fn begin(&mut self, hello: Hello, types: Vec<TypeName>) -> Result<u64, CellError> {
        self.send(&ClientFrame::Hello(Box::new(hello))).await?;
        let term = match self.next().await? {
            ServerFrame::Welcome { term, .. } => term,
            other => return Err(stopped(other)),
        };
        self.send(&ClientFrame::Catalog(types)).await?;
        match self.next().await? {
            ServerFrame::Ack { .. } => Ok(term),
            other => Err(stopped(other)),
        }
    }

    /// Signs of life until the stream ends.
    async fn run(&mut self) -> CellError {
        let mut signs = interval(SIGN_EVERY);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let step = tokio::select! {
                _ = signs.tick() => self.send(&SIGN).await,
                frame = self.stream.input.recv() => match frame {
                    Some(Ok(ServerFrame::Ack { .. } | ServerFrame::Throttle { .. })) => Ok(()),
                    Some(Ok(other)) => return stopped(other),
                    Some(Err(error)) => Err(error),
                    None => Err(LinkError("the cache has ended the stream".to_owned())),
                },
            };
            if let Err(error) = step {
                return error.into();
            }
        }
    }

    /// Goes away in order: another replica may follow at once.
    async fn bye(&mut self) {
        if self.send(&ClientFrame::Bye).await.is_ok() {
            // The server ends the stream once it has read it.
            let ended = async { while self.stream.input.recv().await.is_some() {} };
            drop(tokio::time::timeout(SIGN_EVERY, ended).await);
        }
    }

    async fn send(&mut self, frame: &ClientFrame<'_>) -> Result<(), LinkError> {
        self.seq += 1;
        let mut line = Vec::new();
        frame.write(self.seq, &mut line);
        self.stream
            .output
            .send(line.into())
            .await
            .map_err(|_| LinkError("the cache takes no more".to_owned()))
    }

    async fn next(&mut self) -> Result<ServerFrame, LinkError> {
        let ended = || Err(LinkError("the cache has ended the stream".to_owned()));
        self.stream.input.recv().await.unwrap_or_else(ended)
    }
}
