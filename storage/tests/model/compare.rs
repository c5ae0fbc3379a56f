//! What a store shows against what the machine says. Every function panics at the first difference.

use std::collections::BTreeSet;
use std::time::Duration;

use shardcache_storage::{
    Applied, Event, Lineage, Object, ReadLimit, Refusal, ResourceVersion, Revision, Standing, State,
    StorageError, Store, Subscription,
};

use crate::machine::{Entry, Interval, KINDS, Kind, Machine, Outcome, Place, Request, Thing};
use crate::text;

/// The gap that every opening leaves after the last revision.
const GAP: u64 = 2048;

fn parsed(version: u64) -> ResourceVersion {
    ResourceVersion::parse(&version.to_string()).expect("a number")
}

/// The new incarnation, and what is remembered of the earlier ones; `clock` where it can be trusted.
/// The machine is opened too.
pub(crate) fn opening(lineage: &Lineage, machine: &mut Machine, clock: Option<Duration>) {
    let current = lineage.current();
    assert!(current.start.0 >= machine.head + GAP, "no gap after {} at {current:?}", machine.head);
    if let Some(clock) = clock {
        assert!(current.start.0 >= (clock.as_millis() as u64) << 11, "not at the clock's place: {current:?}");
    }
    machine.open(current.start.0, current.tag.value());
    for (incarnation, interval) in lineage.incarnations.iter().zip(remembered(lineage, machine)) {
        assert_eq!(incarnation.start.0, interval.start);
        assert_eq!(incarnation.tag.value(), interval.tag);
        if interval.start != machine.head {
            assert_eq!(incarnation.end, Some(Revision(interval.end)), "where {incarnation:?} ended");
        }
    }
    assert_eq!(current.end, None, "the current incarnation goes on");
    if let [.., before, now] = machine.intervals.as_slice() {
        assert_ne!(before.tag, now.tag, "neighbours in time must differ");
    }
    let digits = parsed(machine.version(machine.head)).to_string();
    assert_eq!(digits.len(), 19, "{digits}");
}

/// The intervals that the store remembers: all but oldest ones whose history is compacted everywhere.
fn remembered<'a>(lineage: &Lineage, machine: &'a Machine) -> &'a [Interval] {
    let forgotten = machine.intervals.len().checked_sub(lineage.incarnations.len());
    let forgotten = forgotten.expect("no more incarnations than there were openings");
    for interval in &machine.intervals[..forgotten] {
        assert!(interval.end < machine.forgettable, "{interval:?} is forgotten too early");
    }
    &machine.intervals[forgotten..]
}

pub(crate) fn outcome(result: &Result<Applied, Refusal>) -> Outcome {
    match result {
        Ok(applied) => Outcome::Written(applied.event.revision.0),
        Err(Refusal::AlreadyExists(_)) => Outcome::AlreadyExists,
        Err(refusal @ Refusal::PushManaged { .. }) => panic!("nobody pushes: {refusal}"),
        Err(Refusal::NotFound) => Outcome::NotFound,
        Err(Refusal::UidMismatch(_)) => Outcome::UidMismatch,
        Err(Refusal::VersionMismatch(_)) => Outcome::VersionMismatch,
    }
}

/// What a writer is told beside the outcome: its event, the boundary, and the object in the way.
pub(crate) fn receipt(result: &Result<Applied, Refusal>, request: &Request, machine: &Machine, head: u64) {
    match result {
        Ok(applied) => {
            let entry = machine.log.iter().rfind(|entry| entry.revision == applied.event.revision.0);
            event(&applied.event, entry.expect("the outcome was right"));
            assert_eq!(applied.head.0, head, "the boundary of the commit");
        }
        Err(
            Refusal::AlreadyExists(object) | Refusal::UidMismatch(object) | Refusal::VersionMismatch(object),
        ) => {
            let written =
                machine.log.iter().find(|entry| entry.revision == object.revision().0).expect("an event");
            assert_eq!((written.kind, written.place), (request.kind, request.place));
            let thing = written.current.as_ref().expect("it existed");
            text::assert_same(object, written.place, thing, "the object in the way");
        }
        Err(Refusal::NotFound | Refusal::PushManaged { .. }) => {}
    }
}

