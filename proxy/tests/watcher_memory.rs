//! What an idle watcher costs, measured on a process of its own: its class included, below 2 KiB.

use std::sync::Arc;

use shardcache_proxy::cache::{CacheConfig, WatchCache};
use shardcache_proxy::filter::Filter;
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::scope::{Part, Scope};
use shardcache_proxy::selector::LabelSelector;
use shardcache_proxy::types::Types;
use shardcache_storage::{MemoryStore, Opening, Store, TypeName};

const WATCHERS: usize = 20_000;
const BYTES_MAX: usize = 2048;
const PAGE_BYTES: usize = 4096;

/// Resident bytes of this process; `None` where the kernel does not tell.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * PAGE_BYTES)
}

#[tokio::test]
async fn d23_an_idle_watcher_with_its_own_class_costs_less_than_2_kib() {
    let Some(_) = resident() else {
        eprintln!("SKIPPED: this system does not tell a process's resident memory in /proc");
        return;
    };
    let store: Arc<dyn Store> = MemoryStore::new(Opening::from_system());
    let types = Types::builtin(Vec::new());
    let metrics = Metrics::default();
    let (cache, _reflector) = WatchCache::open(store, &types, CacheConfig::default(), &metrics);
    let widgets = TypeName::new("example.dev", "widgets");
    let head = cache.snapshot().state.head();
    let watch = |n: usize| {
        let scope = Scope { shard: Part::Any, cluster: Part::Any, namespace: None };
        let labels = LabelSelector::parse(&format!("shard in ({n})")).expect("legal");
        let watcher = cache.watch(&widgets, Filter { labels, ..Filter::scope(scope) }, head);
        watcher.expect("the head can be watched from")
    };
    // What is allocated once (tables, arenas) is paid for by the first few.
    let mut watchers: Vec<_> = (0..1000).map(watch).collect();
    let before = resident().expect("seen above");
    watchers.extend((1000..1000 + WATCHERS).map(watch));
    let each = (resident().expect("seen above").saturating_sub(before)) / WATCHERS;
    assert!(each < BYTES_MAX, "{each} bytes per watcher");
    assert_eq!(watchers.len(), 1000 + WATCHERS);
    eprintln!("{each} bytes per idle watcher with a class of its own");
}
