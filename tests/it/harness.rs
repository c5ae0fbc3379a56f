//! The product's own composition ([`App`]) in this process: what tests of restarts and clients use.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use shardcache::app::App;
use shardcache::cli::Settings;
use shardcache::config::Effective;
use shardcache_proxy::service::Api;

use crate::wire::Wire;

/// A server on a temporary directory, that can be restarted on the same address.
pub(crate) struct Served {
    settings: Settings,
    directory: tempfile::TempDir,
    app: App,
    api: Arc<Api>,
}

impl Served {
    /// A redb store with the product's defaults.
    pub(crate) async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    /// The same with other settings; address and data directory are the harness's.
    pub(crate) async fn with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let settings = Settings {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            data_dir: Some(directory.path().join("data")),
            ..settings
        };
        let (app, api) = launch(&settings).await;
        let settings = Settings { listen: Some(app.address()), ..settings };
        Self { settings, directory, app, api }
    }

    pub(crate) fn data_dir(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// What the server itself shares between requests.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// The same, to build other services over it.
    pub(crate) fn shared_api(&self) -> Arc<Api> {
        Arc::clone(&self.api)
    }

    pub(crate) fn url(&self) -> String {
        self.app.url()
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire::tcp(&self.url())
    }

    /// A drained end and a new start on the same address and directory.
    pub(crate) async fn restart(self) -> Self {
        let Self { settings, directory, app, .. } = self;
        app.shutdown().await.expect("a clean end");
        let (app, api) = launch(&settings).await;
        Self { settings, directory, app, api }
    }

    /// Works on the store while clients cannot reach the server: it listens elsewhere meanwhile.
    pub(crate) async fn elsewhere(self, work: impl AsyncFnOnce(Wire)) -> Self {
        let Self { settings, directory, app, .. } = self;
        app.shutdown().await.expect("a clean end");
        let away = Settings { listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..settings.clone() };
        let (app, _) = launch(&away).await;
        work(Wire::tcp(&app.url())).await;
        app.shutdown().await.expect("a clean end");
        let (app, api) = launch(&settings).await;
        Self { settings, directory, app, api }
    }

    /// The same address with an empty store: the volume was lost.
    pub(crate) async fn wiped(self) -> Self {
        let Self { settings, directory, app, .. } = self;
        app.shutdown().await.expect("a clean end");
        std::fs::remove_dir_all(directory.path().join("data")).expect("removed");
        let (app, api) = launch(&settings).await;
        Self { settings, directory, app, api }
    }

    /// A new server on a copy of a backup.
    pub(crate) async fn restored(copy: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        std::fs::create_dir(&data).expect("made");
        std::fs::copy(copy, data.join("store.redb")).expect("copied");
        let settings = Settings {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            data_dir: Some(data),
            ..Settings::default()
        };
        let (app, api) = launch(&settings).await;
        let settings = Settings { listen: Some(app.address()), ..settings };
        Self { settings, directory, app, api }
    }

    pub(crate) async fn stop(self) -> tempfile::TempDir {
        self.app.shutdown().await.expect("a clean end");
        self.directory
    }

    /// Answered requests of a verb since the start of this life of the server.
    pub(crate) fn requests(&self, verb: &str) -> f64 {
        self.metric(&format!("shardcache_http_requests_total{{verb=\"{verb}\""))
    }

    /// Sum of the series whose lines begin so.
    pub(crate) fn metric(&self, prefix: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.api.registry)
            .expect("metrics have a text");
        let lines = text.lines().filter(|line| line.starts_with(prefix));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// A `kube::Client` that sees a place as its cluster.
    pub(crate) fn kube(&self, shard: &str, cluster: &str) -> kube::Client {
        let place = format!("{}/services/cache/shards/{shard}/clusters/{cluster}", self.url());
        let config = kube::Config::new(place.parse().expect("a URL"));
        kube::Client::try_from(config).expect("plain HTTP needs nothing")
    }
}

async fn launch(settings: &Settings) -> (App, Arc<Api>) {
    let config = Effective::of(settings.clone()).expect("valid settings").config;
    let mut app = App::start(config).expect("it starts");
    app.ready().await.expect("it becomes ready");
    let service = app.instance().ready().await.expect("it is ready");
    (app, Arc::clone(service.api()))
}

/// A collection's path.
pub(crate) fn collection(shard: &str, cluster: &str, resource: &str) -> String {
    format!("/services/cache/shards/{shard}/clusters/{cluster}/{resource}")
}

/// Where the tests' cluster roles are.
pub(crate) const ROLES: &str = "apis/rbac.authorization.k8s.io/v1/clusterroles";

/// A cluster role with a label.
pub(crate) fn role(name: &str, tier: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": name, "labels": { "tier": tier } },
    })
}

/// Runs until the condition holds; a test that waits for something that never comes fails by name.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::wire::PATIENCE, reached).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// The real binary.
pub(crate) fn binary() -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardcache"));
    command.env_remove("SHARDCACHE_FAILPOINT");
    command
}

/// The directory with real input, or `None` with a loud line.
pub(crate) fn real_data(what: &str) -> Option<std::path::PathBuf> {
    let asked = std::env::var_os("SHARDCACHE_TEST_DATA").map(std::path::PathBuf::from);
    let root = asked.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"));
    let directory = root.join("kcp");
    if directory.is_dir() {
        return Some(directory);
    }
    eprintln!("SKIPPED: {what}: {} is not there; set SHARDCACHE_TEST_DATA", directory.display());
    None
}
