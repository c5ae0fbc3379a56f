//! Durable creates: many writers' throughput and one writer's latency, and how soon a watcher sees a write.

use std::time::{Duration, Instant};

use futures::future::{try_join, try_join_all};
use tokio::time::sleep_until;

use crate::harness::client::Client;
use crate::harness::objects::{EVENT_BYTES, OBJECT_BYTES, object};
use crate::harness::scale::{full_scale, repetitions, scaled_rounds};
use crate::harness::verdict::{Better, Goal, Refusal, Row, median, quantile};
use crate::measure::{Turn, rounds};
use crate::pair::{Pair, Peer};

const ROUNDS: usize = 5;
const WRITERS: usize = 64;
/// Creates of each of the writers, and of the one alone, in a turn.
const EACH: usize = 100;
const ALONE: usize = 1_000;
/// Writes per second of the latency work, over so many connections, for so many seconds.
const RATE: usize = 500;
const CONNECTIONS: usize = 50;
const SECONDS: usize = 6;

/// Creates by 64 writers, then by one.
pub(crate) async fn creates(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let (each, alone) = (repetitions(EACH), repetitions(ALONE));
    let many = rounds(pair, scaled_rounds(ROUNDS), async |peer: &mut Peer, round| {
        let mut clients = try_join_all((0..WRITERS).map(|_| peer.connect())).await?;
        let turn = Turn::begin(peer);
        try_join_all(clients.iter_mut().enumerate().map(async |(writer, client)| {
            for at in 0..each {
                let number = (round * WRITERS + writer) * each + at;
                peer.create(client, &object(&format!("many-{number}"), number, "0", OBJECT_BYTES)).await?;
            }
            Ok::<_, Refusal>(())
        }))
        .await?;
        let creates = (WRITERS * each) as f64;
        Ok([creates / turn.seconds(), turn.cpu(peer) / creates * 1e3])
    })
    .await?;
    let one = rounds(pair, scaled_rounds(ROUNDS), async |peer: &mut Peer, round| {
        let mut client = peer.connect().await?;
        let mut latencies = Vec::with_capacity(alone);
        for at in 0..alone {
            let number = round * alone + at;
            let body = object(&format!("alone-{number}"), number, "0", OBJECT_BYTES);
            let began = Instant::now();
            peer.create(&mut client, &body).await?;
            latencies.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok([median(&latencies)])
    })
    .await?;
    let written = crate::harness::verdict::contents(&pair.theirs.list("").await?)?.len();
    pair.compare("what was created", written).await?;
    let [ours_rate, ours_cpu] = many.ours;
    let [theirs_rate, theirs_cpu] = many.theirs;
    let ([ours_alone], [theirs_alone]) = (one.ours, one.theirs);
    Ok(vec![
        Row {
            what: "64 writers: creates per second".into(),
            unit: "/s".into(),
            better: Better::More,
            ours: ours_rate,
            theirs: theirs_rate,
            goal: Some(Goal::Gain(3.0)),
        },
        milliseconds("64 writers: server CPU per create", ours_cpu, theirs_cpu, None),
        milliseconds("one writer: p50 latency", ours_alone, theirs_alone, Some(Goal::Share(1.0))),
    ])
}

fn milliseconds(what: &str, ours: Vec<f64>, theirs: Vec<f64>, goal: Option<Goal>) -> Row {
    Row { what: what.into(), unit: "ms".into(), better: Better::Less, ours, theirs, goal }
}

/// One write: when it was sent and acknowledged, and when a watcher had its event.
#[derive(Clone, Copy)]
struct Seen {
    sent: Instant,
    acknowledged: Instant,
    event: Instant,
}

/// From a write's acknowledgement to its event at a watcher, under an even load.
pub(crate) async fn latency(pair: &mut Pair) -> Result<Vec<Row>, Refusal> {
    let total = repetitions(RATE * SECONDS).max(CONNECTIONS);
    let series = rounds(pair, scaled_rounds(ROUNDS), async |peer: &mut Peer, round| {
        let seen = under_load(peer, round, total).await?;
        let part = |from: fn(&Seen) -> Instant, to: fn(&Seen) -> Instant| -> Vec<f64> {
            let signed = |seen: &Seen| {
                let (from, to) = (from(seen), to(seen));
                to.duration_since(from).as_secs_f64() - from.duration_since(to).as_secs_f64()
            };
            seen.iter().map(|seen| signed(seen) * 1e3).collect()
        };
        let after = part(|seen| seen.acknowledged, |seen| seen.event);
        let whole = part(|seen| seen.sent, |seen| seen.event);
        Ok([median(&after), quantile(&after, 0.99), median(&whole), quantile(&whole, 0.99)])
    })
    .await?;
    let written = crate::harness::verdict::contents(&pair.theirs.list("").await?)?.len();
    pair.compare("what was written under load", written).await?;
    let names = [
        ("acknowledged → event, p50", Some(Goal::Share(0.7))),
        ("acknowledged → event, p99", Some(Goal::Share(0.7))),
        ("sent → event, p50", None),
        ("sent → event, p99", None),
    ];
    let values = series.ours.into_iter().zip(series.theirs);
    Ok(names
        .into_iter()
        .zip(values)
        .map(|((what, goal), (ours, theirs))| milliseconds(what, ours, theirs, goal))
        .collect())
}

/// Writes at an even rate, each connection in its turn, while one watcher reads.
async fn under_load(peer: &Peer, round: usize, total: usize) -> Result<Vec<Seen>, Refusal> {
    let mut watcher = peer.watchers(&[String::new()]).await?.remove(0);
    let mut clients = try_join_all((0..CONNECTIONS).map(|_| peer.connect())).await?;
    let prefix = format!("latency-{round}-");
    let began = Instant::now();
    let every = Duration::from_secs(1) / RATE as u32;
    let writes = clients.iter_mut().enumerate().map(async |(connection, client)| {
        let mut times = vec![];
        for at in (connection..total).step_by(CONNECTIONS) {
            let body = object(&format!("{prefix}{at}"), at, "0", EVENT_BYTES);
            sleep_until((began + every * at as u32).into()).await;
            let sent = Instant::now();
            peer.create(client, &body).await?;
            times.push((at, sent, Instant::now()));
        }
        Ok::<_, Refusal>(times)
    });
    let (times, events) = try_join(try_join_all(writes), arrivals(&mut watcher, &prefix, total)).await?;
    let took = began.elapsed().as_secs_f64();
    if full_scale() && took > 1.2 * total as f64 / RATE as f64 + 0.2 {
        return Err(Refusal::Impossible(format!(
            "{:?} does not take {RATE} writes per second: {total} took {took:.1} s",
            peer.side
        )));
    }
    let seen = |(at, sent, acknowledged): (usize, Instant, Instant)| {
        let event = events[at].ok_or_else(|| Refusal::Unequal {
            what: "events under load".into(),
            difference: format!("write {at} has none"),
        })?;
        Ok(Seen { sent, acknowledged, event })
    };
    times.into_iter().flatten().map(seen).collect()
}

/// When the event of each of `total` writes arrived, by the number after `prefix` in its name.
async fn arrivals(watcher: &mut Client, prefix: &str, total: usize) -> Result<Vec<Option<Instant>>, Refusal> {
    let finder = memchr::memmem::Finder::new(prefix.as_bytes());
    let mut arrived = vec![None; total];
    let mut pending = Vec::new();
    let mut count = 0;
    while count < total {
        let payload = watcher.payload().await?;
        let now = Instant::now();
        pending.extend_from_slice(payload);
        while let Some(end) = memchr::memchr(b'\n', &pending) {
            let number = finder.find(&pending[..end]).map(|at| {
                let digits = pending[at + prefix.len()..end].iter().take_while(|byte| byte.is_ascii_digit());
                digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
            });
            let Some(slot @ None) = number.and_then(|number| arrived.get_mut(number)) else {
                let line = String::from_utf8_lossy(&pending[..end]).into_owned();
                return Err(std::io::Error::other(format!("not an event that was due: {line}")).into());
            };
            *slot = Some(now);
            count += 1;
            pending.drain(..=end);
        }
    }
    Ok(arrived)
}
