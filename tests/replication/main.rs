//! Real sources, real replicators, and kills of everything in turn: at rest, the cache equals its sources.
//!
//! ```text
//! writers ──► reference A ◄── two replicators ──► cache ──► informers (kube-rs)
//! writers ──► reference B ◄── two replicators ──►
//! ```
//!
//! The processes of [`stand`] are the real binaries. Each phase breaks something while [`churn`] writes at the
//! sources, waits for what must follow from it, and then for rest; and at rest ([`Run::check`])
//!
//! - the cache has the sources' objects, byte for byte but for what it adds ([`view`]),
//! - the count and digest that it states are those computed here from what the sources list,
//! - every informer ([`informer`]) holds what the cache lists, lost no object that no source deleted, saw
//!   none go back, and never had to list again,
//! - terms have not decreased, and no process has panicked.
//!
//! [`fresh`] is another scenario: what readers are told meanwhile.
//!
//! `SHARDCACHE_REFERENCE_BIN` names the binary of `tests/reference`; without it the scenario is skipped with a
//! line that says so. `SHARDCACHE_REPLICATION_OBJECTS` (20000) is how many objects there are,
//! `SHARDCACHE_SEED` what is written.

#[path = "../it/push/cable.rs"]
mod cable;
mod check;
mod churn;
mod fresh;
mod informer;
mod process;
mod stand;
mod view;
mod wire;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::churn::{Book, Churn};
use crate::informer::Informer;
use crate::stand::{SHARDS, Stand};
use crate::view::{GROUP, KINDS, Status, View, place};
use crate::wire::Server;

/// How long anything may take. Far above what it takes: what depends on it hangs.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long a rolling watch may take to answer a barrier: three times what is promised, on a busy machine.
const BARRIER_TIME: Duration = Duration::from_secs(9);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The binary of a source; without one, nothing, and a line that says so.
fn reference() -> Option<PathBuf> {
    let named = std::env::var_os("SHARDCACHE_REFERENCE_BIN").map(PathBuf::from);
    if named.is_none() {
        eprintln!(
            "SKIPPED: replication: SHARDCACHE_REFERENCE_BIN does not name the binary of tests/reference"
        );
    }
    named
}

