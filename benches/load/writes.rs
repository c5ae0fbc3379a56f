//! Durable single-object REST writes against bare redb committing the same bytes in the same batches.

use std::path::Path;
use std::time::Instant;

use futures::future::join_all;
use redb::{Database, TableDefinition};

use crate::client::Client;
use crate::report::{Row, sample};
use crate::server::Server;
use crate::{PADDING_2K, collection, object, scaled};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revs");
const ROUNDS: usize = 3;

pub(crate) async fn run() -> Vec<Row> {
    let directory = tempfile::tempdir_in(".").expect("a directory on the disk under test");
    let server = Server::start(&directory.path().join("data"), &[]);
    server.ready(Instant::now()).await;
    let mut rows = Vec::new();
    let mut one = 0.0;
    for (writers, per_writer, goal) in
        [(1, 1_500, "≥ 0.8"), (64, 250, "≥ 0.5"), (1_000, 30, "≥ 0.5; ≥ 8 × one writer")]
    {
        let total = writers * scaled(per_writer);
        let (mut ours, mut theirs, mut batch) = (Vec::new(), Vec::new(), 0);
        for round in 0..ROUNDS {
            let commits = server.metric("shardcache_storage_commit_seconds_count").await;
            ours.push(total as f64 / ours_seconds(&server, writers, total, round).await);
            let commits = server.metric("shardcache_storage_commit_seconds_count").await - commits;
            assert!(commits >= 1.0, "the server counts its commits");
            batch = (total as f64 / commits).round() as usize;
            theirs.push(bare(directory.path(), total, batch));
        }
        let (ours, theirs) = (sample(ours), sample(theirs));
        if writers == 1 {
            one = ours.median;
        }
        rows.push(Row {
            what: format!("durable REST writes, {writers} writers (mean batch {batch})"),
            ours: format!("{}; {:.1} × one writer", ours.show("writes/s"), ours.median / one),
            peer: format!("bare redb {}", theirs.show("writes/s")),
            ratio: format!("{:.2}", ours.median / theirs.median),
            goal: goal.into(),
        });
    }
    rows
}

async fn ours_seconds(server: &Server, writers: usize, total: usize, round: usize) -> f64 {
    let mut clients = Vec::new();
    for _ in 0..writers {
        clients.push(Client::connect(server.address).await.expect("connects"));
    }
    let path = collection("amber", "root");
    let path = &path;
    let start = Instant::now();
    let work = clients.into_iter().enumerate().map(|(writer, mut client)| async move {
        for at in (writer..total).step_by(writers) {
            let name = format!("w{writers}-r{round}-{at}");
            let answer = client.send("POST", path, &object(&name, at, PADDING_2K)).await.expect("an answer");
            assert_eq!(answer.code, 201);
        }
    });
    join_all(work).await;
    start.elapsed().as_secs_f64()
}

/// Writes per second of a bare redb file: same bytes, same batches, same durability and quick-repair.
fn bare(directory: &Path, total: usize, batch: usize) -> f64 {
    let path = directory.join("bare.redb");
    let _ = std::fs::remove_file(&path);
    let database = Database::create(&path).expect("a database");
    let body = object("bare", 0, PADDING_2K + 300);
    let start = Instant::now();
    let mut next = 0;
    while next < total {
        let mut transaction = database.begin_write().expect("a transaction");
        transaction.set_quick_repair(true);
        {
            let mut table = transaction.open_table(TABLE).expect("a table");
            for _ in 0..batch.min(total - next) {
                table.insert(next as u64, body.as_slice()).expect("inserted");
                next += 1;
            }
        }
        transaction.commit().expect("committed");
    }
    total as f64 / start.elapsed().as_secs_f64()
}
