//! Watches over WebSocket: the stream of a watch, one event per text message, as kube-apiserver has it.
//!
//! fabric8 asks for it first. What is sent is the body that the same request has over HTTP, cut at its
//! lines; so filters, bookmarks, errors, deadlines and the drain are those of every watch, and the next
//! frame is asked for only when the last one is written: a client that reads slowly is a slow watcher like
//! any other, and one that accepts nothing is closed by its connection.
//!
//! An upgrade that cannot be made (another version, a missing key, a page of another origin, a caller in
//! the same process) is answered as the plain watch that it is too: clients fall back to that, while a
//! browser takes it for a refusal.
//!
//! [`serve`] owns the upgraded connection. It receives frames from the body and messages from the client;
//! it stops when either ends, or when the client leaves pings unanswered.

pub(crate) mod bearer;

use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::guard;
use crate::body::{Body, Rope};

/// Clients of a watch have nothing to say but pings, pongs and a goodbye.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const READ_BUFFER_BYTES: usize = 4 << 10;
const WRITE_BUFFER_BYTES: usize = 32 << 10;
/// Time for the client to answer a goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a silent client is found out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between pings.
    pub(crate) ping_interval: Duration,
    /// For something to come after a ping.
    pub(crate) pong_timeout: Duration,
}

/// The answer to a watch in the protocol that the client asked for. A response of code 101 still has the
/// stream as its body: whoever has the connection hands it to [`serve`].
pub(crate) fn switch(parts: &Parts, response: Response<Body>) -> Response<Body> {
    let possible = response.status() == StatusCode::OK && parts.extensions.get::<OnUpgrade>().is_some();
    let Some(accept) = accept_key(parts).filter(|_| possible) else { return response };
    let mut response = Response::new(response.into_body());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol(&parts.headers) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// What proves that the upgrade was understood; `None` if none is asked for that can be made.
fn accept_key(parts: &Parts) -> Option<HeaderValue> {
    let headers = &parts.headers;
    let asked = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has_token(headers, &UPGRADE, "websocket")
        && has_token(headers, &CONNECTION, "upgrade")
        && headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    if !asked || guard::is_from_elsewhere(parts) {
        return None;
    }
    HeaderValue::try_from(derive_accept_key(headers.get(SEC_WEBSOCKET_KEY)?.as_bytes())).ok()
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(token))
}

/// The first protocol that the client offers. What is sent is the same in all of them; browsers insist on
/// the choice of one.
fn protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    bearer::others(headers).next().and_then(|chosen| HeaderValue::from_str(chosen).ok())
}

enum Step {
    Frame(Rope),
    End,
    Heard(Message),
    Silence,
    Gone,
}

/// Sends a watch's events over the upgraded connection until one of them ends.
pub(crate) async fn serve(upgrade: OnUpgrade, mut events: Body, pace: Pace) {
    let Ok(Ok(upgraded)) = timeout(pace.pong_timeout, upgrade).await else { return };
    let stream = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config())).await;
    let mut lines = BytesMut::new();
    let mut timer = pin!(sleep(pace.ping_interval));
    let mut asked = false;
    loop {
        let step = tokio::select! {
            frame = events.frame() => match frame {
                Some(Ok(frame)) => frame.into_data().map_or(Step::Frame(Rope::default()), Step::Frame),
                Some(Err(_)) => Step::Gone,
                None => Step::End,
            },
            message = socket.next() => match message {
                Some(Ok(message)) => Step::Heard(message),
                Some(Err(_)) | None => Step::Gone,
            },
            () = &mut timer => Step::Silence,
        };
        let sent = match step {
            Step::Frame(rope) => send(&mut socket, &mut lines, rope).await,
            Step::Heard(Message::Close(_)) => {
                // The answer was queued when the goodbye was read.
                let _ = timeout(CLOSE_TIMEOUT, socket.flush()).await;
                return;
            }
            Step::Heard(_) => {
                asked = false;
                // A ping is answered when something is written.
                socket.flush().await
            }
            Step::Silence if !asked => {
                asked = true;
                timer.as_mut().reset(Instant::now() + pace.pong_timeout);
                socket.send(Message::Ping(Bytes::new())).await
            }
            Step::End => {
                let _ = timeout(CLOSE_TIMEOUT, say_goodbye(&mut socket)).await;
                return;
            }
            Step::Silence | Step::Gone => return,
        };
        if sent.is_err() {
            return;
        }
        if !asked && timer.deadline() < Instant::now() + pace.ping_interval / 2 {
            timer.as_mut().reset(Instant::now() + pace.ping_interval);
        }
    }
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Sends the lines that a frame completes, each as a message, all of them in one go.
async fn send(socket: &mut Socket, lines: &mut BytesMut, mut rope: Rope) -> Result<(), Error> {
    while rope.has_remaining() {
        let chunk = rope.chunk();
        let Some(end) = chunk.iter().position(|byte| *byte == b'\n') else {
            lines.extend_from_slice(chunk);
            let len = chunk.len();
            rope.advance(len);
            continue;
        };
        lines.extend_from_slice(&chunk[..end]);
        rope.advance(end + 1);
        let event = Utf8Bytes::try_from(lines.split().freeze()).map_err(|_| Error::Utf8(String::new()))?;
        socket.feed(Message::Text(event)).await?;
    }
    socket.flush().await
}

/// Ends the conversation as the protocol wants it: a goodbye, and the client's answer.
async fn say_goodbye(socket: &mut Socket) -> Result<(), Error> {
    socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() })).await?;
    while let Some(message) = socket.next().await {
        message?;
    }
    Ok(())
}
