//! The standalone server: binds, starts an [`Instance`] behind the listener, and drains it in reverse.
//!
//! Order of a start: data directory → TCP port (the first line of standard output) → store → admin socket
//! and kubeconfig (the store's lock now says that the directory is ours) → ready. Order of an end: stop
//! accepting → last bookmarks, watches and requests end → queued writes are durable → store closed.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use shardcache_proxy::access::Access;
use shardcache_proxy::http::server::Server;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::config::Config;
use crate::failure::Failure;
use crate::instance::{Instance, InstanceConfig};
use crate::listener;

mod admin_socket;
mod greeting;

pub use admin_socket::socket_path;

/// A server that listens.
pub struct App {
    config: Config,
    address: SocketAddr,
    server: Server,
    instance: Instance,
    listeners: JoinSet<std::io::Result<()>>,
}

/// Runs the server until SIGTERM or SIGINT; `Ok` after a drained end.
pub fn run(config: Config) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("shardcache")
        .build()
        .map_err(|error| Failure::Internal(format!("the runtime cannot be started: {error}")))?;
    let outcome = runtime.block_on(serve(config));
    // A store that is still being opened must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(config: Config) -> Result<(), Failure> {
    // Before the first line is printed, so that whoever reads it can stop us cleanly.
    let mut signals = Signals::install()?;
    let mut app = App::start(config)?;
    say(&format!("listening on {}\n", app.url()));
    let outcome = tokio::select! {
        outcome = app.ready() => outcome.map(Some),
        () = signals.next() => Ok(None),
    };
    if let Some(greeting) = outcome? {
        say(&greeting);
        tokio::select! {
            failure = app.failed() => return Err(failure),
            () = signals.next() => {}
        }
    }
    info!("draining");
    tokio::select! {
        ended = app.shutdown() => ended,
        () = signals.next() => {
            warn!("a second signal: ending at once");
            Ok(())
        }
    }
}

/// Standard output is for scripts and people that started us; if nobody reads it, that is no failure.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl App {
    /// Binds the port and starts to open the store, on the current runtime; returns as soon as the port
    /// answers.
    pub fn start(config: Config) -> Result<Self, Failure> {
        make_data_dir(&config.data_dir)?;
        let wanted = config.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let bound = listener::bind(wanted)?;
        let address = bound.address;
        let instance = Instance::start(InstanceConfig::from(&config));
        let server = Server::new(instance.front().clone(), config.server.clone());
        let mut listeners = JoinSet::new();
        listeners.spawn(listener::serve(server.clone(), bound, config.clone()));
        Ok(Self { config, address, server, instance, listeners })
    }

    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients find the server.
    pub fn url(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The instance behind the listener.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Waits for readiness, then opens the admin socket and writes the kubeconfig; what to try next.
    pub async fn ready(&mut self) -> Result<String, Failure> {
        let service = self.instance.ready().await?;
        if let Some(listener) = admin_socket::bind(&self.config.data_dir).await? {
            let server = self.server.clone();
            self.listeners.spawn(async move { server.serve_unix(listener, Access::internal()).await });
        } else {
            warn!("no admin socket: `shardcache ctl` cannot reach this server");
        }
        let kubeconfig = greeting::write_kubeconfig(&self.config, self.address)?;
        let snapshot = service.api().cache.snapshot();
        Ok(greeting::text(&self.url(), &kubeconfig, snapshot.state.len()))
    }

    /// Waits for the end of a server that was not asked to end.
    pub async fn failed(&mut self) -> Failure {
        tokio::select! {
            failure = self.instance.failed() => failure,
            Some(ended) = self.listeners.join_next() => Failure::Unavailable(match ended {
                Ok(Ok(())) => "a listener ended".to_owned(),
                Ok(Err(error)) => format!("a listener ended: {error}"),
                Err(error) => format!("a listener ended: {error}"),
            }),
        }
    }

    /// Drains and closes everything, within the configured grace for clients.
    pub async fn shutdown(mut self) -> Result<(), Failure> {
        self.instance.drain();
        let cut = self.server.shutdown(self.config.shutdown_grace).await;
        if cut > 0 {
            warn!(connections = cut, "cut connections that did not end within the grace");
        }
        self.listeners.shutdown().await;
        admin_socket::remove(&self.config.data_dir);
        self.instance.close().await
    }
}

fn make_data_dir(path: &Path) -> Result<(), Failure> {
    let problem = |what: String| {
        let path = path.display();
        Err(Failure::Store(format!("{path}: {what}; name another data directory with --data-dir")))
    };
    if path.exists() && !path.is_dir() {
        return problem("is a file, not a directory".to_owned());
    }
    std::fs::create_dir_all(path).or_else(|error| problem(format!("cannot be created: {error}")))
}

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn install() -> Result<Self, Failure> {
        let install = |kind| {
            signal(kind).map_err(|error| Failure::Internal(format!("signals cannot be caught: {error}")))
        };
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