/// What the randomness of a run comes from.
fn seed() -> u64 {
    let seed = number("SHARDCACHE_SEED").unwrap_or(1);
    eprintln!("SHARDCACHE_SEED={seed}");
    seed
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Asks again until it is so; what it then is.
async fn eventually<T>(what: &str, look: impl AsyncFn() -> Result<T, String>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(still) => {
                assert!(tokio::time::Instant::now() < deadline, "in vain: {what}; last: {still}");
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b016_the_cache_equals_its_sources_whatever_was_killed() {
    let Some(mut run) = Run::start(true, usize::MAX).await else { return };
    run.filled().await;
    run.barriers_of_idle_types_are_answered().await;
    run.leaders_are_killed_and_paused().await;
    run.the_cache_is_killed().await;
    run.a_source_is_killed().await;
    run.leaders_hand_over().await;
    run.sources_without_a_pusher_are_asked_themselves().await;
    run.history_is_compacted_meanwhile().await;
    run.a_source_is_wiped().await;
    run.end().await;
}

/// Without an election one replica pushes and the other one is refused, and stands by; what numbers mean is
/// the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d35_a_wiped_source_is_a_new_generation_without_an_election_too() {
    let Some(mut run) = Run::start(false, 2_000).await else { return };
    run.filled().await;
    run.a_source_is_wiped().await;
    run.end().await;
}

/// The scenario.
struct Run {
    stand: Stand,
    informers: Vec<Informer>,
    /// What each had listed once all was filled.
    lists: Vec<usize>,
    book: Book,
    terms: Terms,
    /// Objects of one type at one source in the beginning.
    count: usize,
    seed: u64,
    churned: usize,
    began: Instant,
    phase: Instant,
}

impl Run {
    /// With at most so many objects; `None`, and a line that says so, without sources to push from.
    async fn start(elects: bool, most: usize) -> Option<Self> {
        let reference = reference()?;
        let objects = number("SHARDCACHE_REPLICATION_OBJECTS").unwrap_or(20_000) as usize;
        let objects = objects.min(most);
        let seed = seed();
        let began = Instant::now();
        // Informers of one shard list while its source is down, and one source takes longer than a read waits.
        let stand = Stand::start(&reference, elects, true, &["--unset-rv-concrete", "store"]).await;
        let cache = &stand.cache_server;
        let (lists, streams) = (watcher::Config::default, || watcher::Config::default().streaming_lists());
        let informers = KINDS.iter().flat_map(|kind| {
            [
                Informer::start(cache, kind, "*", lists()),
                Informer::start(cache, kind, "*", streams()),
                Informer::start(cache, kind, SHARDS[0], streams()),
                Informer::start(cache, kind, SHARDS[1], lists()),
            ]
        });
        let informers = informers.collect();
        let terms = Terms::watch(cache.clone());
        let count = (objects / (KINDS.len() * SHARDS.len())).max(1);
        let (book, lists) = (Book::default(), Vec::new());
        let run = Self { stand, informers, lists, book, terms, count, seed, churned: 0, began, phase: began };
        Some(run.timed("everything is started"))
    }

    /// One source is filled before its replicators come, the other while they are there.
    async fn filled(&mut self) {
        for replica in &mut self.stand.replicas[1] {
            replica.start();
        }
        self.stand.leader(1).await;
        let [amber, onyx] = &self.stand.sources;
        tokio::join!(churn::fill(amber, self.count), churn::fill(onyx, self.count));
        for replica in &mut self.stand.replicas[0] {
            replica.start();
        }
        self.check(&format!("{} objects are created", self.count * 4)).await;
        self.lists = self.informers.iter().map(|informer| informer.counts().0).collect();
    }

    /// A cache that comes back asks for each type whether it is still at the source's head; nothing happens
    /// in the types, but beside them. The source with a watch cache sends bookmarks when it is asked to, the
    /// one without has its metadata compared.
    async fn barriers_of_idle_types_are_answered(&mut self) {
        for (at, provider) in ["metadataDiff", "rollingWatch"].into_iter().enumerate() {
            let (leader, _) = self.stand.leader(at).await;
            let replica = Server::new(self.stand.replicas[at][leader].address().expect("it listens"));
            let answered = format!("shardcache_replicate_barriers_total{{provider=\"{provider}\"}}");
            let took =
                format!("shardcache_replicate_barrier_duration_seconds_sum{{provider=\"{provider}\"}}");
            let now =
                async || Ok::<_, String>((replica.metric(&answered).await?, replica.metric(&took).await?));
            let (count, sum) = now().await.expect("it runs");
            self.stand.cache.kill();
            churn::create(&self.stand.sources[at], &KINDS[0], "beside").await;
            self.stand.cache.listen("--listen").await;
            let is_answered = async || {
                let (answers, took) = now().await?;
                if answers > count {
                    Ok((answers - count, took - sum))
                } else {
                    Err(format!("{answers} answers"))
                }
            };
            let (answers, took) = eventually("the idle type's barrier is answered", is_answered).await;
            eprintln!("{}: {answers} by {provider}, {:.1} s each", SHARDS[at], took / answers);
            // How long a comparison takes is a matter of how many objects there are.
            let is_in_time = provider != "rollingWatch" || took / answers < BARRIER_TIME.as_secs_f64();
            assert!(is_in_time, "{took} s for {answers} barriers");
        }
        self.check("barriers of idle types are answered").await;
    }

    /// A replica that is killed leaves its shard to the other one, and so does one that is paused; that one
    /// comes back as a leader that has been replaced.
    async fn leaders_are_killed_and_paused(&mut self) {
        let churn = self.churn();
        churn.more(50).await;
        let ((killed, before), (paused, replaced)) = tokio::join!(self.stand.leader(0), self.stand.leader(1));
        self.stand.replicas[0][killed].kill();
        self.stand.replicas[1][paused].signal("-STOP");
        let (_, term) = tokio::join!(
            self.stand.led_by(0, 1 - killed, before),
            self.stand.led_by(1, 1 - paused, replaced)
        );
        churn.more(50).await;
        let resumed = &self.stand.replicas[1][paused];
        let said = resumed.log().len();
        resumed.signal("-CONT");
        let stands_by = async || {
            let log = resumed.log();
            if log[said..].contains("standing by") { Ok(()) } else { Err(resumed.tail()) }
        };
        eventually("the leader that was paused notices", stands_by).await;
        self.stand.replicas[0][killed].start();
        churn.more(50).await;
        let now = self.stand.leader(1).await;
        assert_eq!(now, (1 - paused, term), "a leader that was replaced took over again");
        self.stop(churn).await;
        self.check("one leader is killed, one paused").await;
    }

    async fn the_cache_is_killed(&mut self) {
        let churn = self.churn();
        churn.more(50).await;
        self.stand.cache.kill();
        churn.more(20).await;
        self.stand.cache.listen("--listen").await;
        churn.more(50).await;
        self.stop(churn).await;
        self.check("the cache is killed").await;
    }

    async fn a_source_is_killed(&mut self) {
        let churn = self.churn();
        churn.more(50).await;
        self.stand.references[0].kill();
        churn.more_at(1, 50).await;
        self.stand.references[0].listen("-listen").await;
        churn.more(50).await;
        self.stop(churn).await;
        self.check("a source is killed").await;
    }

    async fn leaders_hand_over(&mut self) {
        let churn = self.churn();
        churn.more(50).await;
        for at in 0..SHARDS.len() {
            let (leader, term) = self.stand.leader(at).await;
            self.stand.replicas[at][leader].terminate().await;
            self.stand.led_by(at, 1 - leader, term).await;
            self.stand.replicas[at][leader].start();
        }
        churn.more(50).await;
        self.stop(churn).await;
        self.check("leaders hand over").await;
    }

    /// Nobody pushes. As long as nothing happens in a type the cache learns so from the source itself; what
    /// has happened is not shown before it was pushed.
    async fn sources_without_a_pusher_are_asked_themselves(&mut self) {
        for replica in self.stand.replicas.as_flattened_mut() {
            replica.terminate().await;
        }
        let cache = &self.stand.cache_server;
        let fresh = async |at: usize, kind: &view::Kind| {
            view::list(cache, &place(SHARDS[at]), kind, None, "?freshness=source").await
        };
        let confirmed = "shardcache_freshness_probes_total{outcome=\"confirmed\"}";
        for (at, shard) in SHARDS.iter().enumerate() {
            let mut before = Vec::new();
            for kind in &KINDS {
                let what = "a source without a pusher confirms its copy";
                before.push(eventually(what, async || fresh(at, kind).await).await);
            }
            let [changed, idle] = &KINDS;
            churn::create(&self.stand.sources[at], changed, "not-pushed").await;
            // The source has gone on, and the idle type has not.
            let probes = cache.metric(confirmed).await.expect("it runs");
            let what = "it confirms what is idle";
            assert_eq!(eventually(what, async || fresh(at, idle).await).await, before[1], "{shard}");
            assert!(cache.metric(confirmed).await.expect("it runs") > probes, "{shard} was asked");
            let refusal = fresh(at, changed).await.expect_err("it is not the source's newest state");
            assert!(refusal.contains("ServerTimeout") && refusal.contains("its API was asked"), "{refusal}");
        }
        for replica in self.stand.replicas.as_flattened_mut() {
            replica.start();
        }
        self.check("sources without a pusher are asked themselves").await;
    }

    /// Nobody pushes while objects are deleted, and nobody can learn afterwards by which events.
    async fn history_is_compacted_meanwhile(&mut self) {
        for replica in &mut self.stand.replicas[0] {
            replica.terminate().await;
        }
        let churn = self.churn();
        churn.more(100).await;
        self.stop(churn).await;
        let source = &self.stand.sources[0].server;
        let compacted = source.call(Method::POST, "/reference/compact", None).await.expect("it runs");
        assert!(compacted.0.is_success(), "{compacted:?}");
        let status = Status::of(&self.stand.cache_server, SHARDS[0]).await.expect("it runs");
        for kind in &KINDS {
            let position = status.position(kind);
            let at = format!("resourceVersion={position}&resourceVersionMatch=Exact&limit=1");
            let path = format!("/apis/{GROUP}/v1/{}?{at}", kind.plural);
            let (code, _) = source.call(Method::GET, &path, None).await.expect("it runs");
            assert_eq!(code, StatusCode::GONE, "{path}");
        }
        for replica in &mut self.stand.replicas[0] {
            replica.start();
        }
        self.check("history is compacted meanwhile").await;
    }

    /// A source that lost its disk is another source under the same name, whose versions begin again.
    async fn a_source_is_wiped(&mut self) {
        let before = Status::of(&self.stand.cache_server, SHARDS[0]).await.expect("it runs");
        let mut old = BTreeSet::new();
        for kind in &KINDS {
            let all = self.source(0, kind).await.expect("it runs");
            old.extend(all.into_values().map(|object| object.uid));
        }
        self.book.lock().extend(old.iter().cloned());
        let seen: Vec<_> = self.informers.iter().map(Informer::events).collect();
        // Nobody looks before it has something again.
        for replica in &self.stand.replicas[0] {
            replica.signal("-STOP");
        }
        self.stand.references[0].kill();
        let empty = self.stand.directory.path().join("wiped");
        self.stand.references[0].set("-data-dir", &empty);
        self.stand.references[0].listen("-listen").await;
        let few = (self.count / 100).clamp(1, 50);
        churn::fill(&self.stand.sources[0], few).await;
        let mut new = Vec::new();
        for kind in &KINDS {
            let view = self.source(0, kind).await.expect("it runs");
            let newest = view.values().map(|object| object.version).max();
            assert!(newest < Some(before.position(kind)), "versions begin again: {newest:?}");
            new.push(view);
        }
        for replica in &self.stand.replicas[0] {
            replica.signal("-CONT");
        }
        let after = async || {
            let status = Status::of(&self.stand.cache_server, SHARDS[0]).await?;
            let is_new = KINDS.iter().all(|kind| status.generation(kind) > before.generation(kind));
            if is_new { Ok(()) } else { Err(format!("in term {}", status.term())) }
        };
        eventually("the cache knows that it is another source", after).await;
        let churn = Churn::start(&self.stand.sources, &self.book, few, self.seed + 100);
        churn.more(50).await;
        self.stop(churn).await;
        self.check("a source is wiped").await;
        for (informer, from) in self.informers.iter().zip(seen).filter(|(one, _)| one.shard != SHARDS[1]) {
            let at = KINDS.iter().position(|kind| kind.plural == informer.kind.plural).expect("one of them");
            assert_eq!(informer.swept_early(from, &old, &new[at]), None);
        }
    }

    async fn end(self) {
        for informer in &self.informers {
            let (lists, errors) = informer.counts();
            eprintln!("informer {}: {lists} lists, {errors} errors", informer.name);
        }
        drop(self.informers);
        drop(self.terms);
        self.stand.stop().await;
        eprintln!("{:>6.1} s  in all, {} writes of churn", self.began.elapsed().as_secs_f64(), self.churned);
    }

    fn churn(&mut self) -> Churn {
        self.seed += 1;
        Churn::start(&self.stand.sources, &self.book, self.count, self.seed)
    }

    async fn stop(&mut self, churn: Churn) {
        self.churned += churn.stop().await;
    }

    async fn source(&self, at: usize, kind: &view::Kind) -> Result<View, String> {
        let source = &self.stand.sources[at];
        view::list(&source.server, "", kind, Some(source.shard), "").await
    }

    /// Waits for rest, and compares everything with everything.
    async fn check(&mut self, phase: &str) {
        let broken = self.phase.elapsed();
        for kind in &KINDS {
            let mut cached = View::new();
            for (at, shard) in SHARDS.iter().enumerate() {
                // Nobody writes any more, so this is what it will be.
                let source = eventually("the source lists", async || self.source(at, kind).await).await;
                let wanted = view::sum(&source);
                let is_at_rest = async || {
                    let status = Status::of(&self.stand.cache_server, shard).await?;
                    let (is_complete, has) = (status.is_complete(kind), status.sum(kind));
                    if is_complete && has == wanted {
                        return Ok(());
                    }
                    Err(format!("complete: {is_complete}, {has:?} instead of {wanted:?}"))
                };
                eventually(&format!("{shard} has all {} of the source", kind.plural), is_at_rest).await;
                let listed = async |query| {
                    view::list(&self.stand.cache_server, &place(shard), kind, None, query).await
                };
                let copy = listed("?resourceVersion=0").await.expect("the cache lists");
                // A source with a watch cache says in time that this is its newest state. (One without is
                // compared object by object, which takes as long as it has objects.)
                if *shard == SHARDS[1] {
                    let fresh =
                        eventually("its source confirms it", async || listed("?freshness=source").await)
                            .await;
                    assert_eq!(fresh, copy, "{shard}'s {} as its source confirms them", kind.plural);
                }
                let like_source = copy.iter().map(|(key, object)| {
                    let version = object.source_version;
                    (key.clone(), view::Object { version, ..object.clone() })
                });
                let difference = check::difference(source.iter(), &like_source.collect());
                assert_eq!(difference, None, "{shard}'s {} differ from their source", kind.plural);
                let lost: Vec<_> = self.resurrected(&source);
                assert!(lost.is_empty(), "informers lost what exists: {lost:?}");
                cached.extend(copy);
            }
            let all = view::list(&self.stand.cache_server, &place("*"), kind, None, "").await;
            let difference = check::difference(cached.iter(), &all.expect("the cache lists"));
            assert_eq!(difference, None, "the {} of all shards differ from those of each", kind.plural);
            for informer in self.informers.iter().filter(|informer| informer.kind.plural == kind.plural) {
                let same = async || informer.difference(&cached).map_or(Ok(()), Err);
                eventually("informers hold what the cache has", same).await;
            }
        }
        let deleted = self.book.lock().clone();
        let wrongs: Vec<_> = self.informers.iter().flat_map(|informer| informer.wrongs(&deleted)).collect();
        assert!(wrongs.is_empty(), "{wrongs:#?}");
        for (informer, lists) in self.informers.iter().zip(&self.lists) {
            assert_eq!(informer.counts().0, *lists, "{} had to list again", informer.name);
        }
        assert_eq!(self.terms.decreased(), Vec::<String>::new());
        assert_eq!(self.stand.panics(), Vec::<String>::new());
        let rest = self.phase.elapsed().saturating_sub(broken);
        eprintln!(
            "{:>6.1} s  {phase} (then {:.1} s to rest and checked), terms {:?}",
            self.phase.elapsed().as_secs_f64(),
            rest.as_secs_f64(),
            self.terms.latest()
        );
        self.phase = Instant::now();
    }

    /// Objects that exist at the source and that an informer saw vanish: uids never come back.
    fn resurrected(&self, source: &View) -> Vec<String> {
        let exists = source.values().map(|object| &*object.uid).collect();
        self.informers.iter().flat_map(|informer| informer.lost(&exists)).collect()
    }

    fn timed(mut self, phase: &str) -> Self {
        eprintln!("{:>6.1} s  {phase}", self.phase.elapsed().as_secs_f64());
        self.phase = Instant::now();
        self
    }
}

/// Looks at the shards' terms all the time.
struct Terms {
    seen: Arc<Mutex<([u64; 2], Vec<String>)>>,
    _watch: AbortOnDropHandle<()>,
}

impl Terms {
    fn watch(cache: Server) -> Self {
        let seen = Arc::<Mutex<([u64; 2], Vec<String>)>>::default();
        let into = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            loop {
                for (at, shard) in SHARDS.iter().enumerate() {
                    if let Ok(status) = Status::of(&cache, shard).await {
                        let (latest, wrong) = &mut *into.lock();
                        if status.term() < latest[at] {
                            wrong.push(format!("{shard}: {} after {}", status.term(), latest[at]));
                        }
                        latest[at] = status.term();
                    }
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Self { seen, _watch: AbortOnDropHandle::new(watch) }
    }

    fn decreased(&self) -> Vec<String> {
        self.seen.lock().1.clone()
    }

    fn latest(&self) -> [u64; 2] {
        self.seen.lock().0
    }
}
