//! 50k objects of 2 KiB: listed whole, with gzip, by a selector, and streamed to many at once.

use std::io::Read as _;

use futures::future::try_join_all;

use crate::harness::client::Client;
use crate::harness::objects::BUCKETS;
use crate::harness::scale::{note, repetitions, scaled, scaled_rounds};
use crate::harness::verdict::{Better, Contents, Goal, Refusal, Row, contents, equal};
use crate::measure::{Turn, rounds};
use crate::pair::{Pair, Peer, Side};

pub(crate) const OBJECTS: usize = 50_000;
const ROUNDS: usize = 5;
/// Of the streams to many, which take the reference more than a minute each.
const STREAMED_ROUNDS: usize = 3;
/// Clients that are streamed the initial events at once.
const STREAMED: usize = 20;

/// The whole list.
pub(crate) async fn list(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let query = "resourceVersion=0";
    let (ours, theirs) = (pair.ours.list(query).await?, pair.theirs.list(query).await?);
    equal("the list", &ours, &theirs, scaled(OBJECTS))?;
    let sizes = [ours.len(), theirs.len()].map(|bytes| vec![bytes as f64 / 1e6]);
    drop((ours, theirs));
    let mut rows = timed(pair, query, false, (10, 2), [Goal::Gain(10.0), Goal::Gain(20.0)]).await?;
    let [ours, theirs] = sizes;
    rows.push(Row {
        what: "its size".into(),
        unit: "MB".into(),
        better: Better::Less,
        ours,
        theirs,
        goal: None,
    });
    Ok(rows)
}

/// The whole list for a client that accepts gzip.
pub(crate) async fn gzip(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let query = "resourceVersion=0";
    let mut sizes = vec![];
    let mut lists = vec![];
    for peer in [&pair.ours, &pair.theirs] {
        let compressed = peer.connect().await?.accept_gzip().get(&peer.side.reads(query)).await?;
        let list = decoded(&compressed)?;
        sizes.push(vec![compressed.len() as f64 / 1e6]);
        lists.push(list);
    }
    equal("the list with gzip", &lists[0], &lists[1], scaled(OBJECTS))?;
    drop(lists);
    let goals = [None, Some(Goal::Gain(20.0))];
    let mut rows = timed_with(pair, query, true, (10, 2), goals).await?;
    let (theirs, ours) = (sizes.pop().unwrap_or_default(), sizes.pop().unwrap_or_default());
    rows.push(Row {
        what: "its size".into(),
        unit: "MB".into(),
        better: Better::Less,
        ours,
        theirs,
        goal: None,
    });
    Ok(rows)
}

/// The list of a selector that matches one object in a hundred.
pub(crate) async fn selector(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let query = "resourceVersion=0&labelSelector=bucket=7";
    let (ours, theirs) = (pair.ours.list(query).await?, pair.theirs.list(query).await?);
    equal("the list of a selector", &ours, &theirs, scaled(OBJECTS).div_ceil(BUCKETS))?;
    timed(pair, query, false, (200, 20), [Goal::Gain(20.0), Goal::Gain(20.0)]).await
}

/// Initial events to many clients at once, each round on servers that were just started.
pub(crate) async fn watch_list(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let count = scaled(OBJECTS);
    let (ours, theirs) = (streamed(&pair.ours).await?, streamed(&pair.theirs).await?);
    if ours != theirs || ours.len() != count {
        return Err(Refusal::Unequal {
            what: "initial events".into(),
            difference: format!("ours {}, theirs {}, written {count}", ours.len(), theirs.len()),
        });
    }
    drop((ours, theirs));
    let series = rounds(pair, scaled_rounds(STREAMED_ROUNDS), async |peer: &mut Peer, _| {
        peer.kill_and_start().await;
        let before = peer.settled_rss().await;
        peer.server.forget_peak()?;
        let mut clients = try_join_all((0..STREAMED).map(|_| Client::connect(peer.server.address))).await?;
        let path = peer.side.reads(INITIAL_EVENTS);
        let turn = Turn::begin(peer);
        try_join_all(clients.iter_mut().map(async |client| {
            client.watch(&path).await?;
            client.initial_events(count).await
        }))
        .await?;
        let (seconds, cpu) = (turn.seconds(), turn.cpu(peer));
        let grown = peer.server.peak_rss().saturating_sub(before) as f64 / f64::from(1 << 20);
        Ok([seconds, cpu, grown])
    })
    .await?;
    let [ours_time, ours_cpu, ours_grown] = series.ours;
    let [theirs_time, theirs_cpu, theirs_grown] = series.theirs;
    let row = Row::less;
    Ok(vec![
        row("time until all have the end bookmark", "s", ours_time, theirs_time, Some(Goal::Gain(5.0))),
        row("server CPU", "s", ours_cpu, theirs_cpu, None),
        row("growth of resident memory", "MiB", ours_grown, theirs_grown, Some(Goal::Share(1.0 / 20.0))),
    ])
}

