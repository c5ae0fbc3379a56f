//! Events to many watchers: to all of them, and to one in ten thousand.

use futures::future::{try_join, try_join_all};

use crate::harness::client::Client;
use crate::harness::objects::{EVENT_BYTES, object};
use crate::harness::scale::{repetitions, scaled, scaled_rounds};
use crate::harness::verdict::{Better, Goal, Refusal, Row};
use crate::measure::{Turn, rounds};
use crate::pair::{Pair, Peer, Side};

const ROUNDS: usize = 5;
/// Watchers of everything.
const EVERYTHING: usize = 1_000;
/// Watchers of one label value each.
pub(crate) const DISJOINT: usize = 10_000;
/// Events that are written at once; the next ones follow when all watchers have these.
const BURST: usize = 8;
/// Bursts of a turn to watchers of everything.
const BURSTS: usize = 40;

/// The watchers of both servers.
struct Audience {
    ours: Vec<Client>,
    theirs: Vec<Client>,
}

impl Audience {
    async fn open(pair: &Pair, selectors: &[String]) -> Result<Self, Refusal> {
        let ours = pair.ours.watchers(selectors).await?;
        Ok(Self { ours, theirs: pair.theirs.watchers(selectors).await? })
    }

    fn of(&mut self, side: Side) -> &mut Vec<Client> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Refuses if anybody got more than what was written.
fn check<'a>(watchers: impl IntoIterator<Item = &'a mut Client>) -> Result<(), Refusal> {
    for client in watchers {
        let surplus = client.surplus()?;
        if !surplus.is_empty() {
            let difference = format!("more arrived than was written: {surplus}");
            return Err(Refusal::Unequal { what: "events".into(), difference });
        }
    }
    Ok(())
}

/// Every event to a thousand watchers.
pub(crate) async fn everything(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let watchers = scaled(EVERYTHING);
    let mut audience = Audience::open(pair, &vec![String::new(); watchers]).await?;
    let bursts = repetitions(BURSTS);
    let series = rounds(pair, scaled_rounds(ROUNDS), async |peer: &mut Peer, round| {
        let clients = audience.of(peer.side);
        let mut writers = writers(peer).await?;
        let turn = Turn::begin(peer);
        for burst in 0..bursts {
            let first = (round * bursts + burst) * BURST;
            let owners = vec![0; BURST];
            try_join(
                write(peer, &mut writers, "all", first, &owners),
                read(clients.iter_mut().map(|client| (client, BURST))),
            )
            .await?;
        }
        let deliveries = (bursts * BURST * watchers) as f64;
        Ok([deliveries / turn.cpu(peer), deliveries / turn.seconds()])
    })
    .await?;
    check(audience.ours.iter_mut().chain(&mut audience.theirs))?;
    compare(pair).await?;
    let [ours_cpu, ours_time] = series.ours;
    let [theirs_cpu, theirs_time] = series.theirs;
    let row = |what: &str, ours, theirs, goal| Row {
        what: what.into(),
        unit: "/s".into(),
        better: Better::More,
        ours,
        theirs,
        goal,
    };
    Ok(vec![
        row("deliveries per second of server CPU", ours_cpu, theirs_cpu, Some(Goal::Gain(3.0))),
        row("deliveries per second", ours_time, theirs_time, None),
    ])
}

/// Every event to one of ten thousand watchers. They are there for one turn only, or this process would
/// hold twice as many connections.
pub(crate) async fn disjoint(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let watchers = scaled(DISJOINT).max(BURST);
    let selectors: Vec<_> = (0..watchers).map(|owner| format!("&labelSelector=owner={owner}")).collect();
    let series = rounds(pair, scaled_rounds(ROUNDS), async |peer: &mut Peer, round| {
        let mut clients = peer.watchers(&selectors).await?;
        let mut writers = writers(peer).await?;
        let bursts = repetitions(if peer.side == Side::Ours { 250 } else { 25 });
        let turn = Turn::begin(peer);
        for burst in 0..bursts {
            let first = (round * bursts + burst) * BURST;
            // Far apart, so that no two are the same.
            let apart = watchers / BURST;
            let owners: Vec<_> = (0..BURST).map(|at| (first + at * apart) % watchers).collect();
            write(peer, &mut writers, "one", first, &owners).await?;
            let chosen = clients.iter_mut().enumerate().filter(|(at, _)| owners.contains(at));
            read(chosen.map(|(_, client)| (client, 1))).await?;
        }
        let each = turn.cpu(peer) / (bursts * BURST) as f64 * 1e3;
        check(&mut clients)?;
        Ok([each])
    })
    .await?;
    let ([ours], [theirs]) = (series.ours, series.theirs);
    let goal = Some(Goal::Gain(100.0));
    let what = "server CPU per event, its durable write included".into();
    Ok(vec![Row { what, unit: "ms".into(), better: Better::Less, ours, theirs, goal }])
}

async fn writers(peer: &Peer) -> Result<Vec<Client>, Refusal> {
    try_join_all((0..BURST).map(|_| peer.connect())).await
}

/// Creates an object for each owner, all at once.
async fn write(
    peer: &Peer,
    writers: &mut [Client],
    prefix: &str,
    first: usize,
    owners: &[usize],
) -> Result<(), Refusal> {
    try_join_all(writers.iter_mut().zip(owners).enumerate().map(async |(at, (client, owner))| {
        let number = first + at;
        let body = object(&format!("{prefix}-{number}"), number, &owner.to_string(), EVENT_BYTES);
        peer.create(client, &body).await
    }))
    .await
    .map(drop)
}

/// Reads until each client has so many more events.
async fn read(clients: impl Iterator<Item = (&mut Client, usize)>) -> Result<(), Refusal> {
    try_join_all(clients.map(async |(client, count)| client.events(count).await)).await?;
    Ok(())
}

/// Refuses unless both hold the same objects.
async fn compare(pair: &Pair) -> Result<(), Refusal> {
    let count = crate::harness::verdict::contents(&pair.theirs.list("").await?)?.len();
    pair.compare("what was written to the watched collection", count).await
}
