//! Integration tests: the whole server, over real HTTP.

mod backup;
mod checker;
mod cli;
mod crash_loop;
mod embedded;
mod front;
mod harness;
mod kube_client;
mod real_data;
mod tidy;
mod tls;
mod wire;
