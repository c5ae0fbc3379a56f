//! A whole server in this process, put together by hand so that tests can reach its store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use shardcache_proxy::access::Access;
use shardcache_proxy::cache::{CacheConfig, WatchCache};
use shardcache_proxy::freshness::FreshnessConfig;
use shardcache_proxy::freshness::level::Level;
use shardcache_proxy::freshness::shardview::Scribe;
use shardcache_proxy::front::Front;
use shardcache_proxy::http::server::{Server, ServerConfig};
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::service::{Api, ApiConfig, ProxyService};
use shardcache_proxy::types::Types;
use shardcache_storage::{Change, RedbOptions, RedbStore, Store};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wire::Wire;

/// A running server on a directory.
pub(crate) struct Stand {
    pub(crate) store: Arc<RedbStore>,
    pub(crate) api: Arc<Api>,
    service: ProxyService,
    server: Server,
    base: String,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

/// What a test wants otherwise than the product.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) api: ApiConfig,
    pub(crate) cache: CacheConfig,
    /// Port to listen on; 0 lets the system choose.
    pub(crate) port: u16,
}

impl Default for Setting {
    /// Bookmarks come as often as a test may want to wait for one, and reads do not wait for a source that
    /// most tests have not: those of freshness say so themselves.
    fn default() -> Self {
        let freshness = FreshnessConfig { unset_concrete: Level::Store, ..FreshnessConfig::default() };
        let bookmark_interval = Duration::from_millis(50);
        let api = ApiConfig { bookmark_interval, freshness, ..ApiConfig::default() };
        Self { api, cache: CacheConfig::default(), port: 0 }
    }
}

impl Stand {
    /// Opens the store of a directory and serves it on a free port.
    pub(crate) async fn open(dir: &Path, setting: &Setting) -> Self {
        let mut options = RedbOptions::new(dir);
        options.cache_bytes = 1 << 20;
        let opening = tokio::task::spawn_blocking(|| RedbStore::open(options));
        let store = opening.await.expect("joined").expect("the directory holds a store or nothing");
        Self::over(store, setting).await
    }

    /// Serves a store on a free port.
    pub(crate) async fn over(store: Arc<RedbStore>, setting: &Setting) -> Self {
        let shared = Arc::clone(&store) as _;
        Self::behind(store, shared, setting).await
    }

    /// The same with something before the store.
    pub(crate) async fn behind(store: Arc<RedbStore>, shared: Arc<dyn Store>, setting: &Setting) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let types = Types::builtin(Vec::new());
        let (cache, reflector) =
            WatchCache::open(Arc::clone(&shared), &types, setting.cache.clone(), &metrics);
        let api = Api::new(shared, cache, setting.api.clone(), metrics, Arc::new(registry));
        let service = ProxyService::new(Arc::clone(&api));
        let server = Server::new(Front::ready(service.clone()), ServerConfig::default());
        let listener = TcpListener::bind(("127.0.0.1", setting.port)).await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let accepting = server.clone();
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(reflector.run()),
            tokio::spawn(Scribe::new(Arc::clone(&api)).run(stop.clone())),
            tokio::spawn(async move {
                accepting.serve_tcp(listener, Access::loopback()).await.expect("accepting goes on");
            }),
        ];
        Self { store, api, service, server, base, tasks, stop }
    }

    /// Through a socket, and around it.
    pub(crate) fn wires(&self) -> [Wire; 2] {
        [Wire::tcp(&self.base), Wire::InProcess(self.service.clone())]
    }

    /// Where it listens: `http://ADDR`.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn service(&self) -> ProxyService {
        self.service.clone()
    }

    /// Asks everybody to go, and does not wait for it.
    pub(crate) fn drain(&self) {
        self.api.drain();
    }

    /// Through a socket.
    pub(crate) fn wire(&self) -> Wire {
        Wire::tcp(&self.base)
    }

    /// Commits changes at once, all of which apply. As after a write through the API, who lists sees them.
    pub(crate) async fn commit(&self, changes: Vec<Change>) {
        let receipt = self.store.commit(changes).await.expect("it is writable");
        for result in receipt {
            let applied = result.expect("it applies");
            self.api.cache.published(applied.head).await;
        }
    }

    /// The graceful end: last bookmarks, answers, then the store is closed.
    pub(crate) async fn close(self) {
        let cut = self.server.shutdown(Duration::from_secs(10)).await;
        assert_eq!(cut, 0, "connections had to be cut");
        self.stop.cancel();
        self.store.close().await.expect("nothing failed");
        for task in self.tasks {
            task.await.expect("no task panicked");
        }
    }
}
