//! The store, its writer of views, the shards, the two informers, and what must be true of them.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shardcache::completeness::{Completeness, ResourceVersion, ShardView, TypeName};
use shardcache_proxy::cache::{CacheConfig, Snapshot, WatchCache};
use shardcache_proxy::freshness::shardview::{Look, Scribe};
use shardcache_proxy::ingest::{self, Assigned};
use shardcache_proxy::metrics::Metrics;
use shardcache_proxy::service::{Api, ApiConfig};
use shardcache_proxy::types::Types;
use shardcache_storage::{
    Action, Attach, CellName, Change, Digest, Draft, Frames, Guard, Key, MemoryStore, Op, Open, Opening,
    Push, Pushed, PushedType, RedbOptions, RedbStore, Revision, Role, RosterChange, Store, Verdict,
    entry_digest,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::informer::{Came, Informer};
use super::script::{Step, Which};

pub(super) const SHARDS: [&str; 3] = ["amber", "beryl", "citrine"];
/// The first one is the one that the data informer follows.
pub(super) const TYPES: [&str; 2] = ["apiexports", "apiresourceschemas"];

/// More than any schedule makes.
const EVERYTHING: usize = 10_000;

/// Judges whether data are complete.
pub(super) type Rule = fn(&TypeName, ResourceVersion, ResourceVersion, &[ShardView]) -> Completeness;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Memory,
    Redb,
}

/// What a shard that is expected must have in a whole view of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// It has not said so.
    NotSaid,
    Nothing,
    /// It was not synced: no view is whole.
    Unsynced,
    /// What it had when this lineage, or a later one, was synced.
    Lineage(u64),
}

/// The shards that are expected.
type Truth = BTreeMap<&'static str, Need>;

/// Versions at which views were written, and what was true when they were written before and then.
#[derive(Clone)]
struct Turn {
    after: Revision,
    up_to: Revision,
    truths: [Arc<Truth>; 2],
}

/// One type of a shard, outside of the cache.
#[derive(Default)]
struct Source {
    /// Counts replacements of it.
    number: u64,
    head: u64,
    /// Name → uid and version.
    objects: BTreeMap<String, (String, u64)>,
    session: Option<Frames>,
    /// Frames of a sync that have not arrived.
    pending: VecDeque<Op>,
    is_synced: bool,
}

struct Backup {
    file: PathBuf,
    head: Revision,
    written: Arc<Truth>,
}

pub(super) struct World {
    engine: Engine,
    rule: Rule,
    directory: TempDir,
    /// How often a store was opened.
    opened: u64,
    api: Arc<Api>,
    reflector: JoinHandle<()>,
    scribe: Scribe,
    sources: BTreeMap<(usize, usize), Source>,
    turns: Vec<Turn>,
    /// What was true when views were written last.
    written: Arc<Truth>,
    backup: Option<Backup>,
    data: Informer,
    views: Informer,
    /// What was true when what the second informer has was written.
    seen: [Arc<Truth>; 2],
}

fn type_name(of_type: usize) -> TypeName {
    TypeName::new("apis.kcp.io", TYPES[of_type])
}

fn views() -> TypeName {
    TypeName::new("cache.shardcache.dev", "shardviews")
}

fn key(shard: &str, name: &str) -> Key {
    Key::new(shard, "root", "", name).expect("no NUL")
}

