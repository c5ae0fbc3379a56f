//! A store, a source and two pushers: runs schedules, says before each request what has to come of it,
//! and looks after each step at everything that was published.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures::future::BoxFuture;
use shardcache_storage::{
    Action, Attach, CellName, Change, Election, Frames, Guard, Key, Op, Opening, Push, Pushed, Refusal,
    State, StorageError, Store, Tally, Tenure, TypeName, Verdict,
};

use crate::SHARD;
use crate::inspector::{Inspector, Truth, content};
use crate::objects::{cowboys, draft_at, key, sheriffs};
use crate::pusher::{Leftover, Pusher};
use crate::script::{Replaces, Step};
use crate::source::{NAMES, Source};

/// How a kind of store is opened and lost.
pub(crate) trait Engine: Sized {
    type Store: Store;
    /// Whether anything outlives the process.
    const DURABLE: bool;
    /// Opens the store in a directory, which exists.
    fn open(dir: &Path, opening: Opening) -> Arc<Self::Store>;
    /// The store's file in its directory.
    fn file(dir: &Path) -> PathBuf;
}

/// The cell that is pushed.
pub(crate) fn main_cell() -> CellName {
    CellName::new(SHARD, cowboys())
}

/// The one session whose frames have an effect.
#[derive(Clone, Copy)]
struct Live {
    term: u64,
    session: u64,
    syncing: bool,
}

type Answer = BoxFuture<'static, Result<Pushed, StorageError>>;

pub(crate) struct World<E: Engine> {
    runtime: tokio::runtime::Runtime,
    root: tempfile::TempDir,
    dir: PathBuf,
    openings: u64,
    store: Arc<E::Store>,
    inspector: Inspector,
    source: Source,
    pushers: [Pusher; 2],
    lease: Election,
    /// Who holds the shard, by the rules.
    tenure: Tenure,
    live: Option<Live>,
    sent: BTreeSet<u64>,
    /// Every frame that ever reached this opening of the store.
    arrived: Vec<Leftover>,
}

