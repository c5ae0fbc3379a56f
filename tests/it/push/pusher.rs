//! Push streams of a test: over one HTTP/2 connection with prior knowledge, or in process.

use std::pin::Pin;

use bytes::{Buf, Bytes, BytesMut};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use http::Request;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use shardcache_proxy::access::Access;
use shardcache_proxy::metrics::labels::PushEnd;
use shardcache_proxy::service::ProxyService;
use tokio::net::TcpStream;
use tower::ServiceExt;

use super::schema::{From, valid};
use super::source::{Source, control_path};
use crate::stand::Stand;
use crate::wire::{PATIENCE, Wire, within};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Lines =
    StreamBody<futures::stream::Map<UnboundedReceiver<Bytes>, fn(Bytes) -> Result<Frame<Bytes>, Failure>>>;

/// A way to open push streams. Cheap to clone.
#[derive(Clone)]
pub(super) enum Door {
    Http2(SendRequest<Lines>),
    InProcess(ProxyService),
}

/// A push stream that was answered 200.
pub(super) struct Pusher {
    /// `None` once the request has ended.
    to: Option<UnboundedSender<Bytes>>,
    from: Pin<Box<dyn Body<Data = Bytes, Error = Failure> + Send>>,
    buffer: BytesMut,
    seq: u64,
    pub(super) bytes_sent: usize,
}

impl Door {
    /// A connection of its own.
    pub(super) async fn http2(stand: &Stand) -> Self {
        Self::narrow(stand, None).await
    }

    /// The same, on which a stream that is not read takes so many bytes.
    pub(super) async fn narrow(stand: &Stand, window: Option<u32>) -> Self {
        Self::at(stand.base().strip_prefix("http://").expect("plain HTTP"), window).await
    }

    /// The same at another address, of which the server is behind.
    pub(super) async fn at(address: &str, window: Option<u32>) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        let connecting = builder.handshake(TokioIo::new(stream));
        let (sender, connection) = connecting.await.expect("HTTP/2 is spoken");
        // Ends with the last stream, or with the server.
        tokio::spawn(connection.map(drop));
        Self::Http2(sender)
    }

    /// Through a socket, and around it.
    pub(super) async fn both(stand: &Stand) -> [Self; 2] {
        [Self::http2(stand).await, Self::InProcess(stand.service())]
    }

    /// Begins a stream; the answer, if it is none.
    pub(super) async fn begin(&self, path: &str) -> Result<Pusher, (u16, Value)> {
        let (to, lines) = unbounded();
        let framed: fn(Bytes) -> Result<Frame<Bytes>, Failure> = |line| Ok(Frame::data(line));
        let request = Request::post(format!("http://localhost{path}"));
        let mut request = request.body(StreamBody::new(lines.map(framed))).expect("a legal request");
        let (status, from): (_, Pin<Box<dyn Body<Data = Bytes, Error = Failure> + Send>>) = match self {
            Self::Http2(sender) => {
                let answer = sender.clone().send_request(request);
                let (head, body) = within(answer).await.expect("answered").into_parts();
                (head.status, Box::pin(body.map_err(Failure::from)))
            }
            Self::InProcess(service) => {
                request.extensions_mut().insert(Access::internal());
                let answer = within(service.clone().oneshot(request)).await;
                let (head, body) = answer.unwrap_or_else(|never| match never {}).into_parts();
                let copy = |mut rope: shardcache_proxy::body::Rope| rope.copy_to_bytes(rope.remaining());
                (
                    head.status,
                    Box::pin(body.map_frame(move |frame| frame.map_data(copy)).map_err(Failure::from)),
                )
            }
        };
        if status == 200 {
            return Ok(Pusher { to: Some(to), from, buffer: BytesMut::new(), seq: 0, bytes_sent: 0 });
        }
        drop(to);
        let body = from.collect().await.expect("it ends").to_bytes();
        Err((status.as_u16(), serde_json::from_slice(&body).expect("a Status")))
    }

    /// A stream that begins with this hello; `welcome`, or what came instead.
    pub(super) async fn open(&self, path: &str, hello: Value) -> (Pusher, Value) {
        let mut pusher = self.begin(path).await.expect("it is a stream");
        pusher.send(hello);
        let welcome = pusher.read().await;
        (pusher, welcome)
    }

    /// The stream of a source's type, by an instance that must be the holder.
    pub(super) async fn cell(&self, source: &Source, instance: &str) -> (Pusher, Value) {
        let (pusher, welcome) = self.open(&source.push_path(), source.hello(instance)).await;
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        (pusher, welcome)
    }

    /// The same, synced.
    pub(super) async fn synced(&self, source: &Source, instance: &str) -> Pusher {
        let (mut pusher, welcome) = self.cell(source, instance).await;
        assert_eq!(welcome["needSync"], true, "{welcome}");
        pusher.send_all(source.sync(1));
        let ack = pusher.settled().await;
        assert_eq!(ack["position"], source.head.to_string(), "{ack}");
        pusher
    }

    /// A control stream.
    pub(super) async fn control(&self, shard: &str, instance: &str) -> (Pusher, Value) {
        self.open(&control_path(shard), hello(instance)).await
    }
}

