//! D38, D40: a shard whose pusher is gone is asked itself, over a socket.

mod api;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use serde_json::{Value, json};
use shardcache::replicate::Prober;
use shardcache_proxy::metrics::labels::ProbeOutcome;

use super::fresh::{Hands, answer, get, header, live, names, refusal, setting, unconfirmed};
use super::pusher::Door;
use super::source::Source;
use crate::stand::{Setting, Stand};
use crate::wire::{Answer, Wire};
use api::Api;

/// Settings by which the shard of an API can be asked, and reads wait for as long as a test may take.
fn probing(directory: &Path, hands: &Hands, api: &Api, extension: Option<Value>) -> Setting {
    let mut context = json!({"cluster": "amber", "user": "cache"});
    if let Some(extension) = extension {
        context["extensions"] = json!([{"name": "shardcache.dev/probe", "extension": extension}]);
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "amber", "cluster": {"server": api.url()}}],
        "users": [{"name": "cache", "user": {}}],
        "contexts": [{"name": "amber", "context": context}],
    });
    // JSON is YAML.
    let path = directory.join("shards.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("written");
    let mut setting = setting(hands);
    setting.api.freshness.patience = Duration::from_secs(20);
    setting.api.freshness.direct_probe = Some(Arc::new(Prober::load(&path).expect("a kubeconfig")));
    setting
}

/// A synced shard whose pusher has been away for a while, and its API.
async fn left(directory: &Path, source: &Source, extension: Option<Value>) -> (Stand, Api, Hands) {
    let (hands, api) = (Hands::default(), Api::of(source).await);
    let stand = Stand::open(directory, &probing(directory, &hands, &api, extension)).await;
    drop(live(&stand, source).await);
    away(&stand, &hands).await;
    (stand, api, hands)
}

/// Waits until the shard's pusher is gone for the server too.
async fn away(stand: &Stand, hands: &Hands) {
    let wire = stand.wire();
    hands.pass(60);
    while cell(&wire).await["state"] != "Disconnected" {
        tokio::time::sleep(Duration::from_millis(5)).await;
        hands.pass(60);
    }
}

async fn cell(wire: &Wire) -> Value {
    wire.get("/services/cache/freshness?shard=amber").await.json()["shards"][0]["cells"][0].take()
}

