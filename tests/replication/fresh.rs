//! Readers of every level while each part is killed or paused in turn: whoever is told something is told what
//! was promised, and where nothing can be promised that is said, with the shard's name.
//!
//! ```text
//! writers ──► reference A ◄── replicator ──► cache ◄── readers: source, bounded, store, stale; one shard,
//! writers ──► reference B ◄── replicator ──►           one object, all shards; and informers (kube-rs)
//! ```
//!
//! [`truth`] knows when each write was done, [`court`] judges every answer by it. Each phase breaks something
//! and asks for everything ([`Run::asked`]) until what is due was answered; what is never allowed is judged in
//! every answer of every reader.

mod court;
mod truth;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use kube::runtime::watcher;
use tokio::task::JoinSet;

use self::court::{Court, Level, Of, Outcome, path};
use self::truth::{Truth, Writers};
use crate::cable::Cable;
use crate::informer::Informer;
use crate::stand::{SHARDS, Stand};
use crate::view::{KINDS, View};
use crate::{eventually, reference, seed, view};

/// What must be answered in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Served,
    Refused,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b097_b098_d41_reads_hold_what_they_promise_whatever_was_killed() {
    let Some(mut run) = Run::start().await else { return };
    run.a_source_is_away().await;
    run.a_replicator_is_away().await;
    run.a_line_is_dead().await;
    run.the_cache_is_away().await;
    run.a_source_and_its_replicator_are_killed_at_once().await;
    run.the_store_is_lost().await;
    run.end().await;
}

struct Run {
    stand: Stand,
    truth: Arc<Truth>,
    court: Arc<Court>,
    writers: Writers,
    readers: JoinSet<()>,
    informers: Vec<Informer>,
    /// The second shard's replicator speaks through it.
    cable: Cable,
    _roster: tempfile::TempDir,
    began: Instant,
    phase: Instant,
}

impl Run {
    /// Everything runs, and is well; `None`, and a line that says so, without sources.
    async fn start() -> Option<Self> {
        let (reference, seed, began) = (reference()?, seed(), Instant::now());
        let roster = tempfile::tempdir().expect("a temporary directory");
        let file = roster.path().join("roster");
        std::fs::write(&file, SHARDS.join("\n")).expect("written");
        let flags = ["--roster", file.to_str().expect("text")];
        let mut stand = Stand::start(&reference, false, false, &flags).await;
        let cable = Cable::to(&stand.cache_server.base).await;
        let url = format!("http://{}/services/cache", cable.address);
        stand.replicas[1][0].set("--cache-url", Path::new(&url));
        let truth = Arc::new(Truth::default());
        let court = Court::new(&stand.cache_server, &truth);
        for source in &stand.sources {
            truth::anchors(&truth, source).await;
        }
        court.change(|weather| (weather.lost, weather.dark) = (true, true));
        // Nothing of what ought to be there is here.
        expect(&court, "nothing is shown before it is here", |_, _| Due::Refused).await;
        court.change(|weather| weather.dark = false);
        stand.replicas.iter_mut().for_each(|replicas| replicas[0].start());
        expect(&court, "everything is here", |_, _| Due::Served).await;
        court.change(|weather| weather.lost = false);
        let cache = &stand.cache_server;
        let informers = KINDS.iter().flat_map(|kind| {
            let (lists, streams) = (watcher::Config::default(), watcher::Config::default().streaming_lists());
            [Informer::start(cache, kind, "*", lists), Informer::start(cache, kind, "*", streams)]
        });
        let informers = informers.collect();
        let (writers, readers) = (Writers::start(&truth, &stand.sources), court.readers(seed));
        let mut run = Self {
            stand,
            truth,
            court,
            writers,
            readers,
            informers,
            cable,
            _roster: roster,
            began,
            phase: began,
        };
        run.all_is_well("everything is started").await;
        Some(run)
    }

    /// First killed, then paused.
    async fn a_source_is_away(&mut self) {
        self.stand.references[0].kill();
        self.nobody_vouches_for(0, "a source is killed").await;
        self.court.change(|weather| weather.mute[0] = false);
        self.stand.references[0].listen("-listen").await;
        self.all_is_well("it is back").await;
        self.stand.references[1].pause().await;
        self.nobody_vouches_for(1, "the other source is paused").await;
        self.court.change(|weather| weather.mute[1] = false);
        self.stand.references[1].signal("-CONT");
        self.all_is_well("it goes on").await;
    }

    async fn a_replicator_is_away(&mut self) {
        self.stand.replicas[0][0].kill();
        self.nobody_vouches_for(0, "a replicator is killed").await;
        self.warns_of(0).await;
        self.court.change(|weather| weather.mute[0] = false);
        self.stand.replicas[0][0].start();
        self.all_is_well("it is back").await;
        self.stand.replicas[1][0].pause().await;
        self.nobody_vouches_for(1, "the other replicator is paused").await;
        self.court.change(|weather| weather.mute[1] = false);
        self.stand.replicas[1][0].signal("-CONT");
        self.all_is_well("it goes on").await;
    }

