//! The HTTP surface: what a request asks, and the bytes of the answer.

pub mod accept;
mod admin;
pub mod continue_token;
pub mod discovery;
mod document;
mod get;
mod guard;
mod gzip;
pub mod health;
mod items;
pub(crate) mod limits;
mod list;
mod locate;
mod names;
pub mod openapi;
pub mod options;
mod patch;
pub mod path;
mod pretty;
mod protobuf;
mod receive;
pub mod respond;
pub(crate) mod route;
pub mod server;
pub mod version;
mod watch;
pub mod write;
