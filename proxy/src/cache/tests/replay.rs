//! Random histories, stepped by hand: watchers stall, resume, fall to the history, to the log, and
//! below the floor; the cache restarts; bookmarks, lists and exact lists are taken in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{Index, select as one_of};
use shardcache_storage::{Event, Object, Revision, Standing, Store as _};

use crate::cache::class::transition;
use crate::cache::testing::*;
use crate::cache::{CacheConfig, CacheError, Transition, WatchStep, Watcher};
use crate::filter::Filter;

const PATHS: [&str; 6] = ["a/r//x", "a/r/n/y", "a/s//x", "b/r//x", "b/r/n/y", "b/s//z"];
const LABELS: [&str; 5] = ["", "k=1", "k=2", "k=1,l=1", "l=2"];

#[derive(Clone, Debug)]
enum Op {
    /// One commit of writes: path, and labels or a deletion.
    Commit(Vec<(usize, Option<usize>)>),
    /// The reflector takes what is there.
    Reflect,
    Watch {
        filter: usize,
        after: Index,
    },
    Step(Index),
    Bookmark(Index),
    /// The client goes away and comes back with its last version.
    Resume(Index),
    Compact(Index),
    Restart,
    Exact(Index),
    Retain,
}

fn filters() -> Vec<Filter> {
    let mut filters: Vec<_> = [
        ("*/*", ""),
        ("*/*", "k=1"),
        ("*/*", "k in (1,2),!l"),
        ("*/*", "!k"),
        ("a/*", ""),
        ("*/r", "l"),
        ("b/r/n", ""),
        ("a/r", "k!=1"),
    ]
    .map(|(scope, labels)| filter(scope, labels))
    .into();
    filters.push(named("*/*", "x"));
    filters
}

fn any_op() -> impl Strategy<Value = Op> {
    let write = (0..PATHS.len(), proptest::option::weighted(0.7, 0..LABELS.len()));
    prop_oneof![
        8 => proptest::collection::vec(write, 1..5).prop_map(Op::Commit),
        6 => Just(Op::Reflect),
        4 => (0..filters().len(), any::<Index>()).prop_map(|(filter, after)| Op::Watch { filter, after }),
        8 => any::<Index>().prop_map(Op::Step),
        4 => any::<Index>().prop_map(Op::Bookmark),
        2 => any::<Index>().prop_map(Op::Resume),
        1 => any::<Index>().prop_map(Op::Compact),
        1 => Just(Op::Restart),
        2 => any::<Index>().prop_map(Op::Exact),
        1 => Just(Op::Retain),
    ]
}

type Content = BTreeMap<String, (Revision, String)>;

/// The log and its fold, kept the slow and simple way.
struct Machine {
    log: Vec<Arc<Event>>,
    /// State at every issued revision.
    states: BTreeMap<Revision, BTreeMap<String, Object>>,
    /// Where commits ended.
    boundaries: BTreeSet<Revision>,
}

impl Machine {
    fn at(&self, revision: Revision) -> &BTreeMap<String, Object> {
        self.states.range(..=revision).next_back().expect("the machine began before").1
    }

    fn list(&self, filter: &Filter, revision: Revision) -> Content {
        let selected = self.at(revision).values().filter(|object| filter.matches(object));
        selected.map(|object| (object.key().to_owned(), (object.revision(), content(object)))).collect()
    }

    fn live(&self, path: usize) -> bool {
        let (_, now) = self.states.last_key_value().expect("never empty");
        now.contains_key(key(PATHS[path]).as_str())
    }

    fn follow(&mut self, events: Vec<Arc<Event>>) {
        self.boundaries.extend(events.last().map(|last| last.revision));
        for event in events {
            let mut state = self.states.last_key_value().expect("never empty").1.clone();
            match &event.current {
                Some(object) => state.insert(object.key().to_owned(), object.clone()),
                None => state.remove(event.key()),
            };
            self.states.insert(event.revision, state);
            self.log.push(event);
        }
    }
}

