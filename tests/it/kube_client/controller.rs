//! kube-rs's controller and the reflector below it, across restarts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{MERGE, SHARDS, View, key, truth};
use crate::harness::{ROLES, Served, collection, eventually, role};

/// The last version of each object that the reconciler was called with.
#[derive(Default)]
struct Reconciled(Mutex<View>);

async fn reconcile(role: Arc<ClusterRole>, seen: Arc<Reconciled>) -> Result<Action, kube::Error> {
    let version = role.resource_version().expect("every object has a version");
    seen.0.lock().expect("no test panics with it").insert(key(&role), version);
    Ok(Action::await_change())
}

fn again(_: Arc<ClusterRole>, _: &kube::Error, _: Arc<Reconciled>) -> Action {
    Action::requeue(Duration::from_millis(20))
}

/// Creates, changes and deletes some objects, under names that no two shards share.
async fn write(served: &Served, round: usize) {
    let wire = served.wire();
    for (at, shard) in SHARDS.iter().enumerate() {
        let path = collection(shard, "root", ROLES);
        for number in 0..5 {
            let name = format!("role-{round}-{number}-{shard}");
            assert_eq!(wire.call(Method::POST, &path, role(&name, "gold").to_string()).await.status, 201);
        }
        let changed = format!("{path}/role-{round}-{at}-{shard}");
        let change = json!({ "metadata": { "labels": { "tier": "silver" } } }).to_string();
        let patched = wire.request(Method::PATCH, &changed, MERGE, change).await.expect("answered");
        assert_eq!(patched.status, 200);
        let gone = format!("{path}/role-{round}-4-{shard}");
        assert_eq!(wire.call(Method::DELETE, &gone, "").await.status, 200);
    }
}

/// What the controller's reflector holds.
fn held(store: &Store<ClusterRole>) -> View {
    store.state().iter().map(|role| (key(role), role.resource_version().unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_reconciles_every_state_across_restarts_without_a_relist() {
    let mut served = Served::start().await;
    let seen = Arc::<Reconciled>::default();
    let roles = Api::<ClusterRole>::all(served.kube("*", "*"));
    let controller = Controller::new(roles, watcher::Config::default());
    let store = controller.store();
    let running = controller.run(reconcile, again, Arc::clone(&seen)).for_each(|_| std::future::ready(()));
    let running = tokio::spawn(running);
    for round in 0..3 {
        write(&served, round).await;
        eventually("the reflector holds what the server has", || async { held(&store) == truth(&served) })
            .await;
        eventually("every object was reconciled in its last state", || async {
            let seen: BTreeSet<_> = seen.0.lock().expect("no panic").clone().into_iter().collect();
            truth(&served).into_iter().all(|entry| seen.contains(&entry))
        })
        .await;
        served = served.restart().await;
    }
    write(&served, 3).await;
    eventually("it goes on after the last restart", || async {
        let seen: BTreeSet<_> = seen.0.lock().expect("no panic").clone().into_iter().collect();
        truth(&served).into_iter().all(|entry| seen.contains(&entry))
    })
    .await;
    assert!(served.requests("list").abs() < 0.5, "somebody listed after a mere restart");
    running.abort();
}