    /// It carries nothing any more, and neither end is told: both find out by themselves.
    async fn a_line_is_dead(&mut self) {
        let (reads, cable) = (&self.court, &self.cable);
        let refused = async || {
            cable.cut();
            let answers = reads.roll_call().await;
            let served = answers.into_iter().find(|(of, level, outcome)| {
                let asks = matches!(level, Level::Source | Level::Unset);
                asks && matches!(of, Of::Shard(1) | Of::One(1)) && *outcome != Outcome::Refused
            });
            served.map_or(Ok(()), |served| Err(format!("{served:?}")))
        };
        eventually("who asks for what is behind it is refused", refused).await;
        self.all_is_well("a line was dead, and another one is found").await;
    }

    async fn the_cache_is_away(&mut self) {
        self.court.change(|weather| weather.away = true);
        self.stand.cache.pause().await;
        self.more_writes(20).await;
        self.stand.cache.signal("-CONT");
        self.court.change(|weather| weather.away = false);
        self.all_is_well("the cache was paused").await;
        self.court.change(|weather| weather.away = true);
        self.stand.cache.kill();
        self.more_writes(20).await;
        self.cache_is_back().await;
        self.all_is_well("the cache was killed").await;
    }

    async fn a_source_and_its_replicator_are_killed_at_once(&mut self) {
        self.stand.replicas[1][0].kill();
        self.stand.references[1].kill();
        self.nobody_vouches_for(1, "a source and its replicator are killed").await;
        self.warns_of(1).await;
        self.court.change(|weather| weather.mute[1] = false);
        self.stand.references[1].listen("-listen").await;
        self.stand.replicas[1][0].start();
        self.all_is_well("both are back").await;
    }

    /// And one shard is away: what is left is not shown as everything.
    async fn the_store_is_lost(&mut self) {
        self.stand.replicas[1][0].kill();
        self.court.change(|weather| (weather.away, weather.lost, weather.mute[1]) = (true, true, true));
        self.stand.cache.kill();
        std::fs::remove_dir_all(self.stand.directory.path().join("cache")).expect("it was there");
        self.court.change(|weather| weather.dark = true);
        self.cache_is_back().await;
        // The shard that is there is served, the other one is named.
        let due = |of, _| if matches!(of, Of::Shard(0) | Of::One(0)) { Due::Served } else { Due::Refused };
        self.asked("the store is lost, and a shard is away", due).await;
        for kind in &KINDS {
            let all = path(Of::All, kind, None);
            let named = async || {
                let answer = self.stand.cache_server.answer(&format!("{all}?resourceVersion=0")).await?;
                let causes = &answer.body["details"]["causes"];
                let is_named = causes.as_array().is_some_and(|causes| causes.len() == 1)
                    && (&causes[0]["reason"], &causes[0]["field"])
                        == (&"Incomplete".into(), &format!("shards/{}", SHARDS[1]).into());
                if is_named { Ok(()) } else { Err(answer.body.to_string()) }
            };
            eventually("only the shard that is away is named", named).await;
            let part = self.stand.cache_server.answer(&format!("{all}?incomplete=allow")).await;
            let part = part.expect("it runs");
            assert_eq!((part.status.as_u16(), part.header("x-cache-complete")), (200, "false"));
        }
        let lost = self.lost().await;
        assert!(lost.is_empty(), "informers took what was lost for deleted: {lost:?}");
        self.court.change(|weather| (weather.dark, weather.mute[1]) = (false, false));
        self.stand.replicas[1][0].start();
        self.asked("it comes back", |_, _| Due::Served).await;
        self.court.change(|weather| weather.lost = false);
        self.all_is_well("everything is here again").await;
    }

    async fn end(mut self) {
        self.writers.stop().await;
        for kind in &KINDS {
            let mut all = View::new();
            for (at, source) in self.stand.sources.iter().enumerate() {
                let wanted = view::list(&source.server, "", kind, Some(source.shard), "").await;
                let wanted = wanted.expect("the source lists");
                let place = view::place(SHARDS[at]);
                let found = async || {
                    view::list(&self.stand.cache_server, &place, kind, None, "?freshness=source").await
                };
                // The first one that is confirmed: nobody writes any more.
                let found = eventually("its source confirms it", found).await;
                let like_source = found.iter().map(|(key, object)| {
                    let version = object.source_version;
                    (key.clone(), view::Object { version, ..object.clone() })
                });
                let difference = crate::check::difference(wanted.iter(), &like_source.collect());
                assert_eq!(
                    difference, None,
                    "{}'s {} as its source confirms them",
                    source.shard, kind.plural
                );
                all.extend(found);
            }
            for informer in self.informers.iter().filter(|informer| informer.kind.plural == kind.plural) {
                let same = async || informer.difference(&all).map_or(Ok(()), Err);
                eventually("informers hold what the cache has", same).await;
            }
        }
        let lost = self.lost().await;
        assert!(lost.is_empty(), "informers lost what exists: {lost:?}");
        assert!(self.readers.try_join_next().is_none(), "a reader broke");
        self.readers.shutdown().await;
        self.judged();
        let (counts, ages) = self.court.counts();
        for level in [Level::Source, Level::Unset, Level::Bounded, Level::Store, Level::Any] {
            let of = |outcome| counts.get(&(level, outcome)).copied().unwrap_or_default();
            let (served, warned, refused) = (of(Outcome::Served), of(Outcome::Warned), of(Outcome::Refused));
            eprintln!("reads, {level:?}: {served} served, {warned} with a warning, {refused} refused");
            assert!(served > 0 && refused > 0, "it shows nothing: {counts:?}");
        }
        let writes: usize = SHARDS.iter().map(|shard| self.truth.writes(shard)).sum();
        eprintln!(
            "{:>6.1} s  reads: in all, {writes} writes, {ages} ages",
            self.began.elapsed().as_secs_f64()
        );
        assert!(ages > 0 && writes > 0);
        drop(self.informers);
        self.stand.stop().await;
    }

