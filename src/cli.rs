//! The command line as typed by the user; no logic beyond parsing one value at a time.
//!
//! Every setting of `serve` exists three times under one name: as a flag (`--history-age`), as an
//! environment variable (`SHARDCACHE_HISTORY_AGE`), and as a key of the configuration file
//! (`history-age`). The flag wins over the variable, the variable over the file, the file over the
//! default. Defaults and cross-checks live in [`crate::config`].

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use shardcache_proxy::freshness::level::Level;
use shardcache_proxy::types::config::TypeConfig;

mod replicate;

pub use replicate::{CacheArgs, PresetName, PruneName, PushArgs, ReplicateArgs};

use crate::failure::Failure;
use crate::units::{Size, Time};

/// A durable Kubernetes LIST/WATCH cache for sharded control planes.
#[derive(Debug, Parser)]
#[command(name = "shardcache", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the cache server.
    Serve(Box<ServeArgs>),
    /// Push the objects of an API server into a cache.
    Replicate(Box<ReplicateArgs>),
    /// Administer a running server.
    #[command(subcommand)]
    Ctl(Box<CtlCommand>),
}

/// Administration of a running server, and tools to look at one.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Copy the store of a running server into a new file, at one commit boundary.
    Backup(BackupArgs),
    /// Send push frames from standard input, and print the cache's frames.
    Push(Box<PushArgs>),
    /// How fresh and how complete everything is: shards, their roles, states and ages.
    Freshness(FreshnessArgs),
    /// Give what a pusher has written back to ordinary writers: one type of a shard, or all of them.
    Release(ReleaseArgs),
    /// The roster of shards: which ought to exist, and what views over all of them wait for.
    Shards(ShardsArgs),
}

/// Arguments of `ctl shards`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ShardsArgs {
    /// Without a word: how the roster is written.
    #[command(flatten)]
    pub list: ShardsListArgs,
    /// What to say of a shard.
    #[command(subcommand)]
    pub word: Option<ShardsWord>,
}

/// Arguments of `ctl shards` without a word.
#[derive(Debug, Args)]
pub struct ShardsListArgs {
    /// Data directory of the running server.
    #[arg(long, value_name = "DIR", env = "SHARDCACHE_DATA_DIR", default_value = crate::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// How it is written.
    #[arg(long, short, value_name = "FORM", default_value = "table")]
    pub output: OutputForm,
}

/// What an operator says of a shard.
#[derive(Debug, Subcommand)]
pub enum ShardsWord {
    /// It ought to exist: views over all shards wait for it from now on, those that were shown before too.
    Expect(ShardArgs),
    /// Views over all shards may be shown without what is still awaited of it.
    Excuse(ShardArgs),
    /// It never ought to have been there; only for a shard that nobody ever pushed.
    Forget(ShardArgs),
}

/// One shard of a running server.
#[derive(Debug, Args)]
pub struct ShardArgs {
    /// The shard.
    #[arg(value_name = "NAME")]
    pub shard: String,
    /// Data directory of the running server.
    #[arg(long, value_name = "DIR", env = "SHARDCACHE_DATA_DIR", default_value = crate::config::DATA_DIR)]
    pub data_dir: PathBuf,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// Columns.
    Table,
    /// The server's JSON.
    Json,
}

/// Arguments of `ctl freshness`.
#[derive(Debug, Args)]
pub struct FreshnessArgs {
    /// Data directory of the running server.
    #[arg(long, value_name = "DIR", env = "SHARDCACHE_DATA_DIR", default_value = crate::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// One shard only.
    #[arg(long, value_name = "NAME")]
    pub shard: Option<String>,
    /// One type only, such as apiexports.apis.kcp.io.
    #[arg(long, value_name = "PLURAL.GROUP")]
    pub rtype: Option<String>,
    /// How it is written.
    #[arg(long, short, value_name = "FORM", default_value = "table")]
    pub output: OutputForm,
    /// Write it again whenever a role or a state changes, until interrupted.
    #[arg(long, short)]
    pub watch: bool,
}

/// Arguments of `ctl release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Data directory of the running server.
    #[arg(long, value_name = "DIR", env = "SHARDCACHE_DATA_DIR", default_value = crate::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// The shard.
    #[arg(long, value_name = "NAME")]
    pub shard: String,
    /// The type, such as apis.kcp.io/v1alpha2/apiexports or v1/namespaces; without it, all of them.
    #[arg(long, value_name = "GROUP/VERSION/PLURAL")]
    pub resource: Option<String>,
}

