//! 100k objects of 2 KiB: resident memory, and how long a thousand watchers are without events after a kill.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::{try_join, try_join_all};
use tokio::sync::Semaphore;

use crate::harness::client::Client;
use crate::harness::objects::{EVENT_BYTES, object};
use crate::harness::scale::{note, scaled, scaled_rounds};
use crate::harness::seed::{post, version_of};
use crate::harness::verdict::{Goal, Refusal, Row};
use crate::measure::rounds;
use crate::pair::{Pair, Peer};

pub(crate) const OBJECTS: usize = 100_000;
const MEMORY_ROUNDS: usize = 5;
const RESTART_ROUNDS: usize = 3;
/// Watchers; each selects the objects of its own owner.
pub(crate) const WATCHERS: usize = 1_000;
/// How often it is looked whether everybody's stream is open, and how long a marker is given to arrive.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const MARKER_EVERY: Duration = Duration::from_millis(100);
/// Connections that are opened at once: the queue of those not yet accepted is short.
const OPENING: usize = 64;
/// How long a watcher waits before it lists again that was turned away, as client-go does.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// Resident memory of a server that was started on its store and has settled.
pub(crate) async fn memory(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let series = rounds(pair, scaled_rounds(MEMORY_ROUNDS), async |peer: &mut Peer, _| {
        peer.kill_and_start().await;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Ok([mebibytes(peer.settled_rss().await), mebibytes(peer.server.anonymous_rss())])
    })
    .await?;
    pair.compare("what a restart left", scaled(OBJECTS)).await?;
    let [ours, ours_anonymous] = series.ours;
    let [theirs, theirs_anonymous] = series.theirs;
    let row = |what: &str, ours, theirs, goal| Row::less(what, "MiB", ours, theirs, goal);
    Ok(vec![
        row("resident memory", ours, theirs, Some(Goal::Share(1.0 / 6.0))),
        row("of it no file's pages", ours_anonymous, theirs_anonymous, None),
    ])
}

/// SIGKILL until a thousand watchers have an event that was written afterwards.
pub(crate) async fn restart(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let series = rounds(pair, scaled_rounds(RESTART_ROUNDS), async |peer: &mut Peer, round| {
        let known = peer.version().await?;
        // Watchers know the newest version of their type; other types are written to as well, as leases
        // are in every cluster.
        let other = other_object(&format!("other-{round}"));
        post(&mut peer.connect().await?, &peer.side.other_writes(), other.as_bytes()).await?;
        let began = Instant::now();
        let ready = peer.kill_and_start().await;
        let (live, lists) = all_live(peer, round, &known).await?;
        let live = live.duration_since(began).as_secs_f64();
        note(&format!("  {:?}: ready after {ready:.2} s, live after {live:.2} s", peer.side));
        Ok([live, ready, lists as f64])
    })
    .await?;
    let [ours_live, ours_ready, ours_lists] = series.ours;
    let [theirs_live, theirs_ready, theirs_lists] = series.theirs;
    let row = Row::less;
    let live = "SIGKILL → every watcher has a new event";
    Ok(vec![
        row(live, "s", ours_live, theirs_live, Some(Goal::Gain(10.0))),
        row("SIGKILL → ready", "s", ours_ready, theirs_ready, None),
        row("LISTs that the watchers needed", "", ours_lists, theirs_lists, Some(Goal::Ours(0.0))),
    ])
}

fn other_object(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{{"name":"{name}"}},"spec":{{}}}}"#
    )
}

/// How far the watchers are.
#[derive(Default)]
struct Progress {
    /// Streams that are open and have had no event.
    open: AtomicUsize,
    /// Watchers that have had an event.
    live: AtomicUsize,
    lists: AtomicUsize,
}

/// Resumes every watcher at `known`, as a controller does. Whenever all their streams are open a marker is
/// written, which is an event for each of them; usually one is enough. Returns when the last one was live,
/// and the lists that they needed.
async fn all_live(peer: &Peer, round: usize, known: &str) -> Result<(Instant, usize), Refusal> {
    let count = scaled(WATCHERS);
    let opening = Semaphore::new(OPENING);
    let progress = Progress::default();
    let watchers = async {
        try_join_all((0..count).map(|owner| follow(peer, owner, known, &opening, &progress))).await?;
        Ok(Instant::now())
    };
    let markers = async {
        let mut number = 0;
        while progress.live.load(Ordering::Relaxed) < count {
            let live = progress.live.load(Ordering::Relaxed);
            if progress.open.load(Ordering::Relaxed) + live < count {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            let body = object(&format!("marker-{round}-{number}"), number, MARKER, EVENT_BYTES);
            // A connection of its own: kube-apiserver closes one that was idle for 90 s, and the lists take longer.
            peer.create(&mut peer.connect().await?, &body).await?;
            number += 1;
            tokio::time::sleep(MARKER_EVERY).await;
        }
        Ok::<_, Refusal>(())
    };
    let (live, ()) = try_join(watchers, markers).await?;
    Ok((live, progress.lists.into_inner()))
}

/// The owner of markers, which every watcher selects too.
const MARKER: &str = "everybody";

/// What a controller does after its stream broke: watch from where it was; if that is too old, list and
/// watch from there; if the server cuts the connection, wait and watch again, as client-go does. Returns
/// when an event has arrived.
async fn follow(
    peer: &Peer,
    owner: usize,
    known: &str,
    opening: &Semaphore,
    progress: &Progress,
) -> Result<(), Refusal> {
    let selector = format!("labelSelector=owner+in+({owner},{MARKER})");
    let mut version = known.to_owned();
    loop {
        let path = peer.side.reads(&format!("watch=true&resourceVersion={version}&{selector}"));
        match first_event(peer, &path, opening, progress).await {
            Ok(()) => {
                progress.live.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(error) if error.to_string().contains(r#""code":410"#) => {
                version = relist(peer, &selector, &progress.lists).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                tokio::time::sleep(TURNED_AWAY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Watches until an event has arrived.
async fn first_event(peer: &Peer, path: &str, opening: &Semaphore, progress: &Progress) -> io::Result<()> {
    let mut client = {
        let _one = opening.acquire().await.expect("never closed");
        let mut client = Client::watcher(peer.server.address).await?;
        client.watch(path).await?;
        client
    };
    progress.open.fetch_add(1, Ordering::Relaxed);
    let event = client.events(1).await;
    progress.open.fetch_sub(1, Ordering::Relaxed);
    event
}

/// A list as client-go makes it after 410, repeated when the server says to wait (429), when it did not
/// manage in its own time (504) or cut the connection for that reason: a thousand lists at once are what is
/// measured here. Each counts as a list.
async fn relist(peer: &Peer, selector: &str, lists: &AtomicUsize) -> Result<String, Refusal> {
    loop {
        lists.fetch_add(1, Ordering::Relaxed);
        let path = peer.side.reads(&format!("limit=500&{selector}"));
        match peer.connect().await?.fetch(&path).await {
            Ok((200, body)) => return version_of(&body),
            Ok((429 | 504, _)) => {}
            Ok((code, body)) => {
                let refused = format!("{path}: {code} {}", String::from_utf8_lossy(&body));
                return Err(io::Error::other(refused).into());
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(TURNED_AWAY).await;
    }
}
