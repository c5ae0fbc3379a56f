//! Both ends of a replicator, in a test's hands: an API server with one type, and a cache that sends
//! barriers. No socket and no thread, so that time can stand still.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use shardcache_proxy::push::client::{self, ClientFrame, Hello, Provider, Sum};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::{Digest, KeyParts, entry_digest};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::cell::{Cell, CellError};
use super::direct::RequestProgress;
use super::link::{LinkError, Stream};
use super::object::Prune;
use super::report::Report;
use super::selection::Resource;
use super::source::Source;

const CLUSTER: &str = "root";
const KIND: &str = "Widget";
/// When before its end a watch has a bookmark, and how often otherwise: as kube-apiserver.
const BOOKMARK_BEFORE: Duration = Duration::from_secs(2);
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// Uid and version of an object.
type Held = (String, u64);

/// What happened to an object.
#[derive(Clone)]
struct Change {
    version: u64,
    kind: &'static str,
    name: String,
    uid: String,
}

/// An API server's state, and how it behaves.
pub(super) struct Shard {
    pub(super) version: u64,
    log: Vec<Change>,
    made: u64,
    /// Versions up to here are forgotten.
    pub(super) forgotten: u64,
    /// How far its watches are, if they lag.
    pub(super) shown: Option<u64>,
    pub(super) bookmarks: bool,
    /// How often it was asked for bookmarks, if it can be.
    pub(super) asked: Option<usize>,
    /// It takes requests, and answers none.
    pub(super) paused: bool,
    /// So many reads of its newest version fail.
    pub(super) failing: u32,
    /// A version that watches up to this number do not tell of.
    pub(super) lost: Option<(u64, usize)>,
    pub(super) watches: usize,
    pub(super) heads: usize,
    pub(super) comparisons: usize,
    pub(super) lists: usize,
}

impl Shard {
    fn held(&self, at: u64) -> BTreeMap<String, Held> {
        let mut held = BTreeMap::new();
        for change in self.log.iter().filter(|change| change.version <= at) {
            match change.kind {
                "DELETED" => drop(held.remove(&change.name)),
                _ => drop(held.insert(change.name.clone(), (change.uid.clone(), change.version))),
            }
        }
        held
    }

    fn shown(&self) -> u64 {
        self.shown.map_or(self.version, |shown| shown.min(self.version))
    }

    /// Creates or changes an object.
    pub(super) fn put(&mut self, name: &str) {
        let known = self.held(self.version).remove(name);
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = known.map_or_else(|| format!("uid-{}", self.made), |(uid, _)| uid);
        self.made += 1;
        self.version += 1;
        self.log.push(Change { version: self.version, kind, name: name.to_owned(), uid });
    }

    pub(super) fn delete(&mut self, name: &str) {
        let Some((uid, _)) = self.held(self.version).remove(name) else { return };
        self.version += 1;
        self.log.push(Change { version: self.version, kind: "DELETED", name: name.to_owned(), uid });
    }

