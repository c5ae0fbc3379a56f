//! A store, its operators and the pushers of some shards: runs schedules and looks at everything that was
//! published.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use shardcache_storage::{
    Action, Attach, CellName, Change, Digest, Frames, Guard, Key, Member, Op, Open, Opening, Push, Pushed,
    PushedType, RosterChange, State, StorageError, Store, Subscription, TypeName, Verdict,
};

use crate::objects::{cowboys, draft_at, opening, sheriffs};
use crate::script::{SHARDS, Step, TYPES};
use crate::truth::{Fact, Truth};

/// How a kind of store is opened and lost.
pub(crate) trait Engine: Sized {
    type Store: Store;
    /// Whether anything outlives the process.
    const DURABLE: bool;
    /// Opens the store in a directory, which exists.
    fn open(dir: &Path, opening: Opening) -> Arc<Self::Store>;
}

pub(crate) fn types() -> [TypeName; TYPES] {
    [cowboys(), sheriffs(), TypeName::new("", "secrets")]
}

/// The pusher of a shard, as it knows itself.
#[derive(Clone, Debug, Default)]
struct Pusher {
    process: usize,
    term: u64,
    sessions: [u64; TYPES],
    syncing: [bool; TYPES],
}

type Answer = BoxFuture<'static, Result<Pushed, StorageError>>;

pub(crate) struct World<E: Engine> {
    runtime: tokio::runtime::Runtime,
    root: tempfile::TempDir,
    dir: PathBuf,
    openings: u64,
    store: Arc<E::Store>,
    subscription: Subscription,
    truth: Truth,
    pushers: [Pusher; SHARDS.len()],
    /// What was asked for and not waited for, with what has to come of it.
    waiting: Vec<(Answer, Ends)>,
    /// Types whose views could be shown once, and no operator has said otherwise since.
    opened: BTreeSet<TypeName>,
    /// Whether views that could be shown may have to wait, by what was asked for since the last look.
    may_close: bool,
}

/// How a request has to end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Done,
    Refused,
    Fenced,
    Resync,
}

