//! The names that one shard has sent: its `shards.core.kcp.io`.
//!
//! The task — *owns* nothing; *receives* the cache's snapshots, once a second; *sends* changes of the roster
//! to the store; *stops when* it is aborted, with the store.

use std::ops::Bound;
use std::sync::Arc;

use shardcache_proxy::cache::WatchCache;
use shardcache_proxy::http::path::is_shard_name;
use shardcache_storage::{Cell, CellName, State, Store, TypeName};

use super::{tell, ticks};

/// The logical cluster whose objects count: nobody but kcp's administrators writes shards there.
const CLUSTER: &str = "root";

/// Tells the store of every name, for as long as it is polled.
pub(in crate::instance) async fn follow(store: Arc<dyn Store>, cache: WatchCache, naming: Box<str>) {
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let snapshot = cache.snapshot();
        let names = names(&snapshot.state, &naming);
        tell(&*store, &snapshot.state, &names, &naming).await;
    }
}

/// The names that the naming shard has sent; none before that is complete.
fn names<'a>(state: &'a State, naming: &str) -> Vec<&'a str> {
    let type_name = TypeName::new("core.kcp.io", "shards");
    if !state.cell(&CellName::new(naming, type_name.clone())).is_some_and(Cell::is_managed) {
        return Vec::new();
    }
    // NUL separates the parts of a key: U+0001 is above every key of the cluster and below the next.
    let (from, to) = (format!("{naming}\0{CLUSTER}\0"), format!("{naming}\0{CLUSTER}\u{1}"));
    let objects = state.objects(&type_name).into_iter();
    objects
        .flat_map(|objects| objects.range(Bound::Included(&from), Bound::Excluded(&to)))
        .map(|object| object.parts().name)
        .filter(|name| is_shard_name(name))
        .collect()
}
