//! The push protocol over a real server, by a pusher that is written from `docs/push-protocol.md` alone.
//!
//! Every line in either direction is held against the published schema.

mod bad;
mod bugs;
mod cable;
mod complete;
mod config_map;
mod fencing;
mod follow;
mod fresh;
mod honest;
mod lease;
mod managed;
mod probe;
mod pusher;
mod resume;
mod roster;
mod schema;
mod slow;
mod source;
mod standstill;
mod trouble;
mod views;
