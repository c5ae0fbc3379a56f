//! Integration tests: the whole server, over real HTTP.

mod backup;
mod checker;
mod cli;
mod crash_loop;
mod harness;
mod kube_client;
mod wire;
