//! Watchers that never list: across every death of the server they resume from the last version seen.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Address;
use crate::checker::{ItemKey, List, Replay, Step, Version};
use crate::wire::{PATIENCE, Wire, with};
use crate::writer::{Journal, collection};

/// A client task and how far it has proved itself right.
pub(crate) struct Watcher {
    progress: watch::Receiver<Progress>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    /// Newest fence up to which everything was compared.
    verified: Version,
    changes: usize,
}

/// What a watcher looks at.
#[derive(Clone)]
struct View {
    path: String,
    /// The only shard it sees; every object of it is in the view.
    shard: Option<&'static str>,
    /// Sees by label: an object may come and go without being written or deleted.
    selects: bool,
}

impl Watcher {
    /// Everything, one shard of it, and a selection of labels. Starts from an empty list.
    pub(crate) fn start_all(address: &Address, list: &List, journal: &Arc<Journal>) -> Vec<Self> {
        assert!(list.items.is_empty(), "the first list is of an empty store");
        let views = [
            View { path: collection("*", "*"), shard: None, selects: false },
            View { path: collection("amber", "*"), shard: Some("amber"), selects: false },
            View { path: collection("amber", "root"), shard: Some("amber"), selects: true },
            View {
                path: with(&collection("*", "*"), "labelSelector=tier%20in%20(t1,fence)"),
                shard: None,
                selects: true,
            },
        ];
        let start = |view| {
            let (tell, progress) = watch::channel(Progress::default());
            let (address, journal) = (address.clone(), Arc::clone(journal));
            let task = tokio::spawn(follow(view, address, Replay::after(list), journal, tell));
            Self { progress, task }
        };
        views.into_iter().map(start).collect()
    }

    /// Waits until the watcher has seen the fence and was found right there.
    pub(crate) async fn verified(&mut self, fence: Version) {
        let verified = self.progress.wait_for(|progress| progress.verified >= fence);
        let verified = tokio::time::timeout(PATIENCE, verified).await.expect("the fence is seen in time");
        verified.expect("the watcher is alive: see its panic above");
    }

    /// Changes that all of them saw.
    pub(crate) fn total(watchers: &[Self]) -> usize {
        watchers.iter().map(|watcher| watcher.progress.borrow().changes).sum()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    view: View,
    mut address: Address,
    mut replay: Replay,
    journal: Arc<Journal>,
    tell: watch::Sender<Progress>,
) {
    loop {
        let Ok(base) = address.wait_for(Option::is_some).await.map(|base| base.clone()) else { return };
        let base = base.expect("waited for");
        let wire = Wire::tcp(&base);
        let at = replay.resume_at().expect("it started from a list");
        replay.resumed();
        let Ok(mut watch) = wire.watch(&view.path, &format!("resourceVersion={at}")).await else {
            moved(&mut address, &base).await;
            continue;
        };
        while let Some(step) = watch.next().await {
            let step = step.unwrap_or_else(|violation| panic!("{violation}"));
            assert!(!matches!(step, Step::Error { .. }), "resuming {} at {at}: {step:?}", view.path);
            replay.step(&step).unwrap_or_else(|violation| panic!("{}: {violation}", view.path));
            let version = replay.resume_at().expect("it started from a list");
            if is_fence(&step) && compare(&view, &wire, &replay, version, &journal).await {
                tell.send_replace(Progress { verified: version, changes: replay.changes() });
            }
        }
        moved(&mut address, &base).await;
    }
}

/// Waits for the server to be elsewhere or down: its stream ended, so it is or soon will be.
async fn moved(address: &mut Address, base: &str) {
    // The other side ends with the test.
    let _ = address.wait_for(|now| now.as_deref() != Some(base)).await;
}

fn is_fence(step: &Step) -> bool {
    let Step::Added(object) = step else { return false };
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("fence"))
}

/// Whether the client is right at a version; `false` if the server died before it could be asked.
async fn compare(view: &View, wire: &Wire, replay: &Replay, version: Version, journal: &Journal) -> bool {
    let path = with(&view.path, &format!("resourceVersion={version}&resourceVersionMatch=Exact"));
    let Ok(answer) = wire.request(http::Method::GET, &path, "", "").await else { return false };
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    let list = List::parse(&[answer.json()]).unwrap_or_else(|violation| panic!("{path}: {violation}"));
    replay.equals(&list).unwrap_or_else(|violation| panic!("{}: {violation}", view.path));
    if !view.selects {
        journal.delivered_to(replay, |key: &ItemKey| view.shard.is_none_or(|shard| key.0[0] == shard));
    }
    true
}
