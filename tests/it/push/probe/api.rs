//! A shard's API on a socket of loopback, as far as a prober needs it: discovery of what it is called, lists
//! of metadata, and watches with bookmarks. It counts what it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http::Request;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::source::Source;
use crate::loopback::{Answer, Listening, events, listen, whole};

/// A short watch has its bookmark so long after its begin; a real one a second.
const BOOKMARK_AFTER: Duration = Duration::from_millis(20);

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
    listening: Listening,
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
        let served = Arc::clone(&state);
        let listening = listen(move |request| answer(Arc::clone(&served), request)).await;
        Self { state, listening }
    }

    pub(super) fn url(&self) -> &str {
        &self.listening.url
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

async fn answer(state: Arc<watch::Sender<State>>, request: Request<Incoming>) -> Answer {
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
        return whole(200, &namespace);
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
        return whole(404, &status);
    }
    if query.contains_key("watch") {
        let number = |name: &str| query[name].parse::<u64>().expect("a number");
        return follow(changes, number("resourceVersion"), Duration::from_secs(number("timeoutSeconds")));
    }
    let gold_only = query.get("labelSelector") == Some(&"tier%3Dgold");
    let state = state.borrow();
    let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().expect("a number"));
    let objects = state.source.objects.keys().map(|name| state.source.object(name));
    let objects = objects.filter(|object| !gold_only || object["metadata"]["labels"]["tier"] == "gold");
    let items: Vec<Value> =
        objects.take(limit).map(|object| json!({"metadata": object["metadata"]})).collect();
    whole(200, &json!({"metadata": {"resourceVersion": state.source.head.to_string()}, "items": items}))
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
                return Some((json!({"type": kind, "object": object}), (state, version, bookmark, end)));
            }
            tokio::select! {
                changed = state.changed() => changed.ok()?,
                () = sleep_until(bookmark.unwrap_or(end)) => {
                    bookmark?;
                    let object = json!({"metadata": {"resourceVersion": head.to_string()}});
                    return Some((json!({"type": "BOOKMARK", "object": object}), (state, at, None, end)));
                }
            }
        }
    });
    events(lines)
}
