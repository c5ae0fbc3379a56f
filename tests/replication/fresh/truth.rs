//! What the sources were told, and when they said that it was done: what a fresh read is held against.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::churn::Source;
use crate::stand::SHARDS;
use crate::view::{GROUP, KINDS, Kind};

/// Objects of each type at each source that are there from the beginning to the end.
pub(super) const ANCHORS: usize = 20;
/// Writers at each source; no two of them write one object.
const WRITERS: usize = 3;
/// Objects of a writer that are there at once, about.
const ALIVE: usize = 6;
/// Pause of a writer, which leaves the machine to those who are tested.
const PAUSE: Duration = Duration::from_millis(25);

/// Everything that was written at both sources. Versions of an object are the numbers in `spec.size`, from 1.
#[derive(Default)]
pub(super) struct Truth(Mutex<BTreeMap<(&'static str, &'static str), Objects>>);

type Objects = BTreeMap<String, Thing>;

/// One object, whose name is used once.
#[derive(Default)]
struct Thing {
    /// The newest version that was sent to the source.
    sent: u64,
    /// Versions that the source said it had, in order, and when.
    done: Vec<(u64, Instant)>,
    /// Whether its deletion was asked for.
    is_leaving: bool,
    /// When the source said that it was gone.
    left: Option<Instant>,
}

/// What an answer has of one type of a shard: names and versions.
pub(super) type Found = BTreeMap<String, u64>;

impl Truth {
    /// What an answer may not be: something that was done before an instant is missing, or something is
    /// there that never was. It is a list, or of one `name`. To be called when the answer is here.
    pub(super) fn lie(
        &self,
        shard: &str,
        kind: &Kind,
        name: Option<&str>,
        found: &Found,
        since: Instant,
    ) -> Option<String> {
        let all = self.0.lock();
        let (_, things) = all.iter().find(|((s, k), _)| *s == shard && *k == kind.plural)?;
        if let Some(name) = found.keys().find(|name| !things.contains_key(*name)) {
            return Some(format!("{shard} never had {name}"));
        }
        let mut asked = things.iter().filter(|(thing, _)| name.is_none_or(|name| name == *thing));
        asked.find_map(|(name, thing)| {
            let wrong = thing.lie(found.get(name).copied(), since)?;
            Some(format!("{shard}'s {}/{name} {wrong}", kind.plural))
        })
    }

    /// An object that a source has said it has, the newest, and which nobody has asked to be deleted.
    pub(super) fn newest(&self, shard: &str, kind: &Kind) -> Option<String> {
        let all = self.0.lock();
        let (_, things) = all.iter().find(|((s, k), _)| *s == shard && *k == kind.plural)?;
        let kept = things.iter().filter(|(_, thing)| !thing.is_leaving);
        let newest = kept.filter_map(|(name, thing)| Some((thing.done.first()?.1, name))).max()?;
        Some(newest.1.clone())
    }

    /// Writes that were done so far.
    pub(super) fn writes(&self, shard: &str) -> usize {
        let all = self.0.lock();
        let of_shard = all.iter().filter(|((s, _), _)| *s == shard);
        of_shard.flat_map(|(_, things)| things.values().map(|thing| thing.done.len())).sum()
    }

    fn note<T>(&self, source: &Source, kind: &Kind, name: &str, note: impl FnOnce(&mut Thing) -> T) -> T {
        let mut all = self.0.lock();
        let things = all.entry((source.shard, kind.plural)).or_default();
        note(things.entry(name.to_owned()).or_default())
    }
}

impl Thing {
    fn lie(&self, found: Option<u64>, since: Instant) -> Option<String> {
        let before = |at: Instant| since.saturating_duration_since(at);
        let due = self.done.iter().rev().find(|(_, at)| *at < since);
        match (found, due) {
            (Some(version), _) if version > self.sent => {
                Some(format!("is {version}, which nobody has written"))
            }
            (Some(_), _) if self.left.is_some_and(|at| at < since) => {
                Some(format!("was deleted {:?} before, and is there", self.left.map(before)))
            }
            (Some(version), Some((due, at))) if version < *due => {
                Some(format!("is {version}, and was {due} {:?} before", before(*at)))
            }
            (None, Some((due, at))) if !self.is_leaving => {
                Some(format!("is missing, and was {due} {:?} before", before(*at)))
            }
            _ => None,
        }
    }
}

