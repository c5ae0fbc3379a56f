//! Odd conditions of a shard's pusher and of this machine, and the documented answer to each: lines that
//! carry nothing any more, pushers that live and prove nothing, clocks that were stopped.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde_json::{Value, json};
use shardcache_proxy::metrics::labels::{Class, PushEnd, Refusal};
use shardcache_proxy::push::PushConfig;

use super::cable::Cable;
use super::fresh::{Hands, bookmarks, get, header, live, live_through, names};
use super::fresh::{refusal, scene, setting, unconfirmed};
use super::pusher::{Door, Pusher, ends};
use super::source::Source;
use crate::harness::eventually;
use crate::stand::Stand;
use crate::wire::{Answer, Wire};

/// The state of the only cell.
async fn state(wire: &Wire) -> String {
    let document = wire.get("/services/cache/freshness").await.json();
    document["shards"][0]["cells"][0]["state"].as_str().unwrap_or_else(|| panic!("{document}")).to_owned()
}

/// What is said of the first shard that a refusal names.
fn message(refused: &Answer) -> String {
    refused.json()["details"]["causes"][0]["message"].as_str().expect("text").to_owned()
}

fn age(read: &Answer) -> u64 {
    let said = header(read, "x-cache-age");
    said.parse().unwrap_or_else(|_| panic!("an age: {said:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn d40_a_line_that_is_dead_without_a_word_is_given_up_and_nobody_waits_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let hands = Hands::default();
    let mut setting = setting(&hands);
    // Who waits for it without a patience of its own waits until this test is over.
    setting.api.freshness.patience = Duration::from_hours(1);
    setting.api.push = PushConfig { idle_timeout: Duration::from_secs(1), ..PushConfig::default() };
    let stand = Stand::open(directory.path(), &setting).await;
    let mut source = Source::exports("amber").with(&["a"]);
    let cable = Cable::to(stand.base()).await;
    let wire = stand.wire();
    let door = Door::at(&cable.address, None).await;
    let mut pusher = live_through(&door, &stand, &source).await;
    cable.cut();
    // Completed at the source; its frame goes nowhere.
    let lost = source.put("b", "gold");
    pusher.send(lost.clone());
    let read = get(&wire, &source, "timeout=200ms").await;
    assert_eq!(refusal(&read), unconfirmed("amber"), "it looks alive, and proves nothing");
    let one = wire.get(&format!("{}/b?timeout=200ms", source.collection())).await;
    assert_eq!(refusal(&one), unconfirmed("amber"), "no false 404");
    // The documented silence, and then the documented time in which it may come back.
    let sessions = &stand.api.metrics.push.sessions;
    eventually("the stream is given up", || async { sessions.get() == 0 }).await;
    assert_eq!(state(&wire).await, "Live", "it may come back yet");
    hands.pass(16);
    eventually("it is gone for long", || async { state(&wire).await == "Disconnected" }).await;
    assert!(ends(&stand, PushEnd::Silent) > 0);
    let read = get(&wire, &source, "").await;
    assert_eq!(refusal(&read), unconfirmed("amber"), "at once, whatever the patience");
    assert!(message(&read).starts_with("Disconnected, last confirmed 1"), "{}", message(&read));
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert_eq!((read.status.as_u16(), names(&read)), (200, vec!["a".to_owned()]));
    assert!(header(&read, "warning").contains("1 of 1 shards unconfirmed: amber (1"), "{read:?}");
    drop((pusher, door, cable));

    let door = Door::http2(&stand).await;
    let (mut pusher, welcome) = door.cell(&source, "i1").await;
    assert_eq!(welcome["needSync"], false, "{welcome}");
    pusher.send(lost);
    let owed = settled(&mut pusher).await;
    let read = answered(&mut pusher, &source, owed, get(&wire, &source, "")).await;
    assert_eq!((read.status.as_u16(), names(&read)), (200, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(state(&wire).await, "Live");
    drop((pusher, door));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d40_a_pusher_that_lives_and_answers_no_barrier_is_lagging_after_90_seconds() {
    let (_directory, hands, stand) = scene().await;
    let mut source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    let wire = stand.wire();
    // Objects come as well: neither they nor signs of life say that nothing is missing.
    let mut owed = None;
    for (passes, expected) in [(45, "Live"), (44, "Live"), (2, "Lagging")] {
        hands.pass(passes);
        let name = format!("after-{passes}");
        pusher.send(source.put(&name, "gold"));
        pusher.send(source.progress());
        owed = settled(&mut pusher).await.or(owed);
        assert_eq!(state(&wire).await, expected);
    }
    for query in ["", "freshness=source", "maxStaleness=30s"] {
        let read = get(&wire, &source, query).await;
        assert_eq!(refusal(&read), unconfirmed("amber"), "{query}");
        assert!(message(&read).starts_with("Lagging, last confirmed 9"), "{}", message(&read));
    }
    let everything = ["a", "after-2", "after-44", "after-45"].map(str::to_owned).to_vec();
    for path in [source.collection(), source.collection_in("*", "*")] {
        let read = wire.get(&format!("{path}?resourceVersion=0")).await;
        assert_eq!((read.status.as_u16(), names(&read)), (200, everything.clone()), "it is served");
        assert!(age(&read) >= 91, "with its age: {read:?}");
        assert!(header(&read, "warning").contains("1 of 1 shards unconfirmed: amber (9"), "{read:?}");
        assert_eq!(header(&read, "x-cache-shards"), "expected=1,synced=1,live=0");
        assert_eq!(header(&read, "x-cache-complete"), "true", "old, not absent");
    }
    // What confirms it within the bound that was asked for is enough.
    assert_eq!(get(&wire, &source, "maxStaleness=2m").await.status, 200);
    let read = answered(&mut pusher, &source, owed, get(&wire, &source, "")).await;
    assert_eq!((read.status.as_u16(), header(&read, "warning")), (200, ""));
    assert_eq!(state(&wire).await, "Live");
    drop(pusher);
    stand.close().await;
}

/// It says what is known when it is answered, not what was known when it came.
#[tokio::test(flavor = "multi_thread")]
async fn d43_a_read_that_waited_for_the_end_of_a_sync_is_not_warned_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut setting = setting(&Hands::default());
    setting.api.freshness.patience = Duration::from_secs(15);
    let stand = Stand::open(directory.path(), &setting).await;
    let source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    for path in [source.collection(), format!("{}/a", source.collection()), source.collection_in("*", "*")] {
        let mut frames = source.sync(2);
        let end = frames.pop().expect("its end");
        pusher.send_all(frames);
        pusher.settled().await;
        let wire = stand.wire();
        assert_eq!(state(&wire).await, "Syncing");
        let waits = stand.api.metrics.http.in_flight.clone();
        let waiting = || waits.get_or_create(&Class::Read.into()).get() > 0;
        let (before, read) = (wire.clone(), format!("{path}?freshness=source"));
        let read = tokio::spawn(async move { before.get(&read).await });
        eventually("it waits", || async { waiting() }).await;
        pusher.send(end);
        let read = answered(&mut pusher, &source, None, async { read.await.expect("joined") }).await;
        assert_eq!((read.status.as_u16(), header(&read, "warning"), age(&read)), (200, "", 1), "{path}");
        assert_eq!(header(&read, "x-cache-shards"), "expected=1,synced=1,live=1");
    }
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d41_the_clients_own_deadline_is_answered_as_the_servers_is() {
    let (_directory, _, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let pusher = live(&stand, &source).await;
    for wire in stand.wires() {
        for path in [source.collection(), format!("{}/a", source.collection())] {
            for milliseconds in 1..40 {
                let read = wire.get(&format!("{path}?timeout={milliseconds}ms")).await;
                assert_eq!(refusal(&read), unconfirmed("amber"), "not 504, which libraries try again");
            }
        }
    }
    drop(pusher);
    stand.close().await;
}

/// kube-rs repeats 429, 503 and 504 by itself, for minutes.
#[tokio::test(flavor = "multi_thread")]
async fn d41_kube_tells_its_caller_once_what_it_was_told_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &setting(&Hands::default())).await;
    let source = Source::exports("amber").with(&["a"]);
    let pusher = live(&stand, &source).await;
    let url = format!("{}/services/cache/shards/amber/clusters/root", stand.base());
    let client = kube::Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("no TLS");
    let exports = ApiResource {
        group: "apis.kcp.io".into(),
        version: "v1alpha2".into(),
        api_version: "apis.kcp.io/v1alpha2".into(),
        kind: "APIExport".into(),
        plural: "apiexports".into(),
    };
    let api = Api::<DynamicObject>::all_with(client, &exports);
    let listed = api.list(&ListParams::default()).await.map(drop);
    let got = api.get("a").await.map(drop);
    for told in [listed, got] {
        let Err(kube::Error::Api(status)) = told else { panic!("{told:?}") };
        assert_eq!((status.code, &*status.reason), (500, "ServerTimeout"), "{status:?}");
    }
    let refusals = stand.api.metrics.freshness.refusals.get_or_create(&Refusal::Unconfirmed.into()).get();
    assert_eq!(refusals, 2, "it asked again by itself");
    drop(pusher);
    stand.close().await;
}

/// Suspended, the machine's clocks have both gone on.
#[tokio::test(flavor = "multi_thread")]
async fn d44_after_an_hour_of_suspension_no_age_is_below_an_hour_until_a_barrier_is_answered() {
    const HOUR: u64 = 3_600;
    let (_directory, hands, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    let wire = stand.wire();
    assert_eq!(age(&get(&wire, &source, "resourceVersion=0").await), 1);
    hands.pass(HOUR);
    for query in ["resourceVersion=0", "freshness=stale", "freshness=store", "maxStaleness=61m"] {
        let read = get(&wire, &source, query).await;
        assert_eq!(read.status, 200, "{query}");
        assert!(age(&read) > HOUR, "{query}: {read:?}");
    }
    assert!(age(&wire.get(&source.collection_in("*", "*")).await) > HOUR);
    assert!(age(&wire.get(&format!("{}/a?resourceVersion=0", source.collection())).await) > HOUR);
    for query in ["", "maxStaleness=59m"] {
        assert_eq!(refusal(&get(&wire, &source, query).await), unconfirmed("amber"), "{query}");
    }
    let document = wire.get("/services/cache/freshness?rtype=apiexports.apis.kcp.io").await.json();
    assert!(document["maxAgeSeconds"].as_u64() > Some(HOUR), "{document}");
    assert!(document["shards"][0]["cells"][0]["ageSeconds"].as_u64() > Some(HOUR), "{document}");
    let query =
        "resourceVersion=0&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let watched = get(&wire, &source, &format!("watch=true&timeoutSeconds=1&{query}")).await;
    let said = bookmarks(&watched);
    assert!(!said.is_empty(), "{watched:?}");
    for annotations in said {
        let age: u64 = annotations["shardcache.dev/max-age-seconds"]
            .as_str()
            .and_then(|age| age.parse().ok())
            .unwrap_or_else(|| panic!("{annotations}"));
        assert!(age > HOUR, "{annotations}");
    }

    // A barrier that was sent before, and is answered afterwards, proves at most what was before.
    let read = get(&wire, &source, "timeout=1ms").await;
    assert_eq!(refusal(&read), unconfirmed("amber"));
    let id = next_barrier(&mut pusher).await;
    hands.pass(HOUR);
    pusher.send(to_barrier(&source, id));
    let owed = settled(&mut pusher).await;
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert!(age(&read) > HOUR, "{read:?}");
    assert_eq!(refusal(&get(&wire, &source, "maxStaleness=59m").await), unconfirmed("amber"));
    // And a new one the present.
    let read = answered(&mut pusher, &source, owed, get(&wire, &source, "")).await;
    assert_eq!((read.status.as_u16(), age(&read)), (200, 1));
    drop(pusher);
    stand.close().await;
}

/// Paused by its host, a machine's boot clock has stood still: what was asked before, nobody knows when.
#[tokio::test(flavor = "multi_thread")]
async fn d44_a_barrier_that_a_jump_of_the_clocks_overtook_proves_nothing() {
    let (_directory, hands, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    let wire = stand.wire();
    assert_eq!(refusal(&get(&wire, &source, "timeout=1ms").await), unconfirmed("amber"));
    let id = next_barrier(&mut pusher).await;
    hands.jump(3_600);
    pusher.send(to_barrier(&source, id));
    let owed = settled(&mut pusher).await;
    for query in ["resourceVersion=0", "freshness=store"] {
        let read = get(&wire, &source, query).await;
        assert_eq!((read.status.as_u16(), header(&read, "x-cache-age")), (200, "unknown"), "{query}");
        assert!(header(&read, "warning").contains("amber (unknown)"), "{read:?}");
    }
    let document = wire.get("/services/cache/freshness").await.json();
    let cell = &document["shards"][0]["cells"][0];
    assert_eq!((&cell["ageSeconds"], &cell["state"]), (&Value::Null, &json!("Lagging")), "{document}");
    let read = answered(&mut pusher, &source, owed, get(&wire, &source, "")).await;
    assert_eq!((read.status.as_u16(), age(&read)), (200, 1));
    drop(pusher);
    stand.close().await;
}

/// A read while every barrier is answered, the one that is `owed` first: one that was sent before the read
/// proves nothing to it.
async fn answered(
    pusher: &mut Pusher,
    source: &Source,
    owed: Option<u64>,
    read: impl Future<Output = Answer>,
) -> Answer {
    let mut read = Box::pin(read);
    if let Some(id) = owed {
        pusher.send(to_barrier(source, id));
    }
    loop {
        let asked = tokio::select! {
            read = &mut read => return read,
            id = next_barrier(pusher) => id,
        };
        pusher.send(to_barrier(source, asked));
    }
}

/// Everything that the source had when it was asked is there.
fn to_barrier(source: &Source, id: u64) -> Value {
    let mut progress = source.progress();
    progress["barrier"] = id.into();
    progress
}

/// The number of the next barrier.
async fn next_barrier(pusher: &mut Pusher) -> u64 {
    pusher.until("barrier").await["id"].as_u64().expect("a number")
}

/// Reads to the acknowledgement of everything sent; the last barrier that came before it.
async fn settled(pusher: &mut Pusher) -> Option<u64> {
    let mut owed = None;
    loop {
        let frame = pusher.read().await;
        match frame["type"].as_str() {
            Some("ack") if frame["seq"] == pusher.seq() => return owed,
            Some("barrier") => owed = frame["id"].as_u64(),
            _ => {}
        }
    }
}
