//! A world of stores of one engine, each beside its machine: runs scripts, and compares after every
//! step what the store shows with what the machine says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;
use shardcache_storage::{Opening, Revision, StorageError, Store, TypeName};

use crate::compare::{self, Follower};
use crate::machine::{KINDS, Machine, Outcome, PLACES, Request};
use crate::script::{Step, UIDS, Which, Wish};
use crate::text;

/// How a kind of store is opened, lost and copied.
pub(crate) trait Engine: Sized {
    type Store: Store;
    /// Whether anything outlives the process.
    const DURABLE: bool;
    /// Opens the store in a directory, which exists.
    fn open(dir: &Path, opening: Opening) -> Arc<Self::Store>;
    /// Forgets the history of a type up to its newest event at or below `to`.
    fn compact(
        store: &Self::Store,
        kind: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>>;
    /// The store's file in its directory.
    fn file(dir: &Path) -> PathBuf;
}

/// A store that is open, and what it has to be.
struct Running<E: Engine> {
    dir: PathBuf,
    store: Arc<E::Store>,
    machine: Machine,
    followers: Vec<Follower>,
}

/// Where wild clocks jump to, in seconds since 1970: its beginning, a past year, around now, the far
/// future, beyond what fits.
const JUMPS: [u64; 8] = [
    0,
    1_500_000_000,
    1_769_000_000,
    1_780_000_000,
    1_780_100_000,
    1_790_000_000,
    4_070_000_000,
    5_700_000_000,
];
/// Time from one step to the next: more than the events of a step take from the counter.
const TICK: Duration = Duration::from_millis(50);

/// Stores, backups, one clock, and every version anybody was ever shown.
pub(crate) struct World<E: Engine> {
    runtime: tokio::runtime::Runtime,
    root: tempfile::TempDir,
    directories: usize,
    running: Vec<Running<E>>,
    backups: Vec<(PathBuf, Machine)>,
    /// Versions of every timeline, lost ones too, and the history each stands for.
    shown: BTreeSet<(u64, u64)>,
    clock: Duration,
    /// Clocks jump. Then every opening draws another tag; where clocks only go forward, tags are
    /// almost all equal, which must not matter.
    wild: bool,
    openings: u64,
}

impl<E: Engine> World<E> {
    /// One empty store.
    pub(crate) fn new(wild: bool) -> Self {
        let mut world = Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
            root: tempfile::tempdir().expect("a temporary directory"),
            directories: 0,
            running: Vec::new(),
            backups: Vec::new(),
            shown: BTreeSet::new(),
            clock: Duration::from_secs(1_780_000_000),
            wild,
            openings: 0,
        };
        let dir = world.directory();
        let first = world.open(dir, Machine::default());
        world.running.push(first);
        world
    }

