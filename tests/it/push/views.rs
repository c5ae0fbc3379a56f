//! D43 over a real server: shard views as clients see them, and what two kube-rs informers make of them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shardcache::completeness::{Completeness, Doubt, ResourceVersion, ShardView, TypeName, Why, complete};
use shardcache_proxy::freshness::level::Level;
use shardcache_proxy::freshness::shardview::{Look, Scribe};
use shardcache_storage::{Key, Push, RosterChange, Store, Verdict};
use tokio::task::JoinHandle;

use super::pusher::{Door, Pusher};
use super::source::Source;
use crate::harness::{collection, eventually};
use crate::stand::{Setting, Stand};
use crate::wire::Wire;

const GROUP_VERSION: &str = "cache.shardcache.dev/v1alpha1";

fn views(shard: &str, cluster: &str) -> String {
    collection(shard, cluster, &format!("apis/{GROUP_VERSION}/shardviews"))
}

async fn roster(stand: &Stand, change: RosterChange) {
    let pushed = stand.store.push(Push::Roster(change)).await.expect("it is writable");
    assert_eq!(pushed.verdict, Verdict::Done);
}

fn seed(shards: &[&str]) -> RosterChange {
    RosterChange::Seed { shards: shards.iter().map(|shard| Box::from(*shard)).collect() }
}

async fn announce(door: &Door, source: &Source) -> Pusher {
    let (mut control, _) = door.control(source.shard, "i1").await;
    control.send(json!({"type": "catalog", "types": [source.type_name()]}));
    control.settled().await;
    control
}

/// The statuses by shard, as a list has them.
async fn statuses(wire: &Wire) -> BTreeMap<String, Value> {
    let list = wire.get(&views("*", "*")).await.json();
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}")).iter();
    items
        .map(|item| (item["metadata"]["name"].as_str().expect("named").to_owned(), item["status"].clone()))
        .collect()
}

/// Waits until the view of a shard fulfils a condition; it.
async fn shown(wire: &Wire, shard: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let seen = Mutex::new(Value::Null);
    eventually(what, || async {
        let status = statuses(wire).await.remove(shard).unwrap_or_default();
        let holds = condition(&status);
        *seen.lock().expect("nobody panics with it") = status;
        holds
    })
    .await;
    seen.into_inner().expect("nobody panics with it")
}

/// The version of amber's view.
fn version_of_view(stand: &Stand) -> ResourceVersion {
    let key = Key::new("amber", "system:shardcache", "", "amber").expect("no NUL");
    let name = TypeName::new("cache.shardcache.dev", "shardviews");
    let snapshot = stand.api.cache.snapshot();
    snapshot.state.get(&name, key.as_str()).expect("it has a view").resource_version()
}

