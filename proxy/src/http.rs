//! The HTTP surface: what a request asks, and the bytes of the answer.

pub mod guard;
pub mod respond;
pub mod server;
