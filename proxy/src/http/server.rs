//! The listener shell: connections in, [`Front`] behind them, a graceful end.
//!
//! Each connection is one task; it belongs to the [`Server`], which waits for it at shutdown. HTTP/1.1 and
//! HTTP/2 (by prior knowledge, or after ALPN on a TLS stream) are told apart by their first bytes. Every
//! way in which a client can hold a connection without using it has a bound: the handshake and the head
//! of each HTTP/1.1 request ([`ServerConfig::header_timeout`]), idleness between requests, unanswered pings, and a
//! socket that accepts no byte ([`ServerConfig::stall_timeout`], D23).

mod accept;
mod connection;
mod detach;
mod head;
mod stall;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::front::{Front, Phase};
use crate::metrics::HttpMetrics;

/// Bounds of connections.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Open connections; one more is answered 429 and closed.
    pub connections_max: usize,
    /// Concurrent streams of one HTTP/2 connection, advertised in SETTINGS.
    pub http2_streams_max: u32,
    /// Bytes of a request's head; more is answered 431.
    pub header_bytes_max: usize,
    /// Headers of a request; more is answered 431.
    pub headers_max: usize,
    /// Time for a client to finish the handshake, to send its first request after it, and to send the
    /// head of each further HTTP/1.1 request from its first byte on.
    pub header_timeout: Duration,
    /// Time for an HTTP/1.1 client to send another request; longer than clients keep idle connections
    /// (client-go: 90 s), so that they rarely send one into a connection that is being closed.
    pub idle_timeout: Duration,
    /// HTTP/2 ping interval on idle connections.
    pub keep_alive_interval: Duration,
    /// Time for the answer to a ping.
    pub keep_alive_timeout: Duration,
    /// A connection that accepts no byte for this long, while there is something to send, is closed.
    pub stall_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            http2_streams_max: 4_096,
            header_bytes_max: 64 << 10,
            headers_max: 100,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(3),
            keep_alive_interval: Duration::from_secs(20),
            keep_alive_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_mins(1),
        }
    }
}

/// Serves connections until it is shut down. Cheap to clone; clones share limits and shutdown.
#[derive(Clone)]
pub struct Server {
    front: Front,
    config: ServerConfig,
    connections: TaskTracker,
    /// Accept no more, end gracefully.
    stop: CancellationToken,
    /// End now.
    cut: CancellationToken,
}

impl Server {
    /// A server of this service that has no connections yet.
    pub fn new(front: Front, config: ServerConfig) -> Self {
        Self {
            front,
            config,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Accepts plain TCP connections until [`Server::shutdown`].
    pub async fn serve_tcp(&self, listener: TcpListener, access: Access) -> std::io::Result<()> {
        self.accept_all(listener, move |stream| {
            let access = access.clone();
            async { Ok((stream, access)) }
        })
        .await;
        Ok(())
    }

    /// Accepts TCP connections and puts each through a handshake (TLS) before HTTP begins; the handshake
    /// also says what the connection proved. It goes into the extensions of each request.
    pub async fn serve_with<S, F>(
        &self,
        listener: TcpListener,
        handshake: impl Fn(TcpStream) -> F,
    ) -> std::io::Result<()>
    where
        F: Future<Output = std::io::Result<(S, Access)>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.accept_all(accept::Encrypted(listener), handshake).await;
        Ok(())
    }

    /// Accepts connections on a unix socket until [`Server::shutdown`].
    pub async fn serve_unix(&self, listener: UnixListener, access: Access) -> std::io::Result<()> {
        self.accept_all(listener, move |stream| {
            let access = access.clone();
            async { Ok((stream, access)) }
        })
        .await;
        Ok(())
    }

    /// Stops accepting, ends watches with a last bookmark, lets requests finish for up to `grace`, then
    /// cuts what is left. Returns the number of connections that were cut.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        // Bookmarks first: a connection told to end while its watch is open would wait for it anyway.
        if let Phase::Ready(service) | Phase::Draining(service) = self.front.phase() {
            service.api().drain();
        }
        self.stop.cancel();
        self.connections.close();
        if tokio::time::timeout(grace, self.connections.wait()).await.is_ok() {
            return 0;
        }
        let left = self.connections.len();
        self.cut.cancel();
        self.connections.wait().await;
        left
    }

    /// The metrics, once there is a service that has some.
    fn metrics(&self) -> Option<HttpMetrics> {
        match self.front.phase() {
            Phase::Ready(service) | Phase::Draining(service) => Some(service.api().metrics.http.clone()),
            _ => None,
        }
    }
}
