//! The listener shell: connections in, [`Front`] behind them, a graceful end.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::access::Access;
use crate::front::Front;

/// Bounds of connections.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Open connections; one more is answered 429 and closed.
    pub connections_max: usize,
    /// Concurrent streams of one HTTP/2 connection, advertised in SETTINGS.
    pub http2_streams_max: u32,
    /// Bytes of all headers of a request.
    pub header_bytes_max: usize,
    /// Headers of a request.
    pub headers_max: usize,
    /// Time for a client to send the headers of a request.
    pub header_timeout: Duration,
    /// HTTP/2 ping interval on idle connections.
    pub keep_alive_interval: Duration,
    /// Time for the answer to a ping.
    pub keep_alive_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            http2_streams_max: 4_096,
            header_bytes_max: 64 << 10,
            headers_max: 100,
            header_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(20),
            keep_alive_timeout: Duration::from_secs(20),
        }
    }
}

/// Serves connections until it is shut down. Cheap to clone; clones share limits and shutdown.
#[derive(Clone)]
pub struct Server {
    service: Front,
    config: ServerConfig,
}

impl Server {
    /// A server of this service that has no connections yet.
    pub fn new(service: Front, config: ServerConfig) -> Self {
        Self { service, config }
    }

    /// Accepts plain TCP connections until [`Server::shutdown`].
    pub async fn serve_tcp(&self, listener: TcpListener, access: Access) -> std::io::Result<()> {
        self.serve_with(listener, move |stream| {
            let access = access.clone();
            async { Ok((stream, access)) }
        })
        .await
    }

    /// Accepts TCP connections and puts each through a handshake (TLS) before HTTP begins; the handshake
    /// also says what the connection proved. It goes into the extensions of each request.
    pub async fn serve_with<S, F>(
        &self,
        _listener: TcpListener,
        _handshake: impl Fn(TcpStream) -> F,
    ) -> std::io::Result<()>
    where
        F: Future<Output = std::io::Result<(S, Access)>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let _ = (&self.service, &self.config);
        todo!()
    }

    /// Accepts connections on a unix socket until [`Server::shutdown`].
    pub async fn serve_unix(&self, _listener: UnixListener, _access: Access) -> std::io::Result<()> {
        todo!()
    }

    /// Stops accepting, ends watches with a last bookmark, lets requests finish for up to `grace`, then
    /// cuts what is left. Returns the number of connections that were cut.
    pub async fn shutdown(&self, _grace: Duration) -> usize {
        todo!()
    }
}
