//! How soon an up-to-date shard of 100k objects goes on, and what is sent for it: after its connection was
//! cut, after the cache was killed, and after the replicator was.

use std::time::{Duration, Instant};

use crate::harness::client::Client;
use crate::harness::machine::undisturbed;
use crate::harness::objects::{COLLECTION, EVENT_BYTES, object};
use crate::harness::run::within;
use crate::harness::scale::note;
use crate::harness::scale::scaled_rounds;
use crate::harness::seed::post;
use crate::harness::server::Server;
use crate::harness::verdict::{Better, Goal, Refusal, Row};
use crate::stand::{RESOURCE, SHARD, Stand};
use crate::tap::{Resumed, Tap};

const ROUNDS: usize = 5;
/// The cache lets a shard be taken over once in this time.
const TAKEOVER_EVERY: Duration = Duration::from_secs(5);
/// By its Lease a replicator that comes back knows that it is the leader still.
const FLAGS: [&str; 7] =
    ["--shard", SHARD, "--resource", RESOURCE, "--leader-election", "--identity", "bench-0"];

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Connection,
    Cache,
    Replicator,
}

/// Seconds until the cache says that no sync is needed, until count and digest are confirmed; bytes sent.
type Outcome = [f64; 3];

pub(crate) async fn reconnect(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    stand.empty_cache().await?;
    let tap = Tap::open(stand.cache().address).await?;
    let began = Instant::now();
    stand.replicator = Some(Server::replicator(stand.source.address, tap.address, &FLAGS));
    stand.synced(stand.filled).await?;
    let first = began.elapsed().as_secs_f64();
    let data = tap.mark() as f64;
    note(&format!("  the first sync took {first:.1} s and {:.1} MB", data / 1e6));
    let mut markers = 0;
    let rounds = undisturbed(stand, scaled_rounds(ROUNDS), async |stand: &mut Stand, _| {
        let mut outcomes = [[0.0; 3]; 3];
        for (at, what) in [Break::Connection, Break::Cache, Break::Replicator].into_iter().enumerate() {
            outcomes[at] = broken(stand, &tap, what).await?;
            note(&format!("  {what:?}: {:.3?}", outcomes[at]));
            follows(stand, markers).await?;
            markers += 1;
            tokio::time::sleep(TAKEOVER_EVERY).await;
        }
        Ok(outcomes)
    })
    .await?;
    stand.compare("after everything was killed", stand.filled + markers).await?;
    let of = |what: usize, quantity: usize| rounds.iter().map(|round| round[what][quantity]).collect();
    let seconds = |what: &str, ours, goal| Row {
        what: what.into(),
        unit: "s".into(),
        better: Better::Less,
        ours,
        theirs: vec![first],
        goal,
    };
    let bytes = |ours: Vec<f64>| Row {
        what: "bytes sent; by the first sync".into(),
        unit: "B".into(),
        better: Better::Less,
        ours,
        theirs: vec![data],
        goal: Some(Goal::Share(0.01)),
    };
    let goal = Some(Goal::Ours(1.0));
    Ok(vec![
        seconds("connection cut → count and digest confirmed; first sync", of(0, 1), goal),
        bytes(of(0, 2)),
        seconds("SIGKILL of the cache → the same", of(1, 1), goal),
        bytes(of(1, 2)),
        seconds("SIGKILL of the replicator → welcome without a sync", of(2, 0), goal),
        seconds("… → the same, names and versions read from the source before", of(2, 1), None),
        bytes(of(2, 2)),
    ])
}

async fn broken(stand: &mut Stand, tap: &Tap, what: Break) -> Result<Outcome, Refusal> {
    tap.mark();
    let began = Instant::now();
    match what {
        Break::Connection => tap.cut(),
        Break::Cache => {
            stand.cache = None;
            stand.start_cache();
            tap.lead_to(stand.cache().address);
        }
        Break::Replicator => {
            stand.replicator = None;
            stand.replicator = Some(Server::replicator(stand.source.address, tap.address, &FLAGS));
        }
    }
    let Resumed { welcomed, acked, sent, synced } =
        within(&format!("{what:?} restored"), async { Ok(tap.resumed().await) }).await?;
    if synced {
        let difference = "a shard that was up to date was synced again".to_owned();
        return Err(Refusal::Unequal { what: format!("{what:?}"), difference });
    }
    let seconds = |at: Instant| at.duration_since(began).as_secs_f64();
    Ok([seconds(welcomed), seconds(acked), sent as f64])
}

/// Waits until an object that is created at the source now is in the cache.
async fn follows(stand: &Stand, number: usize) -> Result<(), Refusal> {
    let name = format!("marker-{number}");
    let body = object(&name, number, "marker", EVENT_BYTES);
    post(&mut Client::connect(stand.source.address).await?, COLLECTION, &body).await?;
    within("an event after a reconnect", async {
        let path = format!("/services/cache/shards/{SHARD}/clusters/root{COLLECTION}/{name}");
        loop {
            let mut client = Client::connect(stand.cache().address).await?;
            if client.fetch(&path).await?.0 == 200 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}