/// The published state is the fold of the log.
pub(crate) fn state(state: &State, machine: &Machine) {
    assert_eq!(state.head().0, machine.head);
    assert_eq!(state.resource_version().value(), machine.version(machine.head));
    objects(state, machine, machine.head);
    for kind in KINDS {
        assert_eq!(state.floor(&text::type_name(kind)).0, machine.floor(kind), "floor of {kind:?}");
    }
}

fn objects(state: &State, machine: &Machine, at: u64) {
    let folded = machine.fold(at);
    if at == machine.head {
        assert_eq!(folded, machine.things, "the machine contradicts itself");
    }
    assert_eq!(state.len(), folded.len(), "objects at {at}");
    assert_eq!(state.is_empty(), folded.is_empty());
    let mut bytes = 0;
    for kind in KINDS {
        let name = text::type_name(kind);
        let expected: Vec<(Place, &Thing)> =
            folded.iter().filter(|((of, _), _)| *of == kind).map(|((_, place), t)| (*place, t)).collect();
        let listed: Vec<&Object> = state.objects(&name).map_or(vec![], |objects| objects.iter().collect());
        assert_eq!(listed.len(), expected.len(), "objects of {kind:?} at {at}");
        for (object, (place, thing)) in listed.into_iter().zip(expected) {
            text::assert_same(object, place, thing, "a listed object");
            bytes += object.body_bytes().len() as u64;
            let found = state.get(&name, text::key(place).as_str()).expect("what is listed is found");
            assert_eq!(found.revision(), object.revision());
        }
    }
    assert_eq!(state.body_bytes(), bytes);
}

/// One event, with both of its states and what a watcher is sent as DELETED.
fn event(event: &Event, entry: &Entry) {
    let context = format!("{event:?}");
    assert_eq!(event.revision.0, entry.revision, "{context}");
    assert_eq!(event.resource_version.value(), entry.version, "{context}");
    assert_eq!(event.type_name, text::type_name(entry.kind), "{context}");
    assert_eq!(event.key(), text::key(entry.place).as_str(), "{context}");
    let pairs = [(&event.previous, &entry.previous), (&event.current, &entry.current)];
    for (object, thing) in pairs {
        match (object, thing) {
            (Some(object), Some(thing)) => text::assert_same(object, entry.place, thing, &context),
            (None, None) => {}
            _ => panic!("{context}: {object:?} is not {thing:?}"),
        }
    }
    let departed = event.departed().map(|body| String::from_utf8_lossy(&body).into_owned());
    let expected = entry.previous.as_ref();
    let expected = expected.map(|t| text::body(entry.place, &t.content, &entry.version.to_string()));
    assert_eq!(departed, expected, "{context}: the state it departed from");
}

/// The durable log of one type in `(after, up_to]`, read in pages of the given bounds.
pub(crate) async fn log(
    store: &impl Store,
    machine: &Machine,
    kind: Kind,
    after: u64,
    up_to: u64,
    events: usize,
    bytes: usize,
) {
    let name = text::type_name(kind);
    let limit = ReadLimit { events, bytes };
    let floor = machine.floor(kind);
    let (mut at, mut expected) = (after, machine.events(kind, after, up_to).into_iter().peekable());
    loop {
        let page = store.events(&name, Revision(at), Revision(up_to), limit).await;
        if at < floor {
            let Err(StorageError::Compacted { requested, floor: told }) = page else {
                panic!("{kind:?} after {at} is below the floor {floor}, yet {page:?}")
            };
            assert_eq!((requested.0, told.0), (at, floor));
            return;
        }
        let page = page.expect("the log above the floor can be read");
        assert!(page.events.len() <= events, "a page of {} where {events} are allowed", page.events.len());
        let sizes = page.events.iter().map(|e| e.current.as_ref().map_or(0, |c| c.body_bytes().len()));
        let before_last: usize = sizes.take(page.events.len().saturating_sub(1)).sum();
        assert!(before_last < bytes, "a page went on after {before_last} of {bytes} bytes");
        for found in &page.events {
            let entry =
                expected.next().unwrap_or_else(|| panic!("{found:?} never happened in ({at}, {up_to}]"));
            event(found, entry);
        }
        let complete = page.complete_to.0;
        if let Some(missing) = expected.peek() {
            assert!(missing.revision > complete, "complete to {complete}, but {missing:?} is missing");
            assert!(!page.events.is_empty(), "an empty page before {missing:?}");
            assert!(complete > at, "no progress from {at}");
            at = complete;
        } else {
            let last = page.events.last().map_or(at, |e| e.revision.0);
            assert!(complete >= last, "complete to {complete}, yet it shows {last}");
            assert!(complete <= up_to.max(at), "complete to {complete}, beyond what was asked");
            if complete >= up_to {
                return;
            }
            assert!(complete > at, "no progress from {at}, and {up_to} is not reached");
            at = complete;
        }
    }
}

