//! From settings as typed to one validated [`Config`]: every default and every cross-check is here.
//!
//! A mistake is a [`Failure::Usage`] whose line names the flag, file or key. Files that settings name are
//! read here, so that nothing is bound, opened or created before the whole configuration is known to be
//! good. Nothing below this module checks a setting again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shardcache_proxy::access::{Access, Identity};
use shardcache_proxy::freshness::FreshnessConfig;
use shardcache_proxy::freshness::probe::DirectProbe;
use shardcache_proxy::http::server::ServerConfig;
use shardcache_proxy::service::ApiConfig;
use shardcache_proxy::types::{self, TypeInfo};
use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, QuickRepair, ServeArgs, Settings, StorageKind};
use crate::failure::Failure;
use crate::replicate::Prober;
use crate::units::{Size, Time};

mod roster;
pub(crate) mod tls;
mod tokens;

pub(crate) use roster::parse as roster_names;
pub use roster::{ConfigMapName, RosterSource};
pub use tls::TlsConfig;

/// Default of `--data-dir`.
pub const DATA_DIR: &str = "./shardcache-data";
/// Largest body the store can hold, less room for what is added to it at ingest.
const BODY_BYTES_MAX: u64 = (shardcache_storage::BODY_MAX - (64 << 10)) as u64;

/// Everything the server needs to know, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; `None` only in embedded use.
    pub listen: Option<SocketAddr>,
    /// Directory of the store, the admin socket and the kubeconfig.
    pub data_dir: PathBuf,
    /// The engine and its bounds.
    pub storage: StorageConfig,
    /// Bytes of recent events kept in memory.
    pub history_memory_bytes: u64,
    /// Bounds and timings of requests.
    pub api: ApiConfig,
    /// Bounds of connections.
    pub server: ServerConfig,
    /// TLS, if it is served.
    pub tls: Option<TlsConfig>,
    /// Whether clients can prove who they are.
    pub authentication: bool,
    /// Bearer tokens and whom they stand for.
    pub tokens: Vec<(String, Identity)>,
    /// Who says which shards ought to exist, if somebody does.
    pub roster: Option<RosterSource>,
    /// How long shutdown waits for requests and watches.
    pub shutdown_grace: Duration,
    /// Types served everywhere besides the built-in ones.
    pub types: Vec<TypeInfo>,
}

/// The engine and its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageConfig {
    /// Which engine.
    pub engine: Engine,
    /// How long superseded states stay watchable.
    pub history_age: Duration,
    /// Bytes of superseded states kept, over all types.
    pub history_bytes: u64,
}

/// Which engine keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A redb file in the data directory.
    Redb {
        /// Fast recovery after a crash.
        quick_repair: QuickRepair,
        /// Bytes of pages redb may cache.
        cache_bytes: usize,
    },
    /// Nothing on disk.
    Memory,
}

/// What the log looks like.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Text or JSON.
    pub format: LogFormat,
    /// Which records are kept, in `tracing`'s filter grammar.
    pub filter: String,
}

impl Config {
    /// What a client may do that proves nothing. Without authentication (so on loopback, as everything else
    /// refuses to start) that is everything but administration; with it, nothing.
    pub fn anonymous(&self) -> Access {
        let access = if self.authentication { Access::nobody() } else { Access::loopback() };
        // A browser on this host reaches loopback too; with TLS and authentication it has to prove who it is.
        let exposed_to_browsers = self.tls.is_none() || !self.authentication;
        access.on_loopback(exposed_to_browsers)
    }
}

/// The outcome of reading the settings of `serve`.
#[derive(Debug)]
pub struct Effective {
    /// The validated configuration.
    pub config: Config,
    /// The log's configuration.
    pub log: LogConfig,
    /// Every setting with its default filled in: what `--print-config` shows.
    pub settings: Settings,
}

impl Effective {
    /// File, then variables and flags over it, then defaults below both; then every check.
    pub fn load(arguments: ServeArgs) -> Result<Self, Failure> {
        let settings = match &arguments.config {
            Some(path) => arguments.settings.over(from_file(path)?),
            None => arguments.settings,
        };
        Self::of(settings)
    }

    /// Fills in defaults and checks everything.
    pub fn of(settings: Settings) -> Result<Self, Failure> {
        let settings = settings.over(defaults());
        let config = validate(&settings)?;
        let log = log(&settings)?;
        Ok(Self { config, log, settings })
    }

    /// The settings as YAML that `--config` reads.
    pub fn to_yaml(&self) -> Result<String, Failure> {
        serde_saphyr::to_string(&self.settings).map_err(|error| Failure::Internal(error.to_string()))
    }
}

