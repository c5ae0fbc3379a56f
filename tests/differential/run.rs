//! Runs a script against one server, and writes down what it answered.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use crate::script::{Action, NAMES, Script, Step, Until};
use crate::servers::Server;

/// Nothing takes this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Pages of a list that goes on for ever.
const PAGES_MAX: usize = 100;

/// Why a step about a watch failed that was refused.
pub(crate) const NOT_OPEN: &str = "no such watch is open";
/// How reading ended when events that were waited for never came.
pub(crate) const SILENCE: &str = "nothing more came";

/// Headers that clients read.
const HEADERS: [&str; 12] = [
    "content-type",
    "content-encoding",
    "cache-control",
    "retry-after",
    "warning",
    "vary",
    "etag",
    "location",
    "allow",
    "audit-id",
    "x-content-type-options",
    "www-authenticate",
];

/// Where a script stands at one server.
struct Player<'a> {
    server: &'a Server,
    kept: HashMap<String, String>,
    watches: HashMap<String, Watch>,
}

/// An open stream of events.
struct Watch {
    body: Incoming,
    buffer: BytesMut,
}

/// One answer per step; a step that cannot be done has its reason as the answer.
pub(crate) async fn run(server: &Server, script: &Script) -> Vec<Value> {
    // What was never kept is the version 1, which every server has left behind.
    let kept = NAMES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let mut player = Player { server, kept, watches: HashMap::new() };
    let mut answers = vec![];
    for step in &script.steps {
        let answer = match tokio::time::timeout(PATIENCE, player.step(step)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failed)) => json!({ "failed": failed }),
            Err(_) => json!({ "failed": "no end in time" }),
        };
        for (name, pointer) in &step.keep {
            // What an answer does not have, an error for example, keeps its old value.
            let part = answer["body"].pointer(pointer).and_then(Value::as_str);
            player.kept.extend(part.map(|text| (name.clone(), text.to_owned())));
        }
        answers.push(answer);
    }
    answers
}

impl Player<'_> {
    async fn step(&mut self, step: &Step) -> Result<Value, String> {
        match &step.action {
            Action::Request { method, path } => {
                let answer = self.send(step, method, path).await?;
                whole(answer).await
            }
            Action::Watch { name, path } => {
                let answer = self.send(step, "GET", path).await?;
                if answer.status() != 200 {
                    return whole(answer).await;
                }
                let told = json!({ "code": 200, "headers": told(answer.headers()) });
                let watch = Watch { body: answer.into_body(), buffer: BytesMut::new() };
                self.watches.insert(name.clone(), watch);
                Ok(told)
            }
            Action::Read { name, until } => {
                let until = match until {
                    Until::Named(object) => Until::Named(self.filled(object)),
                    other => other.clone(),
                };
                self.watches.get_mut(name).ok_or(NOT_OPEN)?.read(&until).await
            }
            Action::Close { name } => Ok(json!({ "was open": self.watches.remove(name).is_some() })),
            Action::Pages { path } => self.pages(step, path).await,
            Action::Await { code, path } => {
                while self.send(step, "GET", path).await?.status() != *code {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(Value::Null)
            }
            Action::Compact => {
                if self.server.is_reference {
                    let answer = self.send(step, "POST", "/reference/compact").await?;
                    if answer.status() != 200 {
                        return Err(format!("not compacted: {}", answer.status()));
                    }
                }
                Ok(Value::Null)
            }
        }
    }

    async fn send(&self, step: &Step, method: &str, path: &str) -> Result<Response<Incoming>, String> {
        let body = Bytes::from(self.filled(&step.body));
        let mut headers = step.headers.clone();
        for (_, value) in &mut headers {
            *value = self.filled(value);
        }
        let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        if !body.is_empty() && !has("content-type") {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        self.server.send(method, &self.filled(path), &headers, body).await
    }

    /// Text with its `$names` replaced; a name that is not known stays.
    fn filled(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            filled.push_str(&rest[..at]);
            let name = &rest[at + 1..];
            let name = &name[..name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len())];
            filled.push_str(self.kept.get(name).map_or(&rest[at..=at + name.len()], String::as_str));
            rest = &rest[at + 1 + name.len()..];
        }
        filled + rest
    }

    async fn pages(&self, step: &Step, path: &str) -> Result<Value, String> {
        let mut pages = vec![];
        let mut next = path.to_owned();
        while pages.len() < PAGES_MAX {
            let page = whole(self.send(step, "GET", &next).await?).await?;
            let token = page["body"]["metadata"]["continue"].as_str().unwrap_or("").to_owned();
            let ended = page["code"] != 200 || token.is_empty();
            pages.push(page);
            if ended {
                break;
            }
            let kept = |parameter: &&str| !parameter.starts_with("resourceVersion");
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let query: Vec<_> = query.split('&').filter(kept).collect();
            next = format!("{path}?{}&continue={token}", query.join("&"));
        }
        Ok(json!({ "pages": pages }))
    }
}

/// Code, headers and body; the body as JSON if it is.
async fn whole(answer: Response<Incoming>) -> Result<Value, String> {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|error| format!("the body broke off: {error}"))?.to_bytes();
    let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
    Ok(json!({ "code": head.status.as_u16(), "headers": told(&head.headers), "body": body }))
}

fn told(headers: &HeaderMap) -> Value {
    let mut told = Map::new();
    for name in HEADERS {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        if !values.is_empty() {
            told.insert(name.to_owned(), values.join("; and ").into());
        }
    }
    Value::Object(told)
}

impl Watch {
    async fn read(&mut self, until: &Until) -> Result<Value, String> {
        let mut events: Vec<Value> = vec![];
        loop {
            if matches!(until, Until::Count(count) if events.len() == *count) {
                break;
            }
            let next = match tokio::time::timeout(PATIENCE / 2, self.next()).await {
                Ok(next) => next?,
                Err(_) => return Ok(json!({ "events": events, "end": SILENCE })),
            };
            let Some(event) = next else {
                return Ok(json!({ "events": events, "end": "the stream ended" }));
            };
            let is_bookmark = event["type"] == "BOOKMARK";
            let is_plain = is_bookmark && event["object"]["metadata"]["annotations"].is_null();
            let reached = match until {
                Until::Count(_) | Until::End => false,
                Until::Named(name) => event["object"]["metadata"]["name"] == name.as_str(),
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

    /// The next line; `None` at a clean end.
    async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return match serde_json::from_slice(&line) {
                    Ok(event) => Ok(Some(event)),
                    Err(error) => Err(format!("{error}: {}", String::from_utf8_lossy(&line))),
                };
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().ok()),
                Some(Err(error)) => return Err(format!("the stream broke off: {error}")),
                None if self.buffer.has_remaining() => return Err("half a line at the end".to_owned()),
                None => return Ok(None),
            }
        }
    }
}
