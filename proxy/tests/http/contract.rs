//! What kube's storage contract asks (`k8s.io/apiserver/pkg/storage/testing`, `RunTest…`) and no other
//! test here does. Where its other ideas are:
//!
//! | idea | test |
//! |---|---|
//! | `Create`, `CreateWithKeyExist`, `ConditionalDelete` | `storage/tests/conformance/guards.rs`, `http/write/tests/delete.rs` |
//! | `Get`, `ListResourceVersionMatch`, `WatchSemantics…` | `d27_every_row_of_…`, and the model in `tests/it/model_http` |
//! | `GuaranteedUpdate…` | `http/write/tests/contention.rs` |
//! | `DeleteWithConflict`, `DeleteWithSuggestion…` | `of_an_update_and_deletions_of_one_version_exactly_one_wins` there |
//! | `List`, `ConsistentList`, `ListPaging`, `ListInconsistentContinuation` | `pages.rs` and the model |
//! | `CompactRevision` | `storage/tests/conformance/history.rs`, `b047_…`, `b044_…` |
//! | `Watch`, `WatchFrom…`, `DeleteTriggerWatch`, `DelayedWatchDelivery` | `watch.rs`, and `d24_…` over random filters |
//! | `WatchDeleteEventObjectHaveLatestRV` | `b025_…` |
//! | `WatchContextCancel`, `WatcherTimeout` | `a_client_that_leaves_…`, `i8_bounded`, `d23_…` |
//! | `WatchInitializationSignal` | `w13_…` |
//! | `ProgressNotify`, `WatchDispatchBookmarkEvents`, `OptionalWatchBookmarks…` | `watch_life.rs`, `b038_…` |
//! | `SendInitialEvents…`, `WatchListMatchSingle` | `watch_list.rs`, script `watch-one` of the differential suite |
//!
//! Nothing here has a time to live, validates deletions or counts keys as etcd does, so
//! `GuaranteedUpdateWithTTL`, `ValidateDeletion…`, `KeySchema` and `Stats` have nothing to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use shardcache_proxy::cache::CacheConfig;
use shardcache_storage::{LogPage, MemoryStore, Opening, ReadLimit, Revision, StorageError, Store, TypeName};

use crate::world::{WIDGETS, World, names, put, serve};

/// Names on each page of a list, by following `continue`.
async fn pages(world: &World, path: &str, query: &str) -> Vec<Vec<String>> {
    let mut pages = vec![];
    let mut next = format!("{path}?{query}");
    loop {
        let page = world.json(&next).await;
        assert!(page["metadata"].get("remainingItemCount").is_none(), "a selector hides it");
        pages.push(names(&page).into_iter().map(str::to_owned).collect());
        let Some(token) = page["metadata"]["continue"].as_str() else { return pages };
        next = format!("{path}?{query}&continue={token}");
    }
}

/// `ListContinuationWithFilter`, `ListPaginationRareObject`.
#[tokio::test]
async fn a_limit_counts_what_is_selected_and_rare_objects_are_found() {
    let world = World::new();
    let label = |n: usize| match n {
        1_700 => "kind=rare",
        _ if n % 400 == 7 => "kind=some",
        _ => "kind=many",
    };
    let spec = |n: usize| json!({ "color": if n == 2_345 { "only" } else { "grey" } });
    let changes = (0..3_000).map(|n| put(&format!("s/c/n/n-{n:05}"), label(n), &spec(n))).collect();
    world.commit(changes).await;
    let some: Vec<_> = (0..3_000).filter(|n| n % 400 == 7).map(|n| format!("n-{n:05}")).collect();
    for limit in [1, 2, 3, 7, 8, 9] {
        let query = format!("labelSelector=kind%3Dsome&limit={limit}");
        let pages = pages(&world, WIDGETS, &query).await;
        assert_eq!(pages.concat(), some, "limit {limit}");
        // No page is short, and none is empty, but for the rest.
        assert_eq!(pages.len(), some.len().div_ceil(limit), "limit {limit}: {pages:?}");
    }
    for (selector, name) in [
        ("labelSelector=kind%3Drare", "n-01700"),
        ("labelSelector=kind%21%3Dmany,kind%21%3Dsome", "n-01700"),
        ("fieldSelector=spec.color%3Donly", "n-02345"),
        ("fieldSelector=metadata.name%3Dn-02999", "n-02999"),
    ] {
        for limit in [1, 5] {
            let found = pages(&world, WIDGETS, &format!("{selector}&limit={limit}")).await;
            assert_eq!(found.concat(), [name], "{selector}");
        }
    }
    for nothing in ["labelSelector=kind%3Dnone", "fieldSelector=spec.color%3Dnone"] {
        assert_eq!(pages(&world, WIDGETS, &format!("{nothing}&limit=1")).await, [Vec::<String>::new()]);
    }
}

