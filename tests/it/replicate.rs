//! The replicator between two servers of this product: one is the source, as any API server would be, one
//! is the cache.

mod lagging;
mod stub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use shardcache::replicate::{
    Config, Network, Phase, Provider, Prune, Replicator, Report, Resource, Rule, Target,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::checker::Step;
use crate::harness::Served;
use crate::wire::{PATIENCE, Wire};

const SOURCE: &str = "/services/cache/shards/origin/clusters/root";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn roles() -> Resource {
    Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles")
}

fn source_client(source: &Served) -> Client {
    let url = format!("{}{SOURCE}", source.url());
    Client::try_from(kube::Config::new(url.parse().expect("an url"))).expect("a client")
}

fn config(source: &Served, cache: &Served, identity: &str) -> Config {
    Config {
        shard: "amber".to_owned(),
        cluster: "root".to_owned(),
        source: source_client(source),
        prefix: String::new(),
        source_id: "origin".to_owned(),
        target: Target::Network(Box::new(Network {
            url: format!("{}/services/cache", cache.url()).parse().expect("an url"),
            ca_file: None,
            identity_files: None,
            token_file: None,
        })),
        resources: vec![roles()],
        prune: Prune::default(),
        identity: identity.to_owned(),
        election_namespace: None,
    }
}

/// A replicator that runs until it is stopped.
struct Running {
    report: Arc<Report>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(config: Config) -> Self {
        let replicator = Replicator::new(config);
        let (report, stop) = (replicator.report(), CancellationToken::new());
        let task = tokio::spawn(replicator.run(stop.clone()));
        Self { report, stop, task }
    }

    async fn live(&self) {
        eventually("it is live", async || self.report.is_live()).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").expect("it did not break");
    }
}

/// Asks again until it is so.
async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE * 3, asking).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

async fn write(wire: &Wire, name: &str, value: &str) {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"value": value}}, "rules": null,
    });
    let created = wire.call(Method::POST, &format!("{SOURCE}{ROLES}"), object.to_string()).await;
    if created.status == StatusCode::CONFLICT {
        let path = format!("{SOURCE}{ROLES}/{name}");
        let mut held: Value = serde_json::from_slice(&wire.get(&path).await.body).expect("JSON");
        held["metadata"]["labels"]["value"] = value.into();
        let updated = wire.call(Method::PUT, &path, held.to_string()).await;
        assert_eq!(updated.status, StatusCode::OK, "{updated:?}");
    } else {
        assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    }
}

async fn delete(wire: &Wire, name: &str) {
    let gone = wire.call(Method::DELETE, &format!("{SOURCE}{ROLES}/{name}"), "").await;
    assert_eq!(gone.status, StatusCode::OK, "{gone:?}");
}

/// Names, uids, labels and source versions under a path.
async fn content(wire: &Wire, path: &str) -> BTreeMap<String, [String; 3]> {
    // Whether the source is there or not.
    let answer = wire.get(&format!("{path}?resourceVersion=0")).await;
    // What has not been synced is refused and not shown as empty.
    if answer.reason() == (500, "ServerTimeout".to_owned()) {
        return BTreeMap::from([(String::new(), Default::default())]);
    }
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let list: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let of = |item: &Value| {
        let metadata = &item["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let original = &metadata["annotations"]["cache.kcp.io/original-resource-version"];
        let version = if original.is_null() { &metadata["resourceVersion"] } else { original };
        (text(&metadata["name"]), [text(&metadata["uid"]), text(&metadata["labels"]["value"]), text(version)])
    };
    list["items"].as_array().expect("items").iter().map(of).collect()
}

const COPY: &str =
    "/services/cache/shards/amber/clusters/root/apis/rbac.authorization.k8s.io/v1/clusterroles";

async fn converge(source: &Served, cache: &Served) {
    eventually("the copy is the source", async || {
        content(&source.wire(), &format!("{SOURCE}{ROLES}")).await == content(&cache.wire(), COPY).await
    })
    .await;
}

async fn status(cache: &Served) -> Value {
    let answer = cache.wire().get("/services/cache/shards/amber/push").await;
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[tokio::test]
async fn a_source_is_copied_followed_and_swept() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let wire = source.wire();
    for n in 0..1200 {
        write(&wire, &format!("role-{n:04}"), "first").await;
    }
    let running = Running::start(config(&source, &cache, "one"));
    running.live().await;
    converge(&source, &cache).await;
    for n in 0..50 {
        write(&wire, &format!("role-{n:04}"), "second").await;
        delete(&wire, &format!("role-{:04}", 1199 - n)).await;
    }
    converge(&source, &cache).await;
    let known = status(&cache).await;
    assert_eq!(known["cells"][0]["count"], 1150, "{known}");
    assert_eq!(known["catalog"], json!([{"group": "rbac.authorization.k8s.io", "resource": "clusterroles"}]));
    running.stop().await;
    // What vanishes while nobody looks is removed by the next process, and nothing else changes.
    delete(&wire, "role-0500").await;
    write(&wire, "role-0501", "third").await;
    let before = content(&cache.wire(), COPY).await;
    let again = Running::start(config(&source, &cache, "two"));
    again.live().await;
    converge(&source, &cache).await;
    assert_eq!(before.len() - 1, content(&cache.wire(), COPY).await.len());
    assert!(cache.metric("shardcache_push_resyncs_total") < 1.0, "nothing was sent twice");
    again.stop().await;
}

#[tokio::test]
async fn an_up_to_date_cell_is_not_sent_again_after_either_side_was_away() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let wire = source.wire();
    for n in 0..300 {
        write(&wire, &format!("role-{n:04}"), "first").await;
    }
    let running = Running::start(config(&source, &cache, "one"));
    running.live().await;
    converge(&source, &cache).await;
    let sent = cache.metric("shardcache_push_received_bytes_total");
    // The cache restarts: the pusher comes back with its mirror.
    let cache = cache.restart().await;
    write(&wire, "role-0007", "second").await;
    running.live().await;
    converge(&source, &cache).await;
    let again = cache.metric("shardcache_push_received_bytes_total");
    assert!(again < sent / 20.0, "{again} bytes after {sent}");
    running.stop().await;
    // The pusher restarts: it compares the metadata at the position.
    let before = cache.metric("shardcache_push_received_bytes_total");
    let running = Running::start(config(&source, &cache, "two"));
    running.live().await;
    write(&wire, "role-0008", "second").await;
    converge(&source, &cache).await;
    let after = cache.metric("shardcache_push_received_bytes_total");
    assert!(after - before < sent / 20.0, "{} bytes after {sent}", after - before);
    running.stop().await;
}

