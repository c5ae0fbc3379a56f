//! Integration tests: the whole server, over real HTTP.

mod backup;
mod checker;
mod cli;
mod crash_loop;
mod embedded;
mod field;
mod front;
mod guarantees;
mod harness;
mod kube_client;
mod loopback;
mod model_http;
mod push;
mod real_data;
mod refusals;
mod replicate;
mod settings;
mod shardviews;
mod stand;
mod tidy;
mod tls;
mod wire;
mod writer;