/// A client: the list it began with, and what it made of the stream.
struct Client {
    watcher: Watcher,
    filter: Filter,
    store: Content,
    /// Last event or bookmark it saw: what it would resume from.
    last: Revision,
    expired: bool,
}

impl Client {
    /// Takes one step, if there is one, and checks it against the log.
    fn step(&mut self, machine: &Machine, floor: Revision) -> bool {
        match poll_now(&mut self.watcher) {
            Some(WatchStep::Events(deliveries)) => {
                assert!(!self.expired, "nothing comes after the end");
                let last = self.last;
                let later = machine.log.iter().filter(|event| event.revision > last);
                let expected =
                    later.filter_map(|event| Some((transition(&self.filter, event)?, event.revision)));
                let expected: Vec<_> = expected.take(deliveries.len()).collect();
                let yielded: Vec<_> = deliveries.iter().map(|d| (d.kind, d.event.revision)).collect();
                assert_eq!(yielded, expected, "in order, none missing, none made up");
                for delivery in &deliveries {
                    self.apply(delivery.kind, &delivery.event);
                }
                self.last = deliveries.last().expect("never empty").event.revision;
                assert_eq!(self.store, machine.list(&self.filter, self.last), "replay equals list");
                true
            }
            Some(WatchStep::Expired) => {
                assert!(self.last < floor, "{} was not compacted, the floor is {floor}", self.last);
                self.expired = true;
                false
            }
            Some(other) => panic!("{other:?}"),
            None => false,
        }
    }

    fn apply(&mut self, kind: Transition, event: &Event) {
        match (kind, &event.current) {
            (Transition::Deleted, _) => {
                assert!(self.store.remove(event.key()).is_some(), "what goes was there");
            }
            (kind, Some(object)) => {
                let state = (object.revision(), content(object));
                let before = self.store.insert(object.key().to_owned(), state);
                assert_eq!(before.is_some(), kind == Transition::Modified);
            }
            (kind, None) => panic!("{kind:?} without a state"),
        }
    }

    fn bookmark(&mut self, machine: &Machine, world: &World) {
        let Some(version) = self.watcher.bookmark() else { return };
        assert!(machine.boundaries.contains(&version.revision()), "{version} is inside a commit");
        let head = world.store.subscribe().state.head();
        assert_eq!(world.store.lineage().classify(version, head), Standing::Issued(version.revision()));
        assert!(version.revision() >= self.last, "a bookmark never falls");
        let mut overtaken = machine
            .log
            .iter()
            .filter(|event| event.revision > self.last && event.revision <= version.revision());
        assert!(!overtaken.any(|event| transition(&self.filter, event).is_some()), "no event is overtaken");
        self.last = version.revision();
        assert_eq!(self.store, machine.list(&self.filter, self.last));
    }
}

struct Run {
    world: World,
    machine: Machine,
    clients: Vec<Client>,
    writes: usize,
}

impl Run {
    fn new(config: CacheConfig) -> Self {
        let world = World::with(config);
        let states = BTreeMap::from([(world.head(), BTreeMap::new())]);
        let boundaries = BTreeSet::from([world.head()]);
        Self {
            world,
            machine: Machine { log: Vec::new(), states, boundaries },
            clients: Vec::new(),
            writes: 0,
        }
    }

