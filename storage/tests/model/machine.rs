//! The reference machine M: what a store is, in the plainest terms. No I/O, no sharing, no cleverness,
//! and no code of the crate it judges.
//!
//! ```text
//! M = log, its fold, intervals of revisions with their tags, floors
//! ```
//!
//! Every engine must be indistinguishable from it.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Group, resource, identity.
pub(crate) type Kind = (&'static str, &'static str, &'static str);
/// Shard, cluster, namespace, name. The order of tuples is the order of lists.
pub(crate) type Place = (&'static str, &'static str, &'static str, &'static str);

/// The types objects are written to.
pub(crate) const KINDS: [Kind; 3] = [
    ("apis.kcp.io", "apiexports", ""),
    ("", "namespaces", ""),
    ("apis.kcp.io", "apiexports", "identity-of-another-export"),
];

/// The places objects are written to: prefixes of each other, and the same name in several scopes.
pub(crate) const PLACES: [Place; 8] = [
    ("amber", "root", "", "one"),
    ("amber", "root", "", "one-more"),
    ("amber", "root", "default", "one"),
    ("amber", "root:org", "", "one"),
    ("amber-2", "root", "", "one"),
    ("amber-2", "root", "zone", "two"),
    ("beryl", "root", "", "one"),
    ("beryl", "root:org", "default", "two"),
];

/// What a writer sends of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    /// `""`: the object has none.
    pub(crate) uid: &'static str,
    pub(crate) label: Option<u8>,
    pub(crate) payload: u32,
}

/// One state of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Thing {
    pub(crate) content: Content,
    pub(crate) revision: u64,
    pub(crate) version: u64,
    /// Revision of the state it replaced, 0 if it is new.
    pub(crate) replaced: u64,
}

/// One requested write.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) exists: Option<bool>,
    pub(crate) uid: Option<&'static str>,
    pub(crate) version: Option<u64>,
    /// `None` deletes.
    pub(crate) content: Option<Content>,
}

/// What became of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Revision of its last event.
    Written(u64),
    AlreadyExists,
    NotFound,
    UidMismatch,
    VersionMismatch,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) revision: u64,
    pub(crate) version: u64,
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) previous: Option<Thing>,
    pub(crate) current: Option<Thing>,
    /// Digest of this entry and all before it: equal digests, equal histories.
    pub(crate) history: u64,
}

/// One opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) tag: u16,
    /// Meaningful once another interval follows.
    pub(crate) end: u64,
}

/// One store's whole past.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) log: Vec<Entry>,
    pub(crate) things: BTreeMap<(Kind, Place), Thing>,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) floors: BTreeMap<Kind, u64>,
    pub(crate) head: u64,
    /// Openings that ended below this may be forgotten.
    pub(crate) forgettable: u64,
    /// Every version a client of this timeline can have seen, with the history it stands for.
    pub(crate) issued: BTreeMap<u64, u64>,
}

impl Machine {
    /// Opens the store: the current interval ends where the log ends, a new one starts above it.
    pub(crate) fn open(&mut self, start: u64, tag: u16) {
        assert!(start > self.head, "an opening at {start} repeats revisions up to {}", self.head);
        if let Some(last) = self.intervals.last_mut() {
            last.end = self.head;
        }
        self.intervals.push(Interval { start, tag, end: start });
        self.head = start;
        self.issue();
    }

    /// Applies one batch: each request alone, in order.
    pub(crate) fn apply(&mut self, requests: &[Request]) -> Vec<Outcome> {
        requests.iter().map(|request| self.apply_one(request)).collect()
    }

