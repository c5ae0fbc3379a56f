//! The wire of a pusher: one HTTP/2 connection, and streams of frames on it.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use shardcache_proxy::push::client::{ClientFrame, Hello};
use shardcache_proxy::push::lines::Lines;
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::TypeName;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::verdict::Refusal;

/// Pieces that wait for the connection.
const PIECES_WAITING: usize = 8;
/// Bytes of one frame of the server.
const LINE_MAX: usize = 1 << 20;

type RequestBody = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A connection; ends with its last stream.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: http2::SendRequest<RequestBody>,
    shard: String,
}

/// What the server says on a stream.
pub(crate) struct Frames(Lines<Incoming>);

/// An open push stream.
pub(crate) struct Stream {
    pub(crate) to: mpsc::Sender<Bytes>,
    pub(crate) from: Frames,
    /// Number of the last frame that [`Self::say`] sent.
    seq: u64,
}

impl Connection {
    /// For the streams of a shard.
    pub(crate) async fn open(address: SocketAddr, shard: &str) -> Result<Self, Refusal> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| broken(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, shard: shard.to_owned() })
    }

    /// The control stream of a pusher, its catalog told and acknowledged.
    pub(crate) async fn control(&mut self, hello: Hello, types: Vec<TypeName>) -> Result<Stream, Refusal> {
        let mut control = self.stream("").await?;
        control.say(&ClientFrame::Hello(Box::new(hello))).await?;
        control.welcome().await?;
        control.say(&ClientFrame::Catalog(types)).await?;
        control.hear().await?;
        Ok(control)
    }

    /// A stream; of a type, if the query says which.
    pub(crate) async fn stream(&mut self, query: &str) -> Result<Stream, Refusal> {
        let (to, pieces) = mpsc::channel::<Bytes>(PIECES_WAITING);
        let pieces = futures::stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            Some((Ok(Frame::data(piece)), pieces))
        });
        let path = push_path(&self.shard);
        let request = Request::post(format!("http://localhost{path}{query}"))
            .body(StreamBody::new(pieces.boxed()))
            .map_err(|error| broken(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| broken(&error))?;
        if response.status() != 200 {
            return Err(broken(&format!("{query}: {}", response.status())));
        }
        Ok(Stream { to, from: Frames(Lines::new(response.into_body(), LINE_MAX)), seq: 0 })
    }
}

impl Frames {
    /// The next frame. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<ServerFrame, Refusal> {
        let line = self.0.next().await;
        let line = line.map_err(|error| broken(&error))?.ok_or_else(ended)?;
        ServerFrame::read(&line).map_err(|error| broken(&error))
    }
}

impl Stream {
    /// Sends the next frame; its number.
    pub(crate) async fn say(&mut self, frame: &ClientFrame<'_>) -> Result<u64, Refusal> {
        let mut line = vec![];
        self.seq += 1;
        frame.write(self.seq, &mut line);
        self.to.send(line.into()).await.map_err(|_| ended())?;
        Ok(self.seq)
    }

    /// The next frame of the server. Cancel safe.
    pub(crate) async fn hear(&mut self) -> Result<ServerFrame, Refusal> {
        self.from.next().await
    }

    /// The window that is granted.
    pub(crate) async fn welcome(&mut self) -> Result<usize, Refusal> {
        match self.hear().await? {
            ServerFrame::Welcome { window, .. } => Ok(window as usize),
            other => Err(unexpected(&other)),
        }
    }
}

/// Where a shard is pushed, and where its status is.
pub(crate) fn push_path(shard: &str) -> String {
    format!("/services/cache/shards/{shard}/push")
}

pub(crate) fn unexpected(frame: &ServerFrame) -> Refusal {
    broken(&format!("the server said {frame:?}"))
}

pub(crate) fn ended() -> Refusal {
    broken(&"the server ended the stream")
}

fn broken(problem: &dyn std::fmt::Display) -> Refusal {
    Refusal::Client(std::io::Error::other(format!("push: {problem}")))
}