    async fn op(&mut self, op: Op) {
        match op {
            Op::Commit(writes) => self.commit(writes).await,
            Op::Reflect => self.world.reflect().await,
            Op::Watch { filter, after } => {
                let published: Vec<_> = self.published();
                self.watch(filters()[filter].clone(), *after.get(&published));
            }
            Op::Step(which) => {
                let floor = self.floor();
                if let Some(client) = pick(&mut self.clients, which) {
                    client.step(&self.machine, floor);
                }
            }
            Op::Bookmark(which) => {
                if let Some(client) = pick(&mut self.clients, which).filter(|client| !client.expired) {
                    client.bookmark(&self.machine, &self.world);
                }
            }
            Op::Resume(which) if !self.clients.is_empty() => {
                let client = self.clients.swap_remove(which.index(self.clients.len()));
                self.watch(client.filter, client.last);
            }
            Op::Compact(to) => {
                let published = self.published();
                self.world.reflect().await;
                self.world.compact(*to.get(&published)).await;
            }
            Op::Restart => {
                self.world.restart();
                let clients: Vec<_> = self.clients.drain(..).map(|c| (c.filter, c.last)).collect();
                for (filter, last) in clients {
                    self.watch(filter, last);
                }
            }
            Op::Exact(at) => self.exact(at).await,
            Op::Retain => self.world.cache.retain(&self.world.cache.snapshot()),
            Op::Resume(_) => {}
        }
    }

    async fn commit(&mut self, writes: Vec<(usize, Option<usize>)>) {
        let mut live: Vec<_> = (0..PATHS.len()).map(|path| self.machine.live(path)).collect();
        let mut changes = Vec::new();
        for (path, labels) in writes {
            if labels.is_some() || live[path] {
                live[path] = labels.is_some();
                self.writes += 1;
                let text = self.writes.to_string();
                changes.push(change(widgets(), PATHS[path], labels.map(|at| (LABELS[at], &*text))));
            }
        }
        let events = self.world.commit(changes).await;
        self.machine.follow(events);
    }

    fn published(&self) -> Vec<Revision> {
        let head = self.world.head();
        self.machine.states.keys().copied().filter(|revision| *revision <= head).collect()
    }

    fn floor(&self) -> Revision {
        self.world.cache.snapshot().state.floor(&widgets())
    }

    fn watch(&mut self, filter: Filter, after: Revision) {
        match self.world.cache.watch(&widgets(), filter.clone(), after) {
            Ok(watcher) => {
                assert!(after >= self.floor());
                let store = self.machine.list(&filter, after);
                self.clients.push(Client { watcher, filter, store, last: after, expired: false });
            }
            Err(CacheError::TooOld { floor }) => assert!(after < floor && floor == self.floor()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn exact(&mut self, at: Index) {
        self.world.reflect().await;
        let at = *at.get(&self.published());
        match self.world.cache.objects_at(&widgets(), at).await {
            Ok(objects) => {
                let found: Vec<_> = objects.iter().map(|o| (o.key().to_owned(), o.revision())).collect();
                let expected = self.machine.at(at).values();
                let expected: Vec<_> = expected.map(|o| (o.key().to_owned(), o.revision())).collect();
                assert_eq!(found, expected);
            }
            Err(CacheError::TooOld { floor }) => assert!(at < floor),
            Err(error) => panic!("{error}"),
        }
    }

    /// Whatever happened: everyone catches up, or is told that it cannot.
    async fn finish(&mut self) {
        self.world.reflect().await;
        let (floor, head) = (self.floor(), self.world.head());
        for client in &mut self.clients {
            while client.step(&self.machine, floor) {}
            if !client.expired {
                client.bookmark(&self.machine, &self.world);
                assert_eq!(client.last, head, "the bookmark of who has everything is the head");
            }
        }
    }
}

fn pick(clients: &mut [Client], which: Index) -> Option<&mut Client> {
    if clients.is_empty() { None } else { Some(&mut clients[which.index(clients.len())]) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn d24_every_stream_replays_to_the_filter_of_the_state(
        ops in proptest::collection::vec(any_op(), 1..80),
        history_bytes in one_of(vec![0, 2 << 10, 6 << 10, 256 << 20]),
        snapshots_max in 0..4_usize,
    ) {
        let config = CacheConfig { history_bytes, snapshots_max, ..CacheConfig::default() };
        block_on(async {
            let mut run = Run::new(config);
            for op in ops {
                run.op(op).await;
            }
            run.finish().await;
        });
    }
}