fn draft(key: &Key, uid: &str) -> Draft {
    let name = key.parts().name;
    let body =
        format!(r#"{{"apiVersion":"apis.kcp.io/v1alpha1","kind":"Thing","metadata":{{"name":"{name}"}}}}"#);
    let object = ingest::read(body.as_bytes()).expect("an object");
    object.encode(key, Assigned { uid: Some(uid), ..Assigned::default() }).expect("small")
}

/// The object that proves that a lineage was synced.
fn sentinel(generation: u64) -> String {
    format!("lineage-{generation}")
}

impl World {
    pub(super) fn open(engine: Engine, rule: Rule) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(engine, &directory.path().join("1"), 1);
        let (api, reflector) = serve(store);
        let scribe = Scribe::new(Arc::clone(&api));
        let nothing = Arc::<Truth>::default();
        Self {
            engine,
            rule,
            directory,
            opened: 1,
            api,
            reflector,
            scribe,
            sources: BTreeMap::new(),
            turns: vec![],
            written: Arc::clone(&nothing),
            backup: None,
            data: Informer::of(type_name(0)),
            views: Informer::of(views()),
            seen: [Arc::clone(&nothing), nothing],
        }
    }

    pub(super) async fn run(mut self, script: &[Step]) {
        for step in script {
            self.step(step).await;
            self.check(step);
        }
        self.settle().await;
        self.close().await;
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Seed(bits) => {
                let shards = (0..SHARDS.len()).filter(|shard| bits & 1 << shard != 0);
                let shards = shards.map(|shard| SHARDS[shard].into()).collect();
                self.push(Push::Roster(RosterChange::Seed { shards })).await;
            }
            Step::Expect(shard) => {
                self.push(Push::Roster(RosterChange::Expect { shard: SHARDS[shard].into() })).await;
            }
            Step::Excuse(shard) => {
                self.push(Push::Roster(RosterChange::Excuse { shard: SHARDS[shard].into() })).await;
            }
            Step::Forget(shard) => {
                self.push(Push::Roster(RosterChange::Forget { shard: SHARDS[shard].into() })).await;
            }
            Step::Catalog(shard, bits) => self.catalog(shard, bits).await,
            Step::Begin { shard, of_type, new_source } => self.begin(shard, of_type, new_source).await,
            Step::Frames { shard, of_type, count } => self.frames(shard, of_type, count).await,
            Step::Change { shard, of_type, object } => self.change(shard, of_type, object).await,
            Step::Release(shard) => {
                self.push(Push::Release { shard: SHARDS[shard].into(), type_name: None }).await;
                for of_type in 0..TYPES.len() {
                    self.sources.entry((shard, of_type)).or_default().session = None;
                }
            }
            Step::Other(number) => {
                let key = key("zircon", &format!("other-{}", number % 4));
                let (guard, action) = (Guard::default(), Action::Put(draft(&key, "u")));
                let change = Change { type_name: type_name(1), key, guard, action };
                let receipt = self.api.store.commit(vec![change]).await.expect("it is writable");
                self.api.cache.published(receipt[0].as_ref().expect("nobody pushes it").head).await;
            }
            Step::Write { everything } => {
                self.write(if everything { Look::Everywhere } else { Look::Changed }).await;
            }
            Step::Read(which, count) => self.read(which, count).await,
            Step::Bookmark(Which::Data) => self.data.bookmark(&self.api).await,
            Step::Bookmark(Which::Views) => self.views.bookmark(&self.api).await,
            Step::Restart => self.restart().await,
            Step::Backup => self.back_up().await,
            Step::Restore => self.restore().await,
        }
    }

    async fn push(&self, push: Push) -> Pushed {
        let pushed = self.api.store.push(push).await.expect("it is writable");
        // Much of this is no event, so there is no version to wait for.
        let state = self.api.store.subscribe().state;
        self.api.cache.published(state.head()).await;
        while !self.api.cache.snapshot().state.shards_changed_since(&state).is_empty() {
            tokio::task::yield_now().await;
        }
        pushed
    }

    async fn attach(&self, shard: usize) -> u64 {
        let (shard, holder, instance) = (SHARDS[shard].into(), "h".into(), "i".into());
        let attach = Attach { shard, holder, instance, election: None, replaces: None };
        self.push(Push::Attach(attach)).await.tenure.term
    }

    async fn catalog(&self, shard: usize, bits: u8) {
        let term = self.attach(shard).await;
        let types = (0..TYPES.len()).filter(|of_type| bits & 1 << of_type != 0).map(type_name).collect();
        self.push(Push::Catalog { shard: SHARDS[shard].into(), term, types }).await;
    }

    async fn begin(&mut self, shard: usize, of_type: usize, new_source: bool) {
        let term = self.attach(shard).await;
        let cell = CellName::new(SHARDS[shard], type_name(of_type));
        let source = self.sources.entry((shard, of_type)).or_default();
        source.number += u64::from(new_source);
        source.head += 1;
        let described = PushedType { version: "v1alpha1".into(), kind: "Thing".into(), namespaced: false };
        let open = Open {
            cell: cell.clone(),
            term,
            source: format!("source-{}", source.number).into(),
            source_head: source.head,
            described,
        };
        let pushed = self.push(Push::Open(open)).await;
        let generation = pushed.cell.expect("it was opened").generation;
        let source = self.sources.entry((shard, of_type)).or_default();
        source.session = Some(Frames { cell, term, session: pushed.session, ops: vec![], now_ms: 1 });
        source.is_synced = false;
        source.renew(shard, generation);
    }

    async fn frames(&mut self, shard: usize, of_type: usize, count: usize) {
        let source = self.sources.entry((shard, of_type)).or_default();
        let Some(session) = source.session.clone() else { return };
        let ops: Vec<_> = (0..count).filter_map(|_| source.pending.pop_front()).collect();
        let ends = matches!(ops.last(), Some(Op::SyncEnd { .. }));
        if ops.is_empty() {
            return;
        }
        let pushed = self.push(Push::Frames(Frames { ops, ..session })).await;
        assert_eq!(pushed.verdict, Verdict::Done, "the model pushes well");
        self.sources.entry((shard, of_type)).or_default().is_synced |= ends;
    }

    async fn change(&mut self, shard: usize, of_type: usize, object: u8) {
        let source = self.sources.entry((shard, of_type)).or_default();
        // A sync that is under way lists what was there when it began.
        if !source.is_synced {
            return;
        }
        let Some(session) = source.session.clone() else { return };
        let op = source.toggle(shard, &format!("object-{object}"));
        let pushed = self.push(Push::Frames(Frames { ops: vec![op], ..session })).await;
        assert_eq!(pushed.verdict, Verdict::Done, "the model pushes well");
    }

    async fn write(&mut self, look: Look) {
        let snapshot = self.api.cache.snapshot();
        let truth = Arc::new(truth(&snapshot));
        let after = snapshot.state.head();
        self.scribe.step(look).await.expect("it is writable");
        let up_to = self.api.cache.snapshot().state.head();
        self.turns.push(Turn { after, up_to, truths: [Arc::clone(&self.written), Arc::clone(&truth)] });
        self.written = truth;
    }

    async fn read(&mut self, which: Which, count: usize) {
        let api = &self.api;
        match which {
            Which::Data => drop(self.data.read(api, count).await),
            Which::Views => match self.views.read(api, count).await {
                Came::Nothing => {}
                Came::List => self.seen = [Arc::clone(&self.written), Arc::clone(&self.written)],
                Came::Events(version) => {
                    let within =
                        |turn: &&Turn| turn.after < version.revision() && version.revision() <= turn.up_to;
                    let turn = self.turns.iter().find(within).expect("views are written in turns");
                    let [before, then] = &turn.truths;
                    let is_whole = version.revision() == turn.up_to;
                    self.seen = [Arc::clone(if is_whole { then } else { before }), Arc::clone(then)];
                }
            },
        }
    }

    async fn stop(&mut self) {
        self.api.drain();
        self.api.store.close().await.expect("nothing failed");
        (&mut self.reflector).await.expect("it did not panic");
        for source in self.sources.values_mut() {
            source.session = None;
        }
    }

    fn store_directory(&self, opened: u64) -> PathBuf {
        self.directory.path().join(opened.to_string())
    }

    async fn restart(&mut self) {
        self.stop().await;
        let directory = self.store_directory(self.opened);
        self.opened += 1;
        let next = self.store_directory(self.opened);
        if self.engine == Engine::Redb {
            std::fs::rename(directory, &next).expect("renamed");
        } else {
            self.turns.clear();
            self.written = Arc::default();
        }
        self.start();
    }

    async fn back_up(&mut self) {
        if self.engine == Engine::Memory {
            return;
        }
        let head = self.api.cache.snapshot().state.head();
        let file = self.directory.path().join(format!("backup-{}-{head}", self.opened));
        if !file.exists() {
            self.api.store.backup(file.clone()).await.expect("copied");
            self.backup = Some(Backup { file, head, written: Arc::clone(&self.written) });
        }
    }

    async fn restore(&mut self) {
        let Some(Backup { file, head, written }) = self.backup.take() else { return };
        self.stop().await;
        self.opened += 1;
        let directory = self.store_directory(self.opened);
        std::fs::create_dir(&directory).expect("made");
        std::fs::rename(file, directory.join("store.redb")).expect("moved");
        self.turns.retain(|turn| turn.up_to <= head);
        self.written = written;
        self.start();
    }

    fn start(&mut self) {
        let store = open(self.engine, &self.store_directory(self.opened), self.opened);
        (self.api, self.reflector) = serve(store);
        self.scribe = Scribe::new(Arc::clone(&self.api));
    }

    /// D43: what is called complete has what every expected shard was synced with.
    fn check(&self, step: &Step) {
        let (Some(data), Some(views)) = (self.data.version, self.views.version) else { return };
        let shards = self.views.views();
        if (self.rule)(&type_name(0), data, views, &shards) != Completeness::Complete {
            return;
        }
        let problems: Vec<_> = self.seen.iter().filter_map(|truth| self.lacks(truth)).collect();
        assert!(problems.len() < 2, "after {step:?}, at {data} and {views}: {problems:?} with {shards:#?}");
    }

    /// What the data lack.
    fn lacks(&self, truth: &Truth) -> Option<String> {
        if truth.is_empty() {
            return Some("nobody is expected".to_owned());
        }
        truth.iter().find_map(|(shard, need)| match need {
            Need::Nothing => None,
            Need::Lineage(generation) => {
                let lineages = self.data.names(shard).filter_map(|name| name.strip_prefix("lineage-"));
                let newest = lineages.filter_map(|number| number.parse::<u64>().ok()).max();
                (newest < Some(*generation)).then(|| format!("{shard} has {newest:?}, not {need:?}"))
            }
            Need::NotSaid | Need::Unsynced => Some(format!("{shard} is {need:?}")),
        })
    }

    /// In the end everybody comes, and then it is known to be complete, after which nothing is written.
    async fn settle(&mut self) {
        let shards = SHARDS.map(Into::into).to_vec();
        self.push(Push::Roster(RosterChange::Seed { shards })).await;
        for shard in 0..SHARDS.len() {
            self.catalog(shard, 1).await;
            self.begin(shard, 0, false).await;
            self.frames(shard, 0, EVERYTHING).await;
        }
        self.write(Look::Everywhere).await;
        for which in [Which::Data, Which::Views] {
            for _ in 0..2 {
                self.read(which, EVERYTHING).await;
            }
        }
        self.data.bookmark(&self.api).await;
        self.views.bookmark(&self.api).await;
        let (data, views) = (self.data.version.expect("listed"), self.views.version.expect("listed"));
        let found = shardcache::completeness::complete(&type_name(0), data, views, &self.views.views());
        assert_eq!(found, Completeness::Complete);
        assert_eq!(self.lacks(&truth(&self.api.cache.snapshot())), None);
        let changed = self.scribe.step(Look::Everywhere).await.expect("it is writable");
        assert_eq!(changed, 0, "nothing has happened");
    }

    async fn close(mut self) {
        self.stop().await;
    }
}

