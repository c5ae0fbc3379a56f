//! What requests meet before there is an API to ask (D59), and tokens.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use shardcache_proxy::access::Identity;
use shardcache_proxy::front::{Front, Phase, Stage, Tokens};
use shardcache_proxy::service::ProxyService;
use tower::ServiceExt;

use crate::harness::{ROLES, Served, collection};

async fn ask(front: &Front, path: &str, token: Option<&str>) -> (StatusCode, http::HeaderMap, Bytes) {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let request = request.body(Empty::<Bytes>::new()).expect("a legal request");
    let answer = front.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
    let (head, body) = answer.into_parts();
    let body = shardcache_proxy::body::BytesBody::from(body).collect().await.expect("whole").to_bytes();
    (head.status, head.headers, body)
}

fn status(body: &[u8]) -> serde_json::Value {
    serde_json::from_slice(body).expect("a Status")
}

#[tokio::test(start_paused = true)]
async fn d59_while_the_store_loads_liveness_answers_readiness_does_not_and_the_rest_waits() {
    let (stage, front) = Stage::new(Tokens::default(), Duration::from_mins(1));
    for phase in [Phase::Opening, Phase::Loading] {
        stage.enter(phase);
        assert_eq!(ask(&front, "/livez", None).await.0, 200);
        assert_eq!(ask(&front, "/livez?verbose", None).await.0, 200);
        let (code, _, body) = ask(&front, "/readyz", None).await;
        assert_eq!(code, 500);
        assert_eq!(&body[..], b"[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n");
        assert_eq!(ask(&front, "/readyz/store", None).await.0, 500);
        assert_eq!(ask(&front, "/readyz?exclude=store", None).await.0, 200);
        assert_eq!(ask(&front, "/services/cache/shards/a/clusters/b/livez", None).await.0, 200);
        let began = tokio::time::Instant::now();
        let (code, headers, body) = ask(&front, &collection("*", "*", ROLES), None).await;
        assert_eq!(began.elapsed().as_secs(), 60, "it waits as long as a request may take");
        assert_eq!(code, 503);
        // R15: without it most clients take a 503 for final.
        assert!(headers["retry-after"].to_str().expect("text").parse::<u32>().is_ok());
        assert_eq!(status(&body)["reason"], "ServiceUnavailable");
        assert_eq!(status(&body)["details"]["causes"][0]["reason"], "CacheUnavailable");
    }
}

#[tokio::test]
async fn d59_a_request_that_came_too_early_is_answered_once_the_store_is_loaded() {
    let served = Served::start().await;
    let (stage, front) = Stage::new(Tokens::default(), Duration::from_mins(1));
    let early = {
        let front = front.clone();
        tokio::spawn(async move { ask(&front, &collection("*", "*", ROLES), None).await.0 })
    };
    tokio::task::yield_now().await;
    assert!(!early.is_finished());
    stage.enter(Phase::Ready(ProxyService::new(served.shared_api())));
    assert_eq!(early.await.expect("joined"), 200);
    assert_eq!(ask(&front, "/readyz", None).await.0, 200);
    stage.enter(Phase::Stopped);
    assert_eq!(ask(&front, &collection("*", "*", ROLES), None).await.0, 503);
    assert_eq!(ask(&front, "/livez", None).await.0, 500);
}

#[tokio::test]
async fn a_failed_server_says_why_and_is_neither_live_nor_ready() {
    let (stage, front) = Stage::new(Tokens::default(), Duration::from_mins(1));
    stage.enter(Phase::Failed("the disk is gone".into()));
    let (code, _, body) = ask(&front, "/services/cache/shards/a/clusters/b/api", None).await;
    assert_eq!(code, 503);
    assert!(status(&body)["message"].as_str().expect("text").contains("the disk is gone"));
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(ask(&front, path, None).await.0, 500, "{path}");
    }
}

#[tokio::test]
async fn a_token_is_somebody_and_an_unknown_one_is_401_even_while_loading() {
    let tokens = Tokens::new([("s3cret".to_owned(), Identity::named("jane", &[]))]);
    let (stage, front) = Stage::new(tokens, Duration::from_mins(1));
    for wrong in ["Bearer wrong", "Bearer", "Basic s3cret", "s3cret", "Bearer s3cret extra"] {
        let (code, _, body) = ask(&front, "/livez", Some(wrong)).await;
        assert_eq!((code, &status(&body)["reason"]), (StatusCode::UNAUTHORIZED, &"Unauthorized".into()));
    }
    let served = Served::start().await;
    stage.enter(Phase::Ready(ProxyService::new(served.shared_api())));
    let path = collection("*", "*", ROLES);
    for right in ["Bearer s3cret", "bearer s3cret"] {
        assert_eq!(ask(&front, &path, Some(right)).await.0, 200, "{right}");
    }
    // She is a reader: what only administrators may do is denied, by name.
    let (code, _, body) = ask(&front, "/services/cache/admin/backup", Some("Bearer s3cret")).await;
    assert_eq!(code, 403);
    assert!(status(&body)["message"].as_str().expect("text").contains("User \"jane\""));
}
