//! One event to 1,000 match-all watchers against bare tokio writing the same bytes to 1,000 sockets.

use std::time::Instant;

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::report::{Row, sample};
use crate::server::Server;
use crate::{PADDING_2K, collection, object, scaled};

const ROUNDS: usize = 60;

pub(crate) async fn run() -> Vec<Row> {
    let watchers = scaled(1_000);
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(&directory.path().join("data"), &["--storage", "memory"]);
    server.ready(Instant::now()).await;
    let path = collection("amber", "root");
    let mut writer = Client::connect(server.address).await.expect("connects");
    let line = first_line(&server, &mut writer, &path).await;
    let file = directory.path().join("line.json");
    std::fs::write(&file, &line).expect("written");
    let peer = Server::peer("sockets", &file);

    let version = newest(&mut writer).await;
    let mut streams = Vec::new();
    for _ in 0..watchers {
        let mut client = Client::connect(server.address).await.expect("connects");
        client
            .watch(&format!("{}?watch=true&resourceVersion={version}", collection("*", "*")))
            .await
            .expect("a watch");
        streams.push(client);
    }
    let mut bare = Bare::connect(&peer, watchers, line.len()).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let body = object(&format!("event-{round}"), round, PADDING_2K);
        let start = Instant::now();
        writer.send("POST", &path, &body).await.expect("an answer");
        join_all(streams.iter_mut().map(|stream| stream.events(1)))
            .await
            .into_iter()
            .for_each(|read| read.expect("an event"));
        ours.push(start.elapsed().as_secs_f64() * 1e3);
        theirs.push(bare.round().await * 1e3);
    }
    let (ours, theirs) = (sample(ours), sample(theirs));
    vec![Row {
        what: format!("one write (memory engine) until {watchers} watchers have read its event"),
        ours: ours.show("ms"),
        peer: format!("bare tokio {}", theirs.show("ms")),
        ratio: format!("{:.2}", theirs.median / ours.median),
        goal: "≥ 0.6".into(),
    }]
}

/// Makes one object and returns the line a watcher is sent for it.
async fn first_line(server: &Server, writer: &mut Client, path: &str) -> Vec<u8> {
    writer.send("POST", path, &object("first", 0, PADDING_2K)).await.expect("an answer");
    let mut reader = Client::connect(server.address).await.expect("connects");
    reader
        .get(&format!("{}?watch=true&timeoutSeconds=1", collection("*", "*")))
        .await
        .expect("one line, then the end")
}

async fn newest(client: &mut Client) -> String {
    let list = client.get(&format!("{}?limit=1", collection("*", "*"))).await.expect("a list");
    let text = String::from_utf8(list).expect("JSON");
    text.split("\"resourceVersion\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a version")
        .to_owned()
}

struct Bare {
    control: TcpStream,
    streams: Vec<TcpStream>,
    line_bytes: usize,
}

impl Bare {
    async fn connect(peer: &Server, count: usize, line_bytes: usize) -> Self {
        let mut control = TcpStream::connect(peer.address).await.expect("connects");
        control.set_nodelay(true).expect("a TCP socket");
        let mut streams = Vec::new();
        for _ in 0..count {
            streams.push(TcpStream::connect(peer.address).await.expect("connects"));
        }
        let mut known = [0; 4];
        while u32::from_le_bytes(known) as usize != count {
            control.write_all(b"?").await.expect("the peer reads");
            control.read_exact(&mut known).await.expect("the peer answers");
        }
        Self { control, streams, line_bytes }
    }

    async fn round(&mut self) -> f64 {
        let line_bytes = self.line_bytes;
        let start = Instant::now();
        self.control.write_all(b"!").await.expect("the peer reads");
        let reads = self.streams.iter_mut().map(|stream| async move {
            let mut line = vec![0; line_bytes];
            stream.read_exact(&mut line).await.map(|_| ())
        });
        join_all(reads).await.into_iter().for_each(|read| read.expect("a line"));
        start.elapsed().as_secs_f64()
    }
}
