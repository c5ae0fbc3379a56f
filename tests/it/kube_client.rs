//! Stock kube-rs clients against the server: both list strategies, restarts, expiry, another timeline.
//!
//! A mere restart costs nobody a list: the client's own count of initial lists stays one, and the server
//! counts no LIST after it came back.

mod controller;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, InitialListStrategy};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use shardcache::cli::Settings;
use shardcache::units::{Size, Time};
use shardcache_storage::TypeName;
use tokio::task::JoinHandle;

use crate::harness::{ROLES, Served, collection, eventually, role};
use crate::wire::Wire;

const SHARDS: [&str; 3] = ["amber", "sapphire", "onyx"];
const MERGE: &str = "application/merge-patch+json";
const STRATEGIES: [InitialListStrategy; 2] =
    [InitialListStrategy::ListWatch, InitialListStrategy::StreamingList];

/// Shard and name → resourceVersion.
type View = BTreeMap<(String, String), String>;

/// What one informer has seen.
#[derive(Clone, Default)]
struct Informer(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    view: View,
    /// The view that an initial list is building up.
    building: View,
    lists: u32,
    errors: u32,
}

fn key(role: &ClusterRole) -> (String, String) {
    let shard = role.annotations().get("kcp.io/shard").cloned();
    (shard.expect("every object says its shard"), role.name_any())
}