    /// Something of another type happens.
    pub(super) fn elsewhere(&mut self) {
        self.version += 1;
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// An API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Stub(Arc<watch::Sender<Shard>>);

impl Stub {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Shard {
            version: 100,
            log: Vec::new(),
            made: 0,
            forgotten: 0,
            shown: None,
            bookmarks: true,
            asked: None,
            paused: false,
            failing: 0,
            lost: None,
            watches: 0,
            heads: 0,
            comparisons: 0,
            lists: 0,
        })))
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Shard)) {
        self.0.send_modify(change);
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Shard) -> T) -> T {
        look(&self.0.borrow())
    }

    pub(super) fn held(&self) -> BTreeMap<String, Held> {
        self.look(|shard| shard.held(shard.version))
    }

    /// Waits until it is so.
    pub(super) async fn until(&self, is_so: impl FnMut(&Shard) -> bool) {
        self.0.subscribe().wait_for(is_so).await.expect("it is there");
    }

    pub(super) fn client(&self) -> Client {
        let stub = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| stub.clone().answer(request));
        Client::new(service, "default")
    }

    async fn answer(self, request: Request<Body>) -> Result<Answer, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let query: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let metadata = request.headers()["accept"].to_str().is_ok_and(|accept| accept.contains("as=Partial"));
        let number = |name: &str| query.get(name).map(|text| text.parse::<u64>().expect("a number"));
        // Before it waits: what was asked counts from when it was.
        self.0.send_if_modified(|shard| {
            shard.heads += usize::from(number("limit") == Some(1));
            shard.comparisons += usize::from(metadata && !query.contains_key("resourceVersion"));
            shard.lists += usize::from(number("limit") == Some(500) && !metadata);
            false
        });
        self.until(|shard| !shard.paused).await;
        if !query.contains_key("watch") {
            return Ok(self.list(number("limit"), number("resourceVersion"), metadata));
        }
        if query.contains_key("sendInitialEvents") {
            return Ok(status(422));
        }
        let (from, time) = (number("resourceVersion"), number("timeoutSeconds"));
        Ok(self.watch(from.expect("a version"), Duration::from_secs(time.expect("a time"))))
    }

    fn list(&self, limit: Option<u64>, at: Option<u64>, metadata: bool) -> Answer {
        let mut fails = false;
        self.0.send_if_modified(|shard| {
            fails = limit == Some(1) && shard.failing > 0;
            shard.failing -= u32::from(fails);
            fails
        });
        if fails {
            return status(500);
        }
        self.look(|shard| {
            let at = at.unwrap_or(shard.version);
            if at < shard.forgotten {
                return status(410);
            }
            let items = shard.held(at).into_iter().map(|(name, (uid, version))| {
                let mut item = object(&name, &uid, version);
                if metadata {
                    item.as_object_mut().expect("an object").remove("spec");
                }
                item
            });
            let items: Vec<_> = items.take(limit.unwrap_or(u64::MAX) as usize).collect();
            let list = json!({"metadata": {"resourceVersion": at.to_string()}, "items": items});
            Response::new(Full::new(Bytes::from(list.to_string())).boxed_unsync())
        })
    }

    fn watch(&self, from: u64, time: Duration) -> Answer {
        if self.look(|shard| from < shard.forgotten) {
            return status(410);
        }
        let mut number = 0;
        self.change(|shard| {
            shard.watches += 1;
            number = shard.watches;
        });
        let deadline = Instant::now() + time;
        let bookmark = (deadline - BOOKMARK_BEFORE).min(Instant::now() + BOOKMARK_EVERY);
        let watcher = Watcher {
            shard: self.0.subscribe(),
            number,
            at: from,
            bookmark: Some(bookmark),
            asked: self.look(|shard| shard.asked),
            deadline,
        };
        let lines = stream::unfold(watcher, |mut watcher| async {
            let line = watcher.next().await?;
            Some((Ok(Frame::data(Bytes::from(format!("{line}\n")))), watcher))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

struct Watcher {
    shard: watch::Receiver<Shard>,
    number: usize,
    at: u64,
    bookmark: Option<Instant>,
    /// How often bookmarks had been asked for when it last sent one.
    asked: Option<usize>,
    deadline: Instant,
}

impl RequestProgress for Stub {
    fn request_progress<'a>(&'a self, _: &'a Resource) -> BoxFuture<'a, Result<(), String>> {
        self.change(|shard| shard.asked = shard.asked.map(|times| times + 1));
        std::future::ready(Ok(())).boxed()
    }
}

impl Watcher {
    async fn next(&mut self) -> Option<Value> {
        loop {
            let (event, bookmarks) = {
                let shard = self.shard.borrow_and_update();
                let lost = shard.lost.filter(|(_, upto)| self.number <= *upto).map(|(version, _)| version);
                let shown = shard.shown();
                let next = shard.log.iter().find(|change| {
                    change.version > self.at && change.version <= shown && Some(change.version) != lost
                });
                (next.filter(|_| !shard.paused).cloned(), shard.bookmarks && !shard.paused)
            };
            if let Some(Change { version, kind, name, uid }) = event {
                self.at = version;
                return Some(json!({"type": kind, "object": object(&name, &uid, version)}));
            }
            let (asked, shown) = {
                let shard = self.shard.borrow();
                (shard.asked, shard.shown())
            };
            if bookmarks && self.asked != asked {
                self.asked = asked;
                return Some(bookmark_at(shown));
            }
            let bookmark = self.bookmark.filter(|_| bookmarks);
            tokio::select! {
                biased;
                changed = self.shard.changed() => changed.ok()?,
                () = sleep_until(bookmark.unwrap_or(self.deadline)) => {
                    bookmark?;
                    let next = Instant::now() + BOOKMARK_EVERY;
                    self.bookmark = Some(next).filter(|next| *next < self.deadline - BOOKMARK_BEFORE);
                    return Some(bookmark_at(shown));
                }
            }
        }
    }
}

fn bookmark_at(version: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version.to_string()}}})
}

