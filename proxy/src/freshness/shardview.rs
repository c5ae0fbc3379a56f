//! What clients read as `shardviews.cache.shardcache.dev`: of every shard in the roster, its role and how
//! its types stand (D43).
//!
//! ```text
//! state, standings ─► derive (pure) ─► object ─► Store::commit ─► LIST, WATCH as of any type
//!                        ▲                │
//!                        └── scribe ◄─────┘   what was written last
//! ```
//!
//! The objects are in the store among the data and share its versions, so that two stock informers, one of
//! data and one of views, can tell together whether what the first one has is the whole (`docs/shardviews.md`,
//! `shardcache::completeness`).
//! They change on transitions, never with an age or a confirmation: what is idle makes no event, nor does a
//! restart. What a view says of completeness was true at a version before its own; it may say less than is
//! true by now, never more. Nobody but the scribe writes them.

mod derive;
mod object;
mod scribe;

pub use scribe::{Look, Scribe};
