//! A shard's API on a socket of loopback, as far as a prober needs it: discovery of what it is called, lists
//! of metadata, and watches with bookmarks. It counts what it is asked.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::super::source::Source;

/// A short watch has its bookmark so long after its begin; a real one a second.
const BOOKMARK_AFTER: Duration = Duration::from_millis(20);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What it has, and how it behaves.
pub(super) struct State {
    pub(super) source: Source,
    /// Events of the type: version, kind, object.
    log: Vec<(u64, &'static str, Value)>,
    /// It takes requests, and answers none.
    pub(super) hangs: bool,
    /// Short watches have a bookmark before their end.
    pub(super) bookmarks: bool,
    pub(super) heads: usize,
    pub(super) comparisons: usize,
    pub(super) watches: usize,
}

/// An API that listens until it is dropped.
pub(super) struct Api {
    state: Arc<watch::Sender<State>>,
    url: String,
    _listening: AbortOnDropHandle<()>,
}

impl Api {
    /// What a source has, on a free port.
    pub(super) async fn of(source: &Source) -> Self {
        let state = State {
            source: source.clone(),
            log: vec![],
            hangs: false,
            bookmarks: true,
            heads: 0,
            comparisons: 0,
            watches: 0,
        };
        let state = Arc::new(watch::Sender::new(state));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let serving = Arc::clone(&state);
        let listening = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                connections.spawn(async move {
                    let service =
                        service_fn(move |request: Request<Incoming>| answer(Arc::clone(&state), request));
                    let served = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                    // Whoever has gone has gone.
                    drop(served);
                });
            }
        });
        Self { state, url, _listening: AbortOnDropHandle::new(listening) }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.borrow())
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    /// Creates or changes an object; the frame that a pusher would send.
    pub(super) fn put(&self, name: &str) -> Value {
        let mut frame = Value::Null;
        self.change(|state| {
            frame = state.source.put(name, "gold");
            let object = state.source.object(name);
            state.log.push((state.source.head, "MODIFIED", object));
        });
        frame
    }

    /// Something of another type happens.
    pub(super) fn elsewhere(&self) {
        self.change(|state| state.source.head += 1);
    }

    /// How often it was asked for its newest version, and for all metadata.
    pub(super) fn asked(&self) -> (usize, usize) {
        self.look(|state| (state.heads, state.comparisons))
    }
}

async fn answer(state: Arc<watch::Sender<State>>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let query: BTreeMap<&str, &str> = request
        .uri()
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let path = request.uri().path().to_owned();
    if path == "/api/v1/namespaces/kube-system" {
        let uid = state.borrow().source.id.clone();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}});
        return Ok(whole(&namespace));
    }
    let metadata = request.headers().get("accept").is_some_and(|accept| {
        accept.to_str().is_ok_and(|accept| accept.contains("as=PartialObjectMetadataList"))
    });
    // Before it hangs: what was asked counts from when it was.
    state.send_modify(|state| {
        state.heads += usize::from(query.get("limit") == Some(&"1"));
        state.comparisons += usize::from(metadata);
        state.watches += usize::from(query.contains_key("watch"));
    });
    let mut changes = state.subscribe();
    drop(changes.wait_for(|state| !state.hangs).await);
    let collection = {
        let Source { group, version, resource, .. } = state.borrow().source;
        format!("/apis/{group}/{version}/{resource}")
    };
    if path != collection {
        let status = json!({"kind": "Status", "code": 404, "message": format!("{path}: is not here")});
        let mut answer = whole(&status);
        *answer.status_mut() = StatusCode::NOT_FOUND;
        return Ok(answer);
    }
    if query.contains_key("watch") {
        let number = |name: &str| query[name].parse::<u64>().expect("a number");
        return Ok(follow(changes, number("resourceVersion"), Duration::from_secs(number("timeoutSeconds"))));
    }
    let gold_only = query.get("labelSelector") == Some(&"tier%3Dgold");
    let state = state.borrow();
    let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().expect("a number"));
    let objects = state.source.objects.keys().map(|name| state.source.object(name));
    let objects = objects.filter(|object| !gold_only || object["metadata"]["labels"]["tier"] == "gold");
    let items: Vec<Value> =
        objects.take(limit).map(|object| json!({"metadata": object["metadata"]})).collect();
    Ok(whole(&json!({"metadata": {"resourceVersion": state.source.head.to_string()}, "items": items})))
}

fn whole(body: &Value) -> Answer {
    let response = Response::builder().header("content-type", "application/json");
    response.body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).expect("a legal answer")
}

/// The events after a version until the time is over, and one bookmark of the newest version if it is short.
fn follow(state: watch::Receiver<State>, from: u64, time: Duration) -> Answer {
    let now = Instant::now();
    let bookmark = (time < Duration::from_mins(1)).then_some(now + BOOKMARK_AFTER);
    let begin = (state, from, bookmark, now + time);
    let lines = stream::unfold(begin, |(mut state, at, mut bookmark, end)| async move {
        loop {
            let (next, head) = {
                let known = state.borrow_and_update();
                bookmark = bookmark.filter(|_| known.bookmarks);
                (known.log.iter().find(|(version, ..)| *version > at).cloned(), known.source.head)
            };
            if let Some((version, kind, object)) = next {
                let line = format!("{}\n", json!({"type": kind, "object": object}));
                return Some((Ok(Frame::data(Bytes::from(line))), (state, version, bookmark, end)));
            }
            tokio::select! {
                changed = state.changed() => changed.ok()?,
                () = sleep_until(bookmark.unwrap_or(end)) => {
                    bookmark?;
                    let line = json!({"type": "BOOKMARK",
                        "object": {"metadata": {"resourceVersion": head.to_string()}}});
                    let line = format!("{line}\n");
                    return Some((Ok(Frame::data(Bytes::from(line))), (state, at, None, end)));
                }
            }
        }
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}