fn is_synced(status: &Value) -> bool {
    status["types"][0]["syncedAtRV"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn d43_nobody_but_the_server_writes_shard_views() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    roster(&stand, seed(&["amber"])).await;
    for wire in stand.wires() {
        shown(&wire, "amber", "amber has a view", Value::is_object).await;
        let (all, one) =
            (views("amber", "system:shardcache"), views("amber", "system:shardcache") + "/amber");
        let body = wire.get(&one).await.json();
        assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("ShardView"), &json!(GROUP_VERSION)));
        assert_eq!(body["metadata"]["annotations"]["kcp.io/shard"], "amber");
        for (method, path) in [
            (Method::POST, &all),
            (Method::PUT, &one),
            (Method::PATCH, &one),
            (Method::DELETE, &one),
            (Method::DELETE, &all),
        ] {
            let answer = wire.call(method.clone(), path, body.to_string()).await;
            assert_eq!(answer.reason(), (405, "MethodNotAllowed".to_owned()), "{method} {path}");
        }
        assert_eq!(wire.get(&one).await.json(), body, "as it was");

        let path = |scope: &str| format!("/services/cache/{scope}/apis/{GROUP_VERSION}");
        let verbs = async |scope| wire.get(&path(scope)).await.json()["resources"][0]["verbs"].clone();
        assert_eq!(verbs("shards/amber/clusters/root").await, json!(["get", "list", "watch"]));
        assert_eq!(verbs("shards/*/clusters/*").await, json!(["list", "watch"]));
    }
    for door in Door::both(&stand).await {
        let mut source = Source::exports("amber");
        (source.group, source.version, source.resource) = ("cache.shardcache.dev", "v1alpha1", "shardviews");
        let (code, status) = door.begin(&source.push_path()).await.err().expect("no stream");
        assert_eq!((code, &status["reason"]), (405, &json!("MethodNotAllowed")));
    }
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d43_shard_views_are_never_gated_and_never_wait() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut setting = Setting::default();
    // What a read of one shard gets by default: its source would have to confirm it.
    setting.api.freshness.unset_concrete = Level::Source;
    let stand = Stand::open(directory.path(), &setting).await;
    roster(&stand, seed(&["amber", "beryl"])).await;
    let [wire, _] = stand.wires();
    shown(&wire, "beryl", "beryl has a view", Value::is_object).await;
    let exports = Source::exports("amber");
    let gated = wire.get(&exports.collection_in("*", "*")).await;
    assert_eq!(gated.reason(), (500, "ServerTimeout".to_owned()), "the data are gated");
    for path in [views("*", "*"), views("amber", "*"), views("amber", "system:shardcache") + "/amber"] {
        for query in ["", "?resourceVersion=0", "?freshness=source", "?maxStaleness=1s"] {
            let answer = wire.get(&format!("{path}{query}")).await;
            assert_eq!(answer.status, 200, "{path}{query}: {answer:?}");
            let headers: Vec<_> =
                answer.headers.keys().filter(|name| name.as_str().starts_with("x-cache-")).collect();
            assert_eq!(headers, ["x-cache-lineage"], "of freshness nothing is said");
            assert!(!answer.headers.contains_key("warning"));
        }
    }
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d43_views_follow_shards_and_nothing_that_is_idle_makes_an_event() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let [wire, _] = stand.wires();
    let source = Source::exports("amber").with(&["a", "b"]);
    let door = Door::http2(&stand).await;
    let control = announce(&door, &source).await;
    let status =
        shown(&wire, "amber", "what amber announces is shown", |status| status["catalogued"] == true).await;
    assert_eq!((&status["role"], &status["state"]), (&json!("Joining"), &json!("NeverSynced")));
    assert_eq!(status["types"][0]["resource"], "apiexports");

    let mut pusher = door.synced(&source, "i1").await;
    let status = shown(&wire, "amber", "the sync is shown", is_synced).await;
    assert_eq!((&status["role"], &status["types"][0]["cut"]), (&json!("Expected"), &json!(true)));
    let synced_at: u64 =
        status["types"][0]["syncedAtRV"].as_str().and_then(|text| text.parse().ok()).expect("a version");
    let list = wire.get(&source.collection_in("*", "*")).await.json();
    for item in list["items"].as_array().expect("items") {
        let version: u64 =
            item["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("one");
        assert!(version <= synced_at, "the sync is in the version that is said");
    }
    super::fresh::answer(&mut pusher, &source, vec![]).await;
    shown(&wire, "amber", "it is live", |status| status["state"] == "Live").await;

    // Progress, and everything looked at again and again.
    let (before, written) = (stand.api.cache.snapshot().resource_version(), version_of_view(&stand));
    let mut scribe = Scribe::new(Arc::clone(&stand.api));
    for _ in 0..20 {
        pusher.send(source.progress());
        pusher.settled().await;
        assert_eq!(scribe.step(Look::Everywhere).await.expect("it is writable"), 0);
    }
    assert_eq!(stand.api.cache.snapshot().resource_version(), before, "no event at all");
    drop((pusher, control));
    stand.close().await;

    // A restart changes nothing either, while the pusher comes back.
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let mut scribe = Scribe::new(Arc::clone(&stand.api));
    assert_eq!(scribe.step(Look::Everywhere).await.expect("it is writable"), 0);
    let door = Door::http2(&stand).await;
    let (pusher, welcome) = door.cell(&source, "i1").await;
    assert_eq!(welcome["needSync"], false, "{welcome}");
    assert_eq!(scribe.step(Look::Everywhere).await.expect("it is writable"), 0);
    assert_eq!(version_of_view(&stand), written, "no event at all");
    drop(pusher);
    stand.close().await;
}

/// What an informer has, and of which version.
struct Seen<K> {
    objects: BTreeMap<String, K>,
    version: Option<ResourceVersion>,
}

/// A kube-rs client that lists and watches, as an informer does.
struct Informer<K> {
    seen: Arc<Mutex<Seen<K>>>,
    task: JoinHandle<()>,
}

fn version(text: Option<&str>) -> ResourceVersion {
    ResourceVersion::parse(text.expect("lists and events have a version")).expect("it is a number")
}

impl<K> Informer<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    fn start(api: Api<K>) -> Self {
        let seen = Arc::new(Mutex::new(Seen { objects: BTreeMap::new(), version: None }));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            // The server may not answer, or not any more: then again.
            while follow(&api, &shared).await.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { seen, task }
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.seen.lock().expect("nobody panics with it").version
    }

    fn objects(&self) -> Vec<K> {
        self.seen.lock().expect("nobody panics with it").objects.values().cloned().collect()
    }
}

