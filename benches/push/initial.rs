//! The first push of 100k objects: against bare redb in the same commits, and against as many creates at
//! the source's API server.

use std::time::Instant;

use crate::bare::{Rows, failed};
use crate::harness::machine::{observed, undisturbed};
use crate::harness::objects::COLLECTION;
use crate::harness::run::within;
use crate::harness::scale::note;
use crate::harness::scale::{full_scale, scaled, scaled_rounds};
use crate::harness::seed::{SEEDERS, seed};
use crate::harness::server::{Server, cpu_seconds};
use crate::harness::verdict::{Better, Goal, Refusal, Row, median, quiet};
use crate::pusher::{Pushed, Script};
use crate::stand::{OWNERS, Stand};

pub(crate) const OBJECTS: usize = 100_000;
const ROUNDS: usize = 5;
/// The creates are timed in so many parts, of which at most so many may be disturbed: they are not repeated.
const PARTS: usize = 5;
const DISTURBED_MAX: usize = 2;

/// Objects per second and microseconds of CPU per object.
type Speed = [f64; 2];

/// Pushes a script into an empty cache, again and again, and commits what it came to.
struct Contest {
    script: Script,
    rows: Rows,
    /// Objects of each commit of the last push.
    batches: Vec<usize>,
}

pub(crate) async fn initial(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    let script = Script::of(scaled(OBJECTS));
    // Not counted: bare redb needs to know what it is to write.
    let (batches, _) = push(stand, &script).await?;
    let rows = tokio::task::block_in_place(|| stored(stand))?;
    note(&format!("  {} commits, {:.0} bytes a record", batches.len(), rows.record_bytes()));
    let mut contest = Contest { script, rows, batches };
    let speeds = undisturbed(stand, scaled_rounds(ROUNDS), async |stand: &mut Stand, number| {
        let (ours, theirs) = if number % 2 == 0 {
            let ours = contest.push(stand).await?;
            (ours, contest.commit(stand)?)
        } else {
            let theirs = contest.commit(stand)?;
            (contest.push(stand).await?, theirs)
        };
        note(&format!("  push {ours:.1?}, bare redb {theirs:.1?}"));
        Ok((ours, theirs))
    })
    .await?;
    stand.start_cache();
    stand.cache().ready(Instant::now()).await;
    let creates = creates(stand).await?;
    stand.compare("what was pushed, and what was created at the source", stand.filled).await?;
    let ours = |at: usize| speeds.iter().map(|(ours, _)| ours[at]).collect::<Vec<_>>();
    let theirs = |at: usize| speeds.iter().map(|(_, theirs)| theirs[at]).collect::<Vec<_>>();
    let row = |what: &str, unit: &str, better, ours, theirs, goal| Row {
        what: what.into(),
        unit: unit.into(),
        better,
        ours,
        theirs,
        goal,
    };
    let batch = median(&contest.batches.iter().map(|batch| *batch as f64).collect::<Vec<_>>());
    Ok(vec![
        row(
            &format!("objects per second; bare redb, same bytes, same commits (median {batch:.0} objects)"),
            "/s",
            Better::More,
            ours(0),
            theirs(0),
            Some(Goal::Gain(0.7)),
        ),
        row(
            &format!("objects per second; {SEEDERS} REST writers to the source's API server"),
            "/s",
            Better::More,
            ours(0),
            creates,
            Some(Goal::Gain(10.0)),
        ),
        row("server CPU per object; bare redb's", "µs", Better::Less, ours(1), theirs(1), None),
    ])
}

impl Contest {
    async fn push(&mut self, stand: &mut Stand) -> Result<Speed, Refusal> {
        let (batches, speed) = push(stand, &self.script).await?;
        self.batches = batches;
        Ok(speed)
    }

    fn commit(&self, stand: &Stand) -> Result<Speed, Refusal> {
        let path = stand.file("bare.redb");
        tokio::task::block_in_place(|| {
            let cpu = cpu_seconds("self");
            let seconds = self.rows.commit(&path, &self.batches).map_err(|error| failed(&error))?;
            Ok(speed(self.script.objects, seconds, cpu_seconds("self") - cpu))
        })
    }
}

/// One push into a new cache, which has ended afterwards; objects of its commits.
async fn push(stand: &mut Stand, script: &Script) -> Result<(Vec<usize>, Speed), Refusal> {
    stand.empty_cache().await?;
    let cache = stand.cache();
    let commits = commits_of(cache).await;
    let cpu = cache.cpu_seconds();
    let Pushed { seconds, mut batches } = within("a push", script.push(cache.address)).await?;
    let cpu = cache.cpu_seconds() - cpu;
    let commits = commits_of(cache).await - commits;
    // Those of the hellos and the catalog are not part of it. What is left beside commits with objects has
    // none: the sync's end.
    let expected = batches.len() + HELLO_COMMITS;
    if commits < expected {
        return Err(Refusal::Impossible(format!("{commits} commits, but {expected} versions were told")));
    }
    batches.extend(std::iter::repeat_n(0, commits - expected));
    stand.end_pushing();
    Ok((batches, speed(script.objects, seconds, cpu)))
}

#[expect(clippy::cast_sign_loss, reason = "a count")]
async fn commits_of(cache: &Server) -> usize {
    cache.metric("shardcache_storage_commit_seconds_count").await as usize
}

/// Commits before the sync: a term, a catalog, a cell.
const HELLO_COMMITS: usize = 3;

fn speed(objects: usize, seconds: f64, cpu: f64) -> Speed {
    [objects as f64 / seconds, cpu / objects as f64 * 1e6]
}

fn stored(stand: &Stand) -> Result<Rows, Refusal> {
    Rows::read(&stand.cache_data().join("store.redb")).map_err(|error| failed(&error))
}

/// Fills the source with the same objects; creates per second of each part that nobody disturbed.
async fn creates(stand: &mut Stand) -> Result<Vec<f64>, Refusal> {
    let total = scaled(OBJECTS);
    let (mut rates, mut disturbed) = (vec![], 0);
    for part in 0..PARTS {
        let numbers = total * part / PARTS..total * (part + 1) / PARTS;
        let count = numbers.len();
        let created = async |stand: &mut Stand| {
            let began = Instant::now();
            seed(stand.source.address, COLLECTION, numbers, OWNERS).await?;
            Ok(count as f64 / began.elapsed().as_secs_f64())
        };
        let (rate, foreign) = observed(stand, created).await?;
        note(&format!("  {rate:.0} creates/s"));
        if full_scale() && !quiet(foreign, disturbed, DISTURBED_MAX)? {
            disturbed += 1;
            continue;
        }
        stand.foreign = stand.foreign.max(foreign);
        rates.push(rate);
    }
    stand.filled = total;
    Ok(rates)
}
