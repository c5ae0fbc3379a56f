use http::StatusCode;
use serde_json::{Value, json};
use shardcache_proxy::cache::CacheConfig;
use shardcache_storage::{MemoryStore, Opening, Revision, TypeName};

use crate::world::{WIDGETS, World, names, put};

/// All pages, by following `continue` with the same limit.
async fn pages(world: &World, first: &str, limit: usize) -> Vec<Value> {
    let mut pages = vec![world.json(&format!("{first}limit={limit}")).await];
    while let Some(token) = pages.last().and_then(|page| page["metadata"]["continue"].as_str()) {
        let next = format!("{WIDGETS}?limit={limit}&continue={token}");
        pages.push(world.json(&next).await);
    }
    pages
}

fn all_names(pages: &[Value]) -> Vec<String> {
    pages.iter().flat_map(names).map(str::to_owned).collect()
}

#[tokio::test]
async fn b053_l1_pages_of_any_size_make_the_whole_list() {
    let world = World::new();
    world.fill(1234, 10).await;
    let whole = world.json(WIDGETS).await;
    for limit in [100, 1, 1233, 1234, 1235, 5000] {
        // One object per page is slow for all of them; the first pages show the same.
        let pages = if limit == 1 {
            let page = world.json(&format!("{WIDGETS}?limit=1")).await;
            assert_eq!(page["metadata"]["remainingItemCount"], json!(1233));
            continue;
        } else {
            pages(&world, &format!("{WIDGETS}?"), limit).await
        };
        assert_eq!(pages.len(), 1234_usize.div_ceil(limit), "limit {limit}");
        assert_eq!(all_names(&pages), names(&whole), "limit {limit}");
        let mut left = 1234;
        for page in &pages {
            assert_eq!(page["metadata"]["resourceVersion"], whole["metadata"]["resourceVersion"]);
            left -= names(page).len();
            assert_eq!(page["metadata"]["remainingItemCount"].as_u64(), (left > 0).then_some(left as u64));
        }
        assert_eq!(left, 0);
    }
}

#[tokio::test]
async fn d26_pages_show_one_state_while_it_is_written_over() {
    let world = World::new();
    world.fill(30, 10).await;
    let expected = world.json(WIDGETS).await;
    let mut seen = vec![];
    let mut page = world.json(&format!("{WIDGETS}?limit=4")).await;
    for round in 0.. {
        world.delete(&format!("s/c/n/n-{round:05}")).await;
        world.put(&format!("s/c/n/n-{:05}x", 20 + round), "", &json!({})).await;
        world.put("s/c/n/n-00025", "", &json!({ "round": round })).await;
        seen.extend(page["items"].as_array().expect("items").clone());
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        page = world.json(&format!("{WIDGETS}?limit=4&continue={token}")).await;
    }
    assert_eq!(json!(seen), expected["items"]);
}

