//! One write at the source at a time: when its event is at a watcher of the source, and when at one of the
//! cache; and what one fsync takes meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use futures::future::try_join3;

use crate::harness::client::Client;
use crate::harness::machine::undisturbed;
use crate::harness::objects::{COLLECTION, EVENT_BYTES, object};
use crate::harness::run::within;
use crate::harness::scale::{note, repetitions, scaled_rounds};
use crate::harness::seed::post;
use crate::harness::server::Server;
use crate::harness::verdict::{Better, Goal, Refusal, Row, median, quantile};
use crate::stand::{RESOURCE, SHARD, Stand, cached};

const ROUNDS: usize = 5;
const WRITES: usize = 300;
/// Between an event and the next write: the acks of the one are over.
const PAUSE: Duration = Duration::from_millis(5);
/// redb writes pages of this size.
const PAGE_BYTES: usize = 4 << 10;
const PAGES: usize = 256;
/// What the goal allows of an fsync.
const FSYNCS: f64 = 1.5;

/// Milliseconds.
#[derive(Clone, Copy)]
struct Latencies {
    source: f64,
    cache: f64,
    fsync: f64,
}

pub(crate) async fn steady(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    stand.empty_cache().await?;
    let flags = ["--shard", SHARD, "--resource", RESOURCE];
    stand.replicator = Some(Server::replicator(stand.source.address, stand.cache().address, &flags));
    stand.synced(0).await?;
    let disk = Disk::open(stand)?;
    let writes = repetitions(WRITES).max(10);
    let mut written = 0;
    let rounds = undisturbed(stand, scaled_rounds(ROUNDS), async |stand: &mut Stand, _| {
        let latencies = round(stand, &disk, written, writes).await?;
        written += writes;
        let of = |pick: fn(&Latencies) -> f64| latencies.iter().map(pick).collect::<Vec<_>>();
        let after = of(|latency| latency.cache - latency.source);
        let (cache, source) = (of(|latency| latency.cache), of(|latency| latency.source));
        let fsync = median(&of(|latency| latency.fsync));
        let values = [
            median(&cache),
            median(&source),
            fsync,
            median(&after),
            quantile(&cache, 0.99),
            quantile(&source, 0.99),
        ];
        note(&format!("  cache, source, fsync, after, p99s: {values:.3?} ms"));
        Ok(values)
    })
    .await?;
    stand.compare("what was written", written).await?;
    let of = |pick: &dyn Fn(&[f64; 6]) -> f64| rounds.iter().map(pick).collect::<Vec<_>>();
    let row = |what: &str, ours, theirs, goal| Row {
        what: what.into(),
        unit: "ms".into(),
        better: Better::Less,
        ours,
        theirs,
        goal,
    };
    Ok(vec![
        row(
            "sent → event at a watcher of the cache, p50; 1.5 fsyncs and the source's own watch latency",
            of(&|round| round[0]),
            of(&|round| FSYNCS * round[2] + round[1]),
            Some(Goal::Share(1.0)),
        ),
        row(
            "the same; one fsync and the source's own watch latency",
            of(&|round| round[0]),
            of(&|round| round[2] + round[1]),
            Some(Goal::Share(FSYNCS)),
        ),
        row(
            "event at a watcher of the source → at one of the cache, p50; one fsync",
            of(&|round| round[3]),
            of(&|round| round[2]),
            None,
        ),
        row(
            "sent → event at a watcher of the cache, p99; at one of the source",
            of(&|round| round[4]),
            of(&|round| round[5]),
            None,
        ),
    ])
}

/// Writes one after the other, each when the one before is at both watchers.
async fn round(stand: &Stand, disk: &Disk, first: usize, writes: usize) -> Result<Vec<Latencies>, Refusal> {
    let mut client = Client::connect(stand.source.address).await?;
    let mut source = Client::watcher(stand.source.address).await?;
    let version = stand.source_version().await?;
    source.watch(&format!("{COLLECTION}?watch=true&resourceVersion={version}")).await?;
    let mut cache = Client::watcher(stand.cache().address).await?;
    let version = stand.cache_version().await?;
    cache.watch(&format!("{}?watch=true&resourceVersion={version}", cached())).await?;
    let mut latencies = Vec::with_capacity(writes);
    for number in first..first + writes {
        let body = object(&format!("single-{number}"), number, "0", EVENT_BYTES);
        let sent = Instant::now();
        let seen = async |watcher: &mut Client| {
            watcher.events(1).await?;
            Ok::<_, Refusal>(sent.elapsed().as_secs_f64() * 1e3)
        };
        let write = post(&mut client, COLLECTION, &body);
        let both = try_join3(write, seen(&mut source), seen(&mut cache));
        let ((), source, cache) = within("a single event", both).await?;
        let fsync = tokio::task::block_in_place(|| disk.fsync(number))?.as_secs_f64() * 1e3;
        latencies.push(Latencies { source, cache, fsync });
        tokio::time::sleep(PAUSE).await;
    }
    for (whose, watcher) in [("source", &mut source), ("cache", &mut cache)] {
        let surplus = watcher.surplus()?;
        if !surplus.is_empty() {
            let difference = format!("more arrived than was written: {surplus}");
            return Err(Refusal::Unequal { what: format!("events of the {whose}"), difference });
        }
    }
    Ok(latencies)
}

/// A file beside the stores, as large as it will be.
struct Disk {
    file: File,
}

impl Disk {
    fn open(stand: &Stand) -> Result<Self, Refusal> {
        let path = stand.file("fsync");
        std::fs::write(&path, vec![1; PAGES * PAGE_BYTES])?;
        let file = File::options().write(true).open(path)?;
        file.sync_all()?;
        Ok(Self { file })
    }

    /// One page written and synced, as redb does it: `fdatasync`.
    fn fsync(&self, number: usize) -> Result<Duration, Refusal> {
        let page = [number as u8; PAGE_BYTES];
        let began = Instant::now();
        self.file.write_all_at(&page, ((number % PAGES) * PAGE_BYTES) as u64)?;
        self.file.sync_data()?;
        Ok(began.elapsed())
    }
}