fn object(name: &str, uid: &str, version: u64) -> Value {
    json!({"apiVersion": "stable.example.io/v1", "kind": KIND, "spec": {"is": version},
        "metadata": {"name": name, "uid": uid, "resourceVersion": version.to_string()}})
}

fn status(code: u16) -> Answer {
    let body = json!({"kind": "Status", "code": code, "message": "as the test wants"}).to_string();
    let response = Response::builder().status(code);
    response.body(Full::new(Bytes::from(body)).boxed_unsync()).expect("a legal answer")
}

/// What the cache was told that is not about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Everything up to a version was sent.
    Progress(u64),
    /// The same, as the answer to a barrier.
    Answer { id: u64, version: u64, provider: Provider },
    /// A list was complete.
    Synced(u64),
}

/// The cache's side of a stream: applies what comes, as the protocol says, takes nothing twice, and at each
/// version that is named to it has what the source had.
pub(super) struct Cache {
    stub: Stub,
    to: mpsc::Sender<Result<ServerFrame, LinkError>>,
    from: mpsc::Receiver<Bytes>,
    lines: VecDeque<String>,
    seq: u64,
    barriers: u64,
    pub(super) position: u64,
    pub(super) syncs: usize,
    pub(super) objects: BTreeMap<String, Held>,
    listed: Option<BTreeMap<String, Held>>,
    pub(super) report: Arc<Report>,
    pub(super) session: AbortOnDropHandle<Result<(), CellError>>,
}

impl Cache {
    /// A stream of a shard's type, welcomed with the need of a sync.
    pub(super) async fn welcome(stub: &Stub) -> Self {
        let resource = Resource::new("stable.example.io", "v1", "widgets");
        let report = Arc::<Report>::default();
        let cell = Cell {
            shard: "amber".to_owned(),
            cluster: CLUSTER.to_owned(),
            source: Source::new(stub.client(), &resource, ""),
            resource,
            prune: Prune::default(),
            report: Arc::clone(&report),
            turns: Arc::new(tokio::sync::Semaphore::new(1)),
            progress: stub.look(|shard| shard.asked).map(|_| Arc::new(stub.clone()) as _),
            mirror: Arc::default(),
        };
        let (output, from) = mpsc::channel(8);
        let (to, input) = mpsc::channel(256);
        let reader = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let stream = Stream { output, input, _reader: reader };
        let hello =
            Hello { holder: "h".into(), instance: "i".into(), source: "s".into(), ..Hello::default() };
        let stop = CancellationToken::new();
        let session = tokio::spawn(async move { cell.converse(stream, hello, KIND.to_owned(), &stop).await });
        let mut cache = Self {
            stub: stub.clone(),
            to,
            from,
            lines: VecDeque::new(),
            seq: 0,
            barriers: 0,
            position: 0,
            syncs: 0,
            objects: BTreeMap::new(),
            listed: None,
            report,
            session: AbortOnDropHandle::new(session),
        };
        let line = cache.line().await;
        assert!(matches!(client::read(line.as_bytes()), Ok((1, ClientFrame::Hello(_)))), "{line}");
        cache.seq = 1;
        cache
            .tell(ServerFrame::Welcome {
                term: 1,
                window: 1 << 20,
                r#gen: Some(1),
                position: None,
                need_sync: true,
                reason: Some("NeverSynced".into()),
                count: None,
                digest: None,
            })
            .await;
        cache
    }

    /// The same, after its sync.
    pub(super) async fn synced(stub: &Stub) -> Self {
        let mut cache = Self::welcome(stub).await;
        while !matches!(cache.next().await, Told::Synced(_)) {}
        cache
    }