impl<E: Engine> World<E> {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = root.path().join("store-0");
        std::fs::create_dir(&dir).expect("a new directory");
        let store = E::open(&dir, at(0));
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
            root,
            dir,
            openings: 0,
            subscription: store.subscribe(),
            store,
            truth: Truth::default(),
            pushers: Default::default(),
            waiting: Vec::new(),
            opened: BTreeSet::new(),
            may_close: false,
        }
    }

    /// Does a whole schedule; in the end every shard syncs everything, and nothing is awaited.
    pub(crate) fn run(&mut self, script: &[Step]) {
        for step in script {
            self.step(step);
        }
        for shard in 0..SHARDS.len() {
            self.step(&Step::Attach { shard, other: true, takes_over: true });
            self.step(&Step::Catalog { shard, types: 7, late: false });
            for of in 0..TYPES {
                self.step(&Step::SyncStart { shard, of });
                self.step(&Step::SyncEnd { shard, of, wrong: false });
            }
        }
        self.look();
        for type_name in &types() {
            assert_eq!(self.state().awaited(type_name).next(), None, "everything was sent");
        }
        self.runtime.block_on(self.store.close()).expect("closes");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Seed(set) => self.seed(set),
            Step::Expect(shard) => {
                self.may_close = true;
                self.roster(RosterChange::Expect { shard: SHARDS[shard].into() }, Ends::Done);
                self.truth.add(Fact::Expected(SHARDS[shard]));
            }
            Step::Excuse(shard) => {
                let known = self.truth.is_member(SHARDS[shard]);
                let change = RosterChange::Excuse { shard: SHARDS[shard].into() };
                self.roster(change, if known { Ends::Done } else { Ends::Refused });
                if known {
                    self.truth.add(Fact::Excused(SHARDS[shard]));
                }
            }
            Step::Forget(shard) => {
                let shard = SHARDS[shard];
                let may = self.truth.is_member(shard) && !self.truth.was_pushed(shard);
                self.roster(
                    RosterChange::Forget { shard: shard.into() },
                    if may { Ends::Done } else { Ends::Refused },
                );
                if may {
                    self.truth.add(Fact::Forgotten(shard));
                }
            }
            Step::Attach { shard, other, takes_over } => self.attach(shard, other, takes_over),
            Step::Catalog { shard, types, late } => self.catalog(shard, types, late),
            Step::SyncStart { shard, of } => self.sync_start(shard, of),
            Step::SyncEnd { shard, of, wrong } => self.sync_end(shard, of, wrong),
            Step::Release { shard, of } => self.release(shard, of),
            Step::Rest { shard, of, delete } => self.rest(shard, of, delete),
            Step::Look => self.look(),
            Step::Restart => self.reopen(false, !E::DURABLE),
            Step::Crash => self.reopen(true, !E::DURABLE),
            Step::Lose => self.reopen(true, true),
        }
    }

    fn state(&self) -> &State {
        &self.subscription.state
    }

    fn ask(&mut self, push: Push, ends: Ends) {
        let answer = self.store.push(push);
        self.waiting.push((answer, ends));
    }

    fn roster(&mut self, change: RosterChange, ends: Ends) {
        self.ask(Push::Roster(change), ends);
    }

    fn seed(&mut self, set: u8) {
        // Whether there are objects.
        self.look();
        let first = !self.truth.is_seeded() && !self.truth.is_pushed() && self.state().is_empty();
        let shards: BTreeSet<_> = chosen(&SHARDS, set).collect();
        self.may_close |= first;
        let names = shards.iter().rev().map(|shard| Box::from(*shard)).collect();
        self.roster(RosterChange::Seed { shards: names }, Ends::Done);
        self.truth.add(Fact::Seeded { first, shards });
    }

    fn attach(&mut self, shard: usize, other: bool, takes_over: bool) {
        self.look();
        let pusher = &mut self.pushers[shard];
        let process = pusher.process + usize::from(other);
        let held = other && !takes_over && pusher.term > 0;
        let attach = Attach {
            shard: SHARDS[shard].into(),
            holder: "somebody".into(),
            instance: format!("process {process}").into(),
            election: None,
            replaces: takes_over.then_some(pusher.term),
        };
        let claimed = self.wait(self.store.push(Push::Attach(attach)));
        assert_eq!(claimed.verdict, if held { Verdict::Held } else { Verdict::Done });
        if !held {
            if claimed.tenure.term > self.pushers[shard].term {
                self.pushers[shard] = Pusher { process, term: claimed.tenure.term, ..Pusher::default() };
            }
            self.truth.add(Fact::Attached(SHARDS[shard]));
        }
        self.look();
    }

    fn catalog(&mut self, shard: usize, set: u8, late: bool) {
        let term = self.pushers[shard].term.saturating_sub(u64::from(late));
        let named: BTreeSet<_> = chosen(&types(), set).collect();
        let push =
            Push::Catalog { shard: SHARDS[shard].into(), term, types: named.iter().rev().cloned().collect() };
        if late || term == 0 {
            return self.ask(push, Ends::Fenced);
        }
        self.ask(push, Ends::Done);
        self.truth.add(Fact::Catalog(SHARDS[shard], named));
    }

    fn sync_start(&mut self, shard: usize, of: usize) {
        let term = self.pushers[shard].term;
        if term == 0 {
            return;
        }
        let described = PushedType { version: "v1".into(), kind: "Thing".into(), namespaced: true };
        let open = Open { cell: cell(shard, of), term, source: "prod".into(), source_head: 100, described };
        let opened = self.wait(self.store.push(Push::Open(open)));
        self.pushers[shard].sessions[of] = opened.session;
        self.pushers[shard].syncing[of] = true;
        self.frames(shard, of, Op::SyncStart { sync: 1 }, Ends::Done);
    }

    fn sync_end(&mut self, shard: usize, of: usize, wrong: bool) {
        if !std::mem::take(&mut self.pushers[shard].syncing[of]) {
            return;
        }
        let (count, digest) = (u64::from(wrong), Digest::default());
        let end = Op::SyncEnd { sync: 1, version: 100, count, digest, allow_empty: true };
        self.frames(shard, of, end, if wrong { Ends::Resync } else { Ends::Done });
        if !wrong {
            self.truth.add(Fact::Synced(SHARDS[shard], types()[of].clone()));
        }
    }

    fn frames(&mut self, shard: usize, of: usize, op: Op, ends: Ends) {
        let Pusher { term, sessions, .. } = self.pushers[shard];
        let session = sessions[of];
        let frames = Frames { cell: cell(shard, of), term, session, ops: vec![op], now_ms: 1 };
        self.ask(Push::Frames(frames), ends);
    }

    fn release(&mut self, shard: usize, of: Option<usize>) {
        let type_name = of.map(|of| types()[of].clone());
        self.ask(Push::Release { shard: SHARDS[shard].into(), type_name }, Ends::Done);
        for (number, name) in types().into_iter().enumerate() {
            if of.is_none_or(|of| of == number) {
                self.pushers[shard].syncing[number] = false;
                self.truth.add(Fact::Released(SHARDS[shard], name));
            }
        }
    }

    /// Writes as kcp's own replication does, where nobody pushes.
    fn rest(&mut self, shard: usize, of: usize, delete: bool) {
        self.look();
        let (key, type_name) =
            (Key::new(SHARDS[shard], "root", "default", "a").expect("legal"), types()[of].clone());
        let action = if delete { Action::Delete } else { Action::Put(draft_at(&key, "", "by rest")) };
        let change = Change { type_name, key, guard: Guard::default(), action };
        // Refused where somebody pushes.
        drop(self.runtime.block_on(self.store.commit(vec![change])).expect("the store is open"));
        self.look();
    }

    fn wait(&self, answer: Answer) -> Pushed {
        self.runtime.block_on(answer).expect("the store is open")
    }

    /// Waits for all that was asked for and looks at what has come of it.
    fn look(&mut self) {
        for (answer, ends) in std::mem::take(&mut self.waiting) {
            let verdict = self.wait(answer).verdict;
            let ended = match verdict {
                Verdict::Done => Ends::Done,
                Verdict::Broken(_) => Ends::Refused,
                Verdict::Fenced => Ends::Fenced,
                Verdict::Resync(_) => Ends::Resync,
                other => panic!("{other:?}"),
            };
            assert_eq!(ended, ends);
        }
        let may_close = std::mem::take(&mut self.may_close);
        while let Ok(commit) = self.subscription.commits.try_recv() {
            let told: BTreeSet<_> = commit.shards.iter().map(ToString::to_string).collect();
            assert_eq!(told.len(), commit.shards.len(), "each shard once");
            for shard in SHARDS {
                let (before, after) = (self.state(), &commit.state);
                let same = before.member(shard) == after.member(shard)
                    && before.tenure(shard) == after.tenure(shard);
                assert!(same || told.contains(shard), "{shard} changed and nobody was told");
            }
            self.subscription.state = commit.state;
            if may_close {
                self.opened.clear();
            }
            self.never_closes();
        }
        self.matches();
    }

    /// A view over all shards that could be shown once can be shown for ever.
    fn never_closes(&mut self) {
        for type_name in types() {
            let awaited: Vec<_> = self.subscription.state.awaited(&type_name).collect();
            if awaited.is_empty() {
                self.opened.insert(type_name);
            } else {
                assert!(!self.opened.contains(&type_name), "{type_name:?} waits for {awaited:?} again");
            }
        }
    }

    fn matches(&self) {
        let (state, types) = (self.state(), types());
        let expected = self.truth.roster(&SHARDS, &types);
        let is: BTreeMap<_, Member> =
            state.roster().map(|(shard, member)| (shard.to_owned(), member.clone())).collect();
        assert_eq!(is, expected, "the roster");
        assert_eq!(state.is_seeded(), self.truth.is_seeded(), "seeded");
        for type_name in &types {
            let gates = |(shard, member): (&String, &Member)| {
                (member.gates() && member.awaits.includes(type_name)).then(|| shard.clone())
            };
            let expected: Vec<_> = expected.iter().filter_map(gates).collect();
            let awaited: Vec<_> = state.awaited(type_name).map(str::to_owned).collect();
            assert_eq!(awaited, expected, "who is waited for");
            if awaited.is_empty() {
                let unsettled = self.truth.unsettled(type_name);
                assert!(unsettled.is_empty(), "{type_name:?} is shown without {unsettled:?}");
            }
        }
    }

    /// Closes the store, or loses its process, and opens what is left, or an empty one.
    fn reopen(&mut self, crash: bool, lose: bool) {
        self.look();
        if !crash {
            self.runtime.block_on(self.store.close()).expect("closes");
        }
        self.openings += 1;
        let dir = self.root.path().join(format!("store-{}", self.openings));
        std::fs::create_dir(&dir).expect("a new directory");
        if lose {
            (self.truth, self.pushers) = (Truth::default(), Default::default());
            self.opened.clear();
        } else {
            let file = |dir: &Path| dir.join("store.redb");
            std::fs::copy(file(&self.dir), file(&dir)).expect("a store's file can be copied");
        }
        self.dir = dir;
        self.store = E::open(&self.dir, at(self.openings));
        self.subscription = self.store.subscribe();
        for pusher in &mut self.pushers {
            pusher.syncing = [false; TYPES];
        }
        self.look();
    }
}

fn at(number: u64) -> Opening {
    opening(crate::objects::START_MS + number * 60_000, number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn cell(shard: usize, of: usize) -> CellName {
    CellName::new(SHARDS[shard], types()[of].clone())
}

/// The members of a set of bits.
fn chosen<T: Clone>(all: &[T], set: u8) -> impl Iterator<Item = T> {
    all.iter().enumerate().filter(move |(at, _)| (set >> at) & 1 == 1).map(|(_, one)| one.clone())
}
