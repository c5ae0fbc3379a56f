//! A store that is slow slows down who pushes, and nobody who reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use shardcache_proxy::metrics::labels::PushEnd;
use shardcache_proxy::push::PushConfig;
use shardcache_proxy::service::ApiConfig;
use shardcache_storage::{Frames, Op, Push, Pushed, RedbOptions, RedbStore, StorageError, Store, Verdict};
use tokio::sync::watch;

use super::pusher::{Door, ends, held, served};
use super::source::Source;
use crate::stand::{Setting, Stand};
use crate::wire::within;

/// A store that says that frames are done only while its gate is open.
struct Gate {
    store: Arc<RedbStore>,
    open: watch::Sender<bool>,
    /// Batches of frames that wait at the gate.
    waiting: watch::Sender<usize>,
    /// How often the end of a sync is to be asked for again.
    sweeps: AtomicUsize,
}

impl Gate {
    fn set(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Waits until so many batches wait.
    async fn holds(&self, batches: usize) {
        let mut waiting = self.waiting.subscribe();
        drop(within(waiting.wait_for(|waiting| *waiting >= batches)).await.expect("the gate is there"));
    }
}

impl Store for Gate {
    fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>> {
        let Push::Frames(Frames { cell, term, session, mut ops, now_ms }) = push else {
            return self.store.push(push);
        };
        let less = |left: usize| left.checked_sub(1);
        let again = matches!(ops.last(), Some(Op::SyncEnd { .. }))
            && self.sweeps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if again {
            ops.pop();
        }
        let pushed = self.store.push(Push::Frames(Frames { cell, term, session, ops, now_ms }));
        let (mut open, waiting) = (self.open.subscribe(), self.waiting.clone());
        waiting.send_modify(|waiting| *waiting += 1);
        Box::pin(async move {
            drop(open.wait_for(|open| *open).await);
            waiting.send_modify(|waiting| *waiting -= 1);
            let mut pushed = pushed.await?;
            if again {
                pushed.verdict = Verdict::Sweeping;
            }
            Ok(pushed)
        })
    }

    shardcache_storage::delegate_store!(store: commit, subscribe, lineage, events, backup, health, close);
}

/// A server behind an open gate.
async fn gated(push: PushConfig) -> (tempfile::TempDir, Arc<Gate>, Stand) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = RedbOptions::new(directory.path());
    let opening = tokio::task::spawn_blocking(|| RedbStore::open(options));
    let store = opening.await.expect("joined").expect("a new store");
    let gate = Arc::new(Gate {
        store: Arc::clone(&store),
        open: watch::Sender::new(true),
        waiting: watch::Sender::new(0),
        sweeps: AtomicUsize::new(0),
    });
    let setting = Setting { api: ApiConfig { push, ..Setting::default().api }, ..Setting::default() };
    let stand = Stand::behind(store, Arc::clone(&gate) as _, &setting).await;
    (directory, gate, stand)
}

#[tokio::test(flavor = "multi_thread")]
async fn d31_a_slow_store_holds_up_the_pusher_within_its_window_and_no_reader() {
    const WINDOW: usize = 64 << 10;
    let push = PushConfig { window_bytes: WINDOW, frame_bytes_max: 16 << 10, ..PushConfig::default() };
    let (_directory, gate, stand) = gated(push).await;
    let (wire, door) = (stand.wire(), Door::http2(&stand).await);
    let mut source = Source::roles("amber").with(&["a"]);
    let exports = Source::exports("amber").with(&["x"]);
    let (mut pusher, welcome) = door.cell(&source, "i1").await;
    assert_eq!(welcome["window"], WINDOW);
    pusher.send_all(source.sync(1));
    pusher.settled().await;
    let before = stand.api.metrics.push.bytes.get();
    gate.set(false);
    // Ten times the window.
    let fill = "x".repeat(4 << 10);
    for number in 0..160 {
        let mut frame = source.put(&format!("large-{number}"), "gold");
        frame["object"]["metadata"]["annotations"] = json!({"fill": fill});
        pusher.send(frame);
    }
    gate.holds(4).await;
    // Everybody reads, another stream begins, and ordinary writes are done.
    for _ in 0..20 {
        assert_eq!(wire.get(&source.collection()).await.status, 200);
        assert!(wire.watch(&source.collection(), "resourceVersion=0").await.is_ok());
        let (_, welcome) = door.cell(&exports, "i1").await;
        assert_eq!(welcome["type"], "welcome");
    }
    let read = stand.api.metrics.push.bytes.get() - before;
    assert!(read < 2 * WINDOW as u64, "{read} bytes were read without an ack");
    gate.set(true);
    let ack = pusher.settled().await;
    assert_eq!(served(&wire, &source, &ack).await, held(&source));
    pusher.send(source.progress());
    pusher.settled().await;
    drop((pusher, door));
    stand.close().await;
}

/// What the server does not read it cannot hear. Another stream, which it does read, is the clock.
#[tokio::test(flavor = "multi_thread")]
async fn d32_a_stream_that_the_store_holds_up_neither_ends_nor_counts_as_silent() {
    let push = PushConfig {
        silence: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(3),
        ..PushConfig::default()
    };
    let (_directory, gate, stand) = gated(push).await;
    let door = Door::http2(&stand).await;
    let mut source = Source::roles("amber").with(&["a"]);
    let mut pusher = door.synced(&source, "i1").await;
    gate.set(false);
    for (name, batches) in [("b", 1), ("c", 2), ("d", 3), ("e", 4)] {
        pusher.send(source.put(name, "gold"));
        gate.holds(batches).await;
    }
    pusher.send(source.put("f", "gold"));
    // It begins when the other is not read any more, and is over after longer than anybody may be silent.
    let (mut clock, _) = door.cell(&Source::exports("amber"), "i1").await;
    assert_eq!(clock.refused().await.0, 504);
    let (_, held_up) = door.control("amber", "i2").await;
    assert_eq!(held_up["status"]["code"], 409, "the holder is not silent: {held_up}");
    gate.set(true);
    let ack = pusher.settled().await;
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    assert_eq!(ends(&stand, PushEnd::Silent), 1, "the clock");
    drop((pusher, clock, door));
    stand.close().await;
}