    fn apply_one(&mut self, request: &Request) -> Outcome {
        let at = (request.kind, request.place);
        let held = self.things.get(&at).cloned();
        let Some(held) = held else {
            let needs_one =
                request.exists == Some(true) || request.uid.is_some() || request.version.is_some();
            return match &request.content {
                Some(content) if !needs_one => Outcome::Written(self.record(at, None, Some(content))),
                _ => Outcome::NotFound,
            };
        };
        if request.exists == Some(false) {
            return Outcome::AlreadyExists;
        }
        if request.uid.is_some_and(|uid| uid != held.content.uid) {
            return Outcome::UidMismatch;
        }
        if request.version.is_some_and(|version| version != held.version) {
            return Outcome::VersionMismatch;
        }
        let Some(content) = &request.content else {
            return Outcome::Written(self.record(at, Some(held), None));
        };
        let another =
            content.uid != held.content.uid && !content.uid.is_empty() && !held.content.uid.is_empty();
        if another {
            self.record(at, Some(held), None);
            Outcome::Written(self.record(at, None, Some(content)))
        } else {
            Outcome::Written(self.record(at, Some(held), Some(content)))
        }
    }

    fn record(&mut self, at: (Kind, Place), previous: Option<Thing>, content: Option<&Content>) -> u64 {
        self.head += 1;
        let (revision, version) = (self.head, self.version(self.head));
        let replaced = previous.as_ref().map_or(0, |thing| thing.revision);
        let current = content.map(|content| Thing { content: content.clone(), revision, version, replaced });
        match &current {
            Some(thing) => self.things.insert(at, thing.clone()),
            None => self.things.remove(&at),
        };
        let mut digest = DefaultHasher::new();
        (self.history(), revision, version, at, &previous, &current).hash(&mut digest);
        let history = digest.finish();
        self.log.push(Entry { revision, version, kind: at.0, place: at.1, previous, current, history });
        self.issue();
        revision
    }

    fn issue(&mut self) {
        self.issued.insert(self.version(self.head), self.history());
    }

    fn history(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.history)
    }

    /// The version of a revision of the current interval.
    pub(crate) fn version(&self, revision: u64) -> u64 {
        let tag = self.intervals.last().expect("the store is open").tag;
        revision * 1024 + u64::from(tag)
    }

    /// Digest of everything at or below a revision.
    pub(crate) fn history_at(&self, revision: u64) -> u64 {
        let count = self.log.partition_point(|entry| entry.revision <= revision);
        count.checked_sub(1).map_or(0, |last| self.log[last].history)
    }

    pub(crate) fn floor(&self, kind: Kind) -> u64 {
        self.floors.get(&kind).copied().unwrap_or(0)
    }

    /// Forgets the history of a type up to its newest event at or below `to`. What is then below every
    /// floor may be forgotten whole, openings included (D15), whatever types come later.
    pub(crate) fn compact(&mut self, kind: Kind, to: u64) {
        let newest = self.events(kind, self.floor(kind), to).last().map(|entry| entry.revision);
        if let Some(floor) = newest {
            self.floors.insert(kind, floor);
        }
        let lowest = self.log.iter().map(|entry| self.floor(entry.kind)).min();
        self.forgettable = self.forgettable.max(lowest.unwrap_or(0));
    }

    /// The events of one type in `(after, up_to]`.
    pub(crate) fn events(&self, kind: Kind, after: u64, up_to: u64) -> Vec<&Entry> {
        let within = |entry: &&Entry| entry.kind == kind && after < entry.revision && entry.revision <= up_to;
        self.log.iter().filter(within).collect()
    }

    /// The state at an earlier revision: the fold of the log up to it.
    pub(crate) fn fold(&self, up_to: u64) -> BTreeMap<(Kind, Place), Thing> {
        let mut things = BTreeMap::new();
        for entry in self.log.iter().take_while(|entry| entry.revision <= up_to) {
            match &entry.current {
                Some(thing) => things.insert((entry.kind, entry.place), thing.clone()),
                None => things.remove(&(entry.kind, entry.place)),
            };
        }
        things
    }

    /// The version under which a revision was shown, whichever interval it lies in; `None` for a
    /// revision that no event has and no opening began with.
    pub(crate) fn shown_as(&self, revision: u64) -> Option<u64> {
        let (version, _) = self.issued.range(revision * 1024..(revision + 1) * 1024).next()?;
        Some(*version)
    }
}
