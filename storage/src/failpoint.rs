//! Named places where a test can make the process die, one for each arrow of the order of effects.
//!
//! `SHARDCACHE_FAILPOINT=name:count` aborts the process (as `kill -9` would: no destructors, no
//! flushing) when the place is reached for the `count`-th time. Compiled into debug builds only; in a
//! release build [`hit`] is empty and the variable is never read.
//!
//! | name | the process dies … | crash point |
//! |---|---|---|
//! | `after-enqueue` | with the changes queued, not yet in a batch | C1 |
//! | `in-transaction` | with the batch in an open transaction | C2 |
//! | `before-sync` | about to commit the transaction and sync the file | C2, C3 |
//! | `after-sync` | with the batch durable, shown to nobody | C4 |
//! | `after-publish` | with the batch sent to subscribers, nothing acknowledged | C5, C6 |
//! | `after-first-ack` | with the first change of a batch acknowledged | C7 |
//! | `in-compaction` | with removals and floors in an open transaction | C8 |
//! | `open-before-incarnation` | with the store loaded, its incarnation not durable | C9 |
//! | `open-after-incarnation` | with its incarnation durable, nobody served | C9 |
//! | `in-backup` | with half a copy written under its temporary name | – |

/// Dies here if the environment asks for it.
#[cfg(debug_assertions)]
pub(crate) fn hit(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        left: AtomicU64,
    }
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    let armed = ARMED.get_or_init(|| {
        let setting = std::env::var("SHARDCACHE_FAILPOINT").ok()?;
        let (name, count) = setting.split_once(':').unwrap_or((&setting, "1"));
        let left = AtomicU64::new(count.parse().unwrap_or(1));
        Some(Armed { name: name.to_owned(), left })
    });
    if let Some(armed) = armed
        && armed.name == name
        && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn hit(_name: &str) {}
