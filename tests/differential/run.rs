//! Runs a script against one server, and writes down what it answered.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::script::{Action, NAMES, Script, Step, Until};
use crate::servers::Server;
use crate::watch::Watch;

/// Nothing takes this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Pages of a list that goes on for ever.
const PAGES_MAX: usize = 100;

/// Why a step about a watch failed that was refused.
pub(crate) const NOT_OPEN: &str = "no such watch is open";

/// Headers that clients read.
const HEADERS: [&str; 13] = [
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
    "sec-websocket-protocol",
];

/// Where a script stands at one server.
struct Player<'a> {
    server: &'a Server,
    kept: HashMap<String, String>,
    watches: HashMap<String, Watch>,
}

/// One answer per step; a step that cannot be done has its reason as the answer.
pub(crate) async fn run(server: &Server, script: &Script) -> Vec<Value> {
    // What was never kept is the version 1, which every server has left behind.
    let kept = NAMES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let mut player = Player { server, kept, watches: HashMap::new() };
    let mut answers = vec![];
    for step in &script.steps {
        let answer = match tokio::time::timeout(2 * PATIENCE, player.step(step)).await {
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
                let answer = whole(self.send(step, method, path).await?).await?;
                let is_selection = method == "GET" && path.contains("limit=") && path.contains("Selector=");
                if is_selection { self.without_empty_end(step, path, answer).await } else { Ok(answer) }
            }
            Action::Watch { name, path } => {
                let answer = self.send(step, "GET", path).await?;
                if answer.status() != 200 {
                    return whole(answer).await;
                }
                let told = json!({ "code": 200, "headers": told(answer.headers()) });
                self.watches.insert(name.clone(), Watch::over(answer.into_body()));
                Ok(told)
            }
            Action::Socket { name, path } => self.socket(step, name, path).await,
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
            Action::Fill { count, method, path } => {
                let mut codes = Codes::default();
                for number in 0..*count {
                    let number = format!("{number:05}");
                    let numbered = Step { body: step.body.replace('#', &number), ..step.clone() };
                    let answer = self.send(&numbered, method, &path.replace('#', &number)).await?;
                    codes.count(&whole(answer).await?);
                }
                Ok(codes.told())
            }
            Action::Race { count, method, path } => {
                let racers = (0..*count).map(async |_| whole(self.send(step, method, path).await?).await);
                let mut codes = Codes::default();
                for answer in futures::future::join_all(racers).await {
                    codes.count(&answer?);
                }
                Ok(codes.told())
            }
            Action::Compact => {
                self.server.forget().await;
                Ok(Value::Null)
            }
            Action::Restart(how) => {
                self.server.restart(*how).await;
                Ok(Value::Null)
            }
        }
    }

    /// Opens a watch over WebSocket, or keeps the answer that was given instead.
    async fn socket(&mut self, step: &Step, name: &str, path: &str) -> Result<Value, String> {
        let base = self.server.base();
        let address = base.strip_prefix("http://").ok_or("no plain HTTP")?;
        let url = format!("ws://{address}{}{}", self.server.place(), self.filled(path));
        let mut request = url.into_client_request().map_err(|error| error.to_string())?;
        // kube-apiserver upgrades for nobody without one.
        let origin = HeaderValue::from_str(&base).map_err(|error| error.to_string())?;
        request.headers_mut().insert("origin", origin);
        for (name, value) in &step.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|error| error.to_string())?;
            let value = HeaderValue::from_str(&self.filled(value)).map_err(|error| error.to_string())?;
            request.headers_mut().insert(name, value);
        }
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, answer)) => {
                self.watches.insert(name.to_owned(), Watch::Socket(Box::new(socket)));
                Ok(json!({ "code": answer.status().as_u16(), "headers": told(answer.headers()) }))
            }
            Err(Error::Http(answer)) => {
                let (head, body) = answer.into_parts();
                Ok(answered(head.status, &head.headers, &body.unwrap_or_default()))
            }
            Err(error) => Ok(json!({ "refused": error.to_string() })),
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
        let mut next = Some(path.to_owned());
        while let Some(path) = next.filter(|_| pages.len() < PAGES_MAX) {
            let page = whole(self.send(step, "GET", &path).await?).await?;
            next = next_page(&path, &page);
            pages.push(page);
        }
        let has_empty_end = drop_empty_end(&mut pages);
        let mut answer = json!({ "pages": pages });
        if has_empty_end {
            answer["last page"] = "empty".into();
        }
        Ok(answer)
    }

    /// A page whose token may lead to nothing but an empty page: then the answer says so, and has no token.
    async fn without_empty_end(&self, step: &Step, path: &str, page: Value) -> Result<Value, String> {
        let Some(next) = next_page(path, &page) else { return Ok(page) };
        let mut pages = vec![page, whole(self.send(step, "GET", &next).await?).await?];
        let has_empty_end = drop_empty_end(&mut pages);
        let mut page = pages.swap_remove(0);
        if has_empty_end {
            page["last page"] = "empty".into();
        }
        Ok(page)
    }
}

