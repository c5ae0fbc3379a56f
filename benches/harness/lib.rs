//! What the benchmarks share that write a page of `docs/benchmarks`: clients, servers and pushers, rounds on a
//! machine with others, what may be reported, and the page.

pub(crate) mod client;
pub(crate) mod machine;
pub(crate) mod objects;
pub(crate) mod origin;
pub(crate) mod pusher;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod seed;
pub(crate) mod server;
pub(crate) mod verdict;