    /// Everything at every level is answered.
    async fn all_is_well(&mut self, phase: &str) {
        self.more_writes(5).await;
        self.asked(phase, |_, _| Due::Served).await;
    }

    /// What asks for a source is refused, what does not is served; and the other shard is as before.
    async fn nobody_vouches_for(&mut self, at: usize, phase: &str) {
        self.court.change(|weather| weather.mute[at] = true);
        let due = |of, level| {
            let concerns = matches!(of, Of::All) || of == Of::Shard(at) || of == Of::One(at);
            match level {
                Level::Source | Level::Bounded if concerns => Due::Refused,
                Level::Unset if concerns && of != Of::All => Due::Refused,
                _ => Due::Served,
            }
        };
        self.asked(phase, due).await;
    }

    /// Stale reads come to say that nobody pushes a shard, and nothing of the other.
    async fn warns_of(&self, at: usize) {
        for of in [Of::Shard(at), Of::All] {
            let path = format!("{}?resourceVersion=0", path(of, &KINDS[0], None));
            let warned = async || {
                let answer = self.stand.cache_server.answer(&path).await?;
                let warning = answer.header("warning").to_owned();
                let names = |at: usize| warning.contains(SHARDS[at]);
                let is_so = answer.status.is_success() && names(at) && !names(1 - at);
                if is_so { Ok(()) } else { Err(format!("{} {warning:?}", answer.status)) }
            };
            eventually("a warning names the shard that is away", warned).await;
        }
    }

    async fn asked(&mut self, phase: &str, due: impl Fn(Of, Level) -> Due) {
        expect(&self.court, phase, due).await;
        self.judged();
        eprintln!("{:>6.1} s  reads: {phase}", self.phase.elapsed().as_secs_f64());
        self.phase = Instant::now();
    }

    fn judged(&self) {
        let wrong = self.court.wrong();
        assert!(wrong.is_empty(), "{} answers: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
        assert_eq!(self.stand.panics(), Vec::<String>::new());
    }

    async fn cache_is_back(&mut self) {
        self.stand.cache.listen("--listen").await;
        let cache = &self.stand.cache_server;
        let is_ready = async || match cache.answer("/readyz").await {
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) => Err(answer.status.to_string()),
            Err(error) => Err(error),
        };
        eventually("the cache is ready", is_ready).await;
        self.court.change(|weather| weather.away = false);
    }

    async fn more_writes(&self, more: usize) {
        for shard in SHARDS {
            let enough = self.truth.writes(shard) + more;
            let is_written = async || {
                let writes = self.truth.writes(shard);
                if writes >= enough { Ok(()) } else { Err(format!("{writes} writes")) }
            };
            eventually("the source is written to", is_written).await;
        }
    }

    /// Objects that informers do not hold any more, and that exist.
    async fn lost(&self) -> Vec<String> {
        let mut lost = vec![];
        for (source, kind) in
            self.stand.sources.iter().flat_map(|source| KINDS.iter().map(move |kind| (source, kind)))
        {
            let exists = view::list(&source.server, "", kind, Some(source.shard), "").await;
            let exists = exists.expect("the source lists");
            let uids = exists.values().map(|object| &*object.uid).collect();
            lost.extend(self.informers.iter().flat_map(|informer| informer.lost(&uids)));
        }
        lost
    }
}

/// Asks for everything until what is due is answered; once is enough, for what is never allowed is judged
/// in every answer.
async fn expect(court: &Court, phase: &str, due: impl Fn(Of, Level) -> Due) {
    let is_so = async || {
        let answers = court.roll_call().await;
        let late = answers.into_iter().find(|(of, level, outcome)| {
            let is = match outcome {
                Outcome::Served | Outcome::Warned => Some(Due::Served),
                Outcome::Refused => Some(Due::Refused),
                Outcome::Absent | Outcome::Nothing => None,
            };
            is != Some(due(*of, *level))
        });
        late.map_or(Ok(()), |(of, level, outcome)| Err(format!("{of:?} at {level:?} is {outcome:?}")))
    };
    eventually(phase, is_so).await;
}
