//! D37–D44 over a real server: what reads are told of their freshness, when they wait, and when they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use serde_json::{Value, json};
use shardcache_proxy::freshness::FreshnessConfig;
use shardcache_proxy::freshness::clock::{Clock, Instant, Reading};
use shardcache_proxy::metrics::labels::ByCell;
use shardcache_proxy::service::ApiConfig;
use shardcache_storage::{Push, RosterChange, Store};
use tempfile::TempDir;

use super::pusher::{Door, Pusher};
use super::source::Source;
use crate::harness::eventually;
use crate::stand::{Setting, Stand};
use crate::wire::{Answer, Wire};

/// Clocks that a test moves.
#[derive(Clone, Default)]
pub(super) struct Hands {
    boot: Arc<AtomicU64>,
    wall: Arc<AtomicU64>,
}

impl Hands {
    fn clock(&self) -> Clock {
        let hands = self.clone();
        let began = std::time::Instant::now();
        Clock::new(move || {
            let moved =
                |hand: &AtomicU64| began.elapsed() + Duration::from_secs(hand.load(Ordering::Relaxed));
            let boot = Instant::after_boot(Duration::from_secs(1_000_000) + moved(&hands.boot));
            Reading { boot, wall: moved(&hands.wall) }
        })
    }

    /// Time passes.
    pub(super) fn pass(&self, seconds: u64) {
        self.boot.fetch_add(seconds, Ordering::Relaxed);
        self.wall.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The machine stood still, and only the wall clock knows.
    pub(super) fn jump(&self, seconds: u64) {
        self.wall.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// The product's defaults, but for a clock that can be moved and a patience that tests can wait for.
pub(super) fn setting(hands: &Hands) -> Setting {
    let freshness = FreshnessConfig {
        patience: Duration::from_millis(300),
        // Nothing is asked that no reader has asked for.
        confirm_interval: Duration::from_hours(1),
        clock: hands.clock(),
        ..FreshnessConfig::default()
    };
    let default = Setting::default();
    Setting { api: ApiConfig { freshness, ..default.api }, ..default }
}

/// A server in a directory that goes with it, and the hands of its clock.
pub(super) async fn scene() -> (TempDir, Hands, Stand) {
    let directory = tempfile::tempdir().expect("a directory");
    let hands = Hands::default();
    let stand = Stand::open(directory.path(), &setting(&hands)).await;
    (directory, hands, stand)
}

/// Answers the next barrier, after everything that is given was sent.
pub(super) async fn answer(pusher: &mut Pusher, source: &Source, before: Vec<Value>) -> u64 {
    let id = pusher.until("barrier").await["id"].as_u64().expect("a number");
    pusher.send_all(before);
    let mut progress = source.progress();
    progress["barrier"] = id.into();
    pusher.send(progress);
    pusher.settled().await;
    id
}

pub(super) fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().expect("text"))
}

pub(super) fn names(answer: &Answer) -> Vec<String> {
    let list = answer.json();
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("named").to_owned()).collect()
}

/// What a refusal says: code, reason, and the reasons of its causes with their fields.
pub(super) fn refusal(answer: &Answer) -> (u16, String, Vec<(String, String)>) {
    let status = answer.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    let causes = causes.iter().map(|cause| (text(&cause["reason"]), text(&cause["field"]))).collect();
    (answer.status.as_u16(), text(&status["reason"]), causes)
}

pub(super) fn unconfirmed(shard: &str) -> (u16, String, Vec<(String, String)>) {
    let causes = vec![("ShardUnconfirmed".to_owned(), format!("shards/{shard}"))];
    (500, "ServerTimeout".to_owned(), causes)
}

/// A shard that is synced and whose first barrier is answered.
pub(super) async fn live(stand: &Stand, source: &Source) -> Pusher {
    live_through(&Door::http2(stand).await, stand, source).await
}

