//! The whole surface as one service (D58): the listener, in-process clients and tests wrap it alike.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use shardcache_storage::Store;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::body::Body;
use crate::cache::WatchCache;
use crate::freshness::FreshnessConfig;
use crate::freshness::keeper::Keeper;
use crate::freshness::view::Views;
use crate::http::gzip::pages::Pages;
use crate::http::limits::Limits;
use crate::http::route;
use crate::metrics::Metrics;
use crate::push::PushConfig;
use crate::push::budget::Budget;
use crate::push::presence::Presence;

/// Bounds and timings of requests. Every bound answers with a `Status` and is counted.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// Bytes of a request body; more is answered 413.
    pub body_bytes_max: usize,
    /// Bytes of all objects together above which creations are refused (507); `None` is no bound (D28).
    pub object_bytes_max: Option<u64>,
    /// Reads being answered at once; one more is answered 429. Watches count until they have begun.
    pub reads_in_flight_max: usize,
    /// Writes being answered at once; one more is answered 429.
    pub writes_in_flight_max: usize,
    /// Open watches; one more is answered 429.
    pub watches_max: usize,
    /// Bytes that streamed lists may have in flight together; at the bound 429.
    pub list_bytes_in_flight_max: usize,
    /// Bytes of request bodies that may be held at once; at the bound 429.
    pub body_bytes_in_flight_max: usize,
    /// Time for a request that is not a watch, its body included, until the answer begins.
    pub request_timeout: Duration,
    /// How long a client may send nothing in the middle of a request body.
    pub body_idle_timeout: Duration,
    /// A list that is not asked for more for this long loses its place when others need it. (Sockets
    /// that accept no byte are the listener's business: `ServerConfig::stall_timeout`.)
    pub stall_timeout: Duration,
    /// Shortest lifetime of a watch that does not ask for one; the longest is twice this.
    pub watch_timeout_min: Duration,
    /// Longest time between two bookmarks.
    pub bookmark_interval: Duration,
    /// How long before its deadline a watch gets a last bookmark.
    pub bookmark_before_deadline: Duration,
    /// Bodies of this size and more are compressed for clients that accept it.
    pub gzip_bytes_min: usize,
    /// Bytes of compressed pages of lists that are kept for the next list; the longest unused ones go first.
    pub gzip_page_bytes_max: usize,
    /// Bounds and timings of push streams.
    pub push: PushConfig,
    /// How fresh answers are by default, and how long one is waited for.
    pub freshness: FreshnessConfig,
    /// Directory for a backup's temporary file; without it backups are refused.
    pub data_dir: Option<std::path::PathBuf>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: 3 << 20,
            object_bytes_max: None,
            reads_in_flight_max: 400,
            writes_in_flight_max: 2_000,
            watches_max: 200_000,
            list_bytes_in_flight_max: 256 << 20,
            body_bytes_in_flight_max: 512 << 20,
            request_timeout: Duration::from_mins(1),
            body_idle_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_mins(1),
            watch_timeout_min: Duration::from_mins(30),
            bookmark_interval: Duration::from_mins(1),
            bookmark_before_deadline: Duration::from_secs(2),
            gzip_bytes_min: 128 << 10,
            gzip_page_bytes_max: 64 << 20,
            push: PushConfig::default(),
            freshness: FreshnessConfig::default(),
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
    /// Held from measuring what is only measured for `/metrics` until that is written.
    pub(crate) scrape: Mutex<()>,
    pub(crate) limits: Limits,
    /// Compressed pages of lists.
    pub(crate) pages: Arc<Pages>,
    /// Value of `X-Cache-Lineage`: the store and the incarnation that answers (D6).
    pub(crate) lineage: HeaderValue,
    /// Who pushes, as far as they were heard.
    pub(crate) presence: Presence,
    /// What has been shown of the cells that are pushed.
    pub(crate) freshness: Keeper,
    /// Views that bookmarks have told of a moment ago.
    pub(crate) views: Views,
    /// Room for frames that wait for the store.
    pub(crate) push_budget: Arc<Budget>,
    draining: CancellationToken,
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
        let limits = Limits::new(&config);
        let lineage = store.lineage();
        let lineage = format!("{}/{}", lineage.store, lineage.current().start);
        let lineage = HeaderValue::try_from(lineage).expect("a uuid and a number are visible ASCII");
        let pages = Arc::new(Pages::new(config.gzip_page_bytes_max, metrics.list.gzip.clone()));
        let freshness = Keeper::new(config.freshness.clone());
        let push_budget = Budget::new(config.push.bytes_in_flight_max);
        Arc::new(Self {
            store,
            cache,
            config,
            metrics,
            registry,
            scrape: Mutex::new(()),
            limits,
            pages,
            lineage,
            presence: Presence::new(),
            freshness,
            views: Views::default(),
            push_budget,
            draining: CancellationToken::new(),
        })
    }

    /// Refuses new requests (429) and ends push streams, and watches with a last bookmark; what else has
    /// begun goes on.
    /// Idempotent.
    pub fn drain(&self) {
        if !self.draining.is_cancelled() {
            self.draining.cancel();
            self.cache.drain();
        }
    }

    /// Whether [`Api::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Resolves once [`Api::drain`] was called.
    pub(crate) async fn drained(&self) {
        self.draining.cancelled().await;
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = Arc::clone(&self.api);
        Box::pin(async move { Ok(route::answer(&api, request).await) })
    }
}
