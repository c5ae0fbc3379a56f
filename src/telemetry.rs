//! The log, and the registry of everything that is measured.
//!
//! The log goes to standard error, as text or JSON lines; standard output belongs to the few lines that
//! scripts read. Each crate registers its own metrics; this module only adds what the binary knows.

use std::io::IsTerminal;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::config::LogConfig;
use crate::failure::Failure;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Starts the log of the process. A second call is a failure: there is one log.
pub fn start_log(config: &LogConfig) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.filter)
        .map_err(|error| Failure::usage(format!("--log-level {}: {error}", config.filter)))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match config.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::Internal(format!("the log cannot be started: {error}")))
}

/// Registers what the binary itself reports.
pub fn register_build(registry: &mut Registry) {
    let build = Info::new(Build { version: env!("CARGO_PKG_VERSION") });
    registry.register("shardcache_build", "Version of the program", build);
}