fn from_file(path: &Path) -> Result<Settings, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file("config", path, error))?;
    if text.trim().is_empty() {
        return Ok(Settings::default());
    }
    serde_saphyr::from_str(&text).map_err(|error| Failure::file("config", path, error.without_snippet()))
}

/// Every default, once. A test compares them with the texts of `--help`.
pub fn defaults() -> Settings {
    let (api, server) = (ApiConfig::default(), ServerConfig::default());
    Settings {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 7443))),
        data_dir: Some(DATA_DIR.into()),
        storage: Some(StorageKind::Redb),
        history_age: Some(Time(Duration::from_hours(1))),
        history_bytes: Some(Size(2 << 30)),
        history_memory_bytes: Some(Size(256 << 20)),
        max_object_bytes: Some(Size(0)),
        redb_quick_repair: Some(QuickRepair::Auto),
        redb_cache_bytes: Some(Size(256 << 20)),
        tls_cert_file: None,
        tls_private_key_file: None,
        client_ca_file: None,
        token_auth_file: None,
        roster: None,
        roster_from_shards: None,
        roster_configmap: None,
        shutdown_grace: Some(Time(Duration::from_secs(30))),
        request_timeout: Some(Time(api.request_timeout)),
        max_body_bytes: Some(Size(api.body_bytes_max as u64)),
        max_header_bytes: Some(Size(server.header_bytes_max as u64)),
        max_connections: Some(u32::try_from(server.connections_max).unwrap_or(u32::MAX)),
        max_streams: Some(server.http2_streams_max),
        max_requests_inflight: Some(u32::try_from(api.reads_in_flight_max).unwrap_or(u32::MAX)),
        max_mutating_requests_inflight: Some(u32::try_from(api.writes_in_flight_max).unwrap_or(u32::MAX)),
        max_watches: Some(u32::try_from(api.watches_max).unwrap_or(u32::MAX)),
        max_list_bytes_inflight: Some(Size(api.list_bytes_in_flight_max as u64)),
        unset_rv_concrete: Some(api.freshness.unset_concrete),
        unset_rv_wildcard: Some(api.freshness.unset_wildcard),
        confirm_interval: Some(Time(api.freshness.confirm_interval)),
        direct_probe: None,
        max_staleness: Some(Time(Duration::ZERO)),
        cell_metrics: Some(api.freshness.measures_cells),
        log_format: Some(LogFormat::Text),
        log_level: Some("info".to_owned()),
        types: Some(vec![]),
    }
}

impl Settings {
    /// These settings, and `below` where one is not set here.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        macro_rules! first {
            ($($field:ident),+ $(,)?) => { Self { $($field: self.$field.or(below.$field)),+ } };
        }
        first!(
            listen,
            data_dir,
            storage,
            history_age,
            history_bytes,
            history_memory_bytes,
            max_object_bytes,
            redb_quick_repair,
            redb_cache_bytes,
            tls_cert_file,
            tls_private_key_file,
            client_ca_file,
            token_auth_file,
            roster,
            roster_from_shards,
            roster_configmap,
            shutdown_grace,
            request_timeout,
            max_body_bytes,
            max_header_bytes,
            max_connections,
            max_streams,
            max_requests_inflight,
            max_mutating_requests_inflight,
            max_watches,
            max_list_bytes_inflight,
            unset_rv_concrete,
            unset_rv_wildcard,
            confirm_interval,
            direct_probe,
            max_staleness,
            cell_metrics,
            log_format,
            log_level,
            types,
        )
    }
}

/// The value of a setting that has a default, so that it is there once defaults are filled in.
fn set<T: Clone>(value: Option<&T>) -> T {
    value.cloned().expect("has a default, because `defaults` sets it")
}

fn freshness(settings: &Settings) -> Result<FreshnessConfig, Failure> {
    let direct_probe = match &settings.direct_probe {
        Some(path) => Some(prober(path)?),
        None => None,
    };
    let second = Time(Duration::from_secs(1));
    Ok(FreshnessConfig {
        direct_probe,
        unset_concrete: set(settings.unset_rv_concrete.as_ref()),
        unset_wildcard: set(settings.unset_rv_wildcard.as_ref()),
        confirm_interval: at_least(settings.confirm_interval, "confirm-interval", second)?.0,
        staleness_max: settings.max_staleness.map(|time| time.0).filter(|time| !time.is_zero()),
        measures_cells: set(settings.cell_metrics.as_ref()),
        ..FreshnessConfig::default()
    })
}

