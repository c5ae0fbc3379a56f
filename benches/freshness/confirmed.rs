//! Reads whose resourceVersion is unset, of a cell that was confirmed not long ago: against the same reads
//! with `resourceVersion=0`, which ask for nothing.

use crate::harness::client::Client;
use crate::harness::machine::undisturbed;
use crate::harness::scale::{note, repetitions, scaled, scaled_rounds};
use crate::harness::verdict::{Better, Goal, Refusal, Row, median, quantile};
use crate::pairs::{Reader, alternate};
use crate::stand::{Kind, Stand, cached, place};

const OBJECTS: usize = 1_000;
const ROUNDS: usize = 5;
/// What the goal allows.
const SHARE: f64 = 1.1;
/// The server's level for reads that say nothing, and the same in a query.
const DEFAULT: [&str; 2] = ["--unset-rv-concrete", "max-age=60"];
const BOUNDED: &str = "maxStaleness=60s";
const ANY: &str = "resourceVersion=0";

/// One read, and how often a round has it.
struct Kinds {
    what: &'static str,
    /// The path, with a query.
    path: fn(&str) -> String,
    pairs: usize,
}

const READS: [Kinds; 3] = [
    Kinds { what: "a list of 1,000 objects", path: |query| cached(query), pairs: 150 },
    Kinds {
        what: "a list of 10 of them, by label",
        path: |query| cached(&format!("labelSelector=bucket%3D7&{query}")),
        pairs: 2_000,
    },
    Kinds { what: "a GET of one", path: |query| format!("{}?{query}", place("export-7")), pairs: 2_000 },
];

pub(crate) async fn confirmed(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    let objects = scaled(OBJECTS).max(100);
    stand.replicate(Kind::Direct, objects, &DEFAULT).await?;
    stand.compare("what is read", objects).await?;
    let mut rows = vec![];
    for read in READS {
        for (way, query) in [("by the server's default", ""), ("by the query", BOUNDED)] {
            rows.extend(compared(stand, &read, way, query).await?);
        }
    }
    Ok(rows)
}

/// One read against the same with `resourceVersion=0`.
async fn compared(stand: &mut Stand, read: &Kinds, way: &str, query: &str) -> Result<Vec<Row>, Refusal> {
    let address = stand.cache().address;
    let reader = async |query: &str| {
        Ok::<_, Refusal>(Reader::new(Client::connect(address).await?, (read.path)(query)))
    };
    let mut readers = [reader(query).await?, reader(ANY).await?];
    let pairs = repetitions(read.pairs).max(10);
    alternate(&mut readers, pairs / 10).await?;
    let rounds = undisturbed(stand, scaled_rounds(ROUNDS), async |_: &mut Stand, _| {
        if readers[0].body().await? != readers[1].body().await? {
            let difference = "a confirmed cell has one state".to_owned();
            return Err(Refusal::Unequal { what: read.what.into(), difference });
        }
        let took = alternate(&mut readers, pairs).await?;
        let round = took.map(|took| [median(&took), quantile(&took, 0.99)]);
        note(&format!("  {}, {way}: {round:.4?} ms", read.what));
        Ok(round)
    })
    .await?;
    let of = |side: usize, at: usize| rounds.iter().map(|round| round[side][at]).collect::<Vec<_>>();
    let row = |what, at, goal| Row {
        what,
        unit: "ms".into(),
        better: Better::Less,
        ours: of(0, at),
        theirs: of(1, at),
        goal,
    };
    Ok(vec![
        row(format!("{}, bounded {way}; `{ANY}`", read.what), 0, Some(Goal::Share(SHARE))),
        row("the same, p99".to_owned(), 1, None),
    ])
}
