//! The accept loop: from a listener to one task per connection, up to a bound.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::{Server, connection};
use crate::access::Access;
use crate::metrics::HttpMetrics;
use crate::metrics::labels::Limit;
use crate::status::ApiError;

/// How long accepting rests when the system has no room for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// How long a refused client may take to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Refused clients that are told why at the same time; more are just closed.
const REFUSALS_MAX: usize = 64;

/// Where connections come from.
pub(super) trait Listener {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;
    /// Whether HTTP can be written to a connection before any handshake.
    const PLAIN: bool;

    /// The next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// A TCP listener whose connections begin with a handshake.
pub(super) struct Encrypted(pub(super) TcpListener);

impl Listener for TcpListener {
    type Stream = TcpStream;
    const PLAIN: bool = true;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // An event is one small write; it must not wait for the acknowledgement of the last one.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for Encrypted {
    type Stream = TcpStream;
    const PLAIN: bool = false;

    async fn next(&self) -> io::Result<TcpStream> {
        self.0.next().await
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    const PLAIN: bool = true;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl Server {
    /// Accepts until the server stops.
    pub(super) async fn accept_all<L, S, F>(&self, listener: L, handshake: impl Fn(L::Stream) -> F)
    where
        L: Listener,
        F: Future<Output = io::Result<(S, Access)>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.next() => accepted,
            };
            let metrics = self.metrics();
            match accepted {
                Ok(stream) if self.connections.len() >= self.config.connections_max => {
                    self.refuse(stream, L::PLAIN, metrics.as_ref());
                }
                Ok(stream) => {
                    let open = Arc::new(Open::new(metrics));
                    let serve = connection::serve(self.clone(), handshake(stream), open);
                    self.connections.spawn(serve);
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }

    /// Tells a client that there is no room for it, if that can be done without holding much.
    fn refuse<S>(&self, mut stream: S, plain: bool, metrics: Option<&HttpMetrics>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if let Some(metrics) = metrics {
            metrics.refusals.get_or_create(&Limit::Connections.into()).inc();
        }
        if !plain || self.connections.len() >= self.config.connections_max + REFUSALS_MAX {
            return;
        }
        self.connections.spawn(async move {
            let told = async {
                stream.write_all(refusal().as_bytes()).await?;
                stream.shutdown().await?;
                // Closing with unread bytes would reset the connection before the client reads the answer.
                let mut unread = [0; 1024];
                while stream.read(&mut unread).await? > 0 {}
                io::Result::Ok(())
            };
            // A client that is gone, or does not read, has been told enough.
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, told).await;
        });
    }
}

/// A complete HTTP/1.1 answer for a connection that is not served.
fn refusal() -> String {
    let status = ApiError::too_many_requests("Too many connections, please try again later.", 1).status();
    let body = status.to_string();
    format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Errors of accept(2) that say nothing about the next connection.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    // The last two: the peer was gone before an option of its socket could be set.
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}

/// Counts a connection as open while it lives.
pub(super) struct Open {
    pub(super) metrics: Option<HttpMetrics>,
}

impl Open {
    fn new(metrics: Option<HttpMetrics>) -> Self {
        if let Some(metrics) = &metrics {
            metrics.connections.inc();
            metrics.connections_accepted.inc();
        }
        Self { metrics }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.connections.dec();
        }
    }
}