#[tokio::test]
async fn l2_any_state_ignores_the_limit() {
    let world = World::new();
    world.fill(20, 10).await;
    let list = world.json(&format!("{WIDGETS}?resourceVersion=0&limit=5")).await;
    assert_eq!(names(&list).len(), 20);
    assert!(list["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn l3_exact_lists_show_the_past_as_long_as_it_is_kept() {
    let world = World::new();
    let mut past = vec![];
    for round in 0..20 {
        let version = if round % 5 == 4 {
            world.delete(&format!("s/c/n/o-{}", (round - 1) % 7)).await
        } else {
            world.put(&format!("s/c/n/o-{}", round % 7), "", &json!({ "round": round })).await
        };
        past.push((version, world.json(WIDGETS).await));
    }
    for (version, expected) in &past {
        let exact = format!("{WIDGETS}?resourceVersion={version}&resourceVersionMatch=Exact");
        assert_eq!(world.json(&exact).await, *expected, "{version}");
        let not_older = format!("{WIDGETS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        assert_eq!(world.json(&not_older).await, past.last().expect("rounds").1, "{version}");
        let legacy = world.json(&format!("{WIDGETS}?resourceVersion={version}&limit=500")).await;
        assert_eq!(legacy["metadata"]["resourceVersion"], json!(version));
        assert_eq!(legacy["items"], expected["items"]);
    }
    let widgets = TypeName::new("example.dev", "widgets");
    let tenth: u64 = past[10].0.parse().expect("a number");
    let floor = world.store.compact(widgets.clone(), Revision(tenth >> 10)).await.expect("compacts");
    until(|| world.service.api().cache.snapshot().state.floor(&widgets) >= floor).await;
    let old = format!("{WIDGETS}?resourceVersion={}&resourceVersionMatch=Exact", past[3].0);
    // A state that was shown exactly may still be retained; one that was not is gone.
    let fresh = World::over(std::sync::Arc::clone(&world.store), |_| {}, CacheConfig::default());
    let expected =
        (410, "Expired".to_owned(), "The resourceVersion for the provided list is too old.".to_owned());
    assert_eq!(fresh.get(&old).await.status(), expected);
    let kept = format!("{WIDGETS}?resourceVersion={}&resourceVersionMatch=Exact", past[15].0);
    assert_eq!(fresh.json(&kept).await, past[15].1);
}

#[tokio::test]
async fn b047_l4_an_expired_token_comes_with_one_for_the_remainder() {
    let world = World::new();
    world.fill(10, 10).await;
    let page = world.json(&format!("{WIDGETS}?limit=4")).await;
    let token = page["metadata"]["continue"].as_str().expect("more").to_owned();
    world.put("s/c/n/n-00002x", "", &json!({})).await;
    world.put("s/c/n/n-00007x", "", &json!({})).await;
    let widgets = TypeName::new("example.dev", "widgets");
    let head: u64 = world.head().parse().expect("a number");
    let floor = world.store.compact(widgets.clone(), Revision(head >> 10)).await.expect("compacts");
    // A new cache, as after a restart: it retains nothing.
    let world = World::over(std::sync::Arc::clone(&world.store), |_| {}, CacheConfig::default());
    until(|| world.service.api().cache.snapshot().state.floor(&widgets) >= floor).await;
    let expired = world.get(&format!("{WIDGETS}?limit=4&continue={token}")).await;
    let (code, reason, message) = expired.status();
    assert_eq!((code, reason.as_str()), (410, "Expired"));
    assert!(
        message
            .starts_with("The provided continue parameter is too old to display a consistent list result.")
    );
    let token = expired.json()["metadata"]["continue"].as_str().expect("another token").to_owned();
    let rest = world.json(&format!("{WIDGETS}?continue={token}")).await;
    assert_eq!(names(&rest), ["n-00004", "n-00005", "n-00006", "n-00007", "n-00007x", "n-00008", "n-00009"]);
    assert_eq!(rest["metadata"]["resourceVersion"], json!(world.head()));
}

#[tokio::test]
async fn b049_a_token_within_the_history_survives_a_restart() {
    let world = World::new();
    world.fill(10, 10).await;
    let expected = world.json(WIDGETS).await;
    let page = world.json(&format!("{WIDGETS}?limit=4")).await;
    let token = page["metadata"]["continue"].as_str().expect("more").to_owned();
    world.delete("s/c/n/n-00006").await;
    let world = World::over(std::sync::Arc::clone(&world.store), |_| {}, CacheConfig::default());
    let rest = world.json(&format!("{WIDGETS}?continue={token}")).await;
    let items: Vec<_> =
        [&page, &rest].iter().flat_map(|p| p["items"].as_array().expect("items").clone()).collect();
    assert_eq!(json!(items), expected["items"]);
    assert_eq!(rest["metadata"]["resourceVersion"], expected["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn b055_tokens_and_versions_that_make_no_sense_are_refused() {
    let world = World::new();
    world.fill(10, 10).await;
    let page = world.json(&format!("{WIDGETS}?limit=4")).await;
    let token = page["metadata"]["continue"].as_str().expect("more");
    let elsewhere = "/services/cache/shards/t/clusters/*/apis/example.dev/v1/widgets";
    let other_type = "/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports";
    for path in [
        format!("{WIDGETS}?continue=garbage"),
        format!("{WIDGETS}?continue=e30"),
        format!("{elsewhere}?continue={token}"),
        format!("{other_type}?continue={token}"),
        format!("{WIDGETS}?continue={token}&resourceVersion={}", world.head()),
        format!("{WIDGETS}?resourceVersion=eyJhIjoxfQ"),
    ] {
        let (code, reason, _) = world.get(&path).await.status();
        assert_eq!((code, reason.as_str()), (400, "BadRequest"), "{path}");
    }
    let wiped = World::over(MemoryStore::new(Opening::from_system()), |_| {}, CacheConfig::default());
    let (code, reason, _) = wiped.get(&format!("{WIDGETS}?continue={token}")).await.status();
    assert_eq!((code, reason.as_str()), (410, "Expired"));
    assert_eq!(wiped.get(&format!("{WIDGETS}?resourceVersion={}", world.head())).await.status().0, 410);
}

#[tokio::test]
async fn b011_an_old_version_with_a_limit_is_answered_with_what_is_served() {
    let world = World::new();
    let first = world.fill(12, 10).await;
    world.fill(24, 10).await;
    let pages = pages(&world, &format!("{WIDGETS}?resourceVersion={first}&"), 5).await;
    assert!(pages.iter().all(|page| page["metadata"]["resourceVersion"] == json!(first)));
    assert_eq!(all_names(&pages).len(), 12);
}

#[tokio::test]
async fn l5_a_list_after_a_write_sees_it() {
    let world = World::new();
    for n in 0..50 {
        let version = world.commit(vec![put(&format!("s/c/n/{n}"), "", &json!({}))]).await;
        let list = world.json(WIDGETS).await;
        assert_eq!((names(&list).len(), &list["metadata"]["resourceVersion"]), (n + 1, &json!(version)));
    }
    assert_eq!(world.get(WIDGETS).await.status, StatusCode::OK);
}

/// Waits for a condition that another task brings about.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::world::PATIENCE, wait).await.expect("it comes about");
}
