//! Restart with 1M × 1 KiB objects to `/readyz`, against reading the same file once: byte by byte,
//! and record by record through the engine.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::report::{Row, sample};
use crate::server::Server;
use crate::{list, scaled};

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revs");
const ROUNDS: usize = 3;

pub(crate) async fn run() -> Vec<Row> {
    let directory = tempfile::tempdir_in(".").expect("a directory on the disk under test");
    let data = directory.path().join("data");
    let count = scaled(1_000_000);
    {
        let server = Server::start(&data, &[]);
        server.ready(Instant::now()).await;
        list::seed(&server, count, 700).await;
    }
    let file = data.join("store.redb");
    let (mut ours, mut bytes, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bytes.push(read_through(&file));
        records.push(scan(&file, count));
        let start = Instant::now();
        let server = Server::start(&data, &[]);
        ours.push(server.ready(start).await.as_secs_f64());
    }
    let (ours, bytes, records) = (sample(ours), sample(bytes), sample(records));
    let size = std::fs::metadata(&file).map_or(0, |data| data.len() >> 20);
    vec![
        Row {
            what: format!("kill -9, start, `/readyz` with {count} objects ({size} MiB file)"),
            ours: ours.show("s"),
            peer: format!("sequential scan of the records {}", records.show("s")),
            ratio: format!("{:.2} × the scan", ours.median / records.median),
            goal: "≤ 2 × the scan".into(),
        },
        Row {
            what: "the same against reading the file's bytes".into(),
            ours: ours.show("s"),
            peer: bytes.show("s"),
            ratio: format!("{:.2} × the read", ours.median / bytes.median),
            goal: "–".into(),
        },
    ]
}

fn read_through(file: &Path) -> f64 {
    let start = Instant::now();
    let mut file = std::fs::File::open(file).expect("the store file");
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).expect("readable") > 0 {}
    start.elapsed().as_secs_f64()
}

fn scan(file: &Path, count: usize) -> f64 {
    let start = Instant::now();
    let database = Database::open(file).expect("the store file");
    let table = database.begin_read().expect("a transaction").open_table(RECORDS).expect("the records");
    let mut seen = 0;
    let mut bytes = 0;
    for entry in table.iter().expect("a scan") {
        let (_, record) = entry.expect("a record");
        seen += 1;
        bytes += record.value().len();
    }
    assert!(seen >= count && bytes > 0);
    start.elapsed().as_secs_f64()
}