const INITIAL_EVENTS: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// What one client is streamed, up to the bookmark.
async fn streamed(peer: &Peer) -> Result<Contents, Refusal> {
    let mut client = peer.connect().await?;
    client.watch(&peer.side.reads(INITIAL_EVENTS)).await?;
    let mut stream = Vec::new();
    while memchr::memmem::rfind(&stream[stream.len().saturating_sub(2_048)..], b"initial-events-end")
        .is_none()
        || !stream.ends_with(b"\n")
    {
        stream.extend_from_slice(client.payload().await?);
    }
    // The events as a list, so that they are compared as lists are.
    let lines = stream.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let objects: Vec<&[u8]> = lines
        .filter_map(|line| line.strip_prefix(br#"{"type":"ADDED","object":"#)?.strip_suffix(b"}"))
        .collect();
    contents(&[br#"{"items":["#, objects.join(&b',').as_slice(), b"]}"].concat())
}

/// The bytes that a gzip body stands for; it must be one member and nothing after it.
fn decoded(compressed: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut decoder = flate2::bufread::GzDecoder::new(compressed);
    let mut list = Vec::new();
    decoder.read_to_end(&mut list)?;
    match decoder.into_inner() {
        [] => Ok(list),
        rest => Err(Refusal::Impossible(format!("{} bytes follow the gzip member", rest.len()))),
    }
}

async fn timed(
    pair: &mut Pair,
    query: &str,
    gzip: bool,
    repeated: (usize, usize),
    [time, cpu]: [Goal; 2],
) -> Result<Vec<Row>, Refusal> {
    timed_with(pair, query, gzip, repeated, [Some(time), Some(cpu)]).await
}

/// Time and server CPU of one list, a mean of several in each turn.
async fn timed_with(
    pair: &mut Pair,
    query: &str,
    gzip: bool,
    (ours, theirs): (usize, usize),
    [time_goal, cpu_goal]: [Option<Goal>; 2],
) -> Result<Vec<Row>, Refusal> {
    note(&format!("  {query}, gzip {gzip}"));
    let series = rounds(pair, scaled_rounds(ROUNDS), async |peer: &mut Peer, _| {
        let times = repetitions(if peer.side == Side::Ours { ours } else { theirs });
        let mut client = peer.connect().await?;
        if gzip {
            client = client.accept_gzip();
        }
        let path = peer.side.reads(query);
        let turn = Turn::begin(peer);
        for _ in 0..times {
            let answer = client.send("GET", &path, b"").await?;
            if answer.code != 200 || answer.body_bytes == 0 {
                let refused = format!("{path}: {} with {} bytes", answer.code, answer.body_bytes);
                return Err(std::io::Error::other(refused).into());
            }
        }
        let each = 1e3 / times as f64;
        Ok([turn.seconds() * each, turn.cpu(peer) * each])
    })
    .await?;
    let [ours_time, ours_cpu] = series.ours;
    let [theirs_time, theirs_cpu] = series.theirs;
    let row = |what: &str, ours, theirs, goal| Row::less(what, "ms", ours, theirs, goal);
    Ok(vec![
        row("time", ours_time, theirs_time, time_goal),
        row("server CPU", ours_cpu, theirs_cpu, cpu_goal),
    ])
}
