//! The HTTP surface: what a request asks, and the bytes of the answer.

pub mod accept;
pub mod continue_token;
pub mod discovery;
mod document;
pub mod guard;
pub mod health;
pub mod openapi;
pub mod options;
pub mod path;
pub mod respond;
pub mod server;
pub mod version;
pub mod write;
