//! The watch-consistency checker: judges what one client saw, from the bytes it got and nothing else.
//!
//! A client's history is a start (a LIST, or the initial events of a watch), and the steps of one
//! watch or of several, each resumed where the one before ended. [`Replay`] applies the steps as an
//! informer would and refuses whatever an informer could not survive:
//!
//! - versions rise strictly; nothing at or below a bookmark follows it; bookmarks do not go back;
//! - no ADDED of a present object, no MODIFIED or DELETED of an absent one;
//! - DELETED carries the object as last seen, under the version of the deletion;
//! - the marked bookmark ends the initial events, is the first bookmark, and covers them all;
//! - nothing follows an ERROR;
//! - at every bookmark, and at the end, the replayed objects are those of `LIST Exact` at that version.
//!
//! What the last rule cannot see (a lost change that a later change covers up) is seen by
//! [`Replay::contains`], given what the writers were told, and by [`agree`], given other clients.
//! It does not know selectors: a client is judged against lists of its own scope and selectors.

use std::collections::BTreeMap;

use serde_json::Value;

/// A resourceVersion as a client treats it: a number that only compares.
pub(crate) type Version = u64;

/// Shard, logical cluster, namespace and name: what tells two objects of a wildcard apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemKey(pub(crate) [String; 4]);

/// What a LIST answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct List {
    pub(crate) version: Version,
    pub(crate) items: BTreeMap<ItemKey, Value>,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Added(Value),
    Modified(Value),
    Deleted(Value),
    Bookmark { version: Version, initial_end: bool },
    Error { code: u16, reason: String },
}

/// One thing that was written, as its writer was told: the object, or `None` for a deletion.
pub(crate) type Written = BTreeMap<Version, (ItemKey, Option<Value>)>;

/// What a client can prove a server did wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("not understood: {0}")]
    Malformed(String),
    #[error("the list at {version} is out of order or has {0:?} twice", key.0)]
    ListOrder { version: Version, key: ItemKey },
    #[error("version {version} came after {last}")]
    NotIncreasing { version: Version, last: Version },
    #[error("version {version} came after the bookmark {bookmark}")]
    BehindBookmark { version: Version, bookmark: Version },
    #[error("bookmark {version} came after {last}")]
    BookmarkBack { version: Version, last: Version },
    #[error("ADDED {key:?} at {version}, which was present")]
    AddedPresent { key: ItemKey, version: Version },
    #[error("MODIFIED {key:?} at {version}, which was absent")]
    ModifiedAbsent { key: ItemKey, version: Version },
    #[error("DELETED {key:?} at {version}, which was absent")]
    DeletedAbsent { key: ItemKey, version: Version },
    #[error("DELETED {key:?} at {version} does not carry the object as last seen")]
    DeletedOther { key: ItemKey, version: Version },
    #[error("the initial events are broken: {0}")]
    Initial(&'static str),
    #[error("a step followed an ERROR")]
    AfterError,
    #[error("at {version} the replayed {key:?} is not the listed one")]
    Differs { version: Version, key: ItemKey },
    #[error("at {version} {key:?} is listed but was not delivered")]
    Missing { version: Version, key: ItemKey },
    #[error("at {version} {key:?} was delivered but is not listed")]
    Extra { version: Version, key: ItemKey },
    #[error("the write {version} of {key:?} was acknowledged but not delivered")]
    Lost { version: Version, key: ItemKey },
    #[error("the event {version} of {key:?} is not what was written or what others saw")]
    Altered { version: Version, key: ItemKey },
}

impl ItemKey {
    pub(crate) fn new(shard: &str, cluster: &str, namespace: &str, name: &str) -> Self {
        Self([shard, cluster, namespace, name].map(str::to_owned))
    }

