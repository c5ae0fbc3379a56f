//! The eight invariants of ARCHITECTURE.md, each by its name, over real HTTP and through the checker.

mod gate;
mod reader;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use serde_json::json;
use shardcache_proxy::cache::CacheConfig;
use shardcache_proxy::service::ApiConfig;
use shardcache_storage::{BackendFactory, RedbOptions, RedbStore, Store};

use crate::checker::{List, Replay, Step, Version, Written, agree};
use crate::stand::{Setting, Stand};
use crate::wire::{PATIENCE, Watch, Wire, with, within};
use crate::writer::{Journal, Writer, collection};
use gate::{Gate, GatedDisk, put};
use reader::Reader;

const EVERYTHING: (&str, &str) = ("*", "*");

fn everything() -> String {
    collection(EVERYTHING.0, EVERYTHING.1)
}

/// Four writers at once, so many writes each; what they were told.
async fn load(wire: &Wire, journal: &Arc<Journal>, first: u64, each: usize) {
    let running = (first..first + 4).map(|number| {
        let writer = Writer::new(number, Arc::clone(journal));
        tokio::spawn(writer.run_for(wire.clone(), each))
    });
    for ended in join_all(running).await {
        ended.expect("no writer was told nonsense");
    }
}

/// The state at a version, by what the writers were told.
fn fold(written: &Written, version: Version) -> List {
    let mut items = BTreeMap::new();
    for (key, object) in written.range(..=version).map(|(_, write)| write) {
        match object {
            Some(object) => items.insert(key.clone(), object.clone()),
            None => items.remove(key),
        };
    }
    List { version, items }
}

async fn list(wire: &Wire, path: &str) -> List {
    wire.list(path).await.unwrap_or_else(|answer| panic!("{path}: {answer:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_durable_first() {
    let gate = Gate::default();
    let disk = gate.clone();
    let factory: BackendFactory = Arc::new(move || Ok(Box::new(GatedDisk::new(disk.clone()))));
    let options = RedbOptions::new("unused");
    let opening = tokio::task::spawn_blocking(move || RedbStore::open_with_backend(options, &factory));
    let store = opening.await.expect("joined").expect("an empty disk is a new store");
    let stand = Stand::over(store, &Setting::default()).await;
    let wire = stand.wire();
    let before = list(&wire, &everything()).await;
    let query = format!("resourceVersion={}&allowWatchBookmarks=true", before.version);
    let mut watch = wire.watch(&everything(), &query).await.expect("admitted");

    gate.shut();
    let path = collection("amber", "root");
    let body = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "pending" } });
    let pending = tokio::spawn({
        let wire = wire.clone();
        async move { wire.call(Method::POST, &path, body.to_string()).await }
    });
    let waits = gate.clone();
    tokio::task::spawn_blocking(move || waits.wait_for_a_sync()).await.expect("joined");
    // It is written and not durable: a list, a get, a watch and several bookmarks know nothing of it.
    for _ in 0..3 {
        assert_eq!(list(&wire, &everything()).await, before);
        let get = wire.get(&format!("{}/pending", collection("amber", "root"))).await;
        assert_eq!(get.status, 404);
        let step = watch.expect().await;
        assert_eq!(step, Step::Bookmark { version: before.version, initial_end: false });
    }
    assert!(!pending.is_finished(), "acknowledged before it was durable");

    gate.open();
    let acknowledged = pending.await.expect("joined");
    assert_eq!(acknowledged.status, 201);
    let object = acknowledged.json();
    // After the acknowledgement everybody knows.
    assert_eq!(list(&wire, &everything()).await.items.values().collect::<Vec<_>>(), [&object]);
    let next = async {
        loop {
            match watch.expect().await {
                Step::Bookmark { version, .. } if version == before.version => {}
                step => break step,
            }
        }
    };
    assert_eq!(within(next).await, Step::Added(object));
    drop(watch);
    stand.close().await;
}

