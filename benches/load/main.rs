//! Load benchmark of the real binary, each number beside a bare peer in the same run.
//!
//! Run with `cargo bench -p shardcache --bench load [-- list fanout writes restart memory]`; writes
//! `docs/benchmarks/load.md` when all sections ran (`docs/benchmarks/README.md` explains). Sizes shrink with `SHARDCACHE_BENCH_SCALE=0.1`.
//! Client, server and peer share the machine's cores, so only the ratios mean something.

#![expect(clippy::cast_sign_loss, reason = "sizes and counts are never negative")]

#[expect(dead_code, reason = "shared with the other benchmarks, which need more of it")]
#[path = "../harness/client.rs"]
mod client;
mod fanout;
mod list;
mod memory;
mod peer;
mod report;
mod restart;
#[expect(dead_code, reason = "as above")]
#[path = "../harness/server.rs"]
mod server;
mod writes;

use std::path::Path;

use report::Row;

/// Bytes of the padding that makes an object about 2 KiB.
const PADDING_2K: usize = 1_700;
const COLLECTION: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";

fn main() {
    if let Ok(mode) = std::env::var("SHARDCACHE_BENCH_PEER") {
        peer::run(&mode);
        return;
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut rows = Vec::new();
    for section in ["list", "fanout", "writes", "restart", "memory"] {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == section) {
            continue;
        }
        let new = match section {
            "list" => runtime.block_on(list::run()),
            "fanout" => runtime.block_on(fanout::run()),
            "writes" => runtime.block_on(writes::run()),
            "restart" => runtime.block_on(restart::run()),
            _ => runtime.block_on(memory::run()),
        };
        print(&new);
        rows.extend(new);
    }
    if wanted.is_empty() {
        write_report(&rows);
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its report")]
fn print(rows: &[Row]) {
    println!("{}", report::table(rows));
}

fn write_report(rows: &[Row]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks/load.md");
    let text = format!(
        "# Load benchmark\n\nWritten by `cargo bench -p shardcache --bench load` (scale {}); 2 shared cores, so read the ratios, not the numbers.\nMedians with (minimum–maximum). A ratio of throughput is ours ÷ peer, of time peer ÷ ours: above 1 is faster than the peer.\n\n{}",
        scale(1.0),
        report::table(rows)
    );
    std::fs::write(&path, text).expect("the report can be written");
}

/// A size under `SHARDCACHE_BENCH_SCALE`.
fn scale(full: f64) -> f64 {
    full * std::env::var("SHARDCACHE_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

/// A size under `SHARDCACHE_BENCH_SCALE`, at least 1.
fn scaled(full: usize) -> usize {
    (scale(full as f64) as usize).max(1)
}

/// An APIExport as a shard would write it.
fn object(name: &str, shard_label: usize, padding: usize) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{{"name":"{name}","labels":{{"shard":"{shard_label}","app.kubernetes.io/name":"bench"}}}},"spec":{{"padding":"{}"}}}}"#,
        "x".repeat(padding)
    )
    .into_bytes()
}

/// The collection of one shard and cluster.
fn collection(shard: &str, cluster: &str) -> String {
    format!("/services/cache/shards/{shard}/clusters/{cluster}{COLLECTION}")
}