    /// Does a whole script, then compares everything once more.
    pub(crate) fn run(&mut self, script: &[Step]) {
        for step in script {
            self.clock += TICK;
            self.step(step);
        }
        self.compare_versions();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { store, ref batch, abandoned } => self.write(store, batch, abandoned),
            Step::Read { store, kind, after, up_to, events, bytes } => {
                let at = self.pick(store);
                let Running { store, machine, .. } = &self.running[at];
                let kind = KINDS[kind];
                let (after, up_to) = (point(machine, after), point(machine, up_to));
                self.runtime.block_on(compare::log(&**store, machine, kind, after, up_to, events, bytes));
            }
            Step::Subscribe { store } => {
                let at = self.pick(store);
                let running = &mut self.running[at];
                running.followers.truncate(2);
                running.followers.push(Follower::new(running.store.subscribe()));
            }
            Step::Compact { store, kind, to } => self.compact(store, kind, to),
            Step::Restart { store } => self.replace(store, Ending::Close, Beginning::Same),
            Step::Crash { store } => self.replace(store, Ending::Crash, Beginning::Same),
            Step::Wipe { store } => self.replace(store, Ending::Crash, Beginning::Empty),
            Step::Restore { store, backup } => {
                let beginning = match backup.checked_rem(self.backups.len()) {
                    Some(backup) => Beginning::Backup(backup),
                    None => return,
                };
                self.replace(store, Ending::Crash, beginning);
            }
            Step::Backup { store } => self.backup(store),
            Step::Clone { store } => self.clone_store(store),
            Step::Clock { at } if self.wild => self.clock = Duration::from_secs(JUMPS[at]),
            Step::Clock { .. } => self.clock += Duration::from_mins(1),
        }
    }

    fn pick(&self, store: usize) -> usize {
        store % self.running.len()
    }

    fn directory(&mut self) -> PathBuf {
        self.directories += 1;
        let dir = self.root.path().join(format!("store-{}", self.directories));
        std::fs::create_dir(&dir).expect("a new directory");
        dir
    }

    /// Opens a directory that holds what `machine` says, and checks the new incarnation.
    fn open(&mut self, dir: PathBuf, mut machine: Machine) -> Running<E> {
        self.clock += TICK;
        self.openings += 1;
        let entropy = if self.wild { self.openings | (self.openings * 0x9E37) << 32 } else { 7 };
        let opening = Opening { now: UNIX_EPOCH + self.clock, entropy, host: "host".to_owned() };
        // A store of a wild world that is new knows nothing of the tags it must differ from.
        let store = E::open(&dir, opening);
        compare::opening(&store.lineage(), &mut machine, (!self.wild).then_some(self.clock));
        let running = Running { dir, store, machine, followers: Vec::new() };
        self.compare(&running);
        self.shown.extend(running.machine.issued.iter().map(|(version, history)| (*version, *history)));
        running
    }

    fn write(&mut self, store: usize, batch: &[Wish], abandoned: bool) {
        let at = self.pick(store);
        let requests: Vec<_> = batch.iter().map(|wish| self.request(at, wish)).collect();
        let running = &mut self.running[at];
        let expected = running.machine.apply(&requests);
        let head = running.machine.head;
        let mut answer = running.store.commit(requests.iter().map(text::change).collect());
        if abandoned {
            // Asked, and gone: the changes must be applied all the same, in their turn.
            drop(answer.as_mut().now_or_never());
            drop(answer);
            let barrier = running.store.commit(vec![text::change(&barrier())]);
            let receipt = self.runtime.block_on(barrier).expect("the store is open");
            assert_eq!(compare::outcome(&receipt[0]), Outcome::NotFound);
        } else {
            let receipt = self.runtime.block_on(answer).expect("the store is open");
            let outcomes: Vec<_> = receipt.iter().map(compare::outcome).collect();
            assert_eq!(outcomes, expected, "outcomes of {requests:?}");
            for (result, request) in receipt.iter().zip(&requests) {
                compare::receipt(result, request, &running.machine, head);
            }
        }
        self.after_change(at);
    }

    /// A write in terms of what the machine holds now.
    fn request(&self, at: usize, wish: &Wish) -> Request {
        let (kind, place) = (KINDS[wish.kind], PLACES[wish.place]);
        let held = self.running[at].machine.things.get(&(kind, place));
        let uid = wish.uid.map(|which| match which {
            Which::Held => held.map_or("", |thing| thing.content.uid),
            Which::Some(index) => UIDS[index % UIDS.len()],
        });
        let version = wish.version.and_then(|which| match which {
            Which::Held => held.map(|thing| thing.version),
            Which::Some(index) => self.shown.iter().nth(index % self.shown.len()).map(|shown| shown.0),
        });
        Request { kind, place, exists: wish.exists, uid, version, content: wish.content.clone() }
    }

    fn compact(&mut self, store: usize, kind: usize, to: u8) {
        let at = self.pick(store);
        let Running { store, machine, .. } = &mut self.running[at];
        let (kind, to) = (KINDS[kind], point(machine, to));
        machine.compact(kind, to);
        let expected = machine.floor(kind);
        let answer = E::compact(store, text::type_name(kind), Revision(to));
        let answer = self.runtime.block_on(answer).expect("the store is open");
        assert_eq!(answer.0, expected, "the floor of {kind:?} after compacting to {to}");
        self.after_change(at);
    }

    /// What the store shows after something happened to it, to everybody who looks.
    fn after_change(&mut self, at: usize) {
        let running = &mut self.running[at];
        for follower in &mut running.followers {
            follower.catch_up(&running.machine);
        }
        let new = running.machine.issued.iter().map(|(version, history)| (*version, *history));
        self.shown.extend(new);
        self.compare(&self.running[at]);
    }

    fn compare(&self, running: &Running<E>) {
        let Running { store, machine, .. } = running;
        compare::state(&store.subscribe().state, machine);
        for kind in KINDS {
            let whole = compare::log(&**store, machine, kind, machine.floor(kind), machine.head, 3, 4000);
            self.runtime.block_on(whole);
        }
    }

    /// No version of any timeline is answered from a history it does not stand for.
    fn compare_versions(&self) {
        for Running { store, machine, .. } in &self.running {
            compare::versions(&store.lineage(), machine, &self.shown);
        }
    }

    fn backup(&mut self, store: usize) {
        let at = self.pick(store);
        let to = self.root.path().join(format!("backup-{}", self.backups.len()));
        let Running { store, machine, .. } = &self.running[at];
        let report = self.runtime.block_on(store.backup(to.clone()));
        if !E::DURABLE {
            report.expect_err("there is nothing to copy");
            return;
        }
        let report = report.expect("the directory is writable");
        assert_eq!(report.head.0, machine.head);
        assert_eq!(report.objects, machine.things.len() as u64);
        assert_eq!(report.bytes, std::fs::metadata(&to).expect("it was written").len());
        self.backups.push((to, machine.clone()));
    }

    fn replace(&mut self, store: usize, ending: Ending, beginning: Beginning) {
        let at = self.pick(store);
        let old = self.running.swap_remove(at);
        let dir = self.directory();
        let machine = match beginning {
            Beginning::Same if E::DURABLE => old.machine.clone(),
            Beginning::Backup(backup) => self.backups[backup].1.clone(),
            Beginning::Same | Beginning::Empty => Machine::default(),
        };
        if matches!(ending, Ending::Close) {
            self.runtime.block_on(old.store.close()).expect("nothing failed");
            self.runtime.block_on(old.store.close()).expect("closing is idempotent");
            let late = self.runtime.block_on(old.store.commit(vec![text::change(&barrier())]));
            assert!(matches!(late, Err(StorageError::Closed)), "a closed store took a write: {late:?}");
        }
        let source = match beginning {
            Beginning::Backup(backup) => Some(self.backups[backup].0.clone()),
            Beginning::Same if E::DURABLE => Some(E::file(&old.dir)),
            Beginning::Same | Beginning::Empty => None,
        };
        // Everything written is acknowledged, so what is in the file now is what a lost process
        // leaves behind; it goes on in another directory.
        if let Some(source) = source {
            std::fs::copy(source, E::file(&dir)).expect("a store's file can be copied");
        }
        drop(old);
        let new = self.open(dir, machine);
        self.running.push(new);
        let last = self.running.len() - 1;
        self.running.swap(at, last);
        self.compare_versions();
    }

    /// The volume is copied while the store is down; both go on, knowing nothing of each other.
    fn clone_store(&mut self, store: usize) {
        let at = self.pick(store);
        if !E::DURABLE || self.running.len() >= 3 {
            return;
        }
        self.replace(at, Ending::Close, Beginning::Same);
        let dir = self.directory();
        let original = &self.running[at];
        std::fs::copy(E::file(&original.dir), E::file(&dir)).expect("a store's file can be copied");
        let copy = self.open(dir, original.machine.clone());
        self.running.push(copy);
        self.compare_versions();
    }
}

#[derive(Clone, Copy)]
enum Ending {
    Close,
    Crash,
}

#[derive(Clone, Copy)]
enum Beginning {
    Same,
    Empty,
    Backup(usize),
}

/// A point of a store's history: 0 its beginning, 255 its head.
fn point(machine: &Machine, at: u8) -> u64 {
    if machine.log.is_empty() || at == 255 {
        return machine.head;
    }
    let index = machine.log.len() * usize::from(at) / 255;
    // Also between and beside revisions that events have.
    machine.log[index.min(machine.log.len() - 1)].revision - u64::from(at % 2)
}

/// A change that is refused, to wait for those before it.
fn barrier() -> Request {
    Request {
        kind: KINDS[0],
        place: ("barrier", "", "", ""),
        exists: Some(true),
        uid: None,
        version: None,
        content: None,
    }
}