/// Arguments of `ctl backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Data directory of the running server.
    #[arg(long, value_name = "DIR", env = "SHARDCACHE_DATA_DIR", default_value = crate::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Arguments of `serve`. Where a flag is given twice, the last one counts.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ServeArgs {
    /// YAML file with any of the settings below (without `--`), and further `types` to serve.
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration as YAML, in the form `--config` reads, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Everything that can also stand in the file.
    #[command(flatten)]
    pub settings: Settings,
}

/// Which engine keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum StorageKind {
    /// An embedded redb file in the data directory.
    Redb,
    /// Nothing on disk: everything is gone when the process ends.
    Memory,
    /// An external etcd.
    Etcd,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// One line of text per record.
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether commits carry what a fast recovery needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum QuickRepair {
    /// On below 16 GiB, off above.
    Auto,
    /// Reopening after a crash takes milliseconds; commits cost a little more.
    On,
    /// Commits are cheapest; reopening after a crash walks the whole file.
    Off,
}

/// Everything that can be set by flag, variable or file. `None` means not set here.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// Address to listen on; port 0 lets the system choose. [default: 127.0.0.1:7443]
    #[arg(long, value_name = "ADDR", env = "SHARDCACHE_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Directory for the store, the admin socket and the kubeconfig. [default: ./shardcache-data]
    #[arg(long, value_name = "DIR", env = "SHARDCACHE_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Engine that keeps the objects. [default: redb]
    #[arg(long, value_name = "ENGINE", env = "SHARDCACHE_STORAGE")]
    pub storage: Option<StorageKind>,
    /// How long superseded states stay watchable. [default: 1h]
    #[arg(long, value_name = "TIME", env = "SHARDCACHE_HISTORY_AGE")]
    pub history_age: Option<Time>,
    /// Most bytes of superseded states kept, over all types. [default: 2GiB]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_HISTORY_BYTES")]
    pub history_bytes: Option<Size>,
    /// Most bytes of recent events kept in memory for watches; older ones come from disk. [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_HISTORY_MEMORY_BYTES")]
    pub history_memory_bytes: Option<Size>,
    /// Refuse new objects above this many bytes of stored objects; 0 is no limit. [default: 0]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_MAX_OBJECT_BYTES")]
    pub max_object_bytes: Option<Size>,
    /// Fast recovery after a crash. [default: auto]
    #[arg(long, value_name = "MODE", env = "SHARDCACHE_REDB_QUICK_REPAIR")]
    pub redb_quick_repair: Option<QuickRepair>,
    /// Memory redb may use to cache pages of its file. [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_REDB_CACHE_BYTES")]
    pub redb_cache_bytes: Option<Size>,
    /// Serve TLS with this PEM certificate chain.
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_TLS_CERT_FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM private key of the certificate.
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_TLS_PRIVATE_KEY_FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Accept client certificates signed by these PEM authorities.
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Accept the bearer tokens of this file: lines of token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_TOKEN_AUTH_FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// File with the names of the shards that ought to exist, one a line: a store that has seen nothing shows
    /// no view over all shards before it has what they push.
    #[arg(long, value_name = "FILE", env = "SHARDCACHE_ROSTER")]
    pub roster: Option<PathBuf>,
    /// The shard whose cached shards.core.kcp.io name the shards that ought to exist, in place of a file: a
    /// store that has seen nothing shows no view over all shards before they are there.
    #[arg(long, value_name = "SHARD", env = "SHARDCACHE_ROSTER_FROM_SHARDS")]
    pub roster_from_shards: Option<String>,
    /// The ConfigMap whose key `shards` names the shards that ought to exist, as the file does, in place of it;
    /// read and watched with $KUBECONFIG, ~/.kube/config or the pod's own account. A store that has seen
    /// nothing shows no view over all shards before it was read.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "SHARDCACHE_ROSTER_CONFIGMAP")]
    pub roster_configmap: Option<String>,
    /// How long SIGTERM waits for requests and watches to end. [default: 30s]
    #[arg(long, value_name = "TIME", env = "SHARDCACHE_SHUTDOWN_GRACE")]
    pub shutdown_grace: Option<Time>,
    /// Longest a request may take, watches excepted. [default: 1m]
    #[arg(long, value_name = "TIME", env = "SHARDCACHE_REQUEST_TIMEOUT")]
    pub request_timeout: Option<Time>,
    /// Longest body of a request. [default: 3MiB]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_MAX_BODY_BYTES")]
    pub max_body_bytes: Option<Size>,
    /// Longest head of a request: request line and headers. [default: 64KiB]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_MAX_HEADER_BYTES")]
    pub max_header_bytes: Option<Size>,
    /// Most open connections. [default: 65536]
    #[arg(long, value_name = "COUNT", env = "SHARDCACHE_MAX_CONNECTIONS")]
    pub max_connections: Option<u32>,
    /// Most HTTP/2 streams of one connection. [default: 4096]
    #[arg(long, value_name = "COUNT", env = "SHARDCACHE_MAX_STREAMS")]
    pub max_streams: Option<u32>,
    /// Most requests that read and are being answered at once, watches excepted. [default: 400]
    #[arg(long, value_name = "COUNT", env = "SHARDCACHE_MAX_REQUESTS_INFLIGHT")]
    pub max_requests_inflight: Option<u32>,
    /// Most requests that write and are being answered at once. [default: 2000]
    #[arg(long, value_name = "COUNT", env = "SHARDCACHE_MAX_MUTATING_REQUESTS_INFLIGHT")]
    pub max_mutating_requests_inflight: Option<u32>,
    /// Most open watches. [default: 200000]
    #[arg(long, value_name = "COUNT", env = "SHARDCACHE_MAX_WATCHES")]
    pub max_watches: Option<u32>,
    /// Most bytes of lists being sent at once; further lists are told to retry. [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "SHARDCACHE_MAX_LIST_BYTES_INFLIGHT")]
    pub max_list_bytes_inflight: Option<Size>,
    /// How fresh reads of one shard are that say nothing of a version: stale, store, source, or
    /// max-age=SECONDS. [default: source]
    #[arg(long, value_name = "LEVEL", env = "SHARDCACHE_UNSET_RV_CONCRETE")]
    pub unset_rv_concrete: Option<Level>,
    /// The same for reads of all shards. [default: store]
    #[arg(long, value_name = "LEVEL", env = "SHARDCACHE_UNSET_RV_WILDCARD")]
    pub unset_rv_wildcard: Option<Level>,
    /// How often what is pushed is confirmed by its source if nobody asks. [default: 1m]
    #[arg(long, value_name = "TIME", env = "SHARDCACHE_CONFIRM_INTERVAL")]
    pub confirm_interval: Option<Time>,
    /// Kubeconfig whose contexts are named like shards: a shard whose pusher is gone is asked itself whether
    /// its copy is current, where a read needs that.
    #[arg(long, value_name = "KUBECONFIG", env = "SHARDCACHE_DIRECT_PROBE")]
    pub direct_probe: Option<PathBuf>,
    /// Age of anything that is pushed above which /readyz fails; 0 is none. [default: 0s]
    #[arg(long, value_name = "TIME", env = "SHARDCACHE_MAX_STALENESS")]
    pub max_staleness: Option<Time>,
    /// Whether /metrics has every type of every shard, and not only every shard. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", env = "SHARDCACHE_CELL_METRICS")]
    pub cell_metrics: Option<bool>,
    /// Form of the log on standard error. [default: text]
    #[arg(long, value_name = "FORMAT", env = "SHARDCACHE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, trace, or a filter such as `info,shardcache_proxy=debug`.
    /// [default: info]
    #[arg(long, value_name = "FILTER", env = "SHARDCACHE_LOG_LEVEL")]
    pub log_level: Option<String>,
    /// Types to serve everywhere besides the built-in ones; file only.
    #[arg(skip)]
    pub types: Option<Vec<TypeConfig>>,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run a command.
    Run(Cli),
    /// Print this text (help, version) to standard output and exit 0.
    Print(String),
}

/// Parses a command line, the program's name included. A mistake is one line that names it.
pub fn parse<I: IntoIterator<Item: Into<OsString> + Clone>>(arguments: I) -> Result<Invocation, Failure> {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => Ok(Invocation::Run(cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Invocation::Print(error.to_string())),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                Err(Failure::usage("a command is required: serve, replicate or ctl (see --help)"))
            }
            _ => Err(Failure::usage(one_line(&error.to_string()))),
        },
    }
}

/// The first paragraph of clap's report, on one line: it names the argument; hints and usage follow it.
fn one_line(report: &str) -> String {
    let paragraph = report.trim_start().split("\n\n").next().unwrap_or_default();
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