impl Source {
    /// Gets the objects of a lineage, and everything ready for a sync.
    fn renew(&mut self, shard: usize, generation: u64) {
        let sentinel = sentinel(generation);
        if !self.objects.contains_key(&sentinel) {
            self.objects.retain(|name, _| !name.starts_with("lineage-"));
            self.head += 1;
            self.objects.insert(sentinel.clone(), (format!("u-{sentinel}"), self.head));
        }
        let mut digest = Digest::default();
        self.pending = VecDeque::from([Op::SyncStart { sync: 1 }]);
        for (name, (uid, version)) in &self.objects {
            let key = key(SHARDS[shard], name);
            digest = digest.with(entry_digest(key.parts(), uid, *version));
            let draft = draft(&key, uid);
            self.pending.push_back(Op::Upsert { key, version: *version, draft });
        }
        let count = self.objects.len() as u64;
        self.pending.push_back(Op::SyncEnd {
            sync: 1,
            version: self.head,
            count,
            digest,
            allow_empty: false,
        });
    }

    /// Makes or removes an object; what the cache is told.
    fn toggle(&mut self, shard: usize, name: &str) -> Op {
        self.head += 1;
        let (key, version) = (key(SHARDS[shard], name), self.head);
        if let Some((uid, _)) = self.objects.remove(name) {
            return Op::Delete { key, version, uid: uid.into() };
        }
        let uid = format!("u-{version}");
        let draft = draft(&key, &uid);
        self.objects.insert(name.to_owned(), (uid, version));
        Op::Upsert { key, version, draft }
    }
}