/// The hello of a control stream.
pub(super) fn hello(instance: &str) -> Value {
    json!({"type": "hello", "holder": format!("h-{instance}"), "instance": instance})
}

impl Pusher {
    /// Sends a frame with the next number.
    pub(super) fn send(&mut self, mut frame: Value) {
        self.seq += 1;
        frame["seq"] = self.seq.into();
        let line = frame.to_string();
        valid(From::Pusher, line.as_bytes());
        self.send_raw(&line);
    }

    pub(super) fn send_all(&mut self, frames: impl IntoIterator<Item = Value>) {
        frames.into_iter().for_each(|frame| self.send(frame));
    }

    /// Sends a line as it is.
    pub(super) fn send_raw(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n"));
    }

    /// Sends bytes that need not be a line.
    pub(super) fn send_bytes(&mut self, bytes: String) {
        self.bytes_sent += bytes.len();
        let to = self.to.as_ref().expect("the request has not ended");
        // The server may have ended the stream already; what it says is read later.
        let _ = to.unbounded_send(Bytes::from(bytes));
    }

    /// The number of the last frame.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Ends the request; what the server says can still be read.
    pub(super) fn hang_up(&mut self) {
        self.to = None;
    }

    /// The next frame, or `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        within(async {
            loop {
                if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                    let line = self.buffer.split_to(end + 1);
                    return Some(valid(From::Server, &line[..end]));
                }
                match self.from.frame().await? {
                    Ok(frame) => self.buffer.extend(frame.into_data().ok()),
                    Err(_) => return None,
                }
            }
        })
        .await
    }

    /// The next frame.
    pub(super) async fn read(&mut self) -> Value {
        self.next().await.expect("the stream goes on")
    }

    /// Reads to the acknowledgement of everything sent; it. Nothing but acks and barriers may come.
    pub(super) async fn settled(&mut self) -> Value {
        loop {
            let frame = self.read().await;
            match frame["type"].as_str() {
                Some("ack") if frame["seq"] == self.seq => return frame,
                Some("ack" | "barrier" | "throttle") => {}
                _ => panic!("{frame}"),
            }
        }
    }

    /// Reads to the frame of this type; it.
    pub(super) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.read().await;
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// Reads to the error that ends the stream; its code and message. Nothing may follow it.
    pub(super) async fn refused(&mut self) -> (u64, String) {
        let status = self.until("error").await["status"].take();
        assert_eq!(self.next().await, None, "the stream has ended");
        let message = status["message"].as_str().expect("text").to_owned();
        (status["code"].as_u64().expect("a number"), message)
    }

    /// Reads to the end of the stream. Nothing but barriers may come before it.
    pub(super) async fn ended(&mut self) {
        while let Some(frame) = self.next().await {
            assert_eq!(frame["type"], "barrier", "{frame}");
        }
    }

    /// Whether nothing is to be read now. Not for "nothing will come".
    pub(super) fn is_quiet(&mut self) -> bool {
        let frame = self.from.frame().now_or_never();
        self.buffer.extend(frame.and_then(|frame| frame?.ok()?.into_data().ok()));
        self.buffer.is_empty()
    }
}

/// How often streams ended so.
pub(super) fn ends(stand: &Stand, reason: PushEnd) -> u64 {
    stand.api.metrics.push.ends.get_or_create(&reason.into()).get()
}

/// Names, source uids and source versions of what is served, at the version of an ack or later.
pub(super) async fn served(wire: &Wire, source: &Source, ack: &Value) -> Vec<(String, String, u64)> {
    let at = ack["cacheRV"].as_str().expect("an ack");
    let path = format!("{}?resourceVersion={at}&resourceVersionMatch=NotOlderThan", source.collection());
    let list = wire.list(&path).await.unwrap_or_else(|answer| panic!("{path}: {answer:?}"));
    list.items
        .values()
        .map(|object| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let annotations = &object["metadata"]["annotations"];
            let version = text(&annotations["cache.kcp.io/original-resource-version"]);
            (
                text(&object["metadata"]["name"]),
                text(&object["metadata"]["uid"]),
                version.parse().expect("a number"),
            )
        })
        .collect()
}

/// The same of the source itself.
pub(super) fn held(source: &Source) -> Vec<(String, String, u64)> {
    source.objects.iter().map(|(name, thing)| (name.clone(), thing.uid.clone(), thing.version)).collect()
}

/// Waits until the status of a shard fulfils a condition; it.
pub(super) async fn status_until(wire: &Wire, shard: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let waiting = async {
        loop {
            let status = wire.get(&control_path(shard)).await.json();
            if condition(&status) {
                return status;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the status comes to it")
}
