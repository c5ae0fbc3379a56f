//! shardcache: a durable Kubernetes LIST/WATCH cache for sharded control planes, in one binary.
//!
//! This crate wires and owns nothing: the durable log is `shardcache-storage`, the watch cache and the
//! Kubernetes API surface are `shardcache-proxy`. Here are the command line ([`cli`]), the validated
//! configuration ([`config`]), the composition of a server ([`app`]), the administration of a running one
//! ([`ctl`]), and the server inside another process ([`embedded`]). [`completeness`] is for clients.

pub mod app;
pub mod cli;
pub mod completeness;
pub mod config;
pub mod ctl;
pub mod embedded;
pub mod failure;
pub mod instance;
mod listener;
pub mod replicate;
pub mod telemetry;
pub mod units;
