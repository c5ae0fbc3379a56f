//! The cache as a whole against the reference machine of the design (semantics, section 0): whatever
//! path a watcher takes, its stream over its list is the filter of the state (D24), and bookmarks never
//! overtake an event (D25).

mod replay;
mod stress;
