//! A source of several replicas, one of which has fallen behind and is who answers: it is waited for, and
//! nothing that it does not know yet is taken for lost.

use std::sync::Arc;

use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;

use super::{COPY, Running, config, content, converge, delete, source_client, status, write};
use crate::checker::Step;
use crate::harness::Served;
use crate::wire::within;

/// Which replica of the source answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Replica {
    UpToDate,
    /// One that has come to no version that it may be asked for.
    Behind,
    /// One that cannot even learn what the newest version is.
    CutOff,
}

/// Stands before a source and answers as such a replica of kube-apiserver does.
struct Stub {
    replica: watch::Sender<Replica>,
    /// Requests that were answered `ResourceVersionTooLarge`.
    refused: watch::Sender<usize>,
}

impl Stub {
    fn new() -> Arc<Self> {
        Arc::new(Self { replica: watch::Sender::new(Replica::UpToDate), refused: watch::Sender::new(0) })
    }

    fn client(self: &Arc<Self>, source: &Served) -> Client {
        let (stub, inner) = (Arc::clone(self), source_client(source));
        let answer = move |request: Request<Body>| {
            let (stub, inner) = (Arc::clone(&stub), inner.clone());
            async move {
                if !stub.refuses(request.uri()) {
                    return inner.send(request).await;
                }
                stub.refused.send_modify(|refused| *refused += 1);
                Ok(too_large())
            }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn refuses(&self, uri: &Uri) -> bool {
        let mut parameters = uri.query().unwrap_or_default().split('&');
        let of_a_version = parameters.any(|parameter| parameter.starts_with("resourceVersion="));
        let of_objects = uri.path().ends_with("/clusterroles");
        match *self.replica.borrow() {
            Replica::UpToDate => false,
            Replica::Behind => of_objects && of_a_version,
            Replica::CutOff => of_objects,
        }
    }

    fn set(&self, replica: Replica) {
        self.replica.send_replace(replica);
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
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Timeout: Too large resource version: 303, current: 5", "reason": "Timeout",
        "details": {
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        },
        "code": 504,
    });
    let answer = Response::builder().status(504).header("content-type", "application/json");
    answer.body(Body::from(status.to_string().into_bytes())).expect("a legal answer")
}

#[tokio::test]
async fn d35_a_source_that_lags_is_waited_for_and_nothing_goes_back() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let (wire, stub) = (cache.wire(), Stub::new());
    for n in 0..20 {
        write(&source.wire(), &format!("role-{n:04}"), "first").await;
    }
    let running = Running::start(super::Config { source: stub.client(&source), ..config(&source, &cache, "one") });
    running.live().await;
    converge(&source, &cache).await;
    let before = (content(&wire, COPY).await, status(&cache).await["cells"].clone());
    assert_eq!((before.0.len(), &before.1[0]["complete"]), (20, &json!(true)));
    let list = wire.list(COPY).await.expect("listed");
    let mut observer = wire.watch(COPY, &format!("resourceVersion={}", list.version)).await.expect("watched");

    // The replica that was followed ends, and another one answers.
    stub.set(Replica::Behind);
    let source = source.restart().await;
    write(&source.wire(), "role-0000", "second").await;
    delete(&source.wire(), "role-0001").await;
    stub.refuses_again(3).await;
    stub.set(Replica::CutOff);
    stub.refuses_again(2).await;
    let meanwhile = (content(&wire, COPY).await, status(&cache).await["cells"].clone());
    assert_eq!(meanwhile, before, "it is not asked for again, nor taken back");

    stub.set(Replica::UpToDate);
    converge(&source, &cache).await;
    running.live().await;
    let name = |object: &serde_json::Value| object["metadata"]["name"].as_str().map(str::to_owned);
    let seen = [observer.expect().await, observer.expect().await];
    match &seen {
        [Step::Modified(changed), Step::Deleted(deleted)] => {
            assert_eq!((name(changed), name(deleted)), (Some("role-0000".into()), Some("role-0001".into())));
        }
        other => panic!("what happened at the source, and nothing else: {other:?}"),
    }
    let after = status(&cache).await;
    assert_eq!(after["cells"][0]["generation"], before.1[0]["generation"], "it was the same source all the time");
    assert!(running.report.metrics().contains("\nshardcache_replicate_resyncs_total 0\n"));
    running.stop().await;
}