/// Streams that hold parts of the budget and wait for more must not wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_share_a_small_budget_wait_and_all_come_to_their_end() {
    let push = PushConfig { bytes_in_flight_max: 8 << 10, ..PushConfig::default() };
    let (_directory, gate, stand) = gated(push).await;
    let door = Door::http2(&stand).await;
    let mut sources = [Source::roles("amber"), Source::exports("amber")];
    let mut pushers = [door.synced(&sources[0], "i1").await, door.synced(&sources[1], "i1").await];
    gate.set(false);
    let mut batches = 0;
    for name in ["first", "second"] {
        for (source, pusher) in sources.iter_mut().zip(&mut pushers) {
            let mut frame = source.put(name, "gold");
            frame["object"]["metadata"]["annotations"] = json!({"fill": "x".repeat(2 << 10)});
            pusher.send(frame);
            batches += 1;
            if name == "first" {
                gate.holds(batches).await;
            }
        }
    }
    for pusher in &mut pushers {
        assert_eq!(pusher.until("throttle").await, json!({"type": "throttle", "window": 4 << 20}));
    }
    assert_eq!(stand.api.metrics.push.throttled.get(), 2);
    gate.set(true);
    // There is room again, and they are told though they say nothing.
    for (source, pusher) in sources.iter_mut().zip(&mut pushers) {
        assert_eq!(pusher.until("throttle").await, json!({"type": "throttle", "window": 8 << 20}));
        pusher.send(source.put("third", "gold"));
        let ack = pusher.settled().await;
        assert_eq!(served(&stand.wire(), source, &ack).await, held(source));
    }
    drop((pushers, door));
    stand.close().await;
}

/// A pusher that reads nothing of what it is told keeps nothing that others wait for, and is let go.
#[tokio::test(flavor = "multi_thread")]
async fn a_pusher_that_does_not_read_holds_up_nobody_and_is_cut() {
    let push = PushConfig {
        bytes_in_flight_max: 8 << 10,
        idle_timeout: Duration::from_secs(2),
        ..PushConfig::default()
    };
    let (_directory, gate, stand) = gated(push).await;
    let large = |source: &mut Source, name: &str, size: usize| {
        let mut frame = source.put(name, "gold");
        frame["object"]["metadata"]["annotations"] = json!({"fill": "x".repeat(size)});
        frame
    };
    let mut exports = Source::exports("amber");
    let door = Door::http2(&stand).await;
    let mut other = door.synced(&exports, "i1").await;
    // The welcome fits into its window, and hardly anything after it.
    let stuck_door = Door::narrow(&stand, Some(160)).await;
    let mut source = Source::roles("amber");
    let mut stuck = stuck_door.begin(&source.push_path()).await.expect("a stream");
    stuck.send(source.hello("i1"));
    gate.set(false);
    stuck.send(json!({"type": "syncStart", "sync": 1}));
    gate.holds(1).await;
    for (name, batches) in [("a", 2), ("b", 3)] {
        stuck.send(large(&mut source, name, 2 << 10));
        if batches == 2 {
            gate.holds(batches).await;
        }
    }
    gate.set(true);
    // Needs nearly all of what may be in flight.
    for round in 0..3 {
        other.send(large(&mut exports, &format!("x{round}"), 6 << 10));
        let ack = other.settled().await;
        assert_eq!(served(&stand.wire(), &exports, &ack).await, held(&exports));
    }
    // It goes on without reading, until nothing more is taken from it.
    let stalled = || ends(&stand, PushEnd::Stalled);
    while stalled() == 0 {
        stuck.send(source.upsert("a"));
        other.send(exports.progress());
        other.settled().await;
    }
    assert_eq!(stalled(), 1);
    drop((stuck, stuck_door, other, door));
    stand.close().await;
}

/// The end of a sync that takes several commits, while frames before it are still with the store.
#[tokio::test(flavor = "multi_thread")]
async fn d33_a_sweep_of_several_commits_ends_before_anything_follows() {
    let (_directory, gate, stand) = gated(PushConfig::default()).await;
    let door = Door::http2(&stand).await;
    let mut source = Source::roles("amber").with(&["a", "b"]);
    let mut pusher = door.synced(&source, "i1").await;
    source.delete("b");
    let mut frames = source.sync(2);
    let end = frames.pop().expect("its end");
    gate.set(false);
    pusher.send_all(frames);
    gate.holds(1).await;
    gate.sweeps.store(3, Ordering::Relaxed);
    pusher.send(end);
    gate.holds(2).await;
    pusher.send(source.put("c", "gold"));
    pusher.send(source.progress());
    gate.set(true);
    let ack = pusher.settled().await;
    assert_eq!(gate.sweeps.load(Ordering::Relaxed), 0);
    assert_eq!(ack["position"], source.head.to_string(), "{ack}");
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    drop((pusher, door));
    stand.close().await;
}