/// The same through a door that there is.
pub(super) async fn live_through(door: &Door, stand: &Stand, source: &Source) -> Pusher {
    let seed = RosterChange::Seed { shards: vec![source.shard.into()] };
    stand.store.push(Push::Roster(seed)).await.expect("it is writable");
    let (mut control, _) = door.control(source.shard, "i1").await;
    control.send(json!({"type": "catalog", "types": [source.type_name()]}));
    control.settled().await;
    let mut pusher = door.synced(source, "i1").await;
    answer(&mut pusher, source, vec![]).await;
    pusher
}

pub(super) async fn get(wire: &Wire, source: &Source, query: &str) -> Answer {
    wire.get(&format!("{}?{query}", source.collection())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn b097_d38_a_read_of_one_shard_has_every_write_that_its_source_completed_before() {
    let (_directory, _, stand) = scene().await;
    let mut source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    for wire in stand.wires() {
        // Completed at the source, and on its way: only the barrier brings it.
        let name = format!("late-{}", source.head);
        let late = source.put(&name, "gold");
        let reading = get(&wire, &source, "");
        let (read, id) = join(reading, answer(&mut pusher, &source, vec![late])).await;
        assert!(id > 1, "a barrier of its own");
        assert_eq!(read.status, 200);
        assert!(names(&read).contains(&name), "{:?}", names(&read));
        assert_eq!(header(&read, "x-cache-complete"), "true");
        assert_eq!(header(&read, "x-cache-age"), "1", "a second has begun");
        assert_eq!(header(&read, "x-cache-shards"), "expected=1,synced=1,live=1");
        assert_eq!(header(&read, "warning"), "");
        // By name as well: an object that is not here yet is no 404.
        let late = source.put(&format!("{name}-2"), "gold");
        let path = format!("{}/{name}-2", source.collection());
        let (read, _) = join(wire.get(&path), answer(&mut pusher, &source, vec![late])).await;
        assert_eq!(read.status, 200, "{read:?}");
    }
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b097_d41_a_paused_pusher_fails_reads_honestly_and_stale_reads_never() {
    let (_directory, _, stand) = scene().await;
    let mut source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    for wire in stand.wires() {
        // It says how far it is, as a heartbeat does; but it does not answer the barrier.
        pusher.send(source.progress());
        pusher.settled().await;
        source.put("b", "gold");
        for query in
            ["", "freshness=source", "maxStaleness=0s", "resourceVersion=0&fieldSelector=metadata.name=b"]
        {
            let read = get(&wire, &source, query).await;
            if query.starts_with("resourceVersion=0") {
                assert_eq!((read.status.as_u16(), names(&read)), (200, vec![]), "any state will do");
                continue;
            }
            assert_eq!(refusal(&read), unconfirmed("amber"), "{query}");
            assert_eq!(header(&read, "retry-after"), "", "libraries would hide it for minutes");
            assert_eq!(read.json()["details"]["retryAfterSeconds"], 1);
        }
        let read = wire.get(&format!("{}/b", source.collection())).await;
        assert_eq!(refusal(&read), unconfirmed("amber"), "no false 404");
        // All shards: the store's state is what is promised.
        let all = wire.get(&source.collection_in("*", "*")).await;
        assert_eq!((all.status.as_u16(), names(&all)), (200, vec!["a".to_owned()]));
        let all = wire.get(&format!("{}?freshness=source", source.collection_in("*", "*"))).await;
        assert_eq!(refusal(&all), unconfirmed("amber"));
        source.delete("b");
    }
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b097_d38_a_thousand_reads_cost_their_source_two() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut setting = setting(&Hands::default());
    setting.api.freshness.patience = Duration::from_secs(20);
    setting.api.reads_in_flight_max = 2_000;
    let stand = Stand::open(directory.path(), &setting).await;
    let source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    let wire = &stand.wires()[1];
    let mut reads = Box::pin(join_all((0..1_000).map(|_| get(wire, &source, ""))));
    let mut barriers = 0;
    let answers = loop {
        tokio::select! {
            answers = &mut reads => break answers,
            _ = answer(&mut pusher, &source, vec![]) => barriers += 1,
        }
    };
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!((1..=2).contains(&barriers), "{barriers} barriers");
    drop((reads, pusher));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d37_bounded_reads_use_what_was_confirmed_before() {
    let (_directory, hands, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    let wire = stand.wire();
    hands.pass(20);
    let read = get(&wire, &source, "maxStaleness=30s").await;
    assert_eq!((read.status.as_u16(), header(&read, "x-cache-age")), (200, "21"));
    assert!(pusher.is_quiet(), "nobody was asked");
    assert_eq!(refusal(&get(&wire, &source, "maxStaleness=10s").await), unconfirmed("amber"));
    // The same through a header and through the path.
    let profile = |level: &str| {
        source.collection().replacen("/services/cache", &format!("/services/cache/profile/{level}"), 1)
    };
    let read = wire.get(&profile("max-age=30")).await;
    assert_eq!(read.status, 200, "{read:?}");
    assert_eq!(wire.get(&profile("stale")).await.status, 200);
    assert_eq!(
        refusal(&wire.get(&format!("{}?resourceVersion=0", profile("source"))).await),
        unconfirmed("amber")
    );
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b029_b095_d40_a_shard_that_is_away_is_served_with_its_age_and_fails_fresh_reads_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let hands = Hands::default();
    let mut setting = setting(&hands);
    let stand = Stand::open(directory.path(), &setting).await;
    let source = Source::exports("amber").with(&["a"]);
    let pusher = live(&stand, &source).await;
    let wire = stand.wire();
    drop(pusher);
    let sessions = &stand.api.metrics.push.sessions;
    eventually("its stream has ended", || async { sessions.get() == 0 }).await;
    // Until it has been away for a while, it may come back in time.
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert_eq!((read.status.as_u16(), header(&read, "warning")), (200, ""));
    hands.pass(60);
    let all = format!("{}?resourceVersion=0", source.collection_in("*", "*"));
    for read in [get(&wire, &source, "resourceVersion=0").await, wire.get(&all).await] {
        assert_eq!((read.status.as_u16(), names(&read)), (200, vec!["a".to_owned()]));
        assert_eq!(header(&read, "warning"), r#"299 - "cache: 1 of 1 shards unconfirmed: amber (61s)""#);
        assert_eq!(header(&read, "x-cache-age"), "61");
        assert_eq!(header(&read, "x-cache-complete"), "true", "old, not absent");
        assert_eq!(header(&read, "x-cache-shards"), "expected=1,synced=1,live=0");
    }
    let read = get(&wire, &source, "").await;
    assert_eq!(refusal(&read), unconfirmed("amber"));
    let message = read.json()["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(message, "Disconnected, last confirmed 61s ago");
    stand.close().await;

    // After a restart nobody knows how old it is, and nobody says otherwise.
    setting.api.freshness.patience = Duration::from_hours(1);
    let stand = Stand::open(directory.path(), &setting).await;
    let wire = stand.wire();
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert_eq!((read.status.as_u16(), header(&read, "x-cache-age")), (200, "unknown"));
    assert_eq!(header(&read, "warning"), r#"299 - "cache: 1 of 1 shards unconfirmed: amber (unknown)""#);
    let read = get(&wire, &source, "").await;
    assert_eq!(refusal(&read), unconfirmed("amber"), "at once, whatever the patience");
    let document = wire.get("/services/cache/freshness?rtype=apiexports.apis.kcp.io").await.json();
    let cell = &document["shards"][0]["cells"][0];
    assert_eq!((&cell["state"], &cell["ageSeconds"]), (&json!("Restored"), &Value::Null), "{document}");
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_a_first_sync_that_is_not_over_is_not_shown() {
    let (_directory, _, stand) = scene().await;
    let source = Source::exports("amber").with(&["a", "b"]);
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("amber", "i1").await;
    control.send(json!({"type": "catalog", "types": [source.type_name()]}));
    control.settled().await;
    let (mut pusher, _) = door.cell(&source, "i1").await;
    let mut frames = source.sync(1);
    let end = frames.pop().expect("syncEnd");
    pusher.send_all(frames);
    pusher.settled().await;
    let wire = stand.wire();
    let absent =
        (500, "ServerTimeout".to_owned(), vec![("NeverSynced".to_owned(), "shards/amber".to_owned())]);
    for query in [
        "",
        "resourceVersion=0",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    ] {
        assert_eq!(refusal(&get(&wire, &source, query).await), absent, "{query}");
    }
    let collection = source.collection();
    assert_eq!(
        wire.get(&format!("{collection}/a?resourceVersion=0")).await.status,
        200,
        "what is there is there"
    );
    assert_eq!(
        refusal(&wire.get(&format!("{collection}/c?resourceVersion=0")).await),
        absent,
        "no false 404"
    );
    // A shard that is joining keeps nobody from seeing all others.
    assert_eq!(wire.get(&source.collection_in("*", "*")).await.status, 200);
    assert_eq!(get(&wire, &source, "incomplete=allow&resourceVersion=0").await.status, 200, "knowingly");
    pusher.send(end);
    answer(&mut pusher, &source, vec![]).await;
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert_eq!((read.status.as_u16(), names(&read).len()), (200, 2));
    drop((pusher, control));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b112_d44_a_machine_that_stood_still_claims_nothing_until_it_has_asked() {
    let (_directory, hands, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let mut pusher = live(&stand, &source).await;
    let wire = stand.wire();
    hands.jump(3_600);
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert_eq!((read.status.as_u16(), header(&read, "x-cache-age")), (200, "unknown"));
    assert_eq!(refusal(&get(&wire, &source, "maxStaleness=1h").await), unconfirmed("amber"));
    let (read, _) = join(get(&wire, &source, "maxStaleness=1h"), answer(&mut pusher, &source, vec![])).await;
    assert_eq!((read.status.as_u16(), header(&read, "x-cache-age")), (200, "1"));
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d43_bookmarks_say_how_complete_and_how_old_a_view_is() {
    let (_directory, hands, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let pusher = live(&stand, &source).await;
    let query =
        "resourceVersion=0&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{}?watch=true&timeoutSeconds=1&{query}", source.collection_in("*", "*"));
    let wire = stand.wire();
    let said = bookmarks(&wire.get(&path).await);
    let first = &said[0];
    assert_eq!(first["k8s.io/initial-events-end"], "true", "{first}");
    assert_eq!(first["shardcache.dev/complete"], "true", "{first}");
    assert_eq!(first.get("shardcache.dev/unconfirmed"), None, "{first}");
    drop(pusher);
    hands.pass(100);
    let said = bookmarks(&wire.get(&path).await);
    let later = said.last().expect("there are bookmarks");
    assert_eq!(
        (&later["shardcache.dev/unconfirmed"], &later["shardcache.dev/complete"]),
        (&json!("amber"), &json!("true"))
    );
    let age: u64 = later["shardcache.dev/max-age-seconds"].as_str().expect("text").parse().expect("a number");
    assert!(age >= 100, "{later}");
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d44_bookmarks_forget_what_was_known_before_the_machine_stood_still() {
    let (_directory, hands, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let pusher = live(&stand, &source).await;
    let query =
        "resourceVersion=0&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let (all, wire) = (source.collection_in("*", "*"), stand.wire());
    let mut watch = wire.watch(&all, query).await.expect("watched");
    // The object, and the bookmark of which others are told again for a moment.
    watch.expect().await;
    watch.expect().await;
    // Now a moment ago is an hour ago.
    hands.jump(3_600);
    let told = bookmarks(&wire.get(&format!("{all}?watch=true&timeoutSeconds=1&{query}")).await);
    assert_eq!(told[0]["shardcache.dev/max-age-seconds"], "unknown", "{told:?}");
    drop(pusher);
    stand.close().await;
}

/// The annotations of all bookmarks of a watch that has ended.
pub(super) fn bookmarks(watch: &Answer) -> Vec<Value> {
    let lines = watch.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| serde_json::from_slice::<Value>(line).expect("an event"));
    events
        .filter(|event| event["type"] == "BOOKMARK")
        .map(|event| event["object"]["metadata"]["annotations"].clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_by_name() {
    let (_directory, _, stand) = scene().await;
    let source = Source::exports("amber").with(&["a"]);
    let pusher = live(&stand, &source).await;
    let wire = stand.wire();
    let stranger = Source::exports("stranger");
    for (path, code, begins) in [
        (format!("{}?freshness=fresh", source.collection()), 400, "freshness: "),
        (format!("{}?maxStaleness=x", source.collection()), 400, "maxStaleness: "),
        (format!("{}?incomplete=x", source.collection()), 400, "incomplete: "),
        (format!("{}?freshness=source&resourceVersion=0", source.collection()), 400, "freshness: "),
        (format!("{}?freshness=source&watch=1&resourceVersion=1", source.collection()), 400, "freshness: "),
        ("/services/cache/profile/fast/shards/*/clusters/*/api".to_owned(), 400, "profile: "),
        (format!("{}?freshness=source", stranger.collection()), 404, "shard \"stranger\""),
        ("/services/cache/freshness?shard=stranger".to_owned(), 404, "shard \"stranger\""),
        ("/services/cache/freshness?rtype=A/B".to_owned(), 400, "rtype: "),
    ] {
        let answer = wire.get(&path).await;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, code, "{path}: {message}");
        assert!(message.starts_with(begins), "{path}: {message}");
    }
    // Who has said nothing of freshness is told that nothing is known.
    let read = get(&wire, &stranger, "").await;
    assert_eq!((read.status.as_u16(), header(&read, "x-cache-complete")), (200, "unknown"));
    assert_eq!(header(&read, "x-cache-age"), "");
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b029_a_server_is_not_ready_while_it_is_older_than_it_may_be() {
    let directory = tempfile::tempdir().expect("a directory");
    let hands = Hands::default();
    let mut setting = setting(&hands);
    setting.api.freshness.staleness_max = Some(Duration::from_mins(2));
    setting.api.freshness.measures_cells = true;
    let stand = Stand::open(directory.path(), &setting).await;
    let wire = stand.wire();
    let ready = async |wire: &Wire| wire.get("/readyz").await.status.as_u16();
    assert_eq!(ready(&wire).await, 200, "nothing is here, and nothing is old");
    let source = Source::exports("amber").with(&["a", "b"]);
    let mut pusher = live(&stand, &source).await;
    assert_eq!(ready(&wire).await, 200);
    wire.get("/metrics").await;
    let cell = &stand.api.metrics.freshness.cell;
    let amber = ByCell { shard: "amber".into(), group: "apis.kcp.io".into(), resource: "apiexports".into() };
    let whole = [&cell.objects, &cell.position, &cell.generation]
        .map(|family| family.get(&amber).map(|gauge| gauge.get()));
    assert_eq!(whole, [Some(2), i64::try_from(source.head).ok(), Some(1)]);
    assert!(cell.synced.get(&amber).is_some_and(|time| time.get() > 1_000_000_000));
    assert!(cell.age.get(&amber).is_some_and(|age| age.get() < 60.0));
    // Its feed is frozen: the pusher is there and says nothing.
    hands.pass(121);
    let refused = wire.get("/readyz/freshness").await;
    assert_eq!(refused.status, 500);
    let why = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(why.contains("apiexports.apis.kcp.io of shard amber was last confirmed 12"), "{why}");
    assert_eq!((ready(&wire).await, wire.get("/livez").await.status.as_u16()), (500, 200));
    assert_eq!(get(&wire, &source, "resourceVersion=0").await.status, 200, "who asks is answered");
    let read = join(get(&wire, &source, "freshness=source"), answer(&mut pusher, &source, vec![])).await.0;
    assert_eq!((read.status.as_u16(), ready(&wire).await), (200, 200));
    drop(pusher);
    stand.close().await;
    // How old it is after a start nobody knows, until it has been confirmed.
    let stand = Stand::open(directory.path(), &setting).await;
    assert_eq!(ready(&stand.wire()).await, 500);
    stand.close().await;
}