/// Code, headers and body.
async fn whole(answer: Response<Incoming>) -> Result<Value, String> {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|error| format!("the body broke off: {error}"))?.to_bytes();
    Ok(answered(head.status, &head.headers, &bytes))
}

/// An answer with its body as a value if it is JSON or YAML, and how that was written unless it is compact.
fn answered(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Value {
    let text = || Value::from(String::from_utf8_lossy(body).into_owned());
    let is_yaml =
        headers.get("content-type").is_some_and(|media| media.as_bytes().starts_with(b"application/yaml"));
    let read = if is_yaml { serde_saphyr::from_slice(body).ok() } else { serde_json::from_slice(body).ok() };
    let mut answer = json!({ "code": code.as_u16(), "headers": told(headers) });
    if is_yaml && read.is_some() {
        answer["form"] = "yaml".into();
    } else if read.is_some() && body.trim_ascii().contains(&b'\n') {
        answer["form"] = "indented".into();
    }
    answer["body"] = read.unwrap_or_else(text);
    answer
}

/// The path of the page after one, if there is one.
fn next_page(path: &str, page: &Value) -> Option<String> {
    let token = page["body"]["metadata"]["continue"].as_str().filter(|token| !token.is_empty())?;
    let kept =
        |parameter: &&str| !parameter.starts_with("resourceVersion") && !parameter.starts_with("continue");
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let query: Vec<_> = query.split('&').filter(kept).collect();
    Some(format!("{path}?{}&continue={token}", query.join("&")))
}

/// Drops a last page without items, with the token that led to it; whether there was one.
fn drop_empty_end(pages: &mut Vec<Value>) -> bool {
    let is_empty = |page: &Value| {
        let (items, rows) = (&page["body"]["items"], &page["body"]["rows"]);
        // kube writes null for no metadata.
        [items, rows].iter().any(|list| list.as_array().is_some_and(Vec::is_empty))
            || (page["code"] == 200 && items.is_null() && rows.is_null())
    };
    if pages.len() < 2 || !pages.last().is_some_and(is_empty) {
        return false;
    }
    pages.pop();
    if let Some(metadata) = pages.last_mut().and_then(|page| page["body"]["metadata"].as_object_mut()) {
        metadata.remove("continue");
    }
    true
}

/// How many answers had which code.
#[derive(Default)]
struct Codes(BTreeMap<String, usize>);

impl Codes {
    fn count(&mut self, answer: &Value) {
        let code = &answer["code"];
        let reason = answer["body"]["reason"].as_str().unwrap_or_default();
        *self.0.entry(format!("{code} {reason}")).or_default() += 1;
    }

    fn told(&self) -> Value {
        json!({ "codes": self.0 })
    }
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