/// One list, and watches for as long as they can go on from it.
async fn follow<K>(api: &Api<K>, shared: &Mutex<Seen<K>>) -> Option<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let key = |object: &K| format!("{}/{}", object.annotations()["kcp.io/shard"], object.name_any());
    let list = api.list(&ListParams::default()).await.ok()?;
    {
        let mut seen = shared.lock().expect("nobody panics with it");
        seen.version = Some(version(list.metadata.resource_version.as_deref()));
        seen.objects = list.items.into_iter().map(|object| (key(&object), object)).collect();
    }
    loop {
        let from = shared.lock().expect("nobody panics with it").version?;
        let mut events = pin!(api.watch(&WatchParams::default(), &from.to_string()).await.ok()?);
        while let Some(event) = events.next().await {
            let mut seen = shared.lock().expect("nobody panics with it");
            match event.ok()? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    seen.version = Some(version(object.resource_version().as_deref()));
                    seen.objects.insert(key(&object), object);
                }
                WatchEvent::Deleted(object) => {
                    seen.version = Some(version(object.resource_version().as_deref()));
                    seen.objects.remove(&key(&object));
                }
                WatchEvent::Bookmark(bookmark) => {
                    seen.version = Some(version(Some(&bookmark.metadata.resource_version)));
                }
                WatchEvent::Error(_) => return None,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d43_two_kube_informers_know_when_every_shard_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let url = format!("{}/services/cache/shards/*/clusters/*", stand.base());
    let client =
        kube::Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("no TLS is needed");
    let exports = ApiResource {
        group: "apis.kcp.io".into(),
        version: "v1alpha2".into(),
        api_version: "apis.kcp.io/v1alpha2".into(),
        kind: "APIExport".into(),
        plural: "apiexports".into(),
    };
    let data = Informer::start(Api::<DynamicObject>::all_with(client.clone(), &exports));
    let views = Informer::start(Api::<ShardView>::all(client));
    let type_name = TypeName::new("apis.kcp.io", "apiexports");
    // Data first: of what comes later than they, views may say less than is true.
    let judge = || {
        let (data_at, views_at) = (data.version()?, views.version()?);
        Some(complete(&type_name, data_at, views_at, &views.objects()))
    };
    let becomes = async |what: &str, wanted: &(dyn Fn(&Completeness) -> bool + Sync)| {
        eventually(what, || async { judge().is_some_and(|found| wanted(&found)) }).await;
    };
    becomes("nobody is expected", &|found| *found == Completeness::Unknown(Doubt::NobodyExpected)).await;

    let sources =
        ["amber", "beryl", "citrine"].map(|shard| Source::exports(shard).with(&[&format!("{shard}-export")]));
    roster(&stand, seed(&["amber", "beryl", "citrine"])).await;
    becomes(
        "three shards are awaited",
        &|found| matches!(found, Completeness::Incomplete(missing) if missing.len() == 3),
    )
    .await;
    let door = Door::http2(&stand).await;
    let mut streams = vec![];
    for (at, source) in sources.iter().enumerate() {
        streams.push(announce(&door, source).await);
        let last = at == sources.len() - 1;
        if last {
            becomes("the last one is awaited", &|found| {
                let never = |missing: &[_]| {
                    missing.iter().all(|one: &shardcache::completeness::Missing| {
                        one.shard == "citrine" && one.why == Why::NeverSynced
                    })
                };
                matches!(found, Completeness::Incomplete(missing) if never(missing))
            })
            .await;
        }
        streams.push(door.synced(source, "i1").await);
    }
    becomes("everything is there", &|found| *found == Completeness::Complete).await;
    let mut names: Vec<_> = data.objects().iter().map(ResourceExt::name_any).collect();
    names.sort();
    assert_eq!(names, ["amber-export", "beryl-export", "citrine-export"]);

    // Out of reach is not absent. What is given back to ordinary writers and announced again is not synced.
    drop(streams);
    assert_eq!(judge(), Some(Completeness::Complete));
    let release = Push::Release { shard: "beryl".into(), type_name: None };
    stand.store.push(release).await.expect("it is writable");
    let control = announce(&door, &sources[1]).await;
    becomes("beryl may lack something", &|found| {
        matches!(found, Completeness::Incomplete(missing) if missing.len() == 1 && missing[0].shard == "beryl")
    })
    .await;
    drop(control);
    data.task.abort();
    views.task.abort();
    stand.close().await;
}