/// Where a type's objects are created.
pub(super) fn collection(kind: &Kind) -> String {
    let namespace = if kind.namespaced { "/namespaces/space-0" } else { "" };
    format!("/apis/{GROUP}/v1{namespace}/{}", kind.plural)
}

/// Name of an object that is always there.
pub(super) fn anchor(number: usize) -> String {
    format!("anchor-{number}")
}

/// Creates what is always there.
pub(super) async fn anchors(truth: &Truth, source: &Source) {
    let never = CancellationToken::new();
    let hand = Hand { truth, source, stop: &never };
    for kind in &KINDS {
        for number in 0..ANCHORS {
            hand.put(kind, &anchor(number), 1).await.expect("nobody stops it");
        }
    }
}

/// Writers that go on until they are stopped, whatever becomes of their source.
pub(super) struct Writers {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Writers {
    pub(super) fn start(truth: &Arc<Truth>, sources: &[Source; SHARDS.len()]) -> Self {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for source in sources {
            for writer in 0..WRITERS {
                let (truth, source, stop) = (Arc::clone(truth), source.clone(), stop.clone());
                tasks.spawn(async move {
                    let hand = Hand { truth: &truth, source: &source, stop: &stop };
                    // Ends when it is stopped.
                    let _: Option<()> = hand.write(writer).await;
                });
            }
        }
        Self { stop, tasks }
    }

    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("every answer made sense");
        }
    }
}

/// A writer's.
struct Hand<'a> {
    truth: &'a Truth,
    source: &'a Source,
    stop: &'a CancellationToken,
}

impl Hand<'_> {
    /// Creates, changes and deletes objects; `None` once it is stopped.
    async fn write(&self, writer: usize) -> Option<()> {
        for number in 0.. {
            let name = |number: usize| (&KINDS[number % KINDS.len()], format!("w-{writer}-{number}"));
            let (kind, new) = name(number);
            for version in 1..=3 {
                self.put(kind, &new, version).await?;
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(oldest) = number.checked_sub(ALIVE) {
                let (kind, old) = name(oldest);
                self.delete(kind, &old).await?;
            }
        }
        None
    }

    async fn put(&self, kind: &Kind, name: &str, version: u64) -> Option<()> {
        self.truth.note(self.source, kind, name, |thing| thing.sent = version);
        let (path, whole) = (
            collection(kind),
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": kind.kind,
                "metadata": { "name": name }, "spec": { "size": version },
            }),
        );
        if version == 1 {
            // An attempt that was not answered may have been done.
            self.until(Method::POST, &path, &whole, &[StatusCode::CREATED, StatusCode::CONFLICT]).await?;
        } else {
            let change = json!({ "spec": { "size": version } });
            self.until(Method::PATCH, &format!("{path}/{name}"), &change, &[StatusCode::OK]).await?;
        }
        self.truth.note(self.source, kind, name, |thing| thing.done.push((version, Instant::now())));
        Some(())
    }

    async fn delete(&self, kind: &Kind, name: &str) -> Option<()> {
        self.truth.note(self.source, kind, name, |thing| thing.is_leaving = true);
        let path = format!("{}/{name}", collection(kind));
        self.until(Method::DELETE, &path, &Value::Null, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
        self.truth.note(self.source, kind, name, |thing| thing.left = Some(Instant::now()));
        Some(())
    }

    /// Asks again until the source says that it is done; `None` once that is not wanted any more.
    async fn until(&self, method: Method, path: &str, body: &Value, done: &[StatusCode]) -> Option<()> {
        loop {
            let body = (!body.is_null()).then_some(body);
            let call = self.source.server.call(method.clone(), path, body);
            let answer = tokio::select! {
                () = self.stop.cancelled() => return None,
                answer = call => answer,
            };
            match answer {
                // It is away; or only just there, without its types, and says so without a word of JSON.
                Err(_) | Ok((_, Value::Null)) => tokio::time::sleep(PAUSE).await,
                Ok((status, _)) if done.contains(&status) => return Some(()),
                Ok((status, answer))
                    if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS =>
                {
                    panic!("{} {method} {path}: {status} {answer}", self.source.shard)
                }
                Ok(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}
