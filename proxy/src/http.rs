//! The HTTP surface: what a request asks, and the bytes of the answer.

pub mod accept;
mod admin;
pub mod continue_token;
pub mod discovery;
mod document;
mod get;
mod guard;
pub(crate) mod gzip;
pub mod health;
mod items;
mod lease;
pub(crate) mod limits;
mod list;
pub(crate) mod locate;
pub(crate) mod names;
pub mod openapi;
pub mod options;
mod patch;
pub mod path;
mod pretty;
pub(crate) mod protobuf;
mod push;
mod receive;
pub mod respond;
mod rewrite;
pub(crate) mod route;
pub mod server;
pub mod version;
mod watch;
pub(crate) mod websocket;
pub mod write;
mod yaml;

pub(crate) use write::store_error;
