//! TCP listeners, for a server of its own and for one inside another process.

use std::net::SocketAddr;

use shardcache_proxy::http::server::Server;
use tokio::net::{TcpListener, TcpStream};

use crate::config::Config;
use crate::failure::Failure;

mod handshake;

/// An address that is bound; nobody is served yet.
pub(crate) struct Bound {
    listener: std::net::TcpListener,
    /// The address it became: port 0 lets the system choose.
    pub(crate) address: SocketAddr,
}

/// Binds an address. Needs no runtime.
pub(crate) fn bind(wanted: SocketAddr) -> Result<Bound, Failure> {
    let bound = || {
        let listener = std::net::TcpListener::bind(wanted)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Bound { listener, address })
    };
    bound().map_err(|error: std::io::Error| Failure::Unavailable(format!("--listen {wanted}: {error}")))
}

/// Serves a listener as configured, with TLS or without, until the server is shut down.
pub(crate) async fn serve(server: Server, bound: Bound, config: Config) -> std::io::Result<()> {
    let listener = TcpListener::from_std(bound.listener)?;
    let anonymous = config.anonymous();
    match config.tls {
        None => server.serve_tcp(listener, anonymous).await,
        Some(tls) => {
            let handshake = handshake::Handshake::new(&tls, anonymous);
            server.serve_with(listener, move |stream: TcpStream| handshake.clone().accept(stream)).await
        }
    }
}
