//! A client that reads a watch all the time, is cut every few events, and resumes without a LIST.

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::checker::{Replay, Step, Version};
use crate::wire::{PATIENCE, Wire};

/// After so many steps the connection is dropped.
const STEPS: usize = 7;

pub(super) struct Reader {
    task: JoinHandle<Replay>,
    until: watch::Sender<Version>,
}

impl Reader {
    /// Lists once, then follows; each connection takes the other wire.
    pub(super) async fn start(wires: [Wire; 2], path: String) -> Self {
        let list = wires[0].list(&path).await.expect("the state is served");
        let (until, target) = watch::channel(Version::MAX);
        let task = tokio::spawn(follow(wires, path, Replay::after(&list), target));
        Self { task, until }
    }

    /// What it saw, once it has seen everything up to a version.
    pub(super) async fn finish(self, version: Version) -> Replay {
        self.until.send_replace(version);
        let done = tokio::time::timeout(PATIENCE, self.task).await.expect("it gets there in time");
        done.expect("nothing it saw was wrong")
    }
}

async fn follow(
    wires: [Wire; 2],
    path: String,
    mut replay: Replay,
    mut target: watch::Receiver<Version>,
) -> Replay {
    for turn in 0.. {
        let at = replay.resume_at().expect("it listed");
        replay.resumed();
        let query = format!("resourceVersion={at}&allowWatchBookmarks=true");
        let mut watch = wires[turn % 2].watch(&path, &query).await.expect("admitted");
        for _ in 0..STEPS {
            if replay.resume_at() >= Some(*target.borrow_and_update()) {
                return replay;
            }
            tokio::select! {
                step = watch.next() => {
                    let step = step.expect("it goes on").unwrap_or_else(|wrong| panic!("{path}: {wrong}"));
                    assert!(!matches!(step, Step::Error { .. }), "{path} at {at}: {step:?}");
                    replay.step(&step).unwrap_or_else(|wrong| panic!("{path}: {wrong}"));
                }
                // The target is known now; look whether it is reached.
                _ = target.changed() => {}
            }
        }
    }
    unreachable!("turns do not run out")
}
