//! Arguments of `replicate` and `ctl push`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use http::Uri;

use super::LogFormat;
use crate::replicate::Resource;

/// How the cache is reached and what is shown to it. Files are read again for every connection.
#[derive(Args, Clone, Debug)]
pub struct CacheArgs {
    /// Base URL of the cache. [default: `https://localhost:7443/services/cache` with `--cache-ca-file` or a
    /// client certificate, else `http://127.0.0.1:7443/services/cache`]
    #[arg(long, value_name = "URL", env = "SHARDCACHE_CACHE_URL")]
    pub cache_url: Option<Uri>,
    /// PEM authorities of the cache's certificate. [default: those of the system]
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_CACHE_CA_FILE")]
    pub cache_ca_file: Option<PathBuf>,
    /// PEM certificate chain to show to the cache.
    #[arg(
        long,
        value_name = "FILE",
        env = "SHARDCACHE_CACHE_CLIENT_CERT_FILE",
        requires = "cache_client_key_file"
    )]
    pub cache_client_cert_file: Option<PathBuf>,
    /// PEM private key of that certificate.
    #[arg(
        long,
        value_name = "FILE",
        env = "SHARDCACHE_CACHE_CLIENT_KEY_FILE",
        requires = "cache_client_cert_file"
    )]
    pub cache_client_key_file: Option<PathBuf>,
    /// File with a bearer token to show to the cache.
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_CACHE_TOKEN_FILE")]
    pub cache_token_file: Option<PathBuf>,
}

/// A ready-made choice of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PresetName {
    /// What kcp's shards replicate, over all logical clusters.
    Kcp,
}

/// What can be left out of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PruneName {
    /// `metadata.managedFields`.
    ManagedFields,
    /// The annotation of `kubectl apply`.
    LastApplied,
}

/// Arguments of `replicate`.
#[derive(Args, Clone, Debug)]
pub struct ReplicateArgs {
    /// Name of the shard in the cache.
    #[arg(long, value_name = "NAME", env = "SHARDCACHE_SHARD")]
    pub shard: String,
    /// Kubeconfig of the source. [default: $KUBECONFIG, ~/.kube/config, or the pod's own account]
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// URL of a source that asks for no credentials.
    #[arg(long, value_name = "URL")]
    pub server: Option<Uri>,
    /// The cache.
    #[command(flatten)]
    pub cache: CacheArgs,
    /// A type to push, GROUP/VERSION/PLURAL (core/v1/configmaps for the core group), with
    /// ?labels=SELECTOR&fields=SELECTOR after it if only some objects are wanted. May be repeated.
    #[arg(long = "resource", value_name = "GROUP/VERSION/PLURAL", required_unless_present = "preset")]
    pub resources: Vec<Resource>,
    /// A ready-made choice of types.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<PresetName>,
    /// Logical cluster of objects that name none by their annotation kcp.io/cluster.
    #[arg(long, value_name = "NAME", default_value = "root")]
    pub cluster: String,
    /// What to leave out of objects.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub prune: Vec<PruneName>,
    /// What the source is called; another name is another lineage of versions. [default: the uid of its
    /// namespace kube-system, else its URL]
    #[arg(long, value_name = "ID")]
    pub source_id: Option<String>,
    /// Elect one of several replicas by a Lease at the source.
    #[arg(long)]
    pub leader_election: bool,
    /// Namespace of that Lease.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub leader_election_namespace: String,
    /// Name of this replica. [default: host name and process id]
    #[arg(long, value_name = "NAME", env = "SHARDCACHE_IDENTITY")]
    pub identity: Option<String>,
    /// Serve /metrics, /readyz and /livez here; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Form of the log on standard error.
    #[arg(long, value_name = "FORMAT", env = "SHARDCACHE_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a filter.
    #[arg(long, value_name = "FILTER", env = "SHARDCACHE_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Arguments of `ctl push`.
#[derive(Args, Clone, Debug)]
pub struct PushArgs {
    /// The shard.
    #[arg(long, value_name = "NAME")]
    pub shard: String,
    /// The type; without it, the shard's control stream.
    #[arg(long, value_name = "GROUP/VERSION/PLURAL")]
    pub resource: Option<Resource>,
    /// The cache.
    #[command(flatten)]
    pub cache: CacheArgs,
}