    /// The key of an object as served, by its annotations, namespace and name.
    pub(crate) fn of(object: &Value) -> Result<Self, Violation> {
        let metadata = &object["metadata"];
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        match (annotation("kcp.io/shard"), annotation("kcp.io/cluster"), metadata["name"].as_str()) {
            (Some(shard), Some(cluster), Some(name)) => {
                Ok(Self::new(shard, cluster, metadata["namespace"].as_str().unwrap_or(""), name))
            }
            _ => Err(Violation::Malformed(format!("an object without shard, cluster or name: {object}"))),
        }
    }
}

/// `metadata.resourceVersion` of an object or a list.
pub(crate) fn version_of(value: &Value) -> Result<Version, Violation> {
    let text = value["metadata"]["resourceVersion"].as_str().unwrap_or("");
    match text.parse::<Version>() {
        Ok(version) if version > 0 && version < 1 << 63 && !text.starts_with(['0', '+']) => Ok(version),
        _ => Err(Violation::Malformed(format!("resourceVersion {text:?}"))),
    }
}

/// The object without its version: what stays equal when an object leaves unchanged.
fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(metadata) = content["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    content
}

impl List {
    /// Reads a whole LIST, or all of its pages: one version, keys strictly rising, no item newer
    /// than the list.
    pub(crate) fn parse(pages: &[Value]) -> Result<Self, Violation> {
        let first = pages.first().ok_or_else(|| Violation::Malformed("no page".into()))?;
        let mut list = Self { version: version_of(first)?, items: BTreeMap::new() };
        for page in pages {
            if version_of(page)? != list.version {
                return Err(Violation::Malformed("pages of different versions".into()));
            }
            let items = page["items"].as_array();
            for item in items.ok_or_else(|| Violation::Malformed("items is not a list".into()))? {
                let (key, version) = (ItemKey::of(item)?, version_of(item)?);
                if version > list.version {
                    return Err(Violation::NotIncreasing { version: list.version, last: version });
                }
                if list.items.last_key_value().is_some_and(|(last, _)| *last >= key) {
                    return Err(Violation::ListOrder { version: list.version, key });
                }
                list.items.insert(key, item.clone());
            }
        }
        Ok(list)
    }
}

impl Step {
    /// Reads one line of a watch body.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Violation> {
        let malformed = || Violation::Malformed(String::from_utf8_lossy(line).into_owned());
        let mut value: Value = serde_json::from_slice(line).map_err(|_| malformed())?;
        let object = value["object"].take();
        match value["type"].as_str() {
            Some("ADDED") => Ok(Self::Added(object)),
            Some("MODIFIED") => Ok(Self::Modified(object)),
            Some("DELETED") => Ok(Self::Deleted(object)),
            Some("BOOKMARK") => Ok(Self::Bookmark {
                version: version_of(&object)?,
                initial_end: object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true",
            }),
            Some("ERROR") => Ok(Self::Error {
                code: object["code"].as_u64().and_then(|code| code.try_into().ok()).ok_or_else(malformed)?,
                reason: object["reason"].as_str().unwrap_or("").to_owned(),
            }),
            _ => Err(malformed()),
        }
    }
}

/// How far the initial events of a watch have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initial {
    /// There are none, or they are over.
    Over,
    /// `sendInitialEvents=true` with bookmarks: they end with the marked one.
    UntilMarked,
    /// A watch from no version: the first step that cannot be one of them ends them.
    Unmarked,
}

/// One client's history so far.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    items: BTreeMap<ItemKey, Value>,
    seen: Written,
    start: Version,
    last: Version,
    bookmark: Version,
    initial: Initial,
    failed: bool,
}

impl Replay {
    /// A client that listed, and watches from the list's version.
    pub(crate) fn after(list: &List) -> Self {
        Self { items: list.items.clone(), start: list.version, last: list.version, ..Self::initial(false) }
            .without_initial()
    }

