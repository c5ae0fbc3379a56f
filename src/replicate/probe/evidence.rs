//! What shows that a source has nothing else than the copy: all its metadata compared once, and since then
//! a watch that has stayed open and silent.
//!
//! ```text
//! compare ──same──► Thread: a watch from the version of the comparison
//!    ▲                 │ head = at: shown
//!    │                 │ head > at: a rolling watch from `at`; its bookmark ≥ head: shown
//!    └── an event, an end, no bookmark in time
//! ```
//!
//! A watch that has stayed open shows that the source's history up to there is the one that was compared:
//! a kube-apiserver ends its watches when the store beneath it starts anew. Events are not judged, only
//! noticed: whether they matter to the copy is for the next comparison to say.

use std::time::Duration;

use futures::FutureExt;
use shardcache_proxy::freshness::probe::{Copied, Unproven};
use tokio::time::Instant;

use crate::replicate::barrier::ROLL_TIME;
use crate::replicate::compare::Reader;
use crate::replicate::object::Facts;
use crate::replicate::source::{Source, SourceError, WATCH_TIME, WatchLine, WatchLines};

/// How long before its end a watch is not relied upon.
const MARGIN: Duration = Duration::from_secs(1);

/// Compares the metadata of everything that the source has, by a quorum read that begins now, with the copy;
/// the version at which they are the same.
///
/// Blind to one case only: an object of the same key, uid and version with another content, in a source
/// that was restored to before that version and wrote the object at the very same version again.
pub(super) async fn compare(reader: &Reader, copy: &Copied) -> Result<u64, Unproven> {
    let Some((mirror, version)) = reader.mirror(None).await? else {
        return Err(Unproven::Failed(
            "its metadata cannot be listed, or not before the list has expired".to_owned(),
        ));
    };
    if version < copy.position {
        return Err(Unproven::Foreign(format!(
            "it is at version {version} and the copy of version {}: it has gone back, or is another one",
            copy.position
        )));
    }
    let (theirs, ours) = (mirror.sum(), copy.sum);
    if theirs == ours {
        return Ok(version);
    }
    Err(Unproven::Behind(if theirs.count == ours.count {
        format!("its {} objects are not those of the copy", theirs.count)
    } else {
        format!("it has {} objects, the copy has {}", theirs.count, ours.count)
    }))
}

/// A watch of a type that has been silent since the copy was compared.
pub(super) struct Thread {
    lines: WatchLines,
    /// Nothing has happened up to this version.
    at: u64,
    ends: Instant,
}

impl Thread {
    /// A watch that was opened at the version of the comparison.
    pub(super) fn new(lines: WatchLines, version: u64) -> Self {
        Self { lines, at: version, ends: Instant::now() + WATCH_TIME - MARGIN }
    }

    /// When the watch ends.
    pub(super) fn ends(&self) -> Instant {
        self.ends
    }

    /// Whether nothing has happened until now; `false` if that is not known. The head is a quorum read that
    /// begins now; a bookmark is only of the replica that sends it, so it counts from the head on.
    pub(super) async fn holds(&mut self, source: &Source) -> Result<bool, SourceError> {
        let head = source.head().await?;
        if head < self.at {
            return Ok(false);
        }
        while let Some(line) = self.lines.next().now_or_never() {
            if !self.is_silent(line.ok().flatten().as_deref()) {
                return Ok(false);
            }
        }
        if self.at >= head {
            return Ok(true);
        }
        let Ok(mut rolling) = source.watch(self.at, ROLL_TIME).await else { return Ok(false) };
        while self.at < head {
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                line = rolling.next() => line,
            };
            if !self.is_silent(line.ok().flatten().as_deref()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a line: a bookmark says how far the silence reaches, anything else ends it.
    fn is_silent(&mut self, line: Option<&[u8]>) -> bool {
        let bookmark = || {
            let WatchLine { kind, object } = serde_json::from_slice(line?).ok()?;
            let version = Facts::read(object.get()).ok()?.version().ok()?;
            (kind == "BOOKMARK").then_some(version)
        };
        match bookmark() {
            Some(version) => {
                self.at = self.at.max(version);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
#[path = "evidence/tests.rs"]
mod tests;
