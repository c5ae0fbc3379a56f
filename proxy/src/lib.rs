//! Serves controllers and accepts writes: the watch cache and the Kubernetes API surface.
//!
//! This crate knows nothing of engines: it sees a [`shardcache_storage::Store`].

pub mod cache;
pub mod filter;
pub mod metrics;
pub mod scope;
pub mod selector;
pub mod status;
pub mod types;