impl<E: Engine> World<E> {
    /// An empty store and a source without objects.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = root.path().join("store-0");
        std::fs::create_dir(&dir).expect("a new directory");
        let store = E::open(&dir, opening(0));
        let (source, sent) = (Source::default(), BTreeSet::new());
        let inspector = Inspector::new(&*store, &Truth { source: &source, sent: &sent });
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
            root,
            dir,
            openings: 0,
            store,
            inspector,
            source,
            pushers: [Pusher::new(0), Pusher::new(1)],
            lease: Election { uid: "lease-0".into(), term: 0 },
            tenure: Tenure::default(),
            live: None,
            sent,
            arrived: Vec::new(),
        }
    }

    /// Does a whole schedule; afterwards the cell must come to equal the source, and stay so.
    pub(crate) fn run(&mut self, script: &[Step]) {
        for step in script {
            self.step(step);
        }
        self.settle();
        self.repeat();
        self.runtime.block_on(self.store.close()).expect("closes");
    }

    pub(crate) fn step(&mut self, step: &Step) {
        let source = &mut self.source;
        match *step {
            Step::Write(name) => source.write(NAMES[name]),
            Step::Delete(name) => source.delete(NAMES[name]),
            Step::Recreate(name) => source.recreate(NAMES[name]),
            Step::Bump => source.bump(),
            Step::BackUp => source.back_up(),
            Step::Restore => source.restore(),
            Step::RestoreAndAdvance(name) => source.restore_and_advance(NAMES[name]),
            Step::ChangeIdentity => source.change_identity(),
            Step::Elect(pusher) => self.elect(pusher),
            Step::NewLease => {
                self.lease = Election { uid: format!("{}'", self.lease.uid).into(), term: 0 };
            }
            Step::Connect { pusher, replaces } => self.connect(pusher, replaces),
            Step::ReplaceProcess(pusher) => self.pushers[pusher].replace_process(),
            Step::List(pusher) => self.pushers[pusher].list(source),
            Step::Follow { pusher, events } => self.pushers[pusher].follow(source, events),
            Step::Progress(pusher) => self.pushers[pusher].progress(source),
            Step::Deliver { pusher, frames, chunk } => self.deliver(pusher, frames, chunk),
            Step::Catalog { pusher, types } => {
                let announced = self.announce(pusher, types);
                self.announced(announced);
            }
            Step::Race { pusher, frames, types } => self.race(pusher, frames, types),
            Step::Cut(pusher) => self.pushers[pusher].cut(),
            Step::Late { pusher, which } => self.late(pusher, which),
            Step::Rest { name, other, delete } => self.rest(NAMES[name], other, delete),
            Step::Release { shard } => self.release(shard),
            Step::Restart => self.reopen(false),
            Step::Crash => self.reopen(true),
        }
        let published = self.state().tenure(SHARD).cloned().unwrap_or_default();
        assert_eq!(published, self.tenure, "whoever holds the shard, and its catalog");
    }

    fn elect(&mut self, who: usize) {
        self.lease.term += 1;
        self.pushers[who].election = Some(self.lease.clone());
    }

    fn state(&self) -> &State {
        &self.inspector.state
    }

    fn wait(&self, answer: Answer) -> Pushed {
        self.runtime.block_on(answer).expect("the store is open")
    }

    /// Looks at what pushing has done: what the source never removed must not have gone (I7).
    fn after_push(&mut self) -> usize {
        let truth = Truth { source: &self.source, sent: &self.sent };
        let events = self.inspector.catch_up(&truth);
        for event in &events {
            let Some(previous) = &event.previous else { continue };
            let (name, uid) = (previous.parts().name, previous.uid());
            let stays = event.current.as_ref().is_some_and(|current| current.uid() == uid);
            assert!(stays || !self.source.never_removed(name, uid), "I7: {name} {uid} has gone by {event:?}");
        }
        events.len()
    }

    fn connect(&mut self, who: usize, replaces: Replaces) {
        self.pushers[who].cut();
        let term = self.tenure.term;
        let replaces = match replaces {
            Replaces::Nobody => None,
            Replaces::Current => Some(term),
            Replaces::Former => term.checked_sub(1),
        };
        let attach = self.pushers[who].attach(replaces);
        let claim = self.store.push(Push::Attach(attach.clone()));
        let pushed = self.attached(attach, claim);
        self.after_push();
        if pushed.verdict == Verdict::Done {
            self.pushers[who].term = pushed.tenure.term;
            self.open(who, pushed.tenure.term);
        }
    }

    /// D32: what comes of a claim.
    fn attached(&mut self, attach: Attach, claim: Answer) -> Pushed {
        let term = self.tenure.term;
        let verdict = judge_attach(&mut self.tenure, attach);
        let pushed = self.wait(claim);
        assert_eq!((&pushed.verdict, &pushed.tenure), (&verdict, &self.tenure), "D32");
        if self.tenure.term > term {
            self.live = None;
        }
        pushed
    }

    /// A pusher's catalog is on its way, in the term that it was welcomed in.
    fn announce(&self, who: usize, types: usize) -> Option<(u64, Vec<TypeName>, Answer)> {
        let term = Some(self.pushers[who].term).filter(|term| *term > 0)?;
        let types = named(types);
        let catalog = Push::Catalog { shard: SHARD.into(), term, types: types.clone() };
        Some((term, types, self.store.push(catalog)))
    }

    /// The holder's last catalog counts, as a set, and nobody else's.
    fn announced(&mut self, announced: Option<(u64, Vec<TypeName>, Answer)>) {
        let Some((term, types, answer)) = announced else { return };
        let mut verdict = Verdict::Fenced;
        if term == self.tenure.term {
            self.tenure.catalog = Some(types.into_iter().collect::<BTreeSet<_>>().into_iter().collect());
            verdict = Verdict::Done;
        }
        let pushed = self.wait(answer);
        assert_eq!((pushed.verdict, &pushed.tenure), (verdict, &self.tenure), "a catalog in term {term}");
        assert_eq!(self.after_push(), 0, "a catalog makes no event");
    }

    /// D35: the position counts if the last sync is whole, of this source, and not ahead of it.
    fn open(&mut self, who: usize, term: u64) {
        let before = self.state().cell(&main_cell()).cloned().unwrap_or_default();
        let open = Pusher::open(&self.source, term);
        let follows = before.cut && before.source == open.source && open.source_head >= before.position;
        let pushed = self.wait(self.store.push(Push::Open(open)));
        let cell = pushed.cell.clone().expect("it was opened");
        match &pushed.verdict {
            Verdict::Done => assert!(follows && cell.cut, "D35: {before:?} is not what the source has"),
            Verdict::Resync(_) => assert!(!follows && !cell.cut, "D35: {before:?} is what the source has"),
            other => panic!("the holder begins a session, and is told {other:?}"),
        }
        assert!(cell.generation >= before.generation && pushed.tenure.term == term && pushed.session > 0);
        self.live = Some(Live { term, session: pushed.session, syncing: false });
        assert_eq!(self.after_push(), 0, "a session begins without an event");
        self.pushers[who].welcome(&self.source, &pushed);
    }

    /// Lets frames arrive, without waiting for the answers.
    fn arrive(&mut self, leftover: Leftover) -> (Leftover, Answer) {
        let Leftover { term, session, ops } = leftover.clone();
        self.sent.extend(ops.iter().filter_map(version_of));
        self.arrived.push(leftover.clone());
        let frames = Frames { cell: main_cell(), term, session, ops, now_ms: 1 };
        (leftover, self.store.push(Push::Frames(frames)))
    }

    /// What must come of frames: an effect in the live session only, and no alarm without cause.
    fn judge(&mut self, arrived: (Leftover, Answer)) -> Pushed {
        let (Leftover { term, session, ops }, answer) = arrived;
        let pushed = self.wait(answer);
        let holder = pushed.tenure.term;
        let Some(live) = self.live.as_mut().filter(|live| (live.term, live.session) == (term, session))
        else {
            let expected = if term == holder { Verdict::Superseded } else { Verdict::Fenced };
            assert_eq!(pushed.verdict, expected, "term {term} session {session} is over");
            assert_eq!(pushed.tally, Tally::default(), "term {term} session {session} is over");
            return pushed;
        };
        for op in &ops {
            match op {
                Op::SyncStart { .. } => live.syncing = true,
                Op::SyncEnd { .. } => live.syncing = false,
                _ => {}
            }
        }
        match &pushed.verdict {
            Verdict::Done => {}
            // Pushers compare before they follow, so only a list can find what a restored source left.
            Verdict::Resync(reason) => {
                assert!(self.source.timeline() > 0, "false alarm: {reason}");
                assert_eq!(&**reason, "count or digest of the list differ", "false alarm");
            }
            other => panic!("a frame in its turn: {other:?}"),
        }
        pushed
    }

    fn take(&mut self, who: usize, frames: usize) -> Option<Leftover> {
        let link = self.pushers[who].link.as_mut()?;
        let count = frames.min(link.queue.len());
        let ops: Vec<_> = link.queue.drain(..count).collect();
        (!ops.is_empty()).then_some(Leftover { term: link.term, session: link.session, ops })
    }

    fn deliver(&mut self, who: usize, frames: usize, chunk: usize) {
        let mut left = frames;
        let mut arrived = Vec::new();
        while left > 0
            && let Some(next) = self.take(who, left.min(chunk))
        {
            left -= next.ops.len();
            arrived.push(self.arrive(next));
        }
        self.answer(who, arrived);
    }

    /// The pusher learns what came of its frames.
    fn answer(&mut self, who: usize, arrived: Vec<(Leftover, Answer)>) {
        for arrived in arrived {
            let verdict = self.judge(arrived).verdict;
            let pusher = &mut self.pushers[who];
            match (verdict, &mut pusher.link) {
                (Verdict::Resync(_), Some(link)) => link.needs_sync = true,
                (Verdict::Fenced | Verdict::Superseded, _) => pusher.cut(),
                _ => {}
            }
        }
        self.after_push();
    }

    /// Sends frames of the test's choice in a pusher's session.
    pub(crate) fn send(&mut self, who: usize, ops: Vec<Op>) {
        let link = self.pushers[who].link.as_ref().expect("it is connected");
        let arrived = self.arrive(Leftover { term: link.term, session: link.session, ops });
        self.answer(who, vec![arrived]);
    }

    /// What a pusher has sent that has not arrived.
    pub(crate) fn queued(&self, who: usize) -> Vec<Op> {
        self.pushers[who].link.iter().flat_map(|link| link.queue.iter().cloned()).collect()
    }

    /// Whether a pusher has to sync, and the position, where the generation makes something of it.
    pub(crate) fn stands(&self, who: usize) -> (bool, u64) {
        let link = self.pushers[who].link.as_ref().expect("it is connected");
        let cell = self.state().cell(&main_cell()).expect("it was opened");
        let counts = cell.synced_generation == cell.generation;
        (link.needs_sync, if counts { cell.position } else { 0 })
    }

    fn race(&mut self, who: usize, frames: usize, types: usize) {
        let first = self.take(who, frames).map(|first| self.arrive(first));
        let other = 1 - who;
        self.pushers[other].cut();
        let attach = self.pushers[other].attach(Some(self.tenure.term));
        let takeover = self.store.push(Push::Attach(attach.clone()));
        let second = self.take(who, frames).map(|second| self.arrive(second));
        let announced = self.announce(who, types);
        self.answer(who, Vec::from_iter(first));
        let pushed = self.attached(attach, takeover);
        self.answer(who, Vec::from_iter(second));
        self.announced(announced);
        if pushed.verdict == Verdict::Done {
            self.pushers[other].term = pushed.tenure.term;
            self.open(other, pushed.tenure.term);
        }
    }

    fn late(&mut self, who: usize, which: usize) {
        let leftovers = &self.pushers[who].leftovers;
        let Some(at) = which.checked_rem(leftovers.len()) else { return };
        let leftover = leftovers[at].clone();
        let live =
            self.live.is_some_and(|live| (live.term, live.session) == (leftover.term, leftover.session));
        let before = self.state().cell(&main_cell()).cloned();
        let arrived = self.arrive(leftover);
        self.judge(arrived);
        let events = self.after_push();
        if live {
            // It was cut and nothing began since: that was the end of it.
            self.pushers[who].leftovers.remove(at);
        } else {
            assert_eq!(events, 0, "a session that is over has an effect");
            assert_eq!(self.state().cell(&main_cell()).cloned(), before);
        }
    }

    /// Writes as kcp's own replication does, where nobody pushes.
    fn rest(&mut self, name: &'static str, other: bool, delete: bool) {
        let (type_name, key): (TypeName, Key) = match (other, name) {
            (false, _) => (cowboys(), key(name)),
            (true, "a" | "b") => (sheriffs(), key(name)),
            (true, _) => (cowboys(), Key::new("amber-2", "root", "default", name).expect("legal")),
        };
        let exists = self.state().get(&type_name, key.as_str()).is_some();
        let draft = draft_at(&key, if exists { "" } else { "uid-of-rest" }, "by rest");
        let action = if delete { Action::Delete } else { Action::Put(draft) };
        let cell = CellName::new(key.parts().shard, type_name.clone());
        let refused = !other
            && (self.state().cell(&cell).is_some_and(shardcache_storage::Cell::is_managed)
                || self.live.is_some_and(|live| live.syncing));
        let change = Change { type_name, key, guard: Guard::default(), action };
        let receipt = self.runtime.block_on(self.store.commit(vec![change])).expect("the store is open");
        match &receipt[0] {
            Err(Refusal::PushManaged { holder }) => {
                assert!(refused, "nobody pushes it");
                assert_eq!(*holder, self.tenure.holder);
            }
            Err(Refusal::NotFound) => assert!(!refused && delete && !exists),
            Err(other) => panic!("{other}"),
            Ok(_) => assert!(!refused, "D30: an ordinary write into a cell that is pushed"),
        }
        self.inspector.catch_up(&Truth { source: &self.source, sent: &self.sent });
    }

    fn release(&mut self, shard: bool) {
        let type_name = (!shard).then(cowboys);
        let pushed = self.wait(self.store.push(Push::Release { shard: SHARD.into(), type_name }));
        // What is released is in the catalog again when its pusher says so.
        if let Some(catalog) = &mut self.tenure.catalog {
            *catalog = catalog.iter().filter(|name| !shard && **name != cowboys()).cloned().collect();
        }
        assert_eq!((&pushed.verdict, &pushed.tenure), (&Verdict::Done, &self.tenure));
        assert_eq!(self.after_push(), 0, "a release removes nothing");
        assert!(self.state().cell(&main_cell()).is_none_or(|cell| !cell.is_managed() && !cell.cut));
        self.live = None;
    }

    /// Closes the store, or loses it, and opens what is left. Connections end, and with the process all
    /// that was on its way to it.
    fn reopen(&mut self, crash: bool) {
        if !crash {
            self.runtime.block_on(self.store.close()).expect("closes");
        }
        self.openings += 1;
        let dir = self.root.path().join(format!("store-{}", self.openings));
        std::fs::create_dir(&dir).expect("a new directory");
        if E::DURABLE {
            std::fs::copy(E::file(&self.dir), E::file(&dir)).expect("a store's file can be copied");
        }
        self.dir = dir;
        self.store = E::open(&self.dir, opening(self.openings));
        let inspector = Inspector::new(&*self.store, &Truth { source: &self.source, sent: &self.sent });
        if E::DURABLE {
            self.inspector.survives(&inspector.state, crash);
        } else {
            self.tenure = Tenure::default();
        }
        self.inspector = inspector;
        self.live = None;
        self.arrived.clear();
        for pusher in &mut self.pushers {
            pusher.link = None;
            pusher.term = 0;
            pusher.leftovers.clear();
        }
    }

    /// A pusher wins the election, takes over and sends everything: the cell equals the source.
    fn settle(&mut self) {
        self.elect(0);
        self.connect(0, Replaces::Current);
        self.settle_as(0);
    }

    /// A pusher that is connected sends everything: the cell equals the source.
    pub(crate) fn settle_as(&mut self, number: usize) {
        for round in 0.. {
            assert!(round < 3, "a sync after a sync, without end");
            let pusher = &mut self.pushers[number];
            if pusher.link.as_ref().expect("it is connected").needs_sync {
                pusher.list(&self.source);
            }
            pusher.follow(&self.source, usize::MAX);
            pusher.progress(&self.source);
            self.deliver(number, usize::MAX, 4);
            if self.pushers[number].link.as_ref().is_some_and(|link| !link.needs_sync) {
                break;
            }
        }
        self.equals_source();
    }

    pub(crate) fn equals_source(&self) {
        let cell = self.state().cell(&main_cell()).expect("it was pushed");
        assert_eq!(content(self.state()), self.source.now.now(), "the copy is not the source");
        assert!(cell.cut, "{cell:?}");
        assert_eq!(cell.position, self.source.now.head);
    }

    /// D34: sending again what was sent makes no event, nor does a sync of the same objects.
    fn repeat(&mut self) {
        let before = self.state().cell(&main_cell()).cloned();
        for leftover in std::mem::take(&mut self.arrived) {
            let Leftover { term, session, mut ops } = leftover;
            if self.live.is_some_and(|live| (live.term, live.session) == (term, session)) {
                self.duplicates(ops);
                continue;
            }
            ops.push(Op::SyncStart { sync: 99 });
            let arrived = self.arrive(Leftover { term, session, ops });
            self.judge(arrived);
            assert_eq!(self.after_push(), 0, "a session that is over has an effect");
        }
        assert_eq!(self.state().cell(&main_cell()).cloned(), before);
        self.connect(0, Replaces::Nobody);
        assert!(self.pushers[0].link.as_ref().is_some_and(|link| !link.needs_sync), "nothing has changed");
        self.duplicates(self.source.now.log.iter().map(crate::source::Happening::op).collect());
        self.pushers[0].list(&self.source);
        self.pushers[0].progress(&self.source);
        let count = self.source.now.now().len() as u64;
        let list = self.take(0, usize::MAX).expect("it is sent");
        let arrived = self.arrive(list);
        let pushed = self.judge(arrived);
        assert_eq!(self.after_push(), 0, "a sync of the same objects is not silent");
        assert_eq!((pushed.verdict, pushed.tally.unchanged), (Verdict::Done, count));
        self.equals_source();
        if E::DURABLE {
            self.reopen(true);
        }
    }

    /// Events of the past, in the live session.
    fn duplicates(&mut self, ops: Vec<Op>) {
        let (live, head) = (self.live.expect("somebody pushes"), self.source.now.head);
        let is_event = |op: &Op| matches!(op, Op::Upsert { .. } | Op::Delete { .. });
        let ops: Vec<_> =
            ops.into_iter().filter(is_event).filter(|op| version_of(op) <= Some(head)).collect();
        let count = ops.len() as u64;
        let arrived = self.arrive(Leftover { term: live.term, session: live.session, ops });
        let pushed = self.judge(arrived);
        assert_eq!(self.after_push(), 0, "what was sent before has an effect again");
        assert_eq!((pushed.verdict, pushed.tally.duplicate), (Verdict::Done, count));
    }
}

