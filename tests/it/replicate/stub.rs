//! A source that refuses: one of several replicas that has fallen behind, or one that cannot be followed. It
//! is waited for or listed, and nothing that it does not tell is taken for lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{COPY, Running, config, content, converge, delete, source_client, status, write};
use crate::checker::Step;
use crate::harness::Served;
use crate::wire::within;

/// How the source answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    /// A replica that has come to no version that it may be asked for.
    Behind,
    /// One that cannot even learn what the newest version is.
    CutOff,
    /// Watches from a version get this code.
    Code(u16),
    /// They get 410 as an event.
    GoneInBand,
    /// They end at once, without a word.
    Closed,
}

/// Stands before a source and answers as a kube-apiserver in such a mood does.
struct Stub {
    mood: watch::Sender<Mood>,
    /// Requests that were answered so.
    refused: watch::Sender<usize>,
}

impl Stub {
    fn new() -> Arc<Self> {
        Arc::new(Self { mood: watch::Sender::new(Mood::Well), refused: watch::Sender::new(0) })
    }

    fn client(self: &Arc<Self>, source: &Served) -> Client {
        let (stub, inner) = (Arc::clone(self), source_client(source));
        let answer = move |request: Request<Body>| {
            let (stub, inner) = (Arc::clone(&stub), inner.clone());
            async move {
                let Some(refusal) = stub.refusal(request.uri()) else { return inner.send(request).await };
                stub.refused.send_modify(|refused| *refused += 1);
                Ok(refusal)
            }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn refusal(&self, uri: &Uri) -> Option<Response<Body>> {
        let has = |start: &str| uri.query().unwrap_or_default().split('&').any(|one| one.starts_with(start));
        let of_a_version = has("resourceVersion=");
        let follows = of_a_version && has("watch=");
        let of_objects = uri.path().ends_with("/clusterroles");
        let gone = || status_of(410, "Expired", "too old resource version", json!({}));
        match *self.mood.borrow() {
            _ if !of_objects => None,
            Mood::Behind if of_a_version => Some(too_large()),
            Mood::CutOff => Some(too_large()),
            Mood::Code(410) if follows => Some(answer(410, &gone())),
            Mood::Code(code) if follows => Some(answer(code, &status_of(code, "", "not now", json!({})))),
            Mood::GoneInBand if follows => Some(answer(200, &json!({ "type": "ERROR", "object": gone() }))),
            Mood::Closed if follows => Some(Response::new(Body::empty())),
            _ => None,
        }
    }

    fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    fn refused(&self) -> usize {
        *self.refused.borrow()
    }

    /// Waits until so many more requests were refused.
    async fn refuses_again(&self, times: usize) {
        let mut refused = self.refused.subscribe();
        let enough = *refused.borrow_and_update() + times;
        within(refused.wait_for(|refused| *refused >= enough)).await.expect("the stub is there");
    }
}

/// kube-apiserver's words, for a watch and for a list.
fn too_large() -> Response<Body> {
    let causes = json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]);
    let message = "Timeout: Too large resource version: 303, current: 5";
    let details = json!({ "causes": causes, "retryAfterSeconds": 1 });
    answer(504, &status_of(504, "Timeout", message, details))
}

fn status_of(code: u16, reason: &str, message: &str, details: Value) -> Value {
    let mut status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure" });
    (status["code"], status["reason"], status["message"]) = (code.into(), reason.into(), message.into());
    status["details"] = details;
    status
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let answer = Response::builder().status(code).header("content-type", "application/json");
    answer.body(Body::from(format!("{body}\n").into_bytes())).expect("a legal answer")
}

#[tokio::test]
async fn d35_a_source_that_lags_is_waited_for_and_nothing_goes_back() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let (wire, stub) = (cache.wire(), Stub::new());
    for n in 0..20 {
        write(&source.wire(), &format!("role-{n:04}"), "first").await;
    }
    let running =
        Running::start(super::Config { source: stub.client(&source), ..config(&source, &cache, "one") });
    running.live().await;
    converge(&source, &cache).await;
    let before = (content(&wire, COPY).await, status(&cache).await["cells"].clone());
    assert_eq!((before.0.len(), &before.1[0]["complete"]), (20, &json!(true)));
    let list = wire.list(COPY).await.expect("listed");
    let mut observer = wire.watch(COPY, &format!("resourceVersion={}", list.version)).await.expect("watched");

    // The replica that was followed ends, and another one answers.
    stub.set(Mood::Behind);
    let source = source.restart().await;
    write(&source.wire(), "role-0000", "second").await;
    delete(&source.wire(), "role-0001").await;
    stub.refuses_again(3).await;
    stub.set(Mood::CutOff);
    stub.refuses_again(2).await;
    let meanwhile = (content(&wire, COPY).await, status(&cache).await["cells"].clone());
    assert_eq!(meanwhile, before, "it is not asked for again, nor taken back");

    stub.set(Mood::Well);
    converge(&source, &cache).await;
    running.live().await;
    let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
    let seen = [observer.expect().await, observer.expect().await];
    match &seen {
        [Step::Modified(changed), Step::Deleted(deleted)] => {
            assert_eq!((name(changed), name(deleted)), (Some("role-0000".into()), Some("role-0001".into())));
        }
        other => panic!("what happened at the source, and nothing else: {other:?}"),
    }
    let after = status(&cache).await;
    assert_eq!(
        after["cells"][0]["generation"], before.1[0]["generation"],
        "it was the same source all the time"
    );
    assert!(running.report.metrics().contains("\nshardcache_replicate_resyncs_total 0\n"));
    running.stop().await;
}

/// What a version is refused with decides: 410 is answered with a list, everything else with patience.
#[tokio::test]
async fn b050_a_version_that_is_refused_is_not_asked_for_again_and_again() {
    let (source, cache, stub) = (Served::start().await, Served::start().await, Stub::new());
    let config = || super::Config { source: stub.client(&source), ..config(&source, &cache, "one") };
    write(&source.wire(), "role", "first").await;
    let running = Running::start(config());
    running.live().await;
    running.stop().await;
    for (n, mood) in [Mood::Code(410), Mood::GoneInBand, Mood::Code(500), Mood::Code(429), Mood::Closed]
        .into_iter()
        .enumerate()
    {
        write(&source.wire(), "role", &format!("value-{n}")).await;
        let before = stub.refused();
        stub.set(mood);
        let began = Instant::now();
        let running = Running::start(config());
        if matches!(mood, Mood::Code(410) | Mood::GoneInBand) {
            converge(&source, &cache).await;
            assert_eq!(stub.refused() - before, 1, "{mood:?}: asked for again");
        } else {
            stub.refuses_again(3).await;
            assert!(began.elapsed() >= Duration::from_secs(2), "{mood:?}: asked for without a pause");
            stub.set(Mood::Well);
            converge(&source, &cache).await;
        }
        stub.set(Mood::Well);
        running.stop().await;
    }
}
