//! D42: absent is not empty. What a lost store, a dead shard and a new one do to views over all shards.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event, InitialListStrategy};
use serde_json::{Value, json};
use shardcache_storage::{Push, RosterChange, Store, Verdict};
use tokio::task::JoinHandle;

use super::pusher::{Door, Pusher};
use super::source::Source;
use crate::harness::eventually;
use crate::stand::{Setting, Stand};

const SHARDS: [&str; 10] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"];

/// A kube-rs informer of all shards' exports.
#[derive(Clone, Default)]
struct Informer(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    names: BTreeSet<String>,
    building: BTreeSet<String>,
    lists: usize,
    /// Objects that it has taken for deleted, by an event or by their absence from a list.
    lost: Vec<String>,
    errors: usize,
}

impl Informer {
    fn start(stand: &Stand, strategy: InitialListStrategy) -> (Self, JoinHandle<()>) {
        let url = format!("{}/services/cache/shards/*/clusters/*", stand.base());
        let mut config = kube::Config::new(url.parse().expect("a URL"));
        // The 429 of a server that is going would be repeated at longer and longer intervals, long after the
        // next one has come.
        config.default_retry = false;
        let client = kube::Client::try_from(config).expect("no TLS is needed");
        let informer = Self::default();
        let seen = informer.clone();
        let exports = ApiResource {
            group: "apis.kcp.io".into(),
            version: "v1alpha2".into(),
            api_version: "apis.kcp.io/v1alpha2".into(),
            kind: "APIExport".into(),
            plural: "apiexports".into(),
        };
        let task = tokio::spawn(async move {
            let api = Api::<DynamicObject>::all_with(client, &exports);
            let config = watcher::Config { initial_list_strategy: strategy, ..watcher::Config::default() };
            let mut events = pin!(watcher::watcher(api, config));
            while let Some(event) = events.next().await {
                if !seen.apply(event) {
                    // What a client's backoff is for, only shorter.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
        (informer, task)
    }

    fn apply(&self, event: Result<Event<DynamicObject>, watcher::Error>) -> bool {
        let mut seen = self.0.lock().expect("no test panics with it");
        match event {
            Ok(Event::Init) => seen.building.clear(),
            Ok(Event::InitApply(object)) => drop(seen.building.insert(object.name_any())),
            Ok(Event::InitDone) => {
                let Seen { names, building, lost, .. } = &mut *seen;
                lost.extend(names.difference(building).cloned());
                *names = std::mem::take(building);
                seen.lists += 1;
            }
            Ok(Event::Apply(object)) => drop(seen.names.insert(object.name_any())),
            Ok(Event::Delete(object)) => seen.lost.push(object.name_any()),
            Err(_) => {
                seen.errors += 1;
                return false;
            }
        }
        true
    }

    fn names(&self) -> BTreeSet<String> {
        self.0.lock().expect("no test panics with it").names.clone()
    }

    fn lost(&self) -> Vec<String> {
        self.0.lock().expect("no test panics with it").lost.clone()
    }

    fn lists(&self) -> usize {
        self.0.lock().expect("no test panics with it").lists
    }

    fn errors(&self) -> usize {
        self.0.lock().expect("no test panics with it").errors
    }
}

async fn roster(stand: &Stand, change: RosterChange) {
    let pushed = stand.store.push(Push::Roster(change)).await.expect("it is writable");
    assert_eq!(pushed.verdict, Verdict::Done);
    stand.api.cache.published(pushed.version.revision()).await;
}

fn seed(shards: &[&str]) -> RosterChange {
    RosterChange::Seed { shards: shards.iter().map(|shard| Box::from(*shard)).collect() }
}

/// Announces and syncs a shard's exports.
async fn push(stand: &Stand, source: &Source) -> (Pusher, Pusher) {
    let door = Door::http2(stand).await;
    let (mut control, _) = door.control(source.shard, "i1").await;
    control.send(json!({"type": "catalog", "types": [source.type_name()]}));
    control.settled().await;
    let pusher = door.synced(source, "i1").await;
    (control, pusher)
}

fn sources() -> Vec<Source> {
    SHARDS.iter().map(|shard| Source::exports(shard).with(&[&format!("{shard}-export")])).collect()
}

fn causes(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|cause| (text(&cause["reason"]), text(&cause["field"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b098_d42_a_lost_store_and_a_dead_shard_delete_nothing() {
    let directories = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let mut setting = Setting::default();
    let stand = Stand::open(directories[0].path(), &setting).await;
    setting.port = stand.base().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    roster(&stand, seed(&SHARDS)).await;
    let sources = sources();
    let mut pushers = vec![];
    for source in &sources {
        pushers.push(push(&stand, source).await);
    }
    let all: BTreeSet<String> = SHARDS.iter().map(|shard| format!("{shard}-export")).collect();
    let strategies =
        [InitialListStrategy::ListWatch, InitialListStrategy::StreamingList, InitialListStrategy::ListWatch];
    let (informers, tasks): (Vec<_>, Vec<_>) =
        strategies.into_iter().map(|strategy| Informer::start(&stand, strategy)).unzip();
    for informer in &informers {
        eventually("it has everything", async || informer.names() == all).await;
    }
    drop(pushers);
    stand.close().await;

    // The store is lost, and its roster with it; it is seeded again from outside. One shard stays away.
    let stand = Stand::open(directories[1].path(), &setting).await;
    roster(&stand, seed(&SHARDS)).await;
    let (dead, alive) = sources.split_last().expect("ten");
    let mut pushers = vec![];
    for source in alive {
        pushers.push(push(&stand, source).await);
    }
    let path = dead.collection_in("*", "*");
    for query in ["", "?resourceVersion=0", "?limit=3"] {
        let answer = stand.wire().get(&format!("{path}{query}")).await;
        assert_eq!(answer.status, 500, "{query}");
        assert_eq!(causes(&answer.json()), [("Incomplete".to_owned(), "shards/s9".to_owned())], "{query}");
    }
    for informer in &informers {
        let failed = informer.errors();
        eventually("it has asked again, and was refused", async || informer.errors() > failed + 1).await;
        assert_eq!(informer.lost(), Vec::<String>::new());
        assert_eq!(informer.names(), all, "it keeps what it had");
    }
    // Shown knowingly, and said to be a part.
    let part = stand.wire().get(&format!("{path}?incomplete=allow")).await;
    assert_eq!((part.status.as_u16(), part.headers["x-cache-complete"].to_str().ok()), (200, Some("false")));

    let lists: Vec<_> = informers.iter().map(Informer::lists).collect();
    roster(&stand, RosterChange::Excuse { shard: "s9".into() }).await;
    for (informer, before) in informers.iter().zip(lists) {
        eventually("it has synced again", async || informer.lists() > before).await;
        assert_eq!(informer.lost(), ["s9-export"], "an administrator has said so");
    }
    let excused = stand.wire().get(&path).await;
    assert_eq!(excused.headers["x-cache-complete"], "false", "a part is never called the whole");
    // It comes back, and counts again.
    pushers.push(push(&stand, dead).await);
    for informer in &informers {
        eventually("it has everything", async || informer.names() == all).await;
    }
    let whole = stand.wire().get(&path).await;
    assert_eq!(whole.headers["x-cache-complete"], "true");
    tasks.iter().for_each(JoinHandle::abort);
    drop(pushers);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b098_d42_a_shard_that_joins_blocks_no_list_at_any_moment() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    roster(&stand, seed(&["s0", "s1"])).await;
    let first = Source::exports("s0").with(&["a"]);
    let second = Source::exports("s1").with(&["b"]);
    let pushers = [push(&stand, &first).await, push(&stand, &second).await];
    let path = first.collection_in("*", "*");
    let shown = async |names: &[&str], complete: &str, what: &str| {
        for query in ["", "?resourceVersion=0"] {
            let answer = stand.wire().get(&format!("{path}{query}")).await;
            assert_eq!(answer.status, 200, "{what}");
            let list = answer.json();
            let items = list["items"].as_array().expect("a list").iter();
            let found: Vec<_> =
                items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect();
            assert_eq!(found, names, "{what}");
            assert_eq!(answer.headers["x-cache-complete"], complete, "{what}");
        }
    };
    shown(&["a", "b"], "true", "before").await;
    roster(&stand, seed(&["s0", "s1", "s2"])).await;
    shown(&["a", "b"], "true", "it is in the roster").await;
    let third = Source::exports("s2").with(&["c"]);
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("s2", "i1").await;
    shown(&["a", "b"], "true", "it is connected").await;
    control.send(json!({"type": "catalog", "types": [third.type_name()]}));
    control.settled().await;
    shown(&["a", "b"], "true", "it is announced").await;
    let (mut pusher, _) = door.cell(&third, "i1").await;
    let mut frames = third.sync(1);
    let end = frames.pop().expect("syncEnd");
    pusher.send_all(frames);
    pusher.settled().await;
    shown(&["a", "b", "c"], "true", "its first sync is under way").await;
    pusher.send(end);
    pusher.settled().await;
    shown(&["a", "b", "c"], "true", "it has joined").await;
    drop((pushers, pusher, control));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_a_type_that_was_lost_with_the_store_is_not_called_absent() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    roster(&stand, seed(&["s0", "s1"])).await;
    let [first, second] = [Source::widgets("s0").with(&["a"]), Source::widgets("s1").with(&["b"])];
    let wire = stand.wire();
    let ask = async |path: &str| {
        let answer = wire.get(path).await;
        (answer.status.as_u16(), causes(&answer.json()))
    };
    let absent = |reason: &str, shards: &[&str]| {
        let cause = |shard: &&str| (reason.to_owned(), format!("shards/{shard}"));
        (500, shards.iter().map(cause).collect::<Vec<_>>())
    };
    let everything = first.collection_in("*", "*");
    for query in ["", "?resourceVersion=0", "?watch=1"] {
        assert_eq!(
            ask(&format!("{everything}{query}")).await,
            absent("Incomplete", &["s0", "s1"]),
            "{query}"
        );
    }
    let pushers = push(&stand, &first).await;
    assert_eq!(ask(&everything).await, absent("Incomplete", &["s1"]));
    // The one shard's type is described. The other one's is not, and would be all the same.
    assert_eq!(ask(&first.collection()).await.0, 200);
    for path in [second.collection(), format!("{}/b?resourceVersion=0", second.collection())] {
        assert_eq!(ask(&path).await, absent("NeverSynced", &["s1"]), "no false 404");
    }
    // Whom nobody expects has nothing, and so has who has said what it has.
    assert_eq!(ask(&Source::widgets("s2").collection()).await.0, 404);
    let other = push(&stand, &Source::exports("s1").with(&["x"])).await;
    assert_eq!(ask(&second.collection()).await.0, 404);
    assert_eq!(ask(&everything).await.0, 200);
    drop((pushers, other));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_shards_that_only_use_rest_make_completeness_unknown_and_gate_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let source = Source::exports("s0").with(&["a"]);
    let pushers = push(&stand, &source).await;
    let path = source.collection_in("*", "*");
    // Nobody has said which shards there ought to be.
    assert_eq!(stand.wire().get(&path).await.headers["x-cache-complete"], "unknown");
    roster(&stand, seed(&["s0"])).await;
    assert_eq!(stand.wire().get(&path).await.headers["x-cache-complete"], "true");
    let other = Source::exports("rest").with(&["b"]);
    let mut object = other.object("b");
    object["metadata"] = json!({"name": "b"});
    let written = stand.wire().call(http::Method::POST, &other.collection(), object.to_string()).await;
    assert_eq!(written.status, 201);
    let answer = stand.wire().get(&path).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["x-cache-complete"].to_str().ok()),
        (200, &Some("unknown"))
    );
    drop(pushers);
    stand.close().await;
}
