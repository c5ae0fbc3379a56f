//! Integration tests: the whole server, over real HTTP.

mod checker;
