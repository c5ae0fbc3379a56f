//! A source of several replicas, of which the one that is watched lags: its newest version is read by a
//! quorum, its watch says less. Nothing is confirmed before the watch, or a list, has come to it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::watch;

use super::{COPY, Running, config, converge, source_client, write};
use crate::harness::Served;
use crate::wire::Answer;

/// Stands before a source; its watches show nothing after a version.
struct Replica {
    shows: watch::Sender<u64>,
    /// Lines that it had and did not show.
    held: watch::Sender<usize>,
}

type Lines = std::pin::Pin<Box<dyn Stream<Item = Bytes> + Send>>;

impl Replica {
    fn new() -> Arc<Self> {
        Arc::new(Self { shows: watch::Sender::new(u64::MAX), held: watch::Sender::new(0) })
    }

    fn client(self: &Arc<Self>, source: &Served) -> Client {
        let (replica, inner) = (Arc::clone(self), source_client(source));
        let answer = move |request: Request<Body>| {
            let (replica, inner) = (Arc::clone(&replica), inner.clone());
            async move {
                let follows = request.uri().query().unwrap_or_default().contains("watch=");
                let (head, body) = inner.send(request).await?.into_parts();
                if !follows || !head.status.is_success() {
                    return Ok::<_, kube::Error>(Response::from_parts(head, body.boxed_unsync()));
                }
                let shown = lines(body).filter_map(move |line| {
                    let replica = Arc::clone(&replica);
                    async move { replica.show(line).await }
                });
                let frames = StreamBody::new(shown.map(|line| Ok(Frame::data(line))));
                Ok(Response::from_parts(head, frames.boxed_unsync()))
            }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    /// The line as this replica knows it: an event comes once it has come so far, and a bookmark is of where
    /// it is.
    async fn show(&self, line: Bytes) -> Option<Bytes> {
        let mut event: Value = serde_json::from_slice(&line).expect("a line of a watch");
        let version = &mut event["object"]["metadata"]["resourceVersion"];
        let at: u64 = version.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        let mut shows = self.shows.subscribe();
        let limit = *shows.borrow_and_update();
        if at > limit && event["type"] == "BOOKMARK" {
            *event["object"].pointer_mut("/metadata/resourceVersion").expect("it has one") =
                limit.to_string().into();
            self.held.send_modify(|held| *held += 1);
            return Some(format!("{event}\n").into());
        }
        if at > limit {
            self.held.send_modify(|held| *held += 1);
            drop(shows.wait_for(|shows| *shows >= at).await);
        }
        Some(line)
    }
}

/// The lines of a body, each with its end.
fn lines(body: Body) -> Lines {
    let state = (Box::pin(body.into_data_stream()), BytesMut::new());
    Box::pin(stream::unfold(state, |(mut data, mut buffer)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1).freeze();
                return Some((line, (data, buffer)));
            }
            buffer.extend_from_slice(&data.next().await?.ok()?);
        }
    }))
}

fn names(read: &Answer) -> Vec<String> {
    let list = read.json();
    let items = list["items"].as_array().expect("a list").iter();
    items.map(|item| item["metadata"]["name"].as_str().expect("named").to_owned()).collect()
}

#[tokio::test]
async fn d38_nothing_is_confirmed_by_a_replica_that_lags_behind_the_quorum() {
    let (source, cache, replica) = (Served::start().await, Served::start().await, Replica::new());
    let wire = cache.wire();
    write(&source.wire(), "role-0", "first").await;
    let running =
        Running::start(super::Config { source: replica.client(&source), ..config(&source, &cache, "one") });
    running.live().await;
    converge(&source, &cache).await;
    let well = wire.get(COPY).await;
    assert_eq!((well.status.as_u16(), names(&well)), (200, vec!["role-0".to_owned()]));

    let head = source.wire().get(&format!("{}{}?limit=1", super::SOURCE, super::ROLES)).await.json();
    let head: u64 = head["metadata"]["resourceVersion"].as_str().expect("text").parse().expect("a number");
    replica.shows.send_replace(head);
    write(&source.wire(), "role-1", "first").await;
    // Everybody who asks while it lags is told so, and never that what is missing is not there.
    for path in [COPY.to_owned(), format!("{COPY}/role-1"), format!("{COPY}?maxStaleness=0s")] {
        let read = wire.get(&path).await;
        assert_eq!(read.reason(), (500, "ServerTimeout".to_owned()), "{path}: {read:?}");
        let status = read.json();
        let cause = &status["details"]["causes"][0];
        assert_eq!((&cause["reason"], &cause["field"]), (&"ShardUnconfirmed".into(), &"shards/amber".into()));
    }
    assert!(*replica.held.borrow() > 0, "it lagged");
    let stale = wire.get(&format!("{COPY}?resourceVersion=0")).await;
    assert_eq!((stale.status.as_u16(), names(&stale)), (200, vec!["role-0".to_owned()]));
    // It catches up, and so does the cache. What is confirmed has everything.
    replica.shows.send_replace(u64::MAX);
    super::eventually("it is confirmed again", async || {
        let read = wire.get(COPY).await;
        let is_confirmed = read.status == 200;
        assert!(!is_confirmed || names(&read) == ["role-0", "role-1"], "{read:?}");
        is_confirmed
    })
    .await;
    running.stop().await;
}