fn message(answer: &Answer) -> String {
    answer.json()["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned()
}

fn probes(stand: &Stand, outcome: ProbeOutcome) -> u64 {
    stand.api.metrics.freshness.probes.get_or_create(&outcome.into()).get()
}

#[tokio::test(flavor = "multi_thread")]
async fn d38_d40_a_source_whose_pusher_is_gone_is_asked_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::exports("amber").with(&["a"]);
    let (stand, api, hands) = left(directory.path(), &source, None).await;
    for (number, wire) in (1..).zip(stand.wires()) {
        // Nobody is asked for what any state answers, or one that was confirmed lately enough.
        assert_eq!(get(&wire, &source, "resourceVersion=0").await.status, 200);
        let before = api.asked();
        let read = get(&wire, &source, "").await;
        assert_eq!((read.status.as_u16(), names(&read)), (200, vec!["a".to_owned()]), "{read:?}");
        assert_eq!(header(&read, "x-cache-age"), "1", "a second has begun");
        assert_eq!(header(&read, "warning"), "", "it was confirmed");
        assert_eq!(get(&wire, &source, "maxStaleness=30s").await.status, 200);
        assert_eq!(wire.get(&format!("{}/b", source.collection())).await.status, 404);
        assert!(api.asked() > before);
        // The source is where it was, then further on by what is of another type.
        assert_eq!(api.asked().1, 1, "compared once");
        api.elsewhere();
        let (read, watches) =
            (get(&wire, &source, "freshness=source").await, api.look(|state| state.watches));
        assert_eq!((read.status.as_u16(), api.asked().1), (200, 1), "{read:?}");
        assert_eq!(watches, 1 + number, "one for each version that the type has not, and one that is kept");
        assert_eq!(
            wire.get(&format!("{}?freshness=source", source.collection_in("*", "*"))).await.status,
            200
        );
    }
    let known = cell(&stand.wire()).await;
    assert_eq!(
        (&known["state"], &known["provider"]),
        (&json!("Disconnected"), &json!("directProbe")),
        "{known}"
    );
    assert_eq!(known["position"], source.head.to_string(), "the position is the pusher's");
    hands.pass(60);
    assert!(cell(&stand.wire()).await["ageSeconds"].as_u64().expect("it is known") >= 60);
    hands.pass(60);
    let read = get(&stand.wire(), &source, "resourceVersion=0").await;
    assert!(header(&read, "warning").contains("1 of 1 shards unconfirmed: amber (12"), "{read:?}");
    assert!(probes(&stand, ProbeOutcome::Confirmed) >= 8);
    stand.close().await;

    // After a restart nobody has pushed, and nothing is known but what the store has.
    let stand = Stand::open(directory.path(), &probing(directory.path(), &hands, &api, None)).await;
    assert_eq!(cell(&stand.wire()).await["state"], "Restored");
    let read = get(&stand.wire(), &source, "").await;
    assert_eq!((read.status.as_u16(), names(&read)), (200, vec!["a".to_owned()]), "{read:?}");
    assert_eq!(api.asked().1, 2, "compared anew");
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d41_what_was_not_pushed_is_refused_and_comes_with_the_pusher_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut source = Source::exports("amber").with(&["a"]);
    let (stand, api, _) = left(directory.path(), &source, None).await;
    let wire = stand.wire();
    assert_eq!(get(&wire, &source, "").await.status, 200);
    let missed = api.put("b");
    for query in ["", "freshness=source", "maxStaleness=0s"] {
        let read = get(&wire, &source, query).await;
        assert_eq!(refusal(&read), unconfirmed("amber"), "{query}");
        let message = message(&read);
        assert!(message.starts_with("Disconnected, last confirmed "), "{message}");
        assert!(message.ends_with("; its API was asked: it has 2 objects, the copy has 1"), "{message}");
    }
    let read = wire.get(&format!("{}/b", source.collection())).await;
    assert_eq!(refusal(&read), unconfirmed("amber"), "no false 404");
    let read = get(&wire, &source, "resourceVersion=0").await;
    assert_eq!((read.status.as_u16(), names(&read)), (200, vec!["a".to_owned()]), "never taken from there");
    assert_eq!(probes(&stand, ProbeOutcome::Failed), 0);
    assert!(probes(&stand, ProbeOutcome::Behind) >= 1);

    // A live pusher is asked by a barrier, and the source is left alone.
    source.put("b", "gold");
    let before = api.asked();
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("amber", "i1").await;
    control.send(json!({"type": "catalog", "types": [source.type_name()]}));
    control.settled().await;
    let (mut pusher, _) = door.cell(&source, "i1").await;
    answer(&mut pusher, &source, vec![missed]).await;
    let (read, _) = join(get(&wire, &source, ""), answer(&mut pusher, &source, vec![])).await;
    assert_eq!((read.status.as_u16(), names(&read).len()), (200, 2), "{read:?}");
    assert_eq!(api.asked(), before);
    drop((pusher, control));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d35_a_source_that_is_not_the_one_that_was_copied_confirms_nothing() {
    /// What became of the source, and what is said of it.
    type Fate = (fn(&mut api::State), &'static str);
    let fates: [Fate; 5] = [
        (|state| (state.source.head, state.source.objects) = (3, BTreeMap::new()), "it has gone back"),
        // Restored to before the object, and on to the very version of the copy by what is of other types.
        (|state| state.source.objects.clear(), "it has 0 objects, the copy has 1"),
        // Restored and written to, up to there and beyond: no watch from the position has an event.
        (
            |state| {
                state.source.objects.clear();
                state.source.head = 90;
                state.source.put("a", "gold");
                state.source.head = 900;
            },
            "its 1 objects are not those of the copy",
        ),
        (|state| state.source.id = "another".to_owned(), "that one is called src, this one another"),
        (|state| state.source.resource = "others", "is not here"),
    ];
    for (fate, said) in fates {
        let directory = tempfile::tempdir().expect("a directory");
        let source = Source::exports("amber").with(&["a"]);
        let (stand, api, _) = left(directory.path(), &source, None).await;
        api.change(fate);
        for _ in 0..2 {
            let read = get(&stand.wire(), &source, "").await;
            assert_eq!(refusal(&read), unconfirmed("amber"), "{said}");
            assert!(message(&read).contains(said), "{said}: {}", message(&read));
        }
        assert_eq!(probes(&stand, ProbeOutcome::Confirmed), 0, "{said}");
        stand.close().await;
    }
}

/// A watch that was silent since the comparison is no evidence once it has ended or cannot be renewed: then
/// everything is compared again.
#[tokio::test(flavor = "multi_thread")]
async fn d38_without_a_bookmark_everything_is_compared_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::exports("amber").with(&["a"]);
    let (stand, api, _) = left(directory.path(), &source, None).await;
    let wire = stand.wire();
    assert_eq!(get(&wire, &source, "").await.status, 200);
    api.change(|state| state.bookmarks = false);
    api.elsewhere();
    assert_eq!(get(&wire, &source, "").await.status, 200);
    assert_eq!(api.asked().1, 2);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d38_a_thousand_reads_without_a_pusher_cost_their_source_two() {
    for is_current in [true, false] {
        let directory = tempfile::tempdir().expect("a directory");
        let source = Source::exports("amber").with(&["a"]);
        let (hands, api) = (Hands::default(), Api::of(&source).await);
        let mut setting = probing(directory.path(), &hands, &api, None);
        setting.api.reads_in_flight_max = 2_000;
        let stand = Stand::open(directory.path(), &setting).await;
        drop(live(&stand, &source).await);
        away(&stand, &hands).await;
        if !is_current {
            api.put("b");
        }
        let wire = &stand.wires()[1];
        // They are all there before the source says anything.
        api.change(|state| state.hangs = true);
        let reads = join_all((0..1_000).map(|_| get(wire, &source, "")));
        let answers = async {
            while api.asked() == (0, 0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            api.change(|state| state.hangs = false);
        };
        let (reads, ()) = join(reads, answers).await;
        let code = if is_current { 200 } else { 500 };
        assert!(reads.iter().all(|read| read.status == code), "{is_current}");
        let (heads, comparisons) = api.asked();
        assert!((1..=2).contains(&(heads + comparisons)), "{heads} heads and {comparisons} comparisons");
        stand.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d41_a_source_that_hangs_fails_reads_in_their_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::exports("amber").with(&["a"]);
    let (stand, api, _) = left(directory.path(), &source, None).await;
    api.change(|state| state.hangs = true);
    let wire = stand.wire();
    // The client's own time is the less here.
    let read = get(&wire, &source, "timeout=1s").await;
    assert_eq!(refusal(&read), unconfirmed("amber"));
    assert!(message(&read).ends_with("its API was asked: it has not answered in time"), "{}", message(&read));
    assert_eq!(get(&wire, &source, "resourceVersion=0").await.status, 200, "nobody else waits");
    // It comes back, and so do answers.
    api.change(|state| state.hangs = false);
    assert_eq!(get(&wire, &source, "").await.status, 200);
    stand.close().await;
}

/// A copy of some of the source's objects is only known to be current by who knows which.
#[tokio::test(flavor = "multi_thread")]
async fn d38_what_a_replicator_selects_has_to_be_said() {
    let selected = json!({"resources": ["apis.kcp.io/v1alpha2/apiexports?labels=tier=gold"]});
    for (extension, code) in [(None, 500), (Some(selected), 200)] {
        let directory = tempfile::tempdir().expect("a directory");
        let source = Source::exports("amber").with(&["a"]);
        let (stand, api, _) = left(directory.path(), &source, extension).await;
        api.change(|state| drop(state.source.put("dull", "silver")));
        assert_eq!(get(&stand.wire(), &source, "").await.status, code);
        stand.close().await;
    }
}