/// Writers and watchers of several scopes at once; what the watchers saw, and what was written.
async fn churn(dir: &Path, setting: &Setting) -> (Vec<Replay>, Written, List) {
    let stand = Stand::open(dir, setting).await;
    let wire = stand.wire();
    let journal = Arc::new(Journal::default());
    load(&wire, &journal, 0, 10).await;
    let scopes = [EVERYTHING, EVERYTHING, ("amber", "*"), ("*", "root"), ("beryl", "zeta")];
    let mut readers = vec![];
    for (shard, cluster) in scopes {
        readers.push(Reader::start(stand.wires(), collection(shard, cluster)).await);
    }
    load(&wire, &journal, 4, 60).await;
    let last = list(&wire, &everything()).await;
    let mut replays = vec![];
    for (reader, (shard, cluster)) in readers.into_iter().zip(scopes) {
        let replay = reader.finish(last.version).await;
        let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", last.version);
        let expected = list(&wire, &with(&collection(shard, cluster), &exact)).await;
        replay.equals(&expected).unwrap_or_else(|violation| panic!("{violation}"));
        let mut written = journal.written();
        let covers = |wanted: &str, name: &str| wanted == "*" || wanted == name;
        written.retain(|_, (key, _)| covers(shard, &key.0[0]) && covers(cluster, &key.0[1]));
        replay.contains(&written).unwrap_or_else(|violation| panic!("{violation}"));
        assert!(replay.changes() > 0, "{shard}/{cluster} saw nothing, so nothing was tested");
        replays.push(replay);
    }
    stand.close().await;
    (replays, journal.written(), last)
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_ordered() {
    // Every reader refuses versions that do not rise; what they agree on is the order of the log.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (replays, ..) = churn(dir.path(), &Setting::default()).await;
    for a in &replays {
        for b in &replays {
            agree(a, b).unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_unique() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (replays, written, last) = churn(dir.path(), &Setting::default()).await;
    // Two readers of everything: each write once, and nothing that nobody wrote.
    for replay in &replays[..2] {
        let after = replay.started_at() + 1;
        assert_eq!(replay.changes(), written.range(after..=last.version).count());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_reliable() {
    // Readers are cut and resume all the time, and nothing but the log on disk remembers.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cache = CacheConfig { history_bytes: 0, snapshots_max: 1, ..CacheConfig::default() };
    let (replays, written, last) = churn(dir.path(), &Setting { cache, ..Setting::default() }).await;
    assert_eq!(fold(&written, last.version).items, last.items);
    assert_eq!(replays[0].items(), &last.items);
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_atomic() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stand = Stand::open(dir.path(), &Setting::default()).await;
    let wire = stand.wire();
    let names = ["a", "b", "c", "d", "e"];
    let batch = |value: usize| names.iter().map(|name| put(name, value, 0)).collect::<Vec<_>>();
    stand.commit(batch(0)).await;
    let done = Arc::new(AtomicBool::new(false));
    let (progress, versions) = tokio::sync::watch::channel([0; 3]);
    let lists = (0..3).map(|reader| {
        let (wire, done, progress) = (wire.clone(), Arc::clone(&done), progress.clone());
        tokio::spawn(async move {
            let mut seen: BTreeMap<Version, List> = BTreeMap::new();
            while !done.load(Ordering::Relaxed) {
                // In pages or whole: the content is of the version.
                let path = if reader == 0 { with(&everything(), "limit=2") } else { everything() };
                let list = list(&wire, &path).await;
                assert_eq!(list.items.len(), 5);
                let mut values = list.items.values().map(|item| &item["spec"]["value"]);
                let first = values.next();
                assert!(values.all(|value| Some(value) == first), "half a batch: {list:?}");
                if let Some(before) = seen.insert(list.version, list.clone()) {
                    assert_eq!(before, list, "two contents of one version");
                }
                progress.send_modify(|versions| versions[reader] = seen.len());
            }
        })
    });
    let lists: Vec<_> = lists.collect();
    let start = list(&wire, &everything()).await;
    let query = format!("resourceVersion={}&allowWatchBookmarks=true", start.version);
    let mut watch = wire.watch(&everything(), &query).await.expect("admitted");
    let writing = async {
        // So many, and then until every reader has seen some of them.
        let mut value = 1;
        while value < 200 || versions.borrow().iter().any(|seen| *seen < 3) {
            assert!(lists.iter().all(|list| !list.is_finished()), "a list was torn");
            stand.commit(batch(value)).await;
            value += 1;
        }
    };
    within(writing).await;
    done.store(true, Ordering::Relaxed);
    for list in join_all(lists).await {
        list.expect("no list was torn");
    }
    // Bookmarks are boundaries of commits too: at each, the batch is whole.
    let mut replay = Replay::after(&start);
    let last = list(&wire, &everything()).await;
    let reading = async {
        while replay.resume_at() < Some(last.version) {
            let step = watch.expect().await;
            replay.step(&step).unwrap_or_else(|violation| panic!("{violation}"));
            if let Step::Bookmark { .. } = step {
                let mut values = replay.items().values().map(|item| &item["spec"]["value"]);
                let first = values.next();
                assert!(values.all(|value| Some(value) == first), "a bookmark inside a commit");
            }
        }
    };
    within(reading).await;
    replay.equals(&last).unwrap_or_else(|violation| panic!("{violation}"));
    drop(watch);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_resumable() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let journal = Arc::new(Journal::default());
    let mut shown: Vec<Version> = vec![];
    for round in 0..3 {
        let stand = Stand::open(dir.path(), &Setting::default()).await;
        let wire = stand.wire();
        shown.push(list(&wire, &everything()).await.version);
        load(&wire, &journal, round * 4, 5).await;
        stand.close().await;
    }
    let stand = Stand::open(dir.path(), &Setting::default()).await;
    let wire = stand.wire();
    let written = journal.written();
    let last = list(&wire, &everything()).await;
    assert_eq!(last.items, fold(&written, last.version).items);
    shown.extend(written.keys());
    // From every version that was ever shown, exactly the rest.
    for version in &shown {
        let query = format!("resourceVersion={version}");
        let mut watch = wire.watch(&everything(), &query).await.expect("admitted");
        let mut replay = Replay::after(&fold(&written, *version));
        for _ in written.range(version + 1..) {
            let step = watch.expect().await;
            replay.step(&step).unwrap_or_else(|violation| panic!("from {version}: {violation}"));
        }
        replay.contains(&written).unwrap_or_else(|violation| panic!("from {version}: {violation}"));
        replay.equals(&last).unwrap_or_else(|violation| panic!("from {version}: {violation}"));
    }
    // From a version that no opening here ever issued, and from one still to come, 410 at once.
    let elsewhere = [shown[1] - 1024, shown[0] ^ 1, last.version + 1024, 1, 1 << 62, (1 << 63) - 1];
    for version in elsewhere {
        let query = format!("resourceVersion={version}");
        let mut watch = wire.watch(&everything(), &query).await.expect("admitted");
        let expired = Step::Error { code: 410, reason: "Expired".to_owned() };
        assert_eq!(watch.expect().await, expired, "{version}");
        assert_eq!(watch.next().await, None, "{version}");
    }
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i7_bookmarkable() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let api = ApiConfig { bookmark_interval: Duration::from_millis(2), ..ApiConfig::default() };
    let stand = Stand::open(dir.path(), &Setting { api, ..Setting::default() }).await;
    let wire = stand.wire();
    let start = list(&wire, &everything()).await;
    let journal = Arc::new(Journal::default());
    let query = format!("resourceVersion={}&allowWatchBookmarks=true", start.version);
    let mut watches = vec![];
    for (shard, cluster) in [EVERYTHING, ("amber", "root"), ("nowhere", "*")] {
        let path = collection(shard, cluster);
        let watch = wire.watch(&path, &query).await.expect("admitted");
        watches.push((path, watch, Replay::after(&start)));
    }
    load(&wire, &journal, 0, 40).await;
    let last = list(&wire, &everything()).await;
    let mut marks = 0;
    for (path, watch, replay) in &mut watches {
        let reading = async {
            while replay.resume_at() < Some(last.version) {
                let step = watch.expect().await;
                replay.step(&step).unwrap_or_else(|violation| panic!("{path}: {violation}"));
                if let Step::Bookmark { version, .. } = step {
                    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
                    let expected = list(&wire, &with(path, &exact)).await;
                    replay.equals(&expected).unwrap_or_else(|violation| panic!("{path}: {violation}"));
                    marks += 1;
                }
            }
        };
        within(reading).await;
    }
    assert!(marks > 3, "{marks} bookmarks are no test");
    // One that sees nothing is carried along all the same.
    assert_eq!(watches[2].2.changes(), 0);
    drop(watches);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_bounded() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cache = CacheConfig { history_bytes: 256 << 10, ..CacheConfig::default() };
    let stand = Stand::open(dir.path(), &Setting { cache, ..Setting::default() }).await;
    let wire = stand.wire();
    let start = list(&wire, &everything()).await;
    let query = format!("resourceVersion={}", start.version);
    // Nobody reads this one: its socket fills, and then its cursor falls out of memory.
    let mut stalled = wire.watch(&everything(), &query).await.expect("admitted");
    let prompt = Reader::start(stand.wires(), everything()).await;
    let writes = 400;
    for value in 0..writes {
        let large = put(&format!("large-{}", value % 4), value, 64 << 10);
        let written = stand.commit(vec![large]);
        tokio::time::timeout(PATIENCE, written).await.expect("writers are not held up");
    }
    let last = list(&wire, &everything()).await;
    let seen = tokio::time::timeout(PATIENCE, prompt.finish(last.version)).await.expect("not held up");
    assert_eq!(seen.changes(), writes);
    // It lost nothing: the log on disk has what memory dropped.
    let mut replay = Replay::after(&start);
    stalled.follow(&mut replay, last.version).await;
    replay.equals(&last).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(replay.changes(), writes);
    drop(stalled);
    expires_below_the_floor(&stand, &wire, &start).await;
    stand.close().await;
}

/// A watcher that stays away longer than history lasts is told so.
async fn expires_below_the_floor(stand: &Stand, wire: &Wire, start: &List) {
    let head = stand.store.subscribe().state.head();
    let type_name = shardcache_storage::TypeName::new("rbac.authorization.k8s.io", "clusterroles");
    stand.store.compact(type_name, head).await.expect("it is writable");
    let query = format!("resourceVersion={}", start.version);
    let mut late: Watch = wire.watch(&everything(), &query).await.expect("admitted");
    assert_eq!(late.expect().await, Step::Error { code: 410, reason: "Expired".to_owned() });
    assert_eq!(late.next().await, None);
}
