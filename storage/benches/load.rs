//! Restart: the opening of a large store against a sequential scan of its file.
//!
//! Run: `cargo bench -p shardcache-storage --bench load`. `BENCH_OBJECTS` objects (default 1,000,000) of
//! 1 KiB in `BENCH_DIR`. Prints the time to read the file front to back, the time of a bare redb scan of
//! the same file, and the time of the opening, each repeated; all with a warm page cache. For cold
//! numbers drop the page cache between the phases (`BENCH_COLD=1`, needs root).

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::{ReadableDatabase, TableDefinition};
use shardcache_storage::{
    Action, Change, Draft, Guard, Key, Opening, PLACEHOLDER, RedbOptions, RedbStore, Span, Spans, Store,
    TypeName,
};

const BODY_BYTES: usize = 1024;
const REVS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revs");

fn change(index: usize) -> Change {
    // Spread like real keys: many clusters, names that do not come in order.
    let scattered = index.wrapping_mul(2_654_435_761) % 1_000_003;
    let cluster = format!("cluster-{:04}", scattered % 1000);
    let name = format!("object-{scattered:07}-{index:07}");
    let key = Key::new("amber", &cluster, "default", &name).expect("legal");
    let digits = std::str::from_utf8(PLACEHOLDER).expect("digits");
    let metadata = format!(r#"{{"name":"{name}","resourceVersion":"{digits}"}}"#);
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
    let type_name = TypeName::new("wildwest.dev", "cowboys");
    Change { type_name, key, guard: Guard::default(), action: Action::Put(draft) }
}

fn open(directory: &Path) -> Arc<RedbStore> {
    let options = RedbOptions { opening: Opening::from_system(), ..RedbOptions::new(directory) };
    RedbStore::open(options).expect("opens")
}

fn drop_page_cache() {
    if std::env::var_os("BENCH_COLD").is_some() {
        std::fs::write("/proc/sys/vm/drop_caches", "3").expect("needs root");
    }
}

fn read_file(path: &Path) -> Duration {
    drop_page_cache();
    let began = Instant::now();
    let mut file = std::fs::File::open(path).expect("opens");
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).expect("reads") > 0 {}
    began.elapsed()
}

fn scan(path: &Path) -> Duration {
    drop_page_cache();
    let began = Instant::now();
    let database = redb::Database::open(path).expect("opens");
    let txn = database.begin_read().expect("begins");
    let table = txn.open_table(REVS).expect("a table");
    let mut bytes = 0;
    for row in redb::ReadableTable::iter(&table).expect("scans") {
        bytes += row.expect("a row").1.value().len();
    }
    assert!(bytes > 0);
    began.elapsed()
}

#[expect(clippy::print_stdout, reason = "a benchmark's result")]
fn main() {
    let objects: usize =
        std::env::var("BENCH_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let root = std::env::var_os("BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(root).expect("a directory");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let store = open(directory.path());
    runtime.block_on(async {
        let mut index = 0;
        while index < objects {
            let batch: Vec<_> = (index..objects.min(index + 2000)).map(change).collect();
            index += batch.len();
            store.commit(batch).await.expect("writes");
        }
        store.close().await.expect("closes");
    });
    drop(store);
    let file = directory.path().join("store.redb");
    let megabytes = std::fs::metadata(&file).expect("there").len() as f64 / 1e6;
    println!("{objects} objects of {BODY_BYTES} bytes, file {megabytes:.0} MB");
    for _ in 0..3 {
        let (read, scanned) = (read_file(&file), scan(&file));
        drop_page_cache();
        let began = Instant::now();
        let store = open(directory.path());
        let opened = began.elapsed();
        assert_eq!(store.subscribe().state.len(), objects);
        println!(
            "read {:.2} s, bare scan {:.2} s, opening {:.2} s: {:.1} x the read, {:.1} x the scan",
            read.as_secs_f64(),
            scanned.as_secs_f64(),
            opened.as_secs_f64(),
            opened.as_secs_f64() / read.as_secs_f64(),
            opened.as_secs_f64() / scanned.as_secs_f64(),
        );
        runtime.block_on(store.close()).expect("closes");
    }
}
