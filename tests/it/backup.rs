//! A backup of a server under load, restored: exactly the state of one commit, and the same timeline up to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;

use crate::checker::{Replay, Step, version_of};
use crate::harness::{ROLES, Served, binary, collection, role};
use crate::wire::Wire;

/// `shardcache ctl backup`.
async fn backup(data: &Path, output: &Path) -> std::process::Output {
    let mut command = binary();
    command.args(["ctl", "backup", "--data-dir"]).arg(data).arg("--output").arg(output);
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    ended.expect("joined").expect("it can be started")
}

async fn create(wire: &Wire, shard: &str, name: &str) -> u64 {
    let path = collection(shard, "root", ROLES);
    let answer = wire.call(Method::POST, &path, role(name, "gold").to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    version_of(&answer.json()).expect("it has a version")
}

#[tokio::test(flavor = "multi_thread")]
async fn d18_a_backup_under_load_restores_to_one_commit_of_the_same_timeline() {
    let served = Served::start().await;
    let wire = served.wire();
    let all = collection("*", "*", ROLES);
    for number in 0..50 {
        create(&wire, "amber", &format!("before-{number}")).await;
    }
    let listed = wire.list(&all).await.expect("listed");
    let stop = Arc::new(AtomicBool::new(false));
    let writing = {
        let (wire, stop) = (wire.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                create(&wire, "sapphire", &format!("during-{number}")).await;
                number += 1;
            }
        })
    };
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("copy.redb");
    let output = backup(&served.data_dir(), &copy).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stop.store(true, Ordering::Relaxed);
    writing.await.expect("nothing was refused");
    let lost = create(&wire, "onyx", "after").await;
    let original = wire.list(&all).await.expect("listed");

    // What was there already is not overwritten.
    let again = backup(&served.data_dir(), &copy).await;
    assert_eq!(again.status.code(), Some(64), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(std::fs::metadata(&copy).expect("still there").len() > 0);
    served.stop().await;

    let restored = Served::restored(&copy).await;
    let wire = restored.wire();
    let state = wire.list(&all).await.expect("listed");
    // Each object as it was written, and each writer's objects without a gap: one commit's state.
    for (key, item) in &state.items {
        assert_eq!(original.items.get(key), Some(item));
    }
    let during = state.items.keys().filter(|key| key.0[0] == "sapphire").count();
    for number in 0..during {
        assert!(state.items.keys().any(|key| key.0[3] == format!("during-{number}")), "a gap at {number}");
    }
    assert!(state.items.keys().all(|key| key.0[0] != "onyx"), "written after the backup");

    // A version from before the backup goes on; one from after it is another timeline.
    let mut watch = wire.watch(&all, &format!("resourceVersion={}", listed.version)).await.expect("it opens");
    let mut replay = Replay::after(&listed);
    for _ in 0..during {
        replay.step(&watch.expect().await).expect("consistent");
    }
    let mut foreign = wire.watch(&all, &format!("resourceVersion={lost}")).await.expect("it opens");
    assert!(matches!(foreign.expect().await, Step::Error { code: 410, .. }));
    let newer = create(&wire, "onyx", "after").await;
    assert!(newer > lost, "versions of the restored store come after all earlier ones");
}
