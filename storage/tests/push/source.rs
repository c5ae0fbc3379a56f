//! A simulated source: what a shard's own API server is to its pushers. It can be restored from a backup
//! and go on from there, so one version can stand for different events.

use std::collections::{BTreeMap, BTreeSet};

use shardcache_storage::{Digest, Op, entry_digest};

use crate::objects::{draft, key};

/// Names of the objects there can be.
pub(crate) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// One state of one object. The digest knows no content (D36), so what an object holds follows from its
/// uid and version: the same in every timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) uid: String,
    pub(crate) version: u64,
}

pub(crate) type Things = BTreeMap<&'static str, Thing>;

impl Thing {
    pub(crate) fn payload(&self) -> String {
        format!("{} at {}", self.uid, self.version)
    }
}

/// Count and digest of some objects.
pub(crate) fn sum(things: &Things) -> (u64, Digest) {
    let entry = |(name, thing): (&&str, &Thing)| entry_digest(key(name).parts(), &thing.uid, thing.version);
    (things.len() as u64, things.iter().map(entry).fold(Digest::default(), Digest::with))
}

pub(crate) fn upsert(name: &str, thing: &Thing) -> Op {
    let draft = draft(name, &thing.uid, &thing.payload());
    Op::Upsert { key: key(name), version: thing.version, draft }
}

/// One thing that happened at the source.
#[derive(Clone, Debug)]
pub(crate) struct Happening {
    pub(crate) version: u64,
    pub(crate) name: &'static str,
    /// Of the object it happened to.
    pub(crate) uid: String,
    pub(crate) written: bool,
}

impl Happening {
    /// The frame that tells of it.
    pub(crate) fn op(&self) -> Op {
        let Self { version, name, uid, written } = self;
        if *written {
            upsert(name, &Thing { uid: uid.clone(), version: *version })
        } else {
            Op::Delete { key: key(name), version: *version, uid: uid.as_str().into() }
        }
    }
}

/// One history of the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    /// What the source calls itself.
    pub(crate) id: String,
    pub(crate) head: u64,
    pub(crate) log: Vec<Happening>,
}

impl Timeline {
    /// The objects as of a version.
    pub(crate) fn at(&self, version: u64) -> Things {
        let mut things = Things::new();
        for happening in self.log.iter().take_while(|happening| happening.version <= version) {
            if happening.written {
                let thing = Thing { uid: happening.uid.clone(), version: happening.version };
                things.insert(happening.name, thing);
            } else {
                things.remove(happening.name);
            }
        }
        things
    }

    pub(crate) fn now(&self) -> Things {
        self.at(self.head)
    }

    fn record(&mut self, name: &'static str, uid: &str, written: bool) {
        self.head += 1;
        self.log.push(Happening { version: self.head, name, uid: uid.to_owned(), written });
    }
}

/// The source, and all it ever was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    pub(crate) now: Timeline,
    /// Timelines that a restore or another source ended, oldest first.
    pub(crate) past: Vec<Timeline>,
    backup: Timeline,
    /// Every object that ever was, and those that were removed or lost in some timeline.
    ever: BTreeSet<(&'static str, String)>,
    gone: BTreeSet<(&'static str, String)>,
}

impl Source {
    /// Number of the present timeline.
    pub(crate) fn timeline(&self) -> usize {
        self.past.len()
    }

    pub(crate) fn write(&mut self, name: &'static str) {
        let uid = match self.now.now().get(name) {
            Some(thing) => thing.uid.clone(),
            None => format!("uid-{}", self.ever.len()),
        };
        self.now.record(name, &uid, true);
        self.ever.insert((name, uid));
    }

    pub(crate) fn delete(&mut self, name: &'static str) {
        if let Some(thing) = self.now.now().remove(name) {
            self.now.record(name, &thing.uid, false);
            self.gone.insert((name, thing.uid));
        }
    }

    /// Deletes an object and creates another one of its name.
    pub(crate) fn recreate(&mut self, name: &'static str) {
        self.delete(name);
        self.write(name);
    }

    /// Something happens that is no business of the cell.
    pub(crate) fn bump(&mut self) {
        self.now.head += 1;
    }

    pub(crate) fn back_up(&mut self) {
        self.backup = self.now.clone();
    }

    /// Puts the backup (or the empty beginning) in place of everything.
    pub(crate) fn restore(&mut self) {
        let lost = self.now.now();
        self.past.push(std::mem::replace(&mut self.now, self.backup.clone()));
        let kept = self.now.now();
        let is_kept = |(name, thing): &(&str, Thing)| kept.get(name).is_some_and(|k| k.uid == thing.uid);
        let lost = lost.into_iter().filter(|entry| !is_kept(entry));
        self.gone.extend(lost.map(|(name, thing)| (name, thing.uid)));
    }

    /// As [`Source::restore`], and at once writes past where it was: numbers cannot show it (D36).
    pub(crate) fn restore_and_advance(&mut self, name: &'static str) {
        let head = self.now.head;
        self.restore();
        self.now.head = self.now.head.max(head);
        self.write(name);
    }

    /// The same objects under another identity, numbered anew.
    pub(crate) fn change_identity(&mut self) {
        let things = self.now.now();
        let id = format!("source-{}", self.past.len() + 1);
        let next = Timeline { id, head: 0, log: Vec::new() };
        self.past.push(std::mem::replace(&mut self.now, next));
        for (name, thing) in things {
            self.now.record(name, &thing.uid, true);
        }
    }

    /// Whether nothing ever said that this object is no more.
    pub(crate) fn never_removed(&self, name: &str, uid: &str) -> bool {
        let has = |set: &BTreeSet<(&str, String)>| set.iter().any(|(n, u)| *n == name && u == uid);
        has(&self.ever) && !has(&self.gone)
    }

    /// Whether some timeline had exactly these objects at a version.
    pub(crate) fn ever_had(&self, things: &Things, version: u64) -> bool {
        let had = |timeline: &Timeline| timeline.head >= version && timeline.at(version) == *things;
        self.past.iter().chain([&self.now]).any(had)
    }
}
