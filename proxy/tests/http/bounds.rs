use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use shardcache_proxy::metrics::labels::Limit;

use crate::world::{Answer, WIDGETS, World, request};

fn refused(world: &World, limit: Limit) -> u64 {
    world.metrics().http.refusals.get_or_create(&limit.into()).get()
}

fn assert_turned_away(answer: &Answer) {
    let expected =
        (429, "TooManyRequests".to_owned(), "Too many requests, please try again later.".to_owned());
    assert_eq!(answer.status(), expected);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()["details"]["retryAfterSeconds"], json!(1));
}

#[tokio::test]
async fn watches_have_a_bound_of_their_own() {
    let world = World::with(|config| {
        config.watches_max = 3;
        config.reads_in_flight_max = 1;
    });
    let mut open = vec![];
    for _ in 0..3 {
        open.push(world.watch("").await);
    }
    assert_turned_away(&world.get(&format!("{WIDGETS}?watch=true")).await);
    assert_eq!(refused(&world, Limit::Watches), 1);
    assert_eq!(world.get(WIDGETS).await.status, StatusCode::OK);
    open.pop();
    world.watch("").await;
}

#[tokio::test]
async fn lists_share_a_budget_of_bytes_until_they_are_sent() {
    let world = World::with(|config| config.list_bytes_in_flight_max = 1 << 20);
    world.fill(10, 10).await;
    let mut unsent = vec![];
    for _ in 0..2 {
        unsent.push(world.send(request(Method::GET, WIDGETS, &[], Bytes::new())).await);
    }
    assert_turned_away(&world.get(WIDGETS).await);
    assert_eq!(refused(&world, Limit::ListBytes), 1);
    let list = unsent.pop().expect("two").into_body().collect().await.expect("a list").to_bytes();
    assert!(!list.is_empty());
    assert_eq!(world.get(WIDGETS).await.status, StatusCode::OK);
    drop(unsent);
    assert_eq!(world.metrics().list.in_flight_bytes.get(), 0);
}

#[tokio::test]
async fn no_read_is_let_in_over_the_bound() {
    let world = World::with(|config| config.reads_in_flight_max = 0);
    for path in [WIDGETS, "/services/cache/shards/*/clusters/*/apis"] {
        assert_turned_away(&world.get(path).await);
    }
    assert_eq!(refused(&world, Limit::ReadsInFlight), 2);
    assert_eq!(world.get("/readyz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_default_lifetime_lies_between_the_minimum_and_its_double() {
    let world = World::with(|config| config.watch_timeout_min = Duration::from_millis(300));
    let started = std::time::Instant::now();
    let mut lines = world.watch("").await;
    assert_eq!(lines.line().await, None);
    let lived = started.elapsed();
    assert!(lived >= Duration::from_millis(299) && lived < Duration::from_millis(1200), "{lived:?}");
}

#[tokio::test]
async fn a_list_that_nobody_reads_loses_its_place_to_one_that_is_read() {
    let world = World::with(|config| {
        config.list_bytes_in_flight_max = 1 << 20;
        config.stall_timeout = Duration::from_millis(50);
    });
    world.fill(10, 10).await;
    let mut unread = vec![];
    for _ in 0..2 {
        unread.push(world.send(request(Method::GET, WIDGETS, &[], Bytes::new())).await);
    }
    let served = async {
        while world.get(WIDGETS).await.status != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::world::PATIENCE, served).await.expect("a place in time");
    // The first one always; the second one too, if its time was over as well when a place was needed.
    assert!((1..=2).contains(&refused(&world, Limit::StalledReader)));
    let error = unread.remove(0).into_body().collect().await.expect_err("given up");
    assert!(error.to_string().contains("accepted no data"), "{error}");
}
