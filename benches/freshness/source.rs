//! Reads that the source has to confirm, one at a time: against a quorum read of the source itself.

use shardcache::replicate::Provider;

use crate::harness::client::Client;
use crate::harness::machine::undisturbed;
use crate::harness::objects::{COLLECTION, EVENT_BYTES, object};
use crate::harness::scale::{note, repetitions, scaled, scaled_rounds};
use crate::harness::seed::post;
use crate::harness::verdict::{Goal, Refusal, Row, median, quantile};
use crate::pairs::{Reader, alternate};
use crate::stand::{Kind, Stand, cached, place};

const OBJECTS: usize = 1_000;
const ROUNDS: usize = 5;
const READS: usize = 400;
/// Milliseconds that the goal allows on top of the source's own p99.
const ALLOWED_MS: f64 = 10.0;

/// What the source does before each read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Elsewhere,
    Here,
}

const SITUATIONS: [(Before, &str); 3] = [
    (Before::Nothing, "LIST `limit=1`, the source stands still"),
    (Before::Elsewhere, "LIST `limit=1`, the source has just written an object of another type"),
    (Before::Here, "GET of an object that was just written to the source"),
];

pub(crate) async fn source(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    let objects = scaled(OBJECTS);
    stand.replicate(Kind::Direct, objects, &[]).await?;
    let reads = repetitions(READS).max(10);
    let mut written = 0;
    let mut rows = vec![];
    for (before, what) in SITUATIONS {
        let rounds = undisturbed(stand, scaled_rounds(ROUNDS), async |stand: &mut Stand, _| {
            let took = match before {
                Before::Nothing => still(stand, reads).await?,
                Before::Elsewhere => elsewhere(stand, reads).await?,
                Before::Here => {
                    written += reads;
                    here(stand, written - reads, reads).await?
                }
            };
            let [ours, theirs] = took.map(|took| [median(&took), quantile(&took, 0.99)]);
            note(&format!("  {before:?}: cache {ours:.3?}, source {theirs:.3?} ms"));
            Ok([ours[0], theirs[0], ours[1], theirs[1]])
        })
        .await?;
        let of = |pick: &dyn Fn(&[f64; 4]) -> f64| rounds.iter().map(pick).collect::<Vec<_>>();
        let row = |what: String, ours, theirs, goal| Row::less(what, "ms", ours, theirs, goal);
        let over = of(&|round| round[2] - round[3]);
        rows.extend([
            row(
                format!("{what}: p50; the source's own LIST"),
                of(&|round| round[0]),
                of(&|round| round[1]),
                None,
            ),
            row("p99 of both".to_owned(), of(&|round| round[2]), of(&|round| round[3]), None),
            row("the one p99 less the other".to_owned(), over, vec![], Some(Goal::Ours(ALLOWED_MS))),
        ]);
    }
    stand.compare("what was written", objects + written).await?;
    check_providers(stand, reads)?;
    Ok(rows)
}

/// Refuses where answers rested on anything but the source's word.
fn check_providers(stand: &Stand, reads: usize) -> Result<(), Refusal> {
    let direct = stand.direct.as_ref().expect("it pushes");
    let barriers = direct.report.barriers();
    note(&format!("  barriers answered: {barriers:?}"));
    let of = |provider| barriers.get(&provider).copied().unwrap_or(0);
    let others = of(Provider::RollingWatch) + of(Provider::MetadataDiff);
    if others > 0 || of(Provider::Direct) < reads as u64 {
        return Err(Refusal::Impossible(format!("the source did not say how far it was: {barriers:?}")));
    }
    Ok(())
}

/// Readers of the cache and of the source.
async fn readers(stand: &Stand) -> Result<[Reader; 2], Refusal> {
    let cache = Client::connect(stand.cache().address).await?;
    let source = Client::connect(stand.source().address).await?;
    Ok([
        Reader::new(cache, cached("limit=1&freshness=source")),
        Reader::new(source, format!("{COLLECTION}?limit=1")),
    ])
}

async fn still(stand: &Stand, reads: usize) -> Result<[Vec<f64>; 2], Refusal> {
    alternate(&mut readers(stand).await?, reads).await
}

async fn elsewhere(stand: &mut Stand, reads: usize) -> Result<[Vec<f64>; 2], Refusal> {
    let mut readers = readers(stand).await?;
    let mut writer = Client::connect(stand.source().address).await?;
    let mut took = [vec![], vec![]];
    for _ in 0..reads {
        stand.write_elsewhere(&mut writer).await?;
        // Not alternating: the cache's read is the one that finds the source ahead.
        for (reader, took) in readers.iter_mut().zip(&mut took) {
            took.push(reader.read().await?);
        }
    }
    Ok(took)
}

async fn here(stand: &Stand, first: usize, reads: usize) -> Result<[Vec<f64>; 2], Refusal> {
    let [mut cache, mut source] = readers(stand).await?;
    let mut writer = Client::connect(stand.source().address).await?;
    let mut took = [vec![], vec![]];
    for number in first..first + reads {
        let name = format!("fresh-{number}");
        post(&mut writer, COLLECTION, &object(&name, number, "fresh", EVENT_BYTES)).await?;
        // 404 would be an error: the object was there before the read.
        cache.ask(format!("{}?freshness=source", place(&name)));
        took[0].push(cache.read().await?);
        took[1].push(source.read().await?);
    }
    Ok(took)
}
