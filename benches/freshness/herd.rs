//! 1,000 reads at once that the source has to confirm: how often it is asked, and how long the last one waits.

use futures::future::{join_all, try_join_all};

use crate::harness::client::Client;
use crate::harness::machine::undisturbed;
use crate::harness::scale::{full_scale, note, scaled, scaled_rounds};
use crate::harness::verdict::{Goal, Refusal, Row, median, quantile};
use crate::pairs::Reader;
use crate::stand::{Kind, Stand, place};

pub(crate) const READERS: usize = 1_000;
const OBJECTS: usize = 1_000;
/// Connections that are opened at once: a server's queue of those not yet accepted is short.
const OPENING: usize = 64;
/// The server answers so many reads at once; its default is 400, and 429 to the rest.
const FLAGS: [&str; 2] = ["--max-requests-inflight", "2000"];
/// Most reads of the source for all of them: a barrier that runs, and the one that they wait for.
const SOURCE_READS: f64 = 2.0;
/// What the goal allows, as a part of one read's time.
const SHARE: f64 = 2.0;

/// What comes of one round.
struct Round {
    /// Milliseconds of a read alone.
    alone: Vec<f64>,
    /// Of the same reads at once.
    together: Vec<f64>,
    /// Of as many reads at once that ask for nothing.
    stale: Vec<f64>,
    /// Lists that the source has answered for those at once.
    lists: f64,
}

pub(crate) async fn herd(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    let mut rows = vec![];
    let of_kind = [
        (Kind::Direct, "a source that says on demand how far it is", 5, 50),
        (Kind::Stock, "a stock API server", 3, 5),
    ];
    for (kind, what, rounds, alone) in of_kind {
        stand.replicate(kind, scaled(OBJECTS), &FLAGS).await?;
        rows.extend(of_one(stand, what, rounds, alone).await?);
    }
    Ok(rows)
}

async fn of_one(stand: &mut Stand, what: &str, rounds: usize, alone: usize) -> Result<Vec<Row>, Refusal> {
    let mut fresh = readers(stand, "freshness=source").await?;
    let mut stale = readers(stand, "resourceVersion=0").await?;
    let alone = if full_scale() { alone } else { 1 };
    let rounds = undisturbed(stand, scaled_rounds(rounds), async |stand: &mut Stand, _| {
        let round = round(stand, &mut fresh, &mut stale, alone).await?;
        let of = |took: &[f64]| [median(took), quantile(took, 0.99)];
        note(&format!(
            "  p50 and p99 in ms: alone {:.3?}, at once {:.3?}, at once with nothing to confirm {:.3?}; {} lists",
            of(&round.alone),
            of(&round.together),
            of(&round.stale),
            round.lists
        ));
        Ok(round)
    })
    .await?;
    let of = |pick: &dyn Fn(&Round) -> f64| rounds.iter().map(pick).collect::<Vec<_>>();
    let row = Row::less;
    let together = of(&|round| quantile(&round.together, 0.99));
    Ok(vec![
        row(
            format!("{what}: its LISTs in all"),
            "",
            of(&|round| round.lists),
            vec![],
            Some(Goal::Ours(SOURCE_READS)),
        ),
        row(
            "p99; p50 of one such read alone".into(),
            "ms",
            together.clone(),
            of(&|round| median(&round.alone)),
            Some(Goal::Share(SHARE)),
        ),
        row(
            "p99; of as many reads at once with `resourceVersion=0`".into(),
            "ms",
            together,
            of(&|round| quantile(&round.stale, 0.99)),
            None,
        ),
    ])
}

async fn round(
    stand: &mut Stand,
    fresh: &mut [Reader],
    stale: &mut [Reader],
    alone: usize,
) -> Result<Round, Refusal> {
    let mut writer = Client::connect(stand.source().address).await?;
    let mut took = vec![];
    for number in 0..alone {
        stand.write_elsewhere(&mut writer).await?;
        took.push(fresh[number % fresh.len()].read().await?);
    }
    let stale = at_once(stale).await?;
    stand.write_elsewhere(&mut writer).await?;
    let lists = stand.source_lists().await?;
    let together = at_once(fresh).await?;
    let lists = stand.source_lists().await? - lists;
    Ok(Round { alone: took, together, stale, lists })
}

/// Milliseconds of each read, all of them sent as fast as this process can.
async fn at_once(readers: &mut [Reader]) -> Result<Vec<f64>, Refusal> {
    join_all(readers.iter_mut().map(Reader::read)).await.into_iter().collect()
}

async fn readers(stand: &Stand, query: &str) -> Result<Vec<Reader>, Refusal> {
    let (address, path) = (stand.cache().address, format!("{}?{query}", place("export-0")));
    let numbers: Vec<_> = (0..scaled(READERS)).collect();
    let mut readers = vec![];
    for some in numbers.chunks(OPENING) {
        let opened = some.iter().map(async |_| Client::watcher(address).await);
        let opened = try_join_all(opened).await?;
        readers.extend(opened.into_iter().map(|client| Reader::new(client, path.clone())));
    }
    Ok(readers)
}
