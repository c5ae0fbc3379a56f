//! One watch, through both wires at once, line by line as the oracle says, and through the checker.

use super::STEP_PATIENCE;
use super::oracle::{Oracle, STEP, View};
use super::script::From;
use crate::checker::{Replay, Step, Version, agree};
use crate::wire::{Watch, Wire, with};

/// A client and the stream it reads.
struct Client {
    stream: Watch,
    replay: Replay,
}

pub(super) struct Watching {
    view: View,
    clients: [Client; 2],
    /// Everything up to here was read and compared.
    at: Version,
}

impl Watching {
    /// Opens a watch and reads what it begins with; `None` if it has to end at once, and did.
    pub(super) async fn open(view: &View, from: From, oracle: &Oracle, wires: &[Wire; 2]) -> Option<Self> {
        let head = oracle.head;
        let (version, replay) = match from {
            From::Shown(index) => (oracle.shown(index), None),
            From::Listed => (head, None),
            From::Unissued(version) => (version, None),
            From::Foreign => (head ^ 1, None),
            From::Future => (head + 3 * STEP, None),
            // kube's default for a watch from no version is the one with initial events.
            From::Marked | From::Synthetic(_) => (head, Some(Replay::initial(true))),
        };
        let query = match from {
            From::Marked => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            From::Synthetic(true) => "resourceVersion=0".to_owned(),
            From::Synthetic(false) => String::new(),
            _ => format!("resourceVersion={version}"),
        };
        let replay = replay.unwrap_or_else(|| Replay::after(&oracle.list(view, version)));
        let ends = matches!(from, From::Foreign | From::Unissued(_) | From::Future);
        let mut watching =
            Self::connect(view, [replay.clone(), replay], version, &query, oracle, wires, ends).await?;
        if matches!(from, From::Marked | From::Synthetic(_)) {
            for client in &mut watching.clients {
                for object in oracle.list(view, head).items.values() {
                    assert_eq!(client.next().await, Step::Added(object.clone()));
                }
                let marked = client.next().await;
                assert_eq!(marked, Step::Bookmark { version: head, initial_end: true });
            }
        }
        Some(watching)
    }

    async fn connect(
        view: &View,
        replays: [Replay; 2],
        at: Version,
        query: &str,
        oracle: &Oracle,
        wires: &[Wire; 2],
        ends: bool,
    ) -> Option<Self> {
        let query = format!("allowWatchBookmarks=true&{query}");
        let mut clients = vec![];
        for (wire, replay) in wires.iter().zip(replays) {
            let stream = wire.watch(&view.path(), &query).await.expect("admitted: errors are in the stream");
            clients.push(Client { stream, replay });
        }
        let mut clients: [Client; 2] = clients.try_into().ok().expect("two wires");
        let ends = ends || at < oracle.floors[view.kind] || Self::forgotten(view, at, oracle, wires).await;
        if ends {
            for client in &mut clients {
                client.expired().await;
            }
            return None;
        }
        Some(Self { view: view.clone(), clients, at })
    }

    /// Whether the server says that it no longer knows an old version, which it then says of every read.
    async fn forgotten(view: &View, at: Version, oracle: &Oracle, wires: &[Wire; 2]) -> bool {
        let exact = with(&view.path(), &format!("resourceVersion={at}&resourceVersionMatch=Exact"));
        at < oracle.forgettable && wires[0].get(&exact).await.status == 410
    }

    /// Goes on after the connection was lost, where it stood, without a LIST.
    pub(super) async fn resume(mut self, oracle: &Oracle, wires: &[Wire; 2]) -> Option<Self> {
        self.catch_up_if_open(oracle).await;
        let [a, b] = self.clients.map(|client| client.replay);
        // Each wire had its own bookmarks; the lower one must still do.
        let at = a.resume_at()?.min(b.resume_at()?);
        let base = if a.resume_at() <= b.resume_at() { a } else { b };
        let query = format!("resourceVersion={at}");
        Self::connect(&self.view, [base.clone(), base], at, &query, oracle, wires, false).await
    }

    /// After a restart the streams are over, and everything was read before.
    async fn catch_up_if_open(&mut self, oracle: &Oracle) {
        if oracle.steps(&self.view, self.at).is_empty() {
            return;
        }
        self.catch_up(oracle).await;
    }

    /// Reads what has happened since, and nothing else.
    pub(super) async fn catch_up(&mut self, oracle: &Oracle) {
        for (version, step) in oracle.steps(&self.view, self.at) {
            for client in &mut self.clients {
                client.reads(&step, version).await;
            }
        }
        self.at = oracle.head;
    }

    /// Waits for a bookmark of the present: nothing is on its way.
    pub(super) async fn arrives(&mut self, head: Version) {
        for client in &mut self.clients {
            client.arrives(head).await;
        }
    }

    /// Compares the whole with the present.
    pub(super) async fn verify(&mut self, oracle: &Oracle, wires: &[Wire; 2]) {
        self.arrives(oracle.head).await;
        for (client, wire) in self.clients.iter_mut().zip(wires) {
            let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", oracle.head);
            let list = wire.list(&with(&self.view.path(), &exact)).await.expect("the present is served");
            client.replay.equals(&list).unwrap_or_else(|wrong| panic!("{:?}: {wrong}", self.view));
        }
        let [a, b] = &self.clients;
        agree(&a.replay, &b.replay).unwrap_or_else(|wrong| panic!("{:?}: {wrong}", self.view));
    }

    /// The server shuts down: for who had arrived there a last bookmark of the present, and a clean end.
    pub(super) async fn ends(&mut self, arrived: bool) {
        for client in &mut self.clients {
            let mut last = 0;
            while let Some(step) = client.try_next().await {
                let Step::Bookmark { version, .. } = step else { panic!("at the end, {step:?}") };
                last = version;
            }
            // Who was still behind, on its way through the log, may be told nothing: it resumes where it is.
            assert!(
                !arrived || last >= self.at,
                "the last bookmark is {last}, everything up to {} was read",
                self.at
            );
        }
    }
}

impl Client {
    async fn try_next(&mut self) -> Option<Step> {
        let next = tokio::time::timeout(STEP_PATIENCE, self.stream.next()).await.expect("a step in time");
        let step = next?.unwrap_or_else(|wrong| panic!("{wrong}"));
        self.replay.step(&step).unwrap_or_else(|wrong| panic!("{wrong}"));
        Some(step)
    }

    async fn next(&mut self) -> Step {
        self.try_next().await.expect("the watch goes on")
    }

    /// The next change is this one. Bookmarks may come before it, of what was read.
    async fn reads(&mut self, expected: &Step, version: Version) {
        loop {
            match self.next().await {
                Step::Bookmark { version: marked, .. } => {
                    assert!(marked < version, "bookmark {marked} is sent, and not {expected:?}");
                }
                step => {
                    assert_eq!(step, *expected);
                    return;
                }
            }
        }
    }

    /// Waits for a bookmark at a version; bookmarks of before may still be on their way.
    async fn arrives(&mut self, version: Version) {
        let arriving = async { while self.bookmark().await < version {} };
        tokio::time::timeout(STEP_PATIENCE, arriving).await.expect("a bookmark of the present in time");
    }

    async fn bookmark(&mut self) -> Version {
        match self.next().await {
            Step::Bookmark { version, .. } => version,
            step => panic!("nothing happened, yet {step:?}"),
        }
    }

    /// One ERROR 410, then the end (D5).
    async fn expired(&mut self) {
        assert_eq!(self.next().await, Step::Error { code: 410, reason: "Expired".to_owned() });
        assert_eq!(self.try_next().await, None);
    }
}