    /// A client that watches without having listed; `marked` with `sendInitialEvents=true` and bookmarks.
    pub(crate) fn initial(marked: bool) -> Self {
        let initial = if marked { Initial::UntilMarked } else { Initial::Unmarked };
        Self {
            items: BTreeMap::new(),
            seen: Written::new(),
            start: 0,
            last: 0,
            bookmark: 0,
            initial,
            failed: false,
        }
    }

    fn without_initial(mut self) -> Self {
        self.initial = Initial::Over;
        self
    }

    /// The version a client sends when it resumes; `None` while it may hold initial events only, whose
    /// versions say nothing of what was deleted.
    pub(crate) fn resume_at(&self) -> Option<Version> {
        (self.initial == Initial::Over).then_some(self.last.max(self.bookmark))
    }

    /// The version after which changes were delivered.
    pub(crate) fn started_at(&self) -> Version {
        self.start
    }

    /// The objects the client holds.
    pub(crate) fn items(&self) -> &BTreeMap<ItemKey, Value> {
        &self.items
    }

    /// How many changes were delivered after the start.
    pub(crate) fn changes(&self) -> usize {
        self.seen.len()
    }

    /// The client connected again, at [`Self::resume_at`].
    pub(crate) fn resumed(&mut self) {
        self.failed = false;
        self.initial = Initial::Over;
    }

