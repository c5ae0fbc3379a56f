//! The whole surface as one service (D58): the listener, in-process clients and tests wrap it alike.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use prometheus_client::registry::Registry;
use shardcache_storage::Store;
use tower_service::Service;

use crate::body::Body;
use crate::cache::WatchCache;
use crate::metrics::Metrics;

/// Bounds and timings of requests. Every bound answers with a `Status` and is counted.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// Bytes of a request body; more is answered 413.
    pub body_bytes_max: usize,
    /// Reads being answered at once; one more is answered 429. Watches count until they have begun.
    pub reads_in_flight_max: usize,
    /// Writes being answered at once; one more is answered 429.
    pub writes_in_flight_max: usize,
    /// Open watches; one more is answered 429.
    pub watches_max: usize,
    /// Bytes that streamed lists and backups may have in flight together; at the bound 429.
    pub list_bytes_in_flight_max: usize,
    /// Time for a request that is not a watch, its body included, until the answer begins.
    pub request_timeout: Duration,
    /// A client that accepts no byte of a response for this long is cut off (D23).
    pub stall_timeout: Duration,
    /// Shortest lifetime of a watch that does not ask for one; the longest is twice this.
    pub watch_timeout_min: Duration,
    /// Longest time between two bookmarks.
    pub bookmark_interval: Duration,
    /// How long before its deadline a watch gets a last bookmark.
    pub bookmark_before_deadline: Duration,
    /// Bodies of this size and more are compressed for clients that accept it.
    pub gzip_bytes_min: usize,
    /// Directory for a backup's temporary file; without it backups are refused.
    pub data_dir: Option<std::path::PathBuf>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: 3 << 20,
            reads_in_flight_max: 400,
            writes_in_flight_max: 2_000,
            watches_max: 200_000,
            list_bytes_in_flight_max: 256 << 20,
            request_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            watch_timeout_min: Duration::from_secs(1_800),
            bookmark_interval: Duration::from_secs(60),
            bookmark_before_deadline: Duration::from_secs(2),
            gzip_bytes_min: 128 << 10,
            data_dir: None,
        }
    }
}

/// What every request handler shares.
pub struct Api {
    /// Where writes go and versions come from.
    pub store: Arc<dyn Store>,
    /// Where reads and watches come from.
    pub cache: WatchCache,
    /// Bounds and timings.
    pub config: ApiConfig,
    /// Counters of this crate.
    pub metrics: Metrics,
    /// Everything `/metrics` shows.
    pub registry: Arc<Registry>,
}

impl Api {
    /// The context of a server; all parts share one store.
    pub fn new(
        store: Arc<dyn Store>,
        cache: WatchCache,
        config: ApiConfig,
        metrics: Metrics,
        registry: Arc<Registry>,
    ) -> Arc<Self> {
        Arc::new(Self { store, cache, config, metrics, registry })
    }
}

/// The server as a `tower::Service`. Cheap to clone; never fails, every error is a response.
#[derive(Clone)]
pub struct ProxyService {
    api: Arc<Api>,
}

impl ProxyService {
    /// A service over this context.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api }
    }

    /// The shared context.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }
}

impl<B> Service<Request<B>> for ProxyService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<B>) -> Self::Future {
        todo!()
    }
}