/// Everything happens in another type, of which the watch says nothing.
#[tokio::test]
async fn d38_a_barrier_of_an_idle_type_is_answered_by_watching_anew() {
    let (source, cache) = (Served::start().await, Served::start().await);
    write(&source.wire(), "role", "first").await;
    let running = Running::start(config(&source, &cache, "one"));
    running.live().await;
    converge(&source, &cache).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "beside"}, "subjects": null,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role"},
    });
    let path = format!("{SOURCE}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings");
    let created = source.wire().call(Method::POST, &path, binding.to_string()).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let listed = source.wire().get(&format!("{SOURCE}{ROLES}?limit=1")).await;
    let listed: Value = serde_json::from_slice(&listed.body).expect("JSON");
    let head: u64 = listed["metadata"]["resourceVersion"].as_str().expect("text").parse().expect("a number");
    // Who comes back without a sync is asked whether it is current.
    let cache = cache.restart().await;
    eventually("the barrier is answered", async || {
        running.report.barriers().contains_key(&Provider::RollingWatch)
    })
    .await;
    eventually("the cell is as far as the source", async || {
        let known = status(&cache).await;
        known["cells"][0]["position"]
            .as_str()
            .is_some_and(|text| text.parse::<u64>().is_ok_and(|at| at >= head))
    })
    .await;
    // Each time that something happens beside it, who asks is answered within the time that reads wait.
    for name in ["again", "and-again"] {
        let mut another = binding.clone();
        another["metadata"]["name"] = name.into();
        let created = source.wire().call(Method::POST, &path, another.to_string()).await;
        assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
        let read = cache.wire().get(&format!("{COPY}?freshness=source")).await;
        assert_eq!(read.status, StatusCode::OK, "{read:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn two_replicas_hand_over_and_lose_nothing() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let wire = source.wire();
    let elected = |identity: &str| Config {
        election_namespace: Some("default".to_owned()),
        ..config(&source, &cache, identity)
    };
    let one = Running::start(elected("one"));
    one.live().await;
    let two = Running::start(elected("two"));
    for n in 0..100 {
        write(&wire, &format!("role-{n:04}"), "first").await;
    }
    converge(&source, &cache).await;
    assert_eq!((one.report.term(), two.report.term()), (1, 0), "one pushes, one stands by");
    one.stop().await;
    delete(&wire, "role-0001").await;
    two.live().await;
    converge(&source, &cache).await;
    assert_eq!(status(&cache).await["term"], 2);
    assert_eq!(status(&cache).await["holder"], "two");
    two.stop().await;
}

#[tokio::test]
async fn without_an_election_a_replica_stands_by_and_takes_over_when_the_holder_goes() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let wire = source.wire();
    write(&wire, "role-0001", "first").await;
    let one = Running::start(config(&source, &cache, "one"));
    one.live().await;
    let two = Running::start(config(&source, &cache, "two"));
    eventually("the second one stands by", async || two.report.stands_by()).await;
    assert_eq!((one.report.term(), two.report.term()), (1, 0));
    write(&wire, "role-0002", "first").await;
    converge(&source, &cache).await;
    one.stop().await;
    delete(&wire, "role-0001").await;
    two.live().await;
    converge(&source, &cache).await;
    let known = status(&cache).await;
    assert_eq!((&known["term"], &known["holder"]), (&json!(2), &json!("two")), "{known}");
    let metrics = two.report.metrics();
    for line in ["standing_by 0", "failures_total 0"] {
        assert!(metrics.contains(&format!("\nshardcache_replicate_{line}\n")), "{line}: {metrics}");
    }
    two.stop().await;
}

