//! Lists for clients that accept gzip: the same bytes after decoding, of pages that are compressed once.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use shardcache_proxy::cache::CacheConfig;
use shardcache_storage::{MemoryStore, Opening};

use crate::world::{WIDGETS, World, put};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Every list is compressed, however short.
fn world() -> World {
    World::with(|config| config.gzip_bytes_min = 0)
}

fn spec(seed: usize) -> Value {
    json!({ "seed": seed, "fill": format!("{seed:x}-").repeat(300) })
}

/// The list with gzip, decoded; it must be what is sent without, in one member and nothing after it.
async fn decoded(world: &World, path: &str, accept: &str) -> Vec<u8> {
    let plain = world.call(Method::GET, path, &[("accept", accept)]).await;
    assert_eq!(plain.status, StatusCode::OK, "{path}: {}", plain.text());
    let headers = [("accept", accept), ("accept-encoding", "gzip")];
    let packed = world.call(Method::GET, path, &headers).await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
    assert_eq!(packed.header("content-length"), None);
    let mut decoder = flate2::bufread::GzDecoder::new(&packed.body[..]);
    let mut text = vec![];
    decoder.read_to_end(&mut text).expect("gzip");
    assert!(decoder.into_inner().is_empty(), "{path}: something follows the member");
    assert!(text == plain.body, "{path}: other bytes than without gzip");
    text
}

/// Pages that were compressed so far, and that were sent again.
fn pages(world: &World) -> (u64, u64) {
    let gzip = &world.metrics().list.gzip;
    (gzip.pages_made.get(), gzip.pages_reused.get())
}

#[tokio::test]
async fn every_kind_of_list_is_the_same_with_gzip() {
    let world = world();
    assert!(decoded(&world, WIDGETS, "application/json").await.ends_with(b"\"items\":[]}"));
    let widgets = (0..900).map(|n| {
        let labels = if n % 7 == 0 { "x=1" } else { "x=2" };
        put(&format!("s{}/c{}/n/w-{n:04}", n % 3, n % 5), labels, &spec(n))
    });
    let before = world.commit(widgets.collect()).await;
    world.put("s1/c1/n/w-0001", "x=1", &json!({ "changed": true })).await;
    let v1beta1 = WIDGETS.replace("/v1/", "/v1beta1/");
    let one_shard = WIDGETS.replace("/shards/*", "/shards/s1");
    let exact = format!("{WIDGETS}?resourceVersion={before}&resourceVersionMatch=Exact");
    let page = format!("{WIDGETS}?limit=400");
    // Twice each, so that pages are found as well as made.
    for _ in 0..2 {
        for path in [WIDGETS, &v1beta1, &one_shard, &exact, &page, &format!("{WIDGETS}?labelSelector=x%3D1")]
        {
            for accept in ["application/json", METADATA, "application/yaml"] {
                decoded(&world, path, accept).await;
            }
        }
    }
    let rows = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let headers = [("accept", rows), ("accept-encoding", "gzip")];
    let before = pages(&world);
    assert_eq!(world.call(Method::GET, WIDGETS, &headers).await.status, StatusCode::OK);
    assert_eq!(pages(&world), before, "rows have ages: they are never kept");
}

#[tokio::test]
async fn a_change_costs_its_own_page() {
    let world = world();
    world.commit((0..1_000).map(|n| put(&format!("s/c/n/w-{n:04}"), "", &spec(n))).collect()).await;
    decoded(&world, WIDGETS, "application/json").await;
    let (all, reused) = pages(&world);
    assert!(all > 5 && reused == 0, "{all} pages made, {reused} reused");
    decoded(&world, WIDGETS, "application/json").await;
    assert_eq!(pages(&world), (all, all), "nothing changed");
    let one_shard = WIDGETS.replace("/shards/*", "/shards/s");
    decoded(&world, &one_shard, "application/json").await;
    assert_eq!(pages(&world), (all, 2 * all), "the same objects in another scope");
    for (at, change) in ["w-0500", "w-0500x", "a", "z"].into_iter().enumerate() {
        let (made, _) = pages(&world);
        world.put(&format!("s/c/n/{change}"), "", &spec(at)).await;
        let list = decoded(&world, WIDGETS, "application/json").await;
        assert!(String::from_utf8_lossy(&list).contains(&format!("\"{change}\"")));
        let more = pages(&world).0 - made;
        assert!((1..=4).contains(&more), "{change} costs {more} of {all} pages");
    }
    let (made, _) = pages(&world);
    world.delete("s/c/n/w-0500").await;
    let list = decoded(&world, WIDGETS, "application/json").await;
    assert!(!String::from_utf8_lossy(&list).contains("\"w-0500\""));
    assert!(pages(&world).0 - made <= 4);
}

#[tokio::test]
async fn pages_that_are_kept_stay_below_their_bound() {
    const BYTES_MAX: usize = 20_000;
    let store = MemoryStore::new(Opening::from_system());
    let configure = |config: &mut shardcache_proxy::service::ApiConfig| {
        config.gzip_bytes_min = 0;
        config.gzip_page_bytes_max = BYTES_MAX;
    };
    let world = World::over(Arc::clone(&store), configure, CacheConfig::default());
    for round in 0..5 {
        world.commit((0..500).map(|n| put(&format!("s/c/n/w-{n:04}"), "", &spec(n + round))).collect()).await;
        decoded(&world, WIDGETS, "application/json").await;
        let bytes = world.metrics().list.gzip.page_bytes.inner().load(Ordering::Relaxed);
        assert!((1..=BYTES_MAX as i64).contains(&bytes), "{bytes} bytes are kept");
    }
}
