//! Open watches: lines of an HTTP body, or messages of a WebSocket.

use bytes::{Buf as _, BytesMut};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::run::PATIENCE;
use crate::script::Until;

/// How reading ended when events that were waited for never came.
pub(crate) const SILENCE: &str = "nothing more came";

/// An open stream of events.
pub(crate) enum Watch {
    Body { body: Incoming, buffer: BytesMut },
    Socket(Box<WebSocketStream<TcpStream>>),
}

/// The metadata of an event's object; of a table, that of its only row's.
pub(crate) fn metadata(event: &Value) -> &Value {
    let object = &event["object"];
    if object["kind"] == "Table" { &object["rows"][0]["object"]["metadata"] } else { &object["metadata"] }
}

impl Watch {
    /// The watch over an HTTP answer.
    pub(crate) fn over(body: Incoming) -> Self {
        Self::Body { body, buffer: BytesMut::new() }
    }

    /// Reads events; bookmarks that nobody waits for are left out, but for those that end initial events.
    pub(crate) async fn read(&mut self, until: &Until) -> Result<Value, String> {
        let mut events: Vec<Value> = vec![];
        // Bookmarks come once a minute.
        let patience = if matches!(until, Until::Bookmark) { PATIENCE * 3 / 2 } else { PATIENCE / 2 };
        loop {
            if matches!(until, Until::Count(count) if events.len() == *count) {
                break;
            }
            let next = match tokio::time::timeout(patience, self.next()).await {
                Ok(next) => next?,
                Err(_) => return Ok(json!({ "events": events, "end": SILENCE })),
            };
            let Some(event) = next else {
                return Ok(json!({ "events": events, "end": "the stream ended" }));
            };
            let is_bookmark = event["type"] == "BOOKMARK";
            let is_plain = is_bookmark && metadata(&event)["annotations"].is_null();
            let reached = match until {
                Until::Count(_) | Until::End => false,
                Until::Named(name) => metadata(&event)["name"] == name.as_str(),
                Until::Bookmark => is_bookmark,
            };
            if !is_plain || reached {
                events.push(event);
            }
            if reached {
                break;
            }
        }
        Ok(json!({ "events": events }))
    }

    /// The next event; `None` at a clean end.
    async fn next(&mut self) -> Result<Option<Value>, String> {
        let (body, buffer) = match self {
            Self::Body { body, buffer } => (body, buffer),
            Self::Socket(socket) => return message(socket).await,
        };
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                return parsed(&line).map(Some);
            }
            match body.frame().await {
                Some(Ok(frame)) => buffer.extend(frame.into_data().ok()),
                Some(Err(error)) => return Err(format!("the stream broke off: {error}")),
                None if buffer.has_remaining() => return Err("half a line at the end".to_owned()),
                None => return Ok(None),
            }
        }
    }
}

/// The next text or binary message; pings are answered by the library.
async fn message(socket: &mut WebSocketStream<TcpStream>) -> Result<Option<Value>, String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return parsed(text.as_bytes()).map(Some),
            Some(Ok(Message::Binary(bytes))) => return Err(format!("a binary message: {bytes:?}")),
            Some(Ok(Message::Close(_))) | None => return Ok(None),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(format!("the socket broke off: {error}")),
        }
    }
}

fn parsed(line: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(line).map_err(|error| format!("{error}: {}", String::from_utf8_lossy(line)))
}
