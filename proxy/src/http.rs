//! The HTTP surface: what a request asks, and the bytes of the answer.

pub mod accept;
pub mod continue_token;
pub mod guard;
pub mod options;
pub mod path;
pub mod respond;
pub mod server;
pub mod write;
