//! Memory per object beyond its encoded bytes, and per idle watcher over plain HTTP.

use std::time::Instant;

use crate::client::Client;
use crate::report::Row;
use crate::server::Server;
use crate::{collection, list, scaled};

pub(crate) async fn run() -> Vec<Row> {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let count = scaled(200_000);
    let encoded = {
        let server = Server::start(&data, &[]);
        server.ready(Instant::now()).await;
        list::seed(&server, count, 700).await;
        let path = format!("{}?resourceVersion=0", collection("*", "*"));
        Client::connect(server.address)
            .await
            .expect("connects")
            .send("GET", &path, b"")
            .await
            .expect("a list")
            .body_bytes
    };
    // An empty server of the same kind is the base, so that threads, code and caches do not count; the
    // cache of file pages has its own budget, which would be full here and empty there, and is small. The
    // restart leaves out what the writes themselves left behind in the allocator.
    let empty = Server::start(&directory.path().join("empty"), &["--redb-cache-bytes", "1MiB"]);
    empty.ready(Instant::now()).await;
    let server = Server::start(&data, &["--redb-cache-bytes", "1MiB"]);
    server.ready(Instant::now()).await;
    let per_object = (server.rss().saturating_sub(empty.rss()).saturating_sub(encoded)) as f64 / count as f64;

    let watchers = scaled(2_000);
    let before = empty.rss();
    let mut streams = Vec::new();
    for _ in 0..watchers {
        let mut client = Client::connect(empty.address).await.expect("connects");
        client
            .watch(&format!("{}?watch=true&allowWatchBookmarks=true", collection("*", "*")))
            .await
            .expect("a watch");
        streams.push(client);
    }
    let per_watcher = empty.rss().saturating_sub(before) as f64 / watchers as f64 / 1024.0;
    vec![
        Row {
            what: format!("memory per object beyond its encoded bytes, {count} objects after a restart"),
            ours: format!("{per_object:.0} B"),
            peer: "–".into(),
            ratio: "–".into(),
            goal: "≤ 300 B".into(),
        },
        Row {
            what: format!("memory per idle watcher, {watchers} connections, HTTP/1.1"),
            ours: format!("{per_watcher:.1} KiB"),
            peer: "–".into(),
            ratio: "–".into(),
            goal: "≤ 16 KiB".into(),
        },
    ]
}