/// What a state needs of its expected shards.
fn truth(snapshot: &Snapshot) -> Truth {
    let state = &snapshot.state;
    let expected = state.roster().filter(|(_, member)| member.role == Role::Expected);
    let need = |shard: &str| {
        let cell = state.cell(&CellName::new(shard, type_name(0))).filter(|cell| cell.is_managed());
        let catalog = state.tenure(shard).and_then(|tenure| tenure.catalog.as_deref());
        match (cell, catalog) {
            (Some(cell), _) => Need::Lineage(cell.synced_generation),
            (None, None) => Need::NotSaid,
            (None, Some(types)) if types.contains(&type_name(0)) => Need::Unsynced,
            (None, Some(_)) => Need::Nothing,
        }
    };
    let named = |shard: &str| SHARDS.iter().find(|name| **name == shard).copied().expect("one of ours");
    expected.map(|(shard, _)| (named(shard), need(shard))).collect()
}

/// Opens a store a second after the one before, with another tag.
fn open(engine: Engine, directory: &std::path::Path, opened: u64) -> Arc<dyn Store> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + opened);
    let opening = Opening { now, entropy: opened, host: "test".to_owned() };
    match engine {
        Engine::Memory => MemoryStore::new(opening),
        Engine::Redb => {
            let mut options = RedbOptions::new(directory);
            options.opening = opening;
            options.cache_bytes = 1 << 20;
            options.history_age = Duration::MAX;
            RedbStore::open(options).expect("the directory holds a store or nothing")
        }
    }
}

fn serve(store: Arc<dyn Store>) -> (Arc<Api>, JoinHandle<()>) {
    let (metrics, types) = (Metrics::default(), Types::builtin(vec![]));
    let (cache, reflector) = WatchCache::open(Arc::clone(&store), &types, CacheConfig::default(), &metrics);
    let reflector = tokio::spawn(reflector.run());
    (Api::new(store, cache, ApiConfig::default(), metrics, Arc::default()), reflector)
}
