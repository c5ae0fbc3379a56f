//! Serves controllers and accepts writes: the watch cache and the Kubernetes API surface.
//!
//! This crate knows nothing of engines: it sees a [`shardcache_storage::Store`].
//!
//! ```text
//! LIST   http::path, http::options → cache::Snapshot::scan → http::list (pages, ropes of shared bytes)
//! WATCH  http::path, http::options → cache::Watcher        → http::watch (lines, bookmarks, 410)
//! WRITE  http::path, http::options → ingest → Store::commit → cache::published → answer
//! ```
//!
//! [`service::ProxyService`] is the whole surface as one `tower::Service`: the listener
//! ([`http::server`]), clients in the same process and the tests wrap the same value.

pub mod access;
pub mod body;
pub mod cache;
pub mod filter;
pub mod freshness;
pub mod front;
pub mod http;
pub mod ingest;
pub mod metrics;
pub mod push;
pub mod represent;
pub mod scope;
pub mod selector;
pub mod service;
pub mod status;
mod table;
pub mod types;
