//! GET and LIST, in every way to name a version, through both wires at once.

use super::oracle::{STEP, View};
use super::script::Mode;
use super::session::{Session, at};
use crate::checker::Version;
use crate::wire::{Answer, with};

impl Session<'_> {
    pub(super) async fn get(&mut self, kind: usize, place: usize) {
        let (key, path) = at(kind, place);
        let answer = self.both(&format!("{path}/{}", key.0[3])).await;
        match self.oracle.get(kind, &key) {
            Some(held) => assert_eq!((answer.status.as_u16(), &answer.json()), (200, held)),
            None => assert_eq!(answer.reason(), (404, "NotFound".to_owned())),
        }
    }

    /// One GET through both wires: the same answer, byte for byte.
    async fn both(&self, path: &str) -> Answer {
        let [tcp, inside] = [self.wires[0].get(path).await, self.wires[1].get(path).await];
        assert_eq!(tcp.status, inside.status, "{path}");
        assert_eq!(tcp.body, inside.body, "{path}");
        assert_eq!(tcp.headers["content-type"], inside.headers["content-type"], "{path}");
        tcp
    }

    pub(super) async fn list(&mut self, view: &View, mode: Mode, limit: Option<u8>) {
        let path = limit.map_or_else(|| view.path(), |limit| with(&view.path(), &format!("limit={limit}")));
        let head = self.oracle.head;
        match mode {
            Mode::Newest => self.listed(view, &path, head, limit).await,
            // Any state, never in pages (wire contract R12).
            Mode::Any => self.listed(view, &with(&path, "resourceVersion=0"), head, None).await,
            Mode::NotOlderThan(index) => {
                let version = self.oracle.shown(index);
                let path =
                    with(&path, &format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
                self.listed_unless_forgotten(view, &path, version, head, limit).await;
            }
            Mode::Exact(index) => {
                let version = self.oracle.shown(index);
                let path = with(&path, &format!("resourceVersion={version}&resourceVersionMatch=Exact"));
                self.listed_exactly(view, &path, version, limit).await;
            }
            Mode::Plain(index) => {
                let version = self.oracle.shown(index);
                let path = with(&path, &format!("resourceVersion={version}"));
                match limit {
                    Some(_) => self.listed_exactly(view, &path, version, limit).await,
                    None => self.listed_unless_forgotten(view, &path, version, head, limit).await,
                }
            }
            Mode::Future => {
                let path = with(&path, &format!("resourceVersion={}", head + 3 * STEP));
                let answer = self.both(&path).await;
                assert_eq!(answer.reason(), (504, "Timeout".to_owned()));
                let cause = &answer.json()["details"]["causes"][0]["reason"];
                assert_eq!(cause, "ResourceVersionTooLarge");
            }
            Mode::Foreign => {
                // The newest event of a timeline that is like this one but for its tag.
                let path = with(&path, &format!("resourceVersion={}", head ^ 1));
                assert_eq!(self.both(&path).await.reason(), (410, "Expired".to_owned()));
            }
        }
    }

    /// A version of another timeline: 410, however it is named.
    pub(super) async fn refused(&self, view: &View, version: Version) {
        for rest in ["", "&limit=2", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"] {
            let path = with(&view.path(), &format!("resourceVersion={version}{rest}"));
            assert_eq!(self.both(&path).await.reason(), (410, "Expired".to_owned()), "{path}");
        }
    }

    /// The list at a version, in as many pages as the limit asks for.
    async fn listed(&self, view: &View, path: &str, version: Version, limit: Option<u8>) {
        let expected = self.oracle.list(view, version);
        let first = self.both(path).await;
        assert_eq!(first.status, 200, "{path}: {first:?}");
        for wire in &self.wires {
            let pages = wire.pages(path).await.unwrap_or_else(|answer| panic!("{path}: {answer:?}"));
            let listed =
                crate::checker::List::parse(&pages).unwrap_or_else(|wrong| panic!("{path}: {wrong}"));
            assert_eq!(listed, expected, "{path}");
            let Some(limit) = limit.map(usize::from) else {
                assert_eq!(pages.len(), 1, "{path}");
                continue;
            };
            assert_eq!(pages.len(), expected.items.len().div_ceil(limit).max(1), "{path}");
            for page in &pages[..pages.len() - 1] {
                assert_eq!(page["items"].as_array().map(Vec::len), Some(limit), "{path}");
                let counted = page["metadata"].get("remainingItemCount").is_some();
                assert_eq!(counted, !view.has_selectors(), "{path}: remainingItemCount");
            }
        }
    }

    async fn listed_exactly(&self, view: &View, path: &str, version: Version, limit: Option<u8>) {
        let answer = self.both(path).await;
        if answer.status == 410 {
            let floor = self.oracle.floors[view.kind].max(self.oracle.forgettable);
            assert!(version < floor, "{path}: {answer:?}, yet history reaches back to {floor}");
            assert_eq!(answer.reason().1, "Expired");
        } else {
            // Also below the floor, where a snapshot is retained: then it must be right.
            self.listed(view, path, version, limit).await;
        }
    }

    /// An old version may be forgotten with the opening it came from.
    async fn listed_unless_forgotten(
        &self,
        view: &View,
        path: &str,
        wanted: Version,
        version: Version,
        limit: Option<u8>,
    ) {
        if wanted < self.oracle.forgettable && self.both(path).await.reason() == (410, "Expired".to_owned()) {
            return;
        }
        self.listed(view, path, version, limit).await;
    }
}
