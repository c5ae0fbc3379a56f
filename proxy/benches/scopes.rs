//! Cost of `shards/*/clusters/<c>` by the number of shards: `cargo bench -p shardcache-proxy --bench scopes`.
//!
//! The skip scan seeks once or twice per shard; the index by cluster, which a snapshot gets where that is
//! costly, reads the result as one range, as the same number of neighbours under one shard are read here. Medians of several rounds.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use shardcache_proxy::cache::scan;
use shardcache_proxy::filter::Filter;
use shardcache_proxy::scope::{Part, Scope};
use shardcache_storage::{
    Action, Change, Draft, Guard, Key, MemoryStore, Objects, Opening, PLACEHOLDER, Spans, Store, TypeName,
};

const CLUSTERS_PER_SHARD: usize = 20;
/// Shards that have objects in the cluster that is asked for.
const HOMES: usize = 10;
const ROUNDS: usize = 21;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    for shards in [100, 1_000, 10_000] {
        let objects = runtime.block_on(filled(shards));
        let skipping = median(&objects, &scope(Part::Any, "home"), HOMES);
        let everywhere = median(&objects, &scope(Part::Any, "c-0"), shards);
        let range = median(&objects, &scope(Part::One("s-000000".into()), "dense"), HOMES);
        println!(
            "{shards:>6} shards, {} objects: {skipping:>9.1?} for {HOMES} objects in as many shards, \
             {everywhere:>9.1?} for one in every shard; {range:>7.1?} for {HOMES} neighbours",
            objects.len()
        );
    }
}

fn scope(shard: Part, cluster: &str) -> Filter {
    Filter::scope(Scope { shard, cluster: Part::One(cluster.into()), namespace: None })
}

fn median(objects: &Objects, filter: &Filter, expected: usize) -> Duration {
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let found = scan(objects, filter, None).filter(|object| black_box(object.size()) > 0).count();
            let took = began.elapsed();
            assert_eq!(found, expected);
            took
        })
        .collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2]
}

/// So many shards with clusters `c-…`; some have the cluster `home`, the first has neighbours in `dense`.
async fn filled(shards: usize) -> Objects {
    let opening = Opening {
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        entropy: 7,
        host: String::new(),
    };
    let store = MemoryStore::new(opening);
    let type_name = TypeName::new("example.dev", "widgets");
    let put = |shard: usize, cluster: String, name: usize| {
        let key = Key::new(&format!("s-{shard:06}"), &cluster, "", &format!("o-{name}")).expect("no NUL");
        let mut body = String::from(r#"{"metadata":{"resourceVersion":""#);
        let spans = Spans { resource_version_at: body.len() as u32, ..Spans::default() };
        body.push_str(std::str::from_utf8(PLACEHOLDER).expect("digits"));
        body.push_str(r#""}}"#);
        let labels: [(&str, &str); 0] = [];
        let draft = Draft::new(&key, &labels, body.as_bytes(), spans).expect("small");
        Change { type_name: type_name.clone(), key, guard: Guard::default(), action: Action::Put(draft) }
    };
    let mut changes = Vec::new();
    for shard in 0..shards {
        changes.extend((0..CLUSTERS_PER_SHARD).map(|cluster| put(shard, format!("c-{cluster}"), 0)));
        if shard % (shards / HOMES) == 0 {
            changes.push(put(shard, "home".to_owned(), 0));
        }
    }
    changes.extend((0..HOMES).map(|name| put(0, "dense".to_owned(), name)));
    for batch in changes.chunks(4096) {
        store.commit(batch.to_vec()).await.expect("a store in memory does not fail");
    }
    store.subscribe().state.objects(&type_name).expect("there are some").clone()
}