fn validate(settings: &Settings) -> Result<Config, Failure> {
    let tls = tls::load(settings)?;
    let tokens = match &settings.token_auth_file {
        Some(path) => tokens::load(path)?,
        None => vec![],
    };
    let roster = roster::source(settings)?;
    let listen = set(settings.listen.as_ref());
    check_exposure(listen, tls.as_ref(), settings)?;
    let data_dir = set(settings.data_dir.as_ref());
    let request_timeout =
        at_least(settings.request_timeout, "request-timeout", Time(Duration::from_secs(1)))?.0;
    let api = ApiConfig {
        body_bytes_max: bytes(at_least(settings.max_body_bytes, "max-body-bytes", Size(1024))?),
        reads_in_flight_max: count(settings.max_requests_inflight, "max-requests-inflight")?,
        writes_in_flight_max: count(
            settings.max_mutating_requests_inflight,
            "max-mutating-requests-inflight",
        )?,
        watches_max: count(settings.max_watches, "max-watches")?,
        list_bytes_in_flight_max: bytes(at_least(
            settings.max_list_bytes_inflight,
            "max-list-bytes-inflight",
            Size(1 << 20),
        )?),
        request_timeout,
        object_bytes_max: settings.max_object_bytes.map(|size| size.0).filter(|bytes| *bytes > 0),
        data_dir: Some(data_dir.clone()),
        freshness: freshness(settings)?,
        ..ApiConfig::default()
    };
    if api.body_bytes_max as u64 > BODY_BYTES_MAX {
        return Err(Failure::usage(format!("--max-body-bytes: at most {}", Size(BODY_BYTES_MAX))));
    }
    let server = ServerConfig {
        connections_max: count(settings.max_connections, "max-connections")?,
        http2_streams_max: u32::try_from(count(settings.max_streams, "max-streams")?).unwrap_or(u32::MAX),
        header_bytes_max: bytes(at_least(settings.max_header_bytes, "max-header-bytes", Size(8 << 10))?),
        ..ServerConfig::default()
    };
    Ok(Config {
        listen: Some(listen),
        data_dir,
        storage: storage(settings)?,
        history_memory_bytes: set(settings.history_memory_bytes.as_ref()).0,
        api,
        server,
        tls,
        authentication: settings.client_ca_file.is_some() || settings.token_auth_file.is_some(),
        tokens,
        roster,
        shutdown_grace: set(settings.shutdown_grace.as_ref()).0,
        types: types::config::build(set(settings.types.as_ref()))
            .map_err(|error| Failure::usage(format!("--config: {error}")))?,
    })
}

fn prober(path: &Path) -> Result<Arc<dyn DirectProbe>, Failure> {
    let prober = Prober::load(path).map_err(|problem| Failure::file("direct-probe", path, problem))?;
    Ok(Arc::new(prober))
}

fn storage(settings: &Settings) -> Result<StorageConfig, Failure> {
    let engine = match set(settings.storage.as_ref()) {
        StorageKind::Redb => Engine::Redb {
            quick_repair: set(settings.redb_quick_repair.as_ref()),
            cache_bytes: bytes(set(settings.redb_cache_bytes.as_ref())),
        },
        StorageKind::Memory => Engine::Memory,
        StorageKind::Etcd => {
            return Err(Failure::usage("--storage etcd: not in this release; use redb or memory"));
        }
    };
    Ok(StorageConfig {
        engine,
        history_age: at_least(settings.history_age, "history-age", Time(Duration::from_secs(1)))?.0,
        history_bytes: at_least(settings.history_bytes, "history-bytes", Size(64 << 10))?.0,
    })
}

/// Plain HTTP and anonymous access exist on loopback only (D52).
fn check_exposure(listen: SocketAddr, tls: Option<&TlsConfig>, settings: &Settings) -> Result<(), Failure> {
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let missing = match tls {
        None => "--tls-cert-file and --tls-private-key-file",
        Some(_) if settings.client_ca_file.is_none() && settings.token_auth_file.is_none() => {
            "--client-ca-file or --token-auth-file"
        }
        Some(_) => return Ok(()),
    };
    Err(Failure::usage(format!(
        "--listen {listen}: an address that is not loopback needs TLS and authentication; missing {missing}"
    )))
}

fn log(settings: &Settings) -> Result<LogConfig, Failure> {
    let filter = set(settings.log_level.as_ref());
    EnvFilter::try_new(&filter).map_err(|error| Failure::usage(format!("--log-level {filter}: {error}")))?;
    Ok(LogConfig { format: set(settings.log_format.as_ref()), filter })
}

fn at_least<T: PartialOrd + std::fmt::Display + Copy>(
    value: Option<T>,
    flag: &str,
    least: T,
) -> Result<T, Failure> {
    let value = set(value.as_ref());
    if value < least {
        return Err(Failure::usage(format!("--{flag} {value}: at least {least}")));
    }
    Ok(value)
}

fn count(value: Option<u32>, flag: &str) -> Result<usize, Failure> {
    at_least(value, flag, 1).map(|count| count as usize)
}

/// Sizes of memory; a 32-bit machine gets all it can address.
fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
