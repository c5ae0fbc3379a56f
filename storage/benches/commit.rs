//! Durable commits: ours against bare redb writing the same bytes in the same batches, in one run.
//!
//! Run: `cargo bench -p shardcache-storage --bench commit`. `BENCH_DIR` names the directory (default: the
//! system's temporary one; it must be a real disk for the numbers to mean anything), `BENCH_ROUNDS` the
//! number of repetitions (default 5), `BENCH_SUBMITTERS` picks one load. Prints medians and ratios.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::{Durability, TableDefinition};
use shardcache_storage::{
    Action, Change, Draft, Guard, Key, Opening, PLACEHOLDER, RedbOptions, RedbStore, Span, Spans, Store,
    TypeName,
};

const BODY_BYTES: usize = 1024;
/// Objects that are written over and over, as controllers do.
const OBJECTS: usize = 10_000;
/// Submitters, and writes by all of them together.
const LOADS: [(usize, usize); 3] = [(1, 3_000), (64, 40_000), (1000, 100_000)];
const CACHE_BYTES: usize = 256 << 20;
const REVS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revs");

fn draft(index: usize) -> (Key, Draft) {
    let key = Key::new("amber", "root", "default", &format!("object-{index:06}")).expect("legal");
    let digits = std::str::from_utf8(PLACEHOLDER).expect("digits");
    let metadata = format!(r#"{{"name":"object-{index:06}","resourceVersion":"{digits}"}}"#);
    let head = r#"{"apiVersion":"wildwest.dev/v1","metadata":"#;
    let mut body = format!(r#"{head}{metadata},"spec":""#);
    body.extend(std::iter::repeat_n('x', BODY_BYTES - 2 - body.len()));
    body.push_str("\"}");
    let spans = Spans {
        resource_version_at: body.find(digits).expect("it is there") as u32,
        metadata: Span { at: head.len() as u32, len: metadata.len() as u32 },
        api_version: Span { at: 15, len: 15 },
        uid: Span::default(),
    };
    let draft = Draft::new(&key, &[("app", "bench")], body.as_bytes(), spans).expect("it fits");
    (key, draft)
}

/// Processor time of this process so far, in seconds: what contention by others does not change.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |field: usize| after_name.split(' ').nth(field).and_then(|text| text.parse::<f64>().ok());
    (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / TICKS_PER_SECOND
}

/// One measured run.
struct Run {
    took: Duration,
    cpu_seconds: f64,
    /// Events of each transaction.
    batches: Vec<usize>,
    latencies: Vec<Duration>,
}

async fn ours(directory: &Path, submitters: usize, writes: usize) -> Run {
    let options = RedbOptions {
        opening: Opening::from_system(),
        cache_bytes: CACHE_BYTES,
        ..RedbOptions::new(directory.join("ours"))
    };
    let store: Arc<dyn Store> = tokio::task::spawn_blocking(move || RedbStore::open(options))
        .await
        .expect("no panic")
        .expect("opens");
    let mut following = store.subscribe();
    let reader = tokio::spawn(async move {
        let mut batches = Vec::new();
        while let Some(commit) = following.commits.recv().await {
            batches.push(commit.events.len());
        }
        batches
    });
    let drafts: Arc<Vec<(Key, Draft)>> = Arc::new((0..OBJECTS).map(draft).collect());
    let type_name = TypeName::new("wildwest.dev", "cowboys");
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let tasks: Vec<_> = (0..submitters)
        .map(|submitter| {
            let (store, drafts, type_name) = (Arc::clone(&store), Arc::clone(&drafts), type_name.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(writes / submitters);
                for i in 0..writes / submitters {
                    let (key, draft) = drafts[(submitter * 7919 + i * 104_729) % OBJECTS].clone();
                    let action = Action::Put(draft);
                    let change =
                        Change { type_name: type_name.clone(), key, guard: Guard::default(), action };
                    let sent = Instant::now();
                    store.commit(vec![change]).await.expect("writes")[0].as_ref().expect("applies");
                    latencies.push(sent.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::with_capacity(writes);
    for task in tasks {
        latencies.extend(task.await.expect("a submitter"));
    }
    let (took, cpu_seconds) = (began.elapsed(), cpu_seconds() - cpu);
    store.close().await.expect("closes");
    Run { took, cpu_seconds, batches: reader.await.expect("the reader"), latencies }
}

fn bare(directory: &Path, batches: &[usize]) -> (Duration, f64) {
    let database =
        redb::Builder::new().set_cache_size(CACHE_BYTES).create(directory.join("bare.redb")).expect("opens");
    let record = vec![b'x'; BODY_BYTES + 68 + 40 + 12];
    let mut key = 1 << 40;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    for batch in batches {
        let mut txn = database.begin_write().expect("begins");
        txn.set_durability(Durability::Immediate).expect("durable");
        txn.set_quick_repair(true);
        {
            let mut table = txn.open_table(REVS).expect("a table");
            for _ in 0..*batch {
                key += 1;
                table.insert(key, record.as_slice()).expect("inserts");
            }
        }
        txn.commit().expect("commits");
    }
    (began.elapsed(), cpu_seconds() - cpu)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn millis(durations: &mut [Duration], percent: usize) -> f64 {
    durations.sort_unstable();
    durations[(durations.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

#[expect(clippy::print_stdout, reason = "a benchmark's result")]
fn main() {
    let rounds: usize = std::env::var("BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let root = std::env::var_os("BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    println!(
        "submitters  ours writes/s  bare writes/s  ratio  mean batch  p50 ms  p99 ms  ours µs CPU/write  bare"
    );
    let only: Option<usize> = std::env::var("BENCH_SUBMITTERS").ok().and_then(|text| text.parse().ok());
    for (submitters, writes) in LOADS {
        if only.is_some_and(|only| only != submitters) {
            continue;
        }
        let (mut our_rates, mut bare_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut batch, mut p50, mut p99) = (Vec::new(), Vec::new(), Vec::new());
        let (mut our_cpu, mut bare_cpu) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let directory = tempfile::tempdir_in(&root).expect("a directory");
            let mut run = runtime.block_on(ours(directory.path(), submitters, writes));
            let written: usize = run.batches.iter().sum();
            let our_rate = written as f64 / run.took.as_secs_f64();
            let (bare_took, bare_cpu_seconds) = bare(directory.path(), &run.batches);
            let bare_rate = written as f64 / bare_took.as_secs_f64();
            our_cpu.push(run.cpu_seconds / written as f64 * 1e6);
            bare_cpu.push(bare_cpu_seconds / written as f64 * 1e6);
            our_rates.push(our_rate);
            bare_rates.push(bare_rate);
            ratios.push(our_rate / bare_rate);
            batch.push(written as f64 / run.batches.len() as f64);
            p50.push(millis(&mut run.latencies, 50));
            p99.push(millis(&mut run.latencies, 99));
        }
        println!(
            "{submitters:>10}  {:>13.0}  {:>13.0}  {:>5.2}  {:>10.1}  {:>6.2}  {:>6.2}  {:>17.1}  {:>4.1}",
            median(our_rates),
            median(bare_rates),
            median(ratios),
            median(batch),
            median(p50),
            median(p99),
            median(our_cpu),
            median(bare_cpu),
        );
    }
}
