//! Reports from the field that the protocol decides, by their ids.

use serde_json::{Value, json};
use shardcache_proxy::metrics::labels::FrameOutcome;

use super::pusher::{Door, held, served, status_until};
use super::source::{Source, control_path};
use crate::checker::{Replay, Step};
use crate::stand::{Setting, Stand};
use crate::wire::Watch;

/// A watcher that counts what it is shown.
struct Observer {
    watch: Watch,
    client: Replay,
}

impl Observer {
    /// From now on, of a source's collection or of the same under a wildcard.
    async fn of(stand: &Stand, path: &str) -> Self {
        let wire = stand.wire();
        let list = wire.list(path).await.expect("listed");
        let from = format!("resourceVersion={}&allowWatchBookmarks=true", list.version);
        Self { watch: wire.watch(path, &from).await.expect("watched"), client: Replay::after(&list) }
    }

    /// The events up to an ack: sign and name.
    async fn until(&mut self, ack: &Value) -> Vec<String> {
        let to: u64 = ack["cacheRV"].as_str().expect("text").parse().expect("a number");
        let mut seen = vec![];
        while self.client.resume_at() < Some(to) {
            let step = self.watch.expect().await;
            self.client.step(&step).unwrap_or_else(|violation| panic!("{violation}"));
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match &step {
                Step::Added(object) => seen.push(format!("+{}", name(object))),
                Step::Modified(object) => seen.push(format!("~{}", name(object))),
                Step::Deleted(object) => seen.push(format!("-{}", name(object))),
                Step::Bookmark { .. } => {}
                Step::Error { .. } => panic!("{step:?}"),
            }
        }
        seen
    }
}

