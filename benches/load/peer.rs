//! The bare peers: what the same bytes cost without a cache around them.

use std::convert::Infallible;
use std::io::Write;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Runs a peer until it is killed. `hyper` serves a file's bytes from memory; `sockets` collects
/// connections and writes the file's bytes to all of them whenever its first connection sends a byte.
pub(crate) fn run(mode: &str) {
    let file = std::env::var_os("SHARDCACHE_BENCH_FILE").expect("the parent names a file");
    let bytes = Bytes::from(std::fs::read(file).expect("the parent wrote the file"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        writeln!(std::io::stdout(), "listening on http://{address}").expect("the parent reads");
        if mode == "hyper" { hyper(listener, bytes).await } else { sockets(listener, bytes).await }
    });
}

async fn hyper(listener: TcpListener, bytes: Bytes) {
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        stream.set_nodelay(true).expect("a TCP socket");
        let bytes = bytes.clone();
        tokio::spawn(async move {
            let serve = service_fn(move |_| {
                let body = Full::new(bytes.clone());
                async move { Ok::<_, Infallible>(hyper::Response::new(body)) }
            });
            // A client that goes away ends its connection, nothing else.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), serve)
                .await;
        });
    }
}

async fn sockets(listener: TcpListener, bytes: Bytes) {
    let (mut control, _) = listener.accept().await.expect("the control connection");
    let (connected, mut streams) = tokio::sync::mpsc::channel::<TcpStream>(4096);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a TCP socket");
            if connected.send(stream).await.is_err() {
                return;
            }
        }
    });
    let mut writers = Vec::new();
    let (publish, _) = tokio::sync::watch::channel(0_u64);
    let mut trigger = [0];
    while control.read_exact(&mut trigger).await.is_ok() {
        while let Ok(mut stream) = streams.try_recv() {
            let (bytes, mut rounds) = (bytes.clone(), publish.subscribe());
            writers.push(tokio::spawn(async move {
                while rounds.changed().await.is_ok() {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            }));
        }
        if trigger[0] == b'!' {
            publish.send_modify(|round| *round += 1);
        } else {
            control.write_all(&(writers.len() as u32).to_le_bytes()).await.expect("the parent reads");
        }
    }
}
