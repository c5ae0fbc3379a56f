//! The real binary, killed again and again while it is written to and watched.
//!
//! Writers keep a journal of what was acknowledged, outside the server. Watchers never list: they
//! resume from the last version they saw. After every death the server is started on the same
//! directory, and then:
//!
//! - I1: everything acknowledged is there, and of what was not, all or nothing;
//! - I2: nothing that anybody saw is gone: every watcher resumes where it stood, without 410;
//! - I3, I5: what each watcher replayed, one from the very first version too, is `LIST Exact`.
//!
//! `SHARDCACHE_CRASH_ROUNDS=200 cargo test --test it crash_loop` dies so often. Every second round dies
//! at a named fail point (debug builds), the others at a random time. The seed is printed.

pub(crate) mod binary;
mod watcher;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::sync::watch;

use crate::checker::{Replay, Step, Version, version_of};
use crate::wire::Wire;
use crate::writer::{Journal, Writer, collection};
use binary::Binary;
use watcher::Watcher;

/// Places on the way of a write where the process dies, in the order a write meets them.
const POINTS: [&str; 6] =
    ["after-enqueue", "in-transaction", "before-sync", "after-sync", "after-publish", "after-first-ack"];
/// Places on the way of an opening.
const OPENINGS: [&str; 2] = ["open-before-incarnation", "open-after-incarnation"];

fn rounds(default: u32) -> u32 {
    let asked = std::env::var("SHARDCACHE_CRASH_ROUNDS").ok();
    asked.map_or(default, |asked| asked.parse().expect("SHARDCACHE_CRASH_ROUNDS is a number"))
}