/// Places whose parts begin as those of others.
const PLACES: [&str; 11] = [
    "s/c/n/a",
    "s/c/n/a-x",
    "s/c/n/a.x",
    "s/c/n-x/a",
    "s/c/n.x/a",
    "s/c/nn/a",
    "s/c-x/n/a",
    "s/cc/n/a",
    "s-x/c/n/a",
    "ss/c/n/a",
    "s/c:n/n/a",
];

/// The places within a scope, in order; `*` is any part.
fn within(scope: [&str; 4]) -> Vec<String> {
    let mut within: Vec<Vec<&str>> = PLACES.iter().map(|place| place.split('/').collect()).collect();
    within.retain(|place| scope.iter().zip(place).all(|(wanted, part)| *wanted == "*" || wanted == part));
    within.sort();
    within.into_iter().map(|place| place.join("/")).collect()
}

fn place(object: &Value) -> String {
    let metadata = &object["metadata"];
    let (shard, cluster) =
        (&metadata["annotations"]["kcp.io/shard"], &metadata["annotations"]["kcp.io/cluster"]);
    let parts = [shard, cluster, &metadata["namespace"], &metadata["name"]];
    parts.map(|part| part.as_str().expect("text")).join("/")
}

/// `ListRecursivePrefix`, `GetListNonRecursive`, `NamespaceScopedList`, `NamespaceScopedWatch`.
#[tokio::test]
async fn a_place_whose_name_begins_as_another_one_is_another_place() {
    let world = World::with(|config| config.bookmark_interval = Duration::from_millis(20));
    let before = world.head();
    for place in PLACES {
        world.put(place, "", &json!({})).await;
    }
    for shard in ["*", "s", "s-x"] {
        for cluster in ["*", "c", "c-x"] {
            for namespace in ["*", "n", "n-x", "nn", "none"] {
                for name in ["*", "a"] {
                    shows_exactly(&world, &before, [shard, cluster, namespace, name]).await;
                }
            }
        }
    }
}

/// A list, and a watch from before everything, show what is within a scope and nothing else.
async fn shows_exactly(world: &World, before: &str, scope: [&str; 4]) {
    let [shard, cluster, namespace, name] = scope;
    let group = format!("/services/cache/shards/{shard}/clusters/{cluster}/apis/example.dev/v1");
    let path = match namespace {
        "*" => format!("{group}/widgets"),
        _ => format!("{group}/namespaces/{namespace}/widgets"),
    };
    let selector = if name == "*" { "" } else { "fieldSelector=metadata.name%3Da" };
    let list = world.json(&format!("{path}?{selector}")).await;
    let listed: Vec<_> = list["items"].as_array().expect("items").iter().map(place).collect();
    assert_eq!(listed, within(scope), "{scope:?}");

    let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={before}&{selector}");
    let mut lines = world.watch_at(&format!("{path}?{query}"), &[]).await;
    let mut seen = vec![];
    // A bookmark promises that everything up to it was shown.
    loop {
        let (kind, object) = lines.event().await;
        match kind.as_str() {
            "BOOKMARK" if object["metadata"]["resourceVersion"] == json!(world.head()) => break,
            "BOOKMARK" => {}
            _ => seen.push(place(&object)),
        }
    }
    seen.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    assert_eq!(seen, within(scope), "{scope:?}");
}

/// A store in memory whose log cannot be read while it is told so.
struct Unreadable {
    inner: Arc<MemoryStore>,
    broken: AtomicBool,
}

impl Store for Unreadable {
    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>> {
        if self.broken.load(Ordering::Acquire) {
            return futures::future::ready(Err(StorageError::Corrupt("half a page".to_owned()))).boxed();
        }
        self.inner.events(type_name, after, up_to, limit)
    }

    shardcache_storage::delegate_store!(inner: commit, push, subscribe, lineage, backup, health, close);
}

/// `WatchError`, `WatchErrorIsBlockingFurtherEvents`.
#[tokio::test]
async fn what_cannot_be_read_is_an_error_in_the_stream_and_nothing_follows_it() {
    let inner = MemoryStore::new(Opening::from_system());
    let store = Arc::new(Unreadable { inner: Arc::clone(&inner), broken: AtomicBool::new(true) });
    // Nothing is kept in memory, so every replay reads the log.
    let cache = CacheConfig { history_bytes: 0, ..CacheConfig::default() };
    let service = serve(Arc::clone(&store) as _, |_| {}, cache);
    let world = World { store: inner, service };
    let before = world.head();
    for name in ["a", "b", "c"] {
        world.put(&format!("s/c/n/{name}"), "", &json!({})).await;
    }
    let resume = format!("resourceVersion={before}");
    let mut lines = world.watch(&resume).await;
    let (kind, status) = lines.event().await;
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(500), &json!("InternalError"))
    );
    assert_eq!(lines.line().await, None, "an event behind a gap");
    // What needs no log is served, and once the log is readable, nothing is missing.
    assert_eq!(names(&world.json(WIDGETS).await), ["a", "b", "c"]);
    store.broken.store(false, Ordering::Release);
    let mut lines = world.watch(&resume).await;
    assert_eq!(lines.briefs(3).await, ["ADDED a", "ADDED b", "ADDED c"]);
}
