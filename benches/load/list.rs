//! LIST of 100k × 2 KiB over loopback against plain hyper serving the same bytes, and what
//! concurrent LISTs cost in memory.

use std::time::Instant;

use futures::future::join_all;

use crate::client::Client;
use crate::report::{Row, sample};
use crate::server::Server;
use crate::{PADDING_2K, collection, object, scaled};

const ROUNDS: usize = 7;
const CONCURRENT: usize = 8;

pub(crate) async fn run() -> Vec<Row> {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(&directory.path().join("data"), &["--storage", "memory"]);
    server.ready(Instant::now()).await;
    seed(&server, scaled(100_000), PADDING_2K).await;
    let path = format!("{}?resourceVersion=0", collection("*", "*"));
    let bytes = Client::connect(server.address).await.expect("connects").get(&path).await.expect("a list");
    let file = directory.path().join("list.json");
    std::fs::write(&file, &bytes).expect("written");
    let peer = Server::peer("hyper", &file);

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let cpu = (server.cpu_seconds(), peer.cpu_seconds());
    for _ in 0..ROUNDS {
        ours.push(rate(&server, &path, bytes.len()).await);
        theirs.push(rate(&peer, "/", bytes.len()).await);
    }
    let each = |before: f64, after: f64| (after - before) / ROUNDS as f64 * 1e3;
    let cpu = (each(cpu.0, server.cpu_seconds()), each(cpu.1, peer.cpu_seconds()));
    let (ours, theirs) = (sample(ours), sample(theirs));

    let before = server.rss();
    let (peak, _) =
        tokio::join!(peak_rss(&server), join_all((0..CONCURRENT).map(|_| rate(&server, &path, bytes.len()))));
    let grown = peak.saturating_sub(before) as f64 / CONCURRENT as f64 / f64::from(1 << 20);
    vec![
        Row {
            what: format!("LIST of {} MB, JSON, throughput", bytes.len() / 1_000_000),
            ours: format!("{}; {:.0} ms CPU each", ours.show("GB/s"), cpu.0),
            peer: format!("plain hyper {}; {:.0} ms CPU each", theirs.show("GB/s"), cpu.1),
            ratio: format!("{:.2}", ours.median / theirs.median),
            goal: "≥ 0.7".into(),
        },
        Row {
            what: format!("memory growth per LIST, {CONCURRENT} at once"),
            ours: format!("{grown:.1} MiB"),
            peer: "–".into(),
            ratio: "–".into(),
            goal: "< 32 MiB".into(),
        },
    ]
}

/// Writes `count` objects over a few shards and clusters, 64 connections at once.
pub(crate) async fn seed(server: &Server, count: usize, padding: usize) {
    const WRITERS: usize = 64;
    let work = (0..WRITERS).map(|writer| async move {
        let mut client = Client::connect(server.address).await.expect("connects");
        for at in (writer..count).step_by(WRITERS) {
            let path = collection(&format!("shard-{}", at % 10), &format!("cluster-{}", at % 7));
            let answer = client
                .send("POST", &path, &object(&format!("export-{at}"), at, padding))
                .await
                .expect("an answer");
            assert_eq!(answer.code, 201);
        }
    });
    join_all(work).await;
}

/// Gigabytes per second of one GET.
async fn rate(server: &Server, path: &str, expected: usize) -> f64 {
    let mut client = Client::connect(server.address).await.expect("connects");
    let start = Instant::now();
    let answer = client.send("GET", path, b"").await.expect("an answer");
    assert!(
        answer.code == 200 && answer.body_bytes as usize >= expected,
        "{} {}",
        answer.code,
        answer.body_bytes
    );
    answer.body_bytes as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Highest resident memory over half a second.
async fn peak_rss(server: &Server) -> u64 {
    let mut peak = 0;
    for _ in 0..100 {
        peak = peak.max(server.rss());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    peak
}