/// A server and a way in.
struct Bench {
    _directory: tempfile::TempDir,
    stand: Stand,
    door: Door,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let stand = Stand::open(directory.path(), &Setting::default()).await;
        let door = Door::http2(&stand).await;
        Self { _directory: directory, stand, door }
    }

    async fn matches(&self, source: &Source, ack: &Value) {
        assert_eq!(served(&self.stand.wire(), source, ack).await, held(source));
    }

    fn frames(&self, outcome: FrameOutcome) -> u64 {
        self.stand.api.metrics.push.frames.get_or_create(&outcome.into()).get()
    }

    async fn end(self) {
        drop(self.door);
        self.stand.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b019_what_was_deleted_while_the_shard_was_away_is_deleted_once() {
    let bench = Bench::new().await;
    let mut source = Source::roles("amber").with(&["a", "b", "c"]);
    drop(bench.door.synced(&source, "i1").await);
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    source.delete("b");
    let (mut pusher, _) = bench.door.cell(&source, "i1").await;
    pusher.send_all(source.sync(2));
    let ack = pusher.settled().await;
    assert_eq!(observer.until(&ack).await, ["-b"]);
    bench.matches(&source, &ack).await;
    drop((pusher, observer));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b020_nothing_is_pruned_before_the_list_has_ended() {
    let bench = Bench::new().await;
    let mut source = Source::roles("amber").with(&["a", "b", "c"]);
    drop(bench.door.synced(&source, "i1").await);
    let before = held(&source);
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    source.delete("b");
    source.put("a", "iron");
    let mut frames = source.sync(2);
    let rest = frames.split_off(2);
    let (mut pusher, _) = bench.door.cell(&source, "i1").await;
    pusher.send_all(frames);
    let ack = pusher.settled().await;
    assert_eq!(ack.get("position"), None, "the cell says that it is not complete");
    assert_eq!(observer.until(&ack).await, ["~a"]);
    assert_eq!(served(&bench.stand.wire(), &source, &ack).await.len(), before.len());
    let status = status_until(&bench.stand.wire(), "amber", |s| s["cells"][0]["complete"] == false).await;
    assert_eq!(status["cells"][0]["pushManaged"], true);
    pusher.send_all(rest);
    let ack = pusher.settled().await;
    assert_eq!(observer.until(&ack).await, ["-b"]);
    bench.matches(&source, &ack).await;
    drop((pusher, observer));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b022_a_lone_pushed_event_does_not_wait_for_the_next() {
    let bench = Bench::new().await;
    let mut source = Source::roles("amber");
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    pusher.send(source.put("alone", "gold"));
    let added = loop {
        // Nothing more is sent, and the ack is not even read.
        match observer.watch.expect().await {
            Step::Added(object) => break object,
            step => assert!(matches!(step, Step::Bookmark { .. }), "{step:?}"),
        }
    };
    assert_eq!(added["metadata"]["name"], "alone");
    drop((pusher, observer));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b023_a_late_deletion_does_not_hit_the_objects_successor() {
    let bench = Bench::new().await;
    let mut source = Source::roles("amber").with(&["x"]);
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    let deletion = source.delete("x");
    pusher.send(deletion.clone());
    pusher.send(source.put("x", "iron"));
    // The duplicate as it was, and one that claims to be newer: its uid is the old one.
    pusher.send(deletion.clone());
    let mut claimed = deletion;
    source.head += 1;
    claimed["rv"] = source.head.to_string().into();
    pusher.send(claimed);
    pusher.send(source.progress());
    let ack = pusher.settled().await;
    assert_eq!(observer.until(&ack).await, ["-x", "+x"]);
    bench.matches(&source, &ack).await;
    assert_eq!((bench.frames(FrameOutcome::Duplicate), bench.frames(FrameOutcome::Stale)), (1, 1));
    drop((pusher, observer));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b025_a_pushed_deletion_carries_its_own_version_and_the_last_content() {
    let bench = Bench::new().await;
    let mut source = Source::roles("amber").with(&["a", "b", "c"]);
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    pusher.send_all([source.put("a", "iron"), source.put("b", "iron"), source.delete("a")]);
    let ack = pusher.settled().await;
    let deleted = loop {
        match observer.watch.expect().await {
            Step::Deleted(object) => break object,
            step => assert!(matches!(step, Step::Modified(_) | Step::Bookmark { .. }), "{step:?}"),
        }
    };
    assert_eq!(deleted["metadata"]["labels"]["tier"], "iron");
    assert_eq!(deleted["metadata"]["resourceVersion"], ack["cacheRV"], "the newest there is");
    // Who goes on from there is shown nothing again.
    let from = format!("resourceVersion={}&allowWatchBookmarks=true", ack["cacheRV"].as_str().expect("text"));
    let mut resumed = bench.stand.wire().watch(&source.collection(), &from).await.expect("watched");
    let step = resumed.expect().await;
    assert!(matches!(step, Step::Bookmark { .. }), "{step:?}");
    drop((pusher, observer, resumed));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b031_a_delayed_older_state_neither_overwrites_nor_resurrects() {
    let bench = Bench::new().await;
    let mut source = Source::roles("amber").with(&["a"]);
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    let older = source.put("a", "iron");
    let newer = source.put("a", "lead");
    pusher.send(newer);
    pusher.send(older.clone());
    let deletion = source.delete("a");
    pusher.send(deletion);
    pusher.send(older);
    pusher.send(source.progress());
    let ack = pusher.settled().await;
    assert_eq!(observer.until(&ack).await, ["~a", "-a"]);
    bench.matches(&source, &ack).await;
    assert_eq!(bench.frames(FrameOutcome::Duplicate), 2);
    // In a sync too, where versions are in no order.
    let mut frames = vec![json!({"type": "syncStart", "sync": 2})];
    let early = source.put("b", "iron");
    frames.push(source.put("b", "gold"));
    frames.push(early);
    frames.push(source.sync(2).pop().expect("its end"));
    pusher.send_all(frames);
    let ack = pusher.settled().await;
    assert_eq!(observer.until(&ack).await, ["+b"]);
    bench.matches(&source, &ack).await;
    assert_eq!(bench.frames(FrameOutcome::Stale), 1);
    drop((pusher, observer));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b032_a_pushed_burst_reaches_everyone_in_order() {
    let bench = Bench::new().await;
    let names = ["a", "b", "c"];
    let mut source = Source::roles("amber").with(&names);
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut observers = vec![];
    for _ in 0..20 {
        observers.push(Observer::of(&bench.stand, &source.collection_in("*", "*")).await);
    }
    let burst: Vec<_> = names.iter().cycle().take(2_000).collect();
    for name in &burst {
        pusher.send(source.put(name, "iron"));
    }
    let ack = pusher.settled().await;
    let expected: Vec<_> = burst.iter().map(|name| format!("~{name}")).collect();
    for observer in &mut observers {
        assert_eq!(observer.until(&ack).await, expected);
    }
    bench.matches(&source, &ack).await;
    drop((pusher, observers));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b094_b103_a_shard_that_pushes_for_the_first_time_joins_open_watches() {
    let bench = Bench::new().await;
    let known = Source::roles("amber").with(&["a"]);
    let mut first = bench.door.synced(&known, "i1").await;
    let mut observers = vec![];
    for _ in 0..20 {
        observers.push(Observer::of(&bench.stand, &known.collection_in("*", "*")).await);
    }
    let joining = Source::roles("s9").with(&["n0", "n1", "n2"]);
    let mut second = bench.door.synced(&joining, "j1").await;
    second.send(joining.progress());
    let ack = second.settled().await;
    for observer in &mut observers {
        assert_eq!(observer.until(&ack).await, ["+n0", "+n1", "+n2"], "on the same connection");
    }
    bench.matches(&joining, &ack).await;
    first.send(known.progress());
    first.settled().await;
    drop((first, second, observers));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b095_a_shard_whose_pusher_is_away_is_served_as_it_was_last() {
    let bench = Bench::new().await;
    let away = Source::roles("s2").with(&["there"]);
    let mut here = Source::roles("s1").with(&["a"]);
    drop(bench.door.synced(&away, "i2").await);
    let mut pusher = bench.door.synced(&here, "i1").await;
    status_until(&bench.stand.wire(), "s2", |status| status["streams"] == 0).await;
    pusher.send(here.put("b", "gold"));
    pusher.settled().await;
    for query in ["", "?resourceVersion=0"] {
        let list = bench.stand.wire().list(&format!("{}{query}", here.collection_in("*", "*"))).await;
        let names: Vec<String> =
            list.expect("listed").items.into_keys().map(|key| key.0[3].clone()).collect();
        assert_eq!(names, ["a", "b", "there"], "{query}");
    }
    drop(pusher);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b100_only_the_newer_of_two_sources_of_a_shard_is_heard() {
    let bench = Bench::new().await;
    let source = Source::roles("s1").with(&["a"]);
    let mut old = bench.door.synced(&source, "i1").await;
    // One that is not newer is refused.
    let (_, refused) = bench.door.open(&source.push_path(), source.hello("i2")).await;
    assert_eq!(refused["status"]["code"], 409, "{refused}");
    // A newer one, from another place, while the old one is connected.
    let mut moved = Source { id: "moved".into(), ..source.clone() };
    let mut hello = moved.hello("i2");
    hello["takeover"] = true.into();
    let (mut new, welcome) = bench.door.open(&moved.push_path(), hello).await;
    assert_eq!((&welcome["term"], &welcome["reason"]), (&json!(2), &json!("SourceChanged")), "{welcome}");
    let mut ghost = source.clone();
    old.send(ghost.put("ghost", "gold"));
    assert_eq!(old.until("fenced").await["holder"], "h-i2");
    old.ended().await;
    moved.put("mine", "gold");
    new.send_all(moved.sync(1));
    let ack = new.settled().await;
    bench.matches(&moved, &ack).await;
    drop((old, new));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b101_a_type_that_a_shard_stops_serving_leaves_alone_and_comes_back() {
    let bench = Bench::new().await;
    let mut source = Source::widgets("s1").with(&["a", "b"]);
    let other_type = Source::exports("s1").with(&["x"]);
    let other_shard = Source::widgets("s2").with(&["a"]);
    let (mut control, _) = bench.door.control("s1", "i1").await;
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut exports = bench.door.synced(&other_type, "i1").await;
    let mut second = bench.door.synced(&other_shard, "j1").await;
    // Its CRD was deleted: a complete list has nothing, and the catalog goes without it.
    let kept = source.clone();
    source.objects.clear();
    source.head += 1;
    let mut frames = source.sync(2);
    frames.last_mut().expect("its end")["allowEmpty"] = true.into();
    pusher.send_all(frames);
    pusher.send(json!({"type": "bye"}));
    control.send(json!({"type": "catalog", "types": [other_type.type_name()]}));
    control.settled().await;
    while pusher.next().await.is_some() {}
    exports.send(other_type.progress());
    let ack = exports.settled().await;
    bench.matches(&source, &ack).await;
    bench.matches(&other_type, &ack).await;
    second.send(other_shard.progress());
    let ack = second.settled().await;
    bench.matches(&other_shard, &ack).await;
    // And it is made again.
    let mut back = Source { head: source.head, ..kept };
    back.put("c", "gold");
    let (mut pusher, _) = bench.door.cell(&back, "i1").await;
    pusher.send_all(back.sync(3));
    let ack = pusher.settled().await;
    bench.matches(&back, &ack).await;
    control.send(json!({"type": "catalog", "types": [other_type.type_name(), back.type_name()]}));
    control.settled().await;
    drop((control, pusher, exports, second));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b104_a_lost_deletion_is_seen_at_the_next_heartbeat_and_repaired() {
    let bench = Bench::new().await;
    let mut source = Source::roles("s1").with(&["a", "b", "c"]);
    let exports = Source::exports("s1").with(&["x"]);
    let mut pusher = bench.door.synced(&source, "i1").await;
    let mut other = bench.door.synced(&exports, "i1").await;
    let mut observer = Observer::of(&bench.stand, &source.collection()).await;
    drop(source.delete("b"));
    pusher.send(source.progress());
    pusher.until("resync").await;
    assert_eq!(bench.stand.api.metrics.push.resyncs.get(), 1);
    let wire = bench.stand.wire();
    let status = status_until(&wire, "s1", |status| {
        let cells = status["cells"].as_array();
        cells.is_some_and(|cells| cells.iter().any(|cell| cell["complete"] == false))
    })
    .await;
    let waiting: Vec<&Value> =
        status["cells"].as_array().expect("cells").iter().filter(|cell| cell["complete"] == false).collect();
    assert_eq!(waiting.len(), 1, "of this type only: {status}");
    pusher.send_all(source.sync(2));
    let ack = pusher.settled().await;
    assert_eq!(observer.until(&ack).await, ["-b"]);
    bench.matches(&source, &ack).await;
    let status = status_until(&wire, "s1", |status| {
        status["cells"].as_array().is_some_and(|cells| cells.iter().all(|cell| cell["complete"] == true))
    })
    .await;
    // What a cheap query says, to be compared by whoever wants to.
    let cells = status["cells"].as_array().expect("cells");
    let cell = cells.iter().find(|cell| cell["resource"] == "clusterroles").expect("it is pushed");
    assert_eq!((&cell["count"], &cell["digest"]), (&json!(2), &json!(source.digest().to_string())));
    other.send(exports.progress());
    other.settled().await;
    assert_eq!(wire.get(&control_path("s1")).await.status, 200);
    drop((pusher, other, observer));
    bench.end().await;
}

/// What a pusher is told of its write is what readers ask for.
#[tokio::test(flavor = "multi_thread")]
async fn b113_a_pushed_write_is_in_every_read_that_asks_for_the_version_of_its_ack() {
    let bench = Bench::new().await;
    let wire = bench.stand.wire();
    let mut source = Source::roles("amber").with(&["a"]);
    let mut pusher = bench.door.synced(&source, "i1").await;
    for number in 0..20 {
        let name = format!("role-{number}");
        pusher.send(source.put(&name, "gold"));
        let ack = pusher.settled().await;
        let written = ack["cacheRV"].as_str().expect("text").to_owned();
        for path in [source.collection(), source.collection_in("*", "*")] {
            for query in ["", "&resourceVersionMatch=NotOlderThan"] {
                let list = wire.list(&format!("{path}?resourceVersion={written}{query}")).await;
                let list = list.expect("it is there");
                let named = |object: &Value| object["metadata"]["name"] == name.as_str();
                assert!(list.items.values().any(named), "{path}{query}: {name} is missing");
            }
        }
        // The version that is acknowledged is the store's, which others write to as well (shards' views).
        let number =
            |text: &Value| text.as_str().and_then(|text| text.parse::<u64>().ok()).expect("a version");
        let path = format!("{}/{name}?resourceVersion={written}", source.collection());
        let version = number(&wire.get(&path).await.json()["metadata"]["resourceVersion"]);
        assert!(version <= number(&ack["cacheRV"]), "{version} {written}");
        // Sent again, it changes nothing.
        pusher.send(source.upsert(&name));
        assert!(number(&pusher.settled().await["cacheRV"]) >= number(&ack["cacheRV"]));
        assert_eq!(number(&wire.get(&path).await.json()["metadata"]["resourceVersion"]), version);
    }
    drop(pusher);
    bench.end().await;
}