/// How the store judges every version that was ever shown, by whichever timeline (I6), and some that
/// never were.
pub(crate) fn versions(lineage: &Lineage, machine: &Machine, shown: &BTreeSet<(u64, u64)>) {
    let head = Revision(machine.head);
    let oldest = remembered(lineage, machine)[0].start;
    for (version, history) in shown {
        let (judged, revision) = (lineage.classify(parsed(*version), head), version / 1024);
        let own = machine.issued.get(version) == Some(history) && revision >= oldest;
        match judged {
            Standing::Issued(at) => {
                assert_eq!(at.0, revision);
                let here = machine.history_at(revision);
                assert_eq!(here, *history, "{version} is answered from a history its holder did not see");
            }
            Standing::Future => assert!(revision > machine.head, "{version} is not above {head}"),
            Standing::Foreign => {
                assert!(!own, "{version} was issued here, yet is refused");
                assert!(revision <= machine.head, "{version} lies in the future, not elsewhere");
            }
        }
        if own {
            assert_eq!(judged, Standing::Issued(Revision(revision)), "{version}");
        }
    }
    for interval in &machine.intervals {
        for beside in [interval.start - 1, interval.end + 1] {
            let version = parsed(beside * 1024 + u64::from(interval.tag));
            let issued = beside >= oldest && machine.issued.contains_key(&version.value());
            let judged = lineage.classify(version, head);
            assert_eq!(matches!(judged, Standing::Issued(_)), issued, "{version}, beside {interval:?}");
        }
    }
    for (at, Interval { start, tag, end }) in machine.intervals.iter().enumerate() {
        let current = at + 1 == machine.intervals.len();
        let end = if current { machine.head } else { *end };
        for revision in [*start, start.midpoint(end), end] {
            // Tag zero is nobody's; the others are 1 to 1023.
            for other in [0, tag % 1023 + 1, 1024 - tag].into_iter().filter(|other| other != tag) {
                let version = parsed(revision * 1024 + u64::from(other));
                let judged = lineage.classify(version, head);
                assert_eq!(judged, Standing::Foreign, "{version}: {revision} was issued under {tag} only");
            }
        }
    }
    for revision in machine.log.iter().map(|entry| entry.revision).chain([machine.head]) {
        let told = lineage.version_of(Revision(revision), head).map(ResourceVersion::value);
        let expected = machine.shown_as(revision).filter(|_| revision >= oldest);
        assert_eq!(told, expected, "the version of {revision}");
    }
}

/// Somebody who follows a store, and what they know.
pub(crate) struct Follower {
    subscription: Subscription,
    at: u64,
    floors: Vec<Revision>,
}

impl Follower {
    pub(crate) fn new(subscription: Subscription) -> Self {
        let (at, floors) = (subscription.state.head().0, floors(&subscription.state));
        Self { subscription, at, floors }
    }

    /// Takes what was published since: every event once, in order, and whole commits.
    pub(crate) fn catch_up(&mut self, machine: &Machine) {
        while let Ok(commit) = self.subscription.commits.try_recv() {
            let begin = machine.log.partition_point(|entry| entry.revision <= self.at);
            let entries = &machine.log[begin..];
            assert!(commit.events.len() <= entries.len(), "a commit of events that never happened");
            for (found, entry) in commit.events.iter().zip(entries) {
                event(found, entry);
                self.at = entry.revision;
            }
            assert_eq!(commit.state.head().0, self.at, "the boundary of a commit");
            objects(&commit.state, machine, self.at);
            let floors = floors(&commit.state);
            assert!(!commit.events.is_empty() || floors != self.floors, "a commit of nothing");
            self.floors = floors;
        }
        assert_eq!(self.at, machine.head, "something acknowledged was not published before");
    }
}

fn floors(state: &State) -> Vec<Revision> {
    KINDS.iter().map(|kind| state.floor(&text::type_name(*kind))).collect()
}