#[tokio::test]
async fn what_stops_matching_a_selector_or_a_rule_is_removed() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let wire = source.wire();
    write(&wire, "stays", "yes").await;
    write(&wire, "leaves", "yes").await;
    let resource = Resource { label_selector: Some("value=yes".to_owned()), ..roles() };
    let selected = Config { resources: vec![resource], ..config(&source, &cache, "one") };
    let running = Running::start(selected);
    running.live().await;
    eventually("both are there", async || content(&cache.wire(), COPY).await.len() == 2).await;
    write(&wire, "leaves", "no").await;
    eventually("one has left", async || content(&cache.wire(), COPY).await.len() == 1).await;
    running.stop().await;
    let resource = Resource { rule: Rule::Kcp { opt_in: true }, ..roles() };
    let opted = Config { resources: vec![resource], ..config(&source, &cache, "two") };
    let running = Running::start(opted);
    running.live().await;
    eventually("none has asked", async || content(&cache.wire(), COPY).await.is_empty()).await;
    let patch = json!({"metadata": {"annotations": {"internal.kcp.io/replicate": "core.kcp.io"}}});
    let stays = format!("{SOURCE}{ROLES}/stays");
    let content_type = "application/merge-patch+json";
    let patched =
        wire.request(Method::PATCH, &stays, content_type, patch.to_string()).await.expect("answered");
    assert_eq!(patched.status, StatusCode::OK, "{patched:?}");
    eventually("one has asked", async || content(&cache.wire(), COPY).await.len() == 1).await;
    let patch = json!({"metadata": {"annotations": {"internal.kcp.io/replicate": null}}});
    wire.request(Method::PATCH, &stays, content_type, patch.to_string()).await.expect("answered");
    eventually("it does not any more", async || content(&cache.wire(), COPY).await.is_empty()).await;
    running.stop().await;
}

/// A copy without `managedFields` follows every change of the source, one of those alone included, and is
/// not sent again because they are wanted now.
#[tokio::test]
async fn b092_what_is_left_out_makes_no_difference() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let (wire, path) = (source.wire(), format!("{SOURCE}{ROLES}/managed"));
    write(&wire, "managed", "first").await;
    write(&wire, "other", "first").await;
    let manage = async |manager: &str| {
        let mut held: Value = serde_json::from_slice(&wire.get(&path).await.body).expect("JSON");
        held["metadata"]["managedFields"] = json!([{ "manager": manager, "operation": "Update" }]);
        let updated = wire.call(Method::PUT, &path, held.to_string()).await;
        assert_eq!(updated.status, StatusCode::OK, "{updated:?}");
    };
    manage("one").await;
    let prune = Prune { managed_fields: true, last_applied: true };
    let running = Running::start(Config { prune, ..config(&source, &cache, "one") });
    running.live().await;
    converge(&source, &cache).await;
    let list = cache.wire().list(COPY).await.expect("listed");
    let copies = || list.items.values();
    assert!(copies().all(|object| object["metadata"]["managedFields"].is_null()), "{list:?}");
    let from = format!("resourceVersion={}", list.version);
    let mut observer = cache.wire().watch(COPY, &from).await.expect("watched");
    let mut next = async || match observer.expect().await {
        Step::Modified(object) => object["metadata"].clone(),
        other => panic!("{other:?}"),
    };
    manage("two").await;
    let seen = next().await;
    assert_eq!((&seen["name"], &seen["managedFields"]), (&json!("managed"), &Value::Null));
    converge(&source, &cache).await;
    running.stop().await;
    let running = Running::start(config(&source, &cache, "one"));
    running.live().await;
    write(&wire, "other", "second").await;
    assert_eq!(next().await["name"], "other", "nothing else is an event");
    manage("three").await;
    assert_eq!(next().await["managedFields"][0]["manager"], "three");
    converge(&source, &cache).await;
    running.stop().await;
}

#[tokio::test]
async fn d35_a_source_that_was_wiped_or_restored_is_a_new_generation() {
    let (source, cache) = (Served::start().await, Served::start().await);
    let wire = source.wire();
    for n in 0..20 {
        write(&wire, &format!("role-{n:04}"), "first").await;
    }
    let running = Running::start(config(&source, &cache, "one"));
    running.live().await;
    converge(&source, &cache).await;
    let source = source.wiped().await;
    write(&source.wire(), "role-0003", "second").await;
    eventually("the copy is the new source", async || {
        content(&source.wire(), &format!("{SOURCE}{ROLES}")).await == content(&cache.wire(), COPY).await
    })
    .await;
    assert!(matches!(running.report.types().values().next().expect("a type").phase, Phase::Live));
    running.stop().await;
}