impl Informer {
    /// Follows a wildcard until it is aborted.
    fn start(client: kube::Client, strategy: &InitialListStrategy) -> (Self, JoinHandle<()>) {
        let informer = Self::default();
        let config =
            watcher::Config { initial_list_strategy: strategy.clone(), ..watcher::Config::default() };
        let seen = informer.clone();
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher::watcher(Api::<ClusterRole>::all(client), config));
            while let Some(event) = events.next().await {
                if !seen.apply(event) {
                    // What a client's backoff is for, only shorter.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
        (informer, task)
    }

    fn apply(&self, event: Result<Event<ClusterRole>, watcher::Error>) -> bool {
        let mut seen = self.0.lock().expect("no test panics with it");
        let version = |role: &ClusterRole| role.resource_version().expect("every object has a version");
        match event {
            Ok(Event::Init) => {
                seen.lists += 1;
                seen.building.clear();
            }
            Ok(Event::InitApply(role)) => drop(seen.building.insert(key(&role), version(&role))),
            Ok(Event::InitDone) => seen.view = std::mem::take(&mut seen.building),
            Ok(Event::Apply(role)) => drop(seen.view.insert(key(&role), version(&role))),
            Ok(Event::Delete(role)) => {
                assert!(seen.view.remove(&key(&role)).is_some(), "deleted what was not there");
            }
            Err(_) => {
                seen.errors += 1;
                return false;
            }
        }
        true
    }

    fn view(&self) -> View {
        self.0.lock().expect("no test panics with it").view.clone()
    }

    fn lists(&self) -> u32 {
        self.0.lock().expect("no test panics with it").lists
    }

    fn errors(&self) -> u32 {
        self.0.lock().expect("no test panics with it").errors
    }

    /// Waits until the informer sees what the server has.
    async fn converges(&self, served: &Served) {
        eventually("the informer sees what the server has", || async { self.view() == truth(served) }).await;
    }
}

/// What the server has, without a request that it would count.
fn truth(served: &Served) -> View {
    let snapshot = served.api().cache.snapshot();
    let roles = TypeName::new("rbac.authorization.k8s.io", "clusterroles");
    let Some(objects) = snapshot.state.objects(&roles) else { return View::new() };
    let entry = |object: &shardcache_storage::Object| {
        let parts = object.parts();
        ((parts.shard.to_owned(), parts.name.to_owned()), object.resource_version().to_string())
    };
    objects.iter().map(entry).collect()
}

/// Creates, changes and deletes until it is aborted; a server that is away is waited for.
fn churn(wire: Wire) -> JoinHandle<()> {
    tokio::spawn(async move {
        for step in 0_u32.. {
            let shard = SHARDS[step as usize % SHARDS.len()];
            let name = format!("role-{}", step % 17);
            let path = collection(shard, "root", ROLES);
            let object = format!("{path}/{name}");
            let body = role(&name, &format!("tier-{step}")).to_string();
            let outcome = match step % 5 {
                4 => wire.request(Method::DELETE, &object, "application/json", "").await,
                3 => {
                    let change = json!({ "metadata": { "labels": { "patched": step.to_string() } } });
                    wire.request(Method::PATCH, &object, MERGE, change.to_string()).await
                }
                _ => match wire.request(Method::POST, &path, "application/json", body.clone()).await {
                    Ok(answer) if answer.status == 409 => {
                        wire.request(Method::PATCH, &object, MERGE, body).await
                    }
                    other => other,
                },
            };
            let pause = if outcome.is_ok() { 1 } else { 20 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_converge_under_churn_and_restarts_without_a_relist() {
    let mut served = Served::start().await;
    let churn = churn(served.wire());
    let informers: Vec<_> =
        STRATEGIES.iter().map(|strategy| Informer::start(served.kube("*", "*"), strategy)).collect();
    for (informer, _) in &informers {
        eventually("the informer has listed", || async { !informer.view().is_empty() }).await;
    }
    for _ in 0..3 {
        let before: Vec<_> = informers.iter().map(|(informer, _)| informer.view()).collect();
        served = served.restart().await;
        for ((informer, _), before) in informers.iter().zip(before) {
            eventually("the informer goes on", || async { informer.view() != before }).await;
        }
        assert!(served.requests("list").abs() < 0.5, "somebody listed after a mere restart");
    }
    churn.abort();
    for (informer, _) in &informers {
        informer.converges(&served).await;
        assert_eq!(informer.lists(), 1, "an informer listed again after a mere restart");
        assert!(informer.errors() > 0, "the restarts went unnoticed, so nothing was tested");
    }
    assert!(served.requests("list").abs() < 0.5);
    for (_, task) in informers {
        task.abort();
    }
}

/// Settings under which history is short.
fn forgetful() -> Settings {
    Settings {
        history_age: Some(Time(Duration::from_secs(1))),
        history_bytes: Some(Size(64 << 10)),
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_informer_lists_once_more_and_converges() {
    let mut served = Served::with(forgetful()).await;
    let path = collection("amber", "root", ROLES);
    served.wire().call(Method::POST, &path, role("first", "gold").to_string()).await;
    let informers: Vec<_> =
        STRATEGIES.iter().map(|strategy| Informer::start(served.kube("*", "*"), strategy)).collect();
    for (informer, _) in &informers {
        informer.converges(&served).await;
    }
    // Far more than the history holds, while nobody can reach the server.
    served = served
        .elsewhere(async |wire: Wire| {
            for number in 0..40 {
                let mut body = role("flood", &number.to_string());
                body["metadata"]["annotations"] = json!({ "padding": "x".repeat(16 << 10) });
                let object = format!("{path}/flood");
                let created = wire.call(Method::POST, &path, body.to_string()).await;
                if created.status == 409 {
                    let patched = wire.request(Method::PATCH, &object, MERGE, body.to_string()).await;
                    assert_eq!(patched.expect("answered").status, 200);
                }
            }
            wire.call(Method::DELETE, &format!("{path}/first"), "").await;
        })
        .await;
    for (informer, _) in &informers {
        informer.converges(&served).await;
        assert_eq!(informer.lists(), 2, "expired once, so listed once more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_of_another_timeline_lists_anew() {
    let served = Served::start().await;
    let path = collection("amber", "root", ROLES);
    for name in ["a", "b", "c"] {
        served.wire().call(Method::POST, &path, role(name, "gold").to_string()).await;
    }
    let informers: Vec<_> =
        STRATEGIES.iter().map(|strategy| Informer::start(served.kube("*", "*"), strategy)).collect();
    for (informer, _) in &informers {
        informer.converges(&served).await;
    }
    // The volume is lost: the same address now serves a store that never issued what they hold.
    let served = served.wiped().await;
    served.wire().call(Method::POST, &path, role("new", "gold").to_string()).await;
    for (informer, _) in &informers {
        informer.converges(&served).await;
        assert_eq!(informer.view().len(), 1);
        assert_eq!(informer.lists(), 2);
    }
}

/// client-go's typed clients remove the type of what they watch, and compare it with what they list.
#[tokio::test(flavor = "multi_thread")]
async fn items_for_who_takes_protobuf_have_no_type_of_their_own() {
    let served = Served::start().await;
    for (shard, name) in SHARDS.iter().zip(["a", "b", "c"]) {
        let path = collection(shard, "root", ROLES);
        served.wire().call(Method::POST, &path, role(name, "gold").to_string()).await;
    }
    let client = served.kube("*", "*");
    let list = async |accept: &str| {
        let request = http::Request::get("/apis/rbac.authorization.k8s.io/v1/clusterroles");
        let request = request.header("accept", accept).body(vec![]).expect("a request");
        client.request::<serde_json::Value>(request).await.expect("listed")
    };
    let mut plain = list("application/json").await;
    let typed = list("application/vnd.kubernetes.protobuf,application/json").await;
    for item in plain["items"].as_array_mut().expect("items") {
        let item = item.as_object_mut().expect("an object");
        assert!(item.remove("kind").is_some() && item.remove("apiVersion").is_some());
    }
    assert_eq!(typed, plain);
    assert_eq!(typed["items"].as_array().map(Vec::len), Some(SHARDS.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_client_creates_reads_changes_and_deletes() {
    let served = Served::start().await;
    let roles: Api<ClusterRole> = Api::all(served.kube("amber", "root"));
    let mut role = ClusterRole::default();
    role.metadata.generate_name = Some("reader-".to_owned());
    let created = roles.create(&PostParams::default(), &role).await.expect("created");
    let name = created.name_any();
    assert!(name.starts_with("reader-") && name.len() > "reader-".len());
    assert_eq!(created.annotations().get("kcp.io/cluster").map(String::as_str), Some("root"));
    assert!(created.meta().uid.is_some() && created.meta().creation_timestamp.is_some());

    let patch = json!({ "metadata": { "labels": { "tier": "gold" } } });
    let patched = roles.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    assert_eq!(patched.labels().get("tier").map(String::as_str), Some("gold"));
    assert_ne!(patched.resource_version(), created.resource_version());

    // Optimistic locking: the version that was read first is not the current one any more.
    let stale = roles.replace(&name, &PostParams::default(), &created).await;
    assert!(
        matches!(stale, Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "Conflict")
    );

    let applied = roles.patch(&name, &PatchParams::apply("me"), &Patch::Apply(&patched)).await;
    assert!(matches!(applied, Err(kube::Error::Api(status)) if status.code == 415));

    let everywhere: Api<ClusterRole> = Api::all(served.kube("*", "*"));
    let refused = everywhere.create(&PostParams::default(), &role).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 405));
    assert_eq!(everywhere.list(&kube::api::ListParams::default()).await.expect("listed").items.len(), 1);

    roles.delete(&name, &DeleteParams::default()).await.expect("deleted");
    assert!(roles.get_opt(&name).await.expect("asked").is_none());
}