fn seeded() -> StdRng {
    let seed = std::env::var("SHARDCACHE_SEED").ok();
    let seed = seed.map_or_else(rand::random, |seed| seed.parse().expect("SHARDCACHE_SEED is a number"));
    eprintln!("SHARDCACHE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Where the server is now; `None` while it is down.
type Address = watch::Receiver<Option<String>>;

#[tokio::test(flavor = "multi_thread")]
async fn crash_loop() {
    let mut random = seeded();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (moves, address) = watch::channel(None);
    let journal = Arc::new(Journal::default());
    let mut writers: Vec<_> = (0..4).map(|n| Writer::new(n, Arc::clone(&journal))).collect();
    let mut watchers: Vec<Watcher> = vec![];
    let mut beginning = None;
    let rounds = rounds(18);
    for round in 0..=rounds {
        // The last round only looks at what the one before left behind.
        let point = (round % 2 == 1 && round < rounds)
            .then_some((round / 2) as usize % (POINTS.len() + OPENINGS.len()));
        if let Some(point) = point.and_then(|point| OPENINGS.get(point.wrapping_sub(POINTS.len()))) {
            Binary::start(dir.path(), &[], Some((point, 1))).dies().await;
        }
        let point = point.and_then(|point| POINTS.get(point));
        let armed = point.map(|point| (*point, random.random_range(5..40)));
        let mut server = Binary::start(dir.path(), &[], armed);
        let base = server.ready().await;
        let wire = Wire::tcp(&base);
        for writer in &mut writers {
            writer.resolve(&wire).await;
        }
        journal.verify(&wire).await;
        if watchers.is_empty() {
            let list = wire.list(&collection("*", "*")).await.expect("an empty list");
            beginning = Some(list.clone());
            watchers = Watcher::start_all(&address, &list, &journal);
        }
        moves.send_replace(Some(base));
        // An armed server may die of the fence already; then the next round's fence counts.
        if armed.is_none() {
            let fence = fence(&wire, round).await;
            for watcher in &mut watchers {
                watcher.verified(fence).await;
            }
            let beginning = beginning.as_ref().expect("the first round listed");
            replay_everything(&wire, Replay::after(beginning), fence, &journal).await;
        }
        let writing: Vec<_> =
            writers.into_iter().map(|writer| tokio::spawn(writer.run(wire.clone()))).collect();
        if armed.is_some() {
            server.dies().await;
        } else {
            tokio::time::sleep(Duration::from_millis(random.random_range(20..400))).await;
            server.kill();
        }
        moves.send_replace(None);
        writers = vec![];
        for writer in writing {
            writers.push(writer.await.expect("no writer was told nonsense"));
        }
    }
    assert!(journal.len() > 0, "nothing was ever acknowledged");
    eprintln!("{} writes were acknowledged, {} seen by watchers", journal.len(), Watcher::total(&watchers));
}

/// Writes one object that every watcher sees; when a watcher has seen it, it has seen everything.
async fn fence(wire: &Wire, round: u32) -> Version {
    let path = collection("amber", "root");
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": format!("fence-{round}"), "labels": { "tier": "fence" } },
    });
    let answer = wire.call(Method::POST, &path, body.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    version_of(&answer.json()).expect("a created object has a version")
}

/// I5: the whole log, from the first version on, folds to the state.
async fn replay_everything(wire: &Wire, mut replay: Replay, fence: Version, journal: &Journal) {
    let start = replay.resume_at().expect("it listed");
    let path = collection("*", "*");
    let mut watch = wire.watch(&path, &format!("resourceVersion={start}")).await.expect("history is kept");
    while replay.resume_at() < Some(fence) {
        let step = watch.expect().await;
        assert!(!matches!(step, Step::Error { .. }), "{step:?}");
        replay.step(&step).unwrap_or_else(|violation| panic!("{violation}"));
    }
    let exact = wire.list(&format!("{path}?resourceVersion={fence}&resourceVersionMatch=Exact")).await;
    replay.equals(&exact.expect("the fence's version is listed")).unwrap_or_else(|wrong| panic!("{wrong}"));
    journal.delivered_to(&replay, |_| true);
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_loop_in_compaction_loses_nothing_and_serves_no_hole() {
    let mut random = seeded();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let journal = Arc::new(Journal::default());
    let mut writers: Vec<_> = (0..4).map(|n| Writer::new(n, Arc::clone(&journal))).collect();
    let small = ["--history-bytes", "64KiB", "--history-age", "1s"];
    let mut before = 0;
    for round in 0..rounds(18).div_ceil(9) {
        let armed = ("in-compaction", random.random_range(2..5));
        let mut server = Binary::start(dir.path(), &small, Some(armed));
        let wire = Wire::tcp(&server.ready().await);
        let writing: Vec<_> =
            writers.into_iter().map(|writer| tokio::spawn(writer.run(wire.clone()))).collect();
        server.dies().await;
        writers = vec![];
        for writer in writing {
            writers.push(writer.await.expect("no writer was told nonsense"));
        }
        // Compaction is far away here, so what was compacted before is what there is.
        let mut server = Binary::start(dir.path(), &[], None);
        let wire = Wire::tcp(&server.ready().await);
        for writer in &mut writers {
            writer.resolve(&wire).await;
        }
        journal.verify(&wire).await;
        let fence = fence(&wire, round).await;
        // From every version of this round exactly the rest, or 410; and 410 only up to one point.
        let written: Vec<_> = journal.written().into_keys().filter(|version| *version > before).collect();
        let mut resumable = 0;
        for version in &written {
            match the_rest(&wire, *version, fence).await {
                None => assert_eq!(resumable, 0, "{version} is gone, though an older version is not"),
                Some(rest) => {
                    resumable += 1;
                    let missing = written.iter().find(|other| *other > version && !rest.contains(other));
                    assert_eq!(missing, None, "a hole after {version}");
                }
            }
        }
        // A server that dies of the compaction at its opening acknowledged nothing this time.
        assert!(resumable > 0 || written.is_empty(), "all of {} versions are gone", written.len());
        before = fence;
        server.kill();
    }
    assert!(journal.len() > 0, "nothing was ever acknowledged");
}

/// The versions of all changes after a version, up to the fence; `None` if they are gone.
async fn the_rest(wire: &Wire, after: Version, fence: Version) -> Option<BTreeSet<Version>> {
    let query = format!("resourceVersion={after}");
    let mut watch = wire.watch(&collection("*", "*"), &query).await.expect("errors are in the stream");
    let mut rest = BTreeSet::new();
    while !rest.contains(&fence) {
        let version = match watch.expect().await {
            Step::Error { code, .. } => {
                assert_eq!((code, rest.len()), (410, 0), "told only after the beginning");
                return None;
            }
            Step::Added(object) | Step::Modified(object) | Step::Deleted(object) => version_of(&object),
            step @ Step::Bookmark { .. } => panic!("nobody asked for {step:?}"),
        };
        let version = version.expect("every change has one");
        assert!(rest.last().is_none_or(|last| *last < version), "{version} is out of order");
        rest.insert(version);
    }
    Some(rest)
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_in_a_backup_leaves_no_half_copy_under_its_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let to = dir.path().join("copy.redb");
    let data = dir.path().join("data");
    let mut server = Binary::start(&data, &[], Some(("in-backup", 1)));
    let wire = Wire::tcp(&server.ready().await);
    let version = fence(&wire, 0).await;
    let failed = Binary::ctl(&data, &["backup", "--output", to.to_str().expect("plain")]).await;
    assert!(!failed.success(), "a backup of a dead server succeeded");
    server.dies().await;
    assert!(!to.exists(), "half a copy has the name of a whole one");
    let mut server = Binary::start(&data, &[], None);
    let wire = Wire::tcp(&server.ready().await);
    let list = wire.list(&collection("*", "*")).await.expect("the state is served");
    assert_eq!(list.items.len(), 1);
    assert!(list.version >= version);
    let done = Binary::ctl(&data, &["backup", "--output", to.to_str().expect("plain")]).await;
    assert!(done.success());
    assert!(to.exists());
    server.kill();
}
