//! What is kept of the past for the later pages of a list (D26): snapshots, and states rebuilt from the
//! log. Bounded by number, age and bytes; dropping is never wrong, only slower.
//!
//! A snapshot costs what was superseded since it was the newest: counted as the bytes superseded between
//! its mark and now. The oldest mark bounds them all together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use shardcache_storage::{Objects, Revision, TypeName};
use tokio::time::Instant;

use super::snapshot::Snapshot;

/// Bounds of what is retained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) count: usize,
    pub(crate) age: Duration,
    pub(crate) bytes: u64,
}

/// The past that later pages can be read from, last used last.
#[derive(Debug)]
pub(crate) struct Retained {
    limits: Limits,
    /// Bytes superseded since the cache was opened.
    superseded: u64,
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    what: What,
    /// `superseded` when this was the present.
    mark: u64,
    used: Instant,
}

#[derive(Debug)]
enum What {
    Snapshot(Arc<Snapshot>),
    Objects(TypeName, Revision, Objects),
}

impl Retained {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, superseded: 0, kept: VecDeque::new() }
    }

    /// Keeps a snapshot that is (nearly) the newest; one that is kept already counts as used now.
    pub(crate) fn keep(&mut self, snapshot: &Arc<Snapshot>, now: Instant) {
        let head = snapshot.state.head();
        let same = |kept: &Kept| matches!(&kept.what, What::Snapshot(old) if old.state.head() == head);
        let kept = match self.kept.iter().position(same).and_then(|at| self.kept.remove(at)) {
            Some(kept) => Kept { used: now, ..kept },
            None => Kept { what: What::Snapshot(Arc::clone(snapshot)), mark: self.superseded, used: now },
        };
        self.kept.push_back(kept);
        self.trim(now);
    }

    /// Keeps a rebuilt state; `bytes` is what it holds that the present does not.
    pub(crate) fn keep_objects(
        &mut self,
        type_name: &TypeName,
        at: Revision,
        objects: Objects,
        bytes: u64,
        now: Instant,
    ) {
        let mark = self.superseded.saturating_sub(bytes);
        self.kept.push_back(Kept { what: What::Objects(type_name.clone(), at, objects), mark, used: now });
        self.trim(now);
    }

    /// The objects of a type at a revision, if they are kept.
    pub(crate) fn objects(&mut self, type_name: &TypeName, at: Revision, now: Instant) -> Option<Objects> {
        let found = self.kept.iter().position(|kept| match &kept.what {
            What::Snapshot(snapshot) => snapshot.state.head() == at,
            What::Objects(name, revision, _) => *revision == at && name == type_name,
        })?;
        let mut kept = self.kept.remove(found)?;
        kept.used = now;
        let objects = match &kept.what {
            What::Snapshot(snapshot) => snapshot.state.objects(type_name).cloned().unwrap_or_default(),
            What::Objects(_, _, objects) => objects.clone(),
        };
        self.kept.push_back(kept);
        Some(objects)
    }

    /// Notes that a commit superseded this many bytes.
    pub(crate) fn superseded(&mut self, bytes: u64, now: Instant) {
        self.superseded += bytes;
        self.trim(now);
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// At most how many bytes only this keeps alive.
    pub(crate) fn bytes(&self) -> u64 {
        self.superseded - self.kept.iter().map(|kept| kept.mark).min().unwrap_or(self.superseded)
    }

    fn trim(&mut self, now: Instant) {
        while self.kept.front().is_some_and(|oldest| now.duration_since(oldest.used) > self.limits.age)
            || self.kept.len() > self.limits.count
        {
            self.kept.pop_front();
        }
        while self.bytes() > self.limits.bytes {
            let oldest = (0..self.kept.len()).min_by_key(|at| self.kept[*at].mark);
            self.kept.remove(oldest.expect("nothing kept is no bytes"));
        }
    }
}

#[cfg(test)]
mod tests;