    /// Applies one step.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Violation> {
        if self.failed {
            return Err(Violation::AfterError);
        }
        match step {
            Step::Error { .. } => {
                self.failed = true;
                Ok(())
            }
            Step::Bookmark { version, initial_end } => self.mark(*version, *initial_end),
            Step::Added(object) if self.initial != Initial::Over => self.begin_with(object),
            Step::Added(object) => self.change(object, Kind::Added),
            Step::Modified(object) => self.change(object, Kind::Modified),
            Step::Deleted(object) => self.change(object, Kind::Deleted),
        }
    }

    fn mark(&mut self, version: Version, initial_end: bool) -> Result<(), Violation> {
        match (self.initial, initial_end) {
            (Initial::UntilMarked, false) => {
                return Err(Violation::Initial("a bookmark before the marked one"));
            }
            (Initial::UntilMarked, true) => self.start = version,
            (_, true) => return Err(Violation::Initial("a marked bookmark that is not the first")),
            (_, false) => {}
        }
        self.initial = Initial::Over;
        if version < self.last.max(self.bookmark) {
            return Err(Violation::BookmarkBack { version, last: self.last.max(self.bookmark) });
        }
        // The version of the state itself, if nothing happened: the client may resume from it.
        self.last = version.max(self.last);
        self.bookmark = version;
        Ok(())
    }

    fn begin_with(&mut self, object: &Value) -> Result<(), Violation> {
        let (key, version) = (ItemKey::of(object)?, version_of(object)?);
        let in_order = self.items.last_key_value().is_none_or(|(last, _)| *last < key);
        if !in_order && self.initial == Initial::Unmarked {
            self.initial = Initial::Over;
            return self.change(object, Kind::Added);
        }
        if !in_order {
            return Err(Violation::Initial("out of order"));
        }
        self.last = self.last.max(version);
        self.items.insert(key, object.clone());
        Ok(())
    }

    fn change(&mut self, object: &Value, kind: Kind) -> Result<(), Violation> {
        if self.initial == Initial::UntilMarked {
            return Err(Violation::Initial("a change before the marked bookmark"));
        }
        self.initial = Initial::Over;
        let (key, version) = (ItemKey::of(object)?, version_of(object)?);
        if version <= self.bookmark {
            return Err(Violation::BehindBookmark { version, bookmark: self.bookmark });
        }
        if version <= self.last {
            return Err(Violation::NotIncreasing { version, last: self.last });
        }
        let held = self.items.get(&key);
        match (kind, held) {
            (Kind::Added, Some(_)) => return Err(Violation::AddedPresent { key, version }),
            (Kind::Modified, None) => return Err(Violation::ModifiedAbsent { key, version }),
            (Kind::Deleted, None) => return Err(Violation::DeletedAbsent { key, version }),
            (Kind::Deleted, Some(held)) if content(held) != content(object) => {
                return Err(Violation::DeletedOther { key, version });
            }
            _ => {}
        }
        self.last = version;
        if kind == Kind::Deleted {
            self.items.remove(&key);
            self.seen.insert(version, (key, None));
        } else {
            self.items.insert(key.clone(), object.clone());
            self.seen.insert(version, (key, Some(object.clone())));
        }
        Ok(())
    }

    /// The client's objects must be exactly the listed ones.
    pub(crate) fn equals(&self, list: &List) -> Result<(), Violation> {
        let version = list.version;
        for (key, item) in &list.items {
            match self.items.get(key) {
                None => return Err(Violation::Missing { version, key: key.clone() }),
                Some(held) if held != item => return Err(Violation::Differs { version, key: key.clone() }),
                Some(_) => {}
            }
        }
        match self.items.keys().find(|key| !list.items.contains_key(key)) {
            Some(key) => Err(Violation::Extra { version, key: key.clone() }),
            None => Ok(()),
        }
    }

    /// Every acknowledged write of the client's scope, after its start and up to where it stands, must
    /// have been delivered to it as it was written.
    pub(crate) fn contains(&self, written: &Written) -> Result<(), Violation> {
        let end = self.last.max(self.bookmark);
        for (version, (key, object)) in written.range(self.start + 1..=end.max(self.start + 1)) {
            if *version > end {
                break;
            }
            match self.seen.get(version) {
                None => return Err(Violation::Lost { version: *version, key: key.clone() }),
                Some(seen) if *seen != (key.clone(), object.clone()) => {
                    return Err(Violation::Altered { version: *version, key: key.clone() });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Added,
    Modified,
    Deleted,
}

/// What two clients saw under one version must be one change. Clients of different selectors may see
/// it differently (one an update, another a departure), but of the same object.
pub(crate) fn agree(a: &Replay, b: &Replay) -> Result<(), Violation> {
    for (version, (key, object)) in &a.seen {
        let Some((other_key, other)) = b.seen.get(version) else { continue };
        let same_object = object.is_none() || other.is_none() || object == other;
        if key != other_key || !same_object {
            return Err(Violation::Altered { version: *version, key: key.clone() });
        }
    }
    Ok(())
}

/// How a watch began.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// At a version.
    At(Version),
    /// With initial events, and whether a marked bookmark ends them.
    Initial { marked: bool },
}

/// One client's whole history, recorded.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) start: Start,
    pub(crate) steps: Vec<Step>,
}

/// What a check rests on; a test asserts that it is not nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Changes replayed.
    pub(crate) changes: usize,
    /// Lists the replayed objects were compared with.
    pub(crate) compared: usize,
}

/// Judges a recorded trace. `exact` answers `LIST Exact` at a version in the client's scope, or `None`
/// where that can no longer be asked; the start of a watch at a version must be answered.
pub(crate) fn check(
    trace: &Trace,
    mut exact: impl FnMut(Version) -> Option<List>,
) -> Result<Report, Violation> {
    let mut replay = match trace.start {
        Start::At(version) => Replay::after(
            &exact(version).ok_or_else(|| Violation::Malformed(format!("no list at {version}")))?,
        ),
        Start::Initial { marked } => Replay::initial(marked),
    };
    let mut report = Report::default();
    for step in &trace.steps {
        replay.step(step)?;
        if let Step::Bookmark { version, .. } = step
            && let Some(list) = exact(*version)
        {
            replay.equals(&list)?;
            report.compared += 1;
        }
    }
    if let Some(list) = replay.resume_at().and_then(exact) {
        replay.equals(&list)?;
        report.compared += 1;
    }
    report.changes = replay.changes();
    Ok(report)
}

#[cfg(test)]
mod tests;
