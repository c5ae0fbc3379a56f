//! C1–C9 of the crash table on a real file: a child process dies at each named fail point, the parent
//! opens what it left and holds it against everything the child had said.
//!
//! Fail points exist in debug builds only; a release build of this test says so and checks nothing.

#[path = "fixtures/objects.rs"]
mod objects;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use shardcache_storage::{RedbOptions, RedbStore, ResourceVersion, Revision, Standing, Store};

use objects::{apply, cowboys, key, opening_now, put, read_retained};

const DIRECTORY: &str = "SHARDCACHE_TEST_VICTIM";

/// The child: writes, and says what was shown and what was acknowledged. Only runs when asked to.
#[tokio::test]
async fn victim() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).expect("the parent listens");
    };
    let store = RedbStore::open(RedbOptions::new(&directory)).expect("opens");
    let mut following = store.subscribe();
    say(format!("shown {}", following.state.resource_version()));
    let shower = tokio::spawn(async move {
        while let Some(commit) = following.commits.recv().await {
            say(format!("shown {}", commit.state.resource_version()));
        }
    });
    for i in 0..20 {
        // Two at once, so that a batch has a first and a second acknowledgement.
        let (one, two) = (put("a", &i.to_string()), put(&format!("b{i}"), "x"));
        let (one, two) = (store.commit(vec![one]), store.commit(vec![two]));
        for result in [one.await, two.await] {
            let applied = result.expect("writes").pop().expect("one").expect("applies");
            say(format!("acked {}", applied.event.resource_version));
        }
    }
    let head = store.subscribe().state.head();
    store.compact(cowboys(), Revision(head.0 - 5)).await.expect("compacts");
    store.backup(Path::new(&directory).join("copy")).await.expect("backs up");
    store.close().await.expect("closes");
    shower.await.expect("it ends");
    say("survived".to_owned());
}

struct Testimony {
    shown: Vec<ResourceVersion>,
    acked: Vec<ResourceVersion>,
    survived: bool,
}

fn run_victim(directory: &Path, fail_point: &str) -> Testimony {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env("SHARDCACHE_FAILPOINT", fail_point)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child");
    let mut testimony = Testimony { shown: Vec::new(), acked: Vec::new(), survived: false };
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        // The harness writes on the same lines.
        let words: Vec<_> = line.split_whitespace().rev().take(2).collect();
        match words[..] {
            [version, "shown"] => testimony.shown.push(ResourceVersion::parse(version).expect("a version")),
            [version, "acked"] => testimony.acked.push(ResourceVersion::parse(version).expect("a version")),
            ["survived", ..] => testimony.survived = true,
            _ => {}
        }
    }
    child.wait().expect("it ended");
    testimony
}

async fn die_at(name: &str, count: u32) {
    let context = format!("{name}:{count}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    // A store that has seen an opening and some events before.
    let store = RedbStore::open(RedbOptions::new(&path)).expect("opens");
    let before = apply(&*store, put("before", "x")).await.event.resource_version;
    store.close().await.expect("closes");

    let testimony = run_victim(&path, &context);
    assert!(!testimony.survived, "{context}: the fail point was never reached");
    assert!(!path.join("copy").exists(), "{context}: no half-made backup has the final name");

    let store =
        RedbStore::open(RedbOptions { opening: opening_now(), ..RedbOptions::new(&path) }).expect("opens");
    let state = store.subscribe().state;
    for version in testimony.acked.iter().chain(&testimony.shown).chain([&before]) {
        let standing = store.lineage().classify(*version, state.head());
        assert_eq!(standing, Standing::Issued(version.revision()), "{context}: {version} was promised");
    }
    let (floor, events, state) = read_retained(&*store, &cowboys()).await;
    for version in testimony.acked.iter().filter(|version| version.revision() > floor) {
        assert!(
            events.iter().any(|event| event.resource_version == *version),
            "{context}: {version} is lost"
        );
    }
    // Numbers in `a` rise by one: what is there is a prefix of what was written.
    let payload = |object: &shardcache_storage::Object| -> usize {
        let body = String::from_utf8(object.body_bytes().to_vec()).expect("JSON");
        body.split(r#""spec":""#)
            .nth(1)
            .and_then(|rest| rest.trim_end_matches("\"}").parse().ok())
            .expect("a number")
    };
    let last = state.get(&cowboys(), key("a").as_str()).map(payload);
    let others =
        state.objects(&cowboys()).expect("objects").iter().filter(|o| o.parts().name.starts_with('b'));
    let others = others.count() - 1;
    let acked = testimony.acked.len().div_ceil(2);
    assert!(last.map_or(0, |last| last + 1) >= acked, "{context}: {last:?} of {acked}");
    assert!(others.abs_diff(last.map_or(0, |last| last + 1)) <= 1, "{context}: {others} beside {last:?}");
    store.close().await.expect("closes");
}

#[tokio::test]
async fn c1_to_c9_nothing_promised_is_lost_at_any_fail_point() {
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED: fail points are compiled into debug builds only");
        return;
    }
    let names = [
        "after-enqueue",
        "in-transaction",
        "before-sync",
        "after-sync",
        "after-publish",
        "after-first-ack",
        "in-compaction",
        "open-before-incarnation",
        "open-after-incarnation",
        "in-backup",
    ];
    for name in names {
        let repeats = matches!(
            name,
            "after-enqueue"
                | "in-transaction"
                | "before-sync"
                | "after-sync"
                | "after-publish"
                | "after-first-ack"
        );
        for count in if repeats { vec![1, 4, 13] } else { vec![1] } {
            die_at(name, count).await;
        }
    }
}
