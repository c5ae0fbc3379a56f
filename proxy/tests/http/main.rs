//! The read surface as clients see it, over a store in memory: in process where bytes and meanings are
//! tested, over sockets where timing, framing and limits are.

mod admin;
mod bounds;
mod contract;
mod errors;
mod get;
mod gzip;
mod list;
mod pages;
mod sockets;
mod table;
mod watch;
mod watch_life;
mod watch_list;
mod websocket;
mod world;
mod yaml;