/// The source version that a frame names.
fn version_of(op: &Op) -> Option<u64> {
    match op {
        Op::SyncStart { .. } => None,
        Op::SyncEnd { version, .. }
        | Op::Upsert { version, .. }
        | Op::Delete { version, .. }
        | Op::Progress { version, .. } => Some(*version),
    }
}

/// D32 in its order.
fn judge_attach(tenure: &mut Tenure, attach: Attach) -> Verdict {
    let Attach { holder, instance, election, replaces, .. } = attach;
    let same_election = |held: &Election| election.as_ref().filter(|claimed| claimed.uid == held.uid);
    let same = tenure.election.as_ref().and_then(same_election);
    let is_behind = same.is_some_and(|claimed| Some(claimed.term) < tenure.election.as_ref().map(|e| e.term));
    if tenure.term > 0 && tenure.instance == instance {
        if election.is_some() && !is_behind {
            tenure.election = election;
        }
        return Verdict::Done;
    }
    if is_behind {
        return Verdict::Fenced;
    }
    if tenure.term > 0 && replaces != Some(tenure.term) {
        return Verdict::Held;
    }
    // What a shard has does not change with who pushes it: the catalog stays until there is another.
    let catalog = tenure.catalog.take();
    *tenure = Tenure { term: tenure.term + 1, holder, instance, election, catalog };
    Verdict::Done
}

/// The types whose bits these are, in no order, the first of them twice.
fn named(bits: usize) -> Vec<TypeName> {
    let all = [sheriffs(), TypeName::new("west.example", "horses"), cowboys()];
    let named = all.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    let mut types: Vec<_> = named.map(|(_, type_name)| type_name).collect();
    types.extend(types.first().cloned());
    types
}

fn opening(number: u64) -> Opening {
    let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000 + number * 60);
    Opening { now, entropy: number.wrapping_mul(0x9E37_79B9_7F4A_7C15), host: "test".to_owned() }
}