    async fn tell(&self, frame: ServerFrame) {
        self.to.send(Ok(frame)).await.expect("the session goes on");
    }

    /// Sends a barrier; its number.
    pub(super) async fn barrier(&mut self) -> u64 {
        self.barriers += 1;
        self.tell(ServerFrame::Barrier { id: self.barriers }).await;
        self.barriers
    }

    /// Sends a barrier, and reads to its answer; version and provider, and how long it took.
    pub(super) async fn confirmed(&mut self) -> (u64, Provider, Duration) {
        let (began, asked) = (Instant::now(), self.barrier().await);
        loop {
            if let Told::Answer { id, version, provider } = self.next().await {
                assert_eq!(id, asked);
                return (version, provider, began.elapsed());
            }
        }
    }

    /// Reads for so long; what came that is not about an object.
    pub(super) async fn read_for(&mut self, time: Duration) -> Vec<Told> {
        let deadline = Instant::now() + time;
        let mut all = Vec::new();
        while let Ok(told) = tokio::time::timeout_at(deadline, self.next()).await {
            all.push(told);
        }
        all
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return line;
            }
            let piece = self.from.recv().await;
            let piece = piece.unwrap_or_else(|| panic!("the session has ended: {:?}", self.session));
            let text = std::str::from_utf8(&piece).expect("text");
            self.lines.extend(text.lines().map(str::to_owned));
        }
    }

    /// The next frame that is not about an object. Cancel safe.
    pub(super) async fn next(&mut self) -> Told {
        loop {
            let line = self.line().await;
            let (seq, frame) = client::read(line.as_bytes()).expect("a legal frame");
            assert_eq!(seq, self.seq + 1, "{line}");
            self.seq = seq;
            let told = self.apply(&frame);
            let ack = ServerFrame::Ack { seq, position: None, cache_rv: "1".into() };
            self.to.try_send(Ok(ack)).expect("the session reads");
            if let Some(told) = told {
                return told;
            }
        }
    }

    fn apply(&mut self, frame: &ClientFrame<'_>) -> Option<Told> {
        match frame {
            ClientFrame::SyncStart { .. } => self.listed = Some(BTreeMap::new()),
            ClientFrame::SyncEnd { version, sum, .. } => {
                self.objects = self.listed.take().expect("a sync");
                self.syncs += 1;
                self.reaches(*version, *sum);
                return Some(Told::Synced(*version));
            }
            ClientFrame::Upsert(upsert) => {
                let object: Value = serde_json::from_str(upsert.object).expect("JSON");
                let text = |name: &str| object["metadata"][name].as_str().expect("text").to_owned();
                let held = (text("uid"), upsert.version);
                if let Some(listed) = &mut self.listed {
                    listed.insert(text("name"), held);
                } else {
                    self.rises(upsert.version);
                    self.objects.insert(text("name"), held);
                }
            }
            ClientFrame::Delete(delete) => {
                self.rises(delete.version);
                self.objects.remove(&*delete.name).expect("it is there");
            }
            ClientFrame::Progress { at: Some((version, sum)), barrier, provider } => {
                self.reaches(*version, *sum);
                let version = *version;
                return Some(match barrier {
                    Some(id) => Told::Answer { id: *id, version, provider: provider.expect("a provider") },
                    None => Told::Progress(version),
                });
            }
            other => panic!("{other:?}"),
        }
        None
    }

    fn reaches(&mut self, version: u64, sum: Sum) {
        assert!(version >= self.position, "{version} after {}", self.position);
        self.position = version;
        assert_eq!(sum, self.sum(), "what the pusher has sent is what came");
        assert_eq!(self.objects, self.stub.look(|shard| shard.held(version)), "at {version}");
    }

    /// Events come in order, and each once.
    fn rises(&mut self, version: u64) {
        assert!(version > self.position, "{version} came when all up to {} had", self.position);
        self.position = version;
    }

    fn sum(&self) -> Sum {
        let entries = self.objects.iter().map(|(name, (uid, version))| {
            let key = KeyParts { shard: "", cluster: CLUSTER, namespace: "", name };
            entry_digest(key, uid, *version)
        });
        Sum { count: self.objects.len() as u64, digest: entries.fold(Digest::default(), Digest::with) }
    }
}
