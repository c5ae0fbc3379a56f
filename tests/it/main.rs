//! Integration tests: the whole server, over real HTTP.

mod checker;
mod crash_loop;
mod wire;
