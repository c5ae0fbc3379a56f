//! The replicator's first sync of 100k objects: how fast from source to cache, and how much memory it takes.

use std::time::Instant;

use crate::harness::client::Client;
use crate::harness::machine::{settled, undisturbed};
use crate::harness::objects::COLLECTION;
use crate::harness::run::within;
use crate::harness::scale::note;
use crate::harness::scale::scaled_rounds;
use crate::harness::server::Server;
use crate::harness::verdict::{Better, Goal, Refusal, Row};
use crate::stand::{EMPTY_RESOURCE, RESOURCE, SHARD, Stand};

const ROUNDS: usize = 3;

pub(crate) async fn replicator(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    // Another work may have left some more.
    let version = stand.source_version().await?;
    let objects = crate::harness::verdict::contents(&stand.source_list().await?)?.len();
    let rounds = undisturbed(stand, scaled_rounds(ROUNDS), async |stand: &mut Stand, _| {
        let listed = listed(stand, objects).await?;
        stand.empty_cache().await?;
        start(stand, EMPTY_RESOURCE);
        stand.synced(0).await?;
        let idle = settled(|| stand.replicator().rss()).await as f64;
        stand.empty_cache().await?;
        let began = Instant::now();
        start(stand, RESOURCE);
        stand.synced(objects).await?;
        let pushed = objects as f64 / began.elapsed().as_secs_f64();
        let most = stand.replicator().peak_rss() as f64;
        let rest = settled(|| stand.replicator().rss()).await as f64;
        let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
        let round = [pushed, listed, mebibytes(most - idle), mebibytes(rest - idle), mebibytes(idle)];
        note(&format!("  {round:.1?}"));
        Ok(round)
    })
    .await?;
    if stand.source_version().await? != version {
        return Err(Refusal::Impossible("somebody wrote to the source meanwhile".to_owned()));
    }
    stand.compare("what was replicated", objects).await?;
    let of = |at: usize| rounds.iter().map(|round| round[at]).collect::<Vec<_>>();
    let memory = |what: &str, at: usize| Row {
        what: format!("{what}; its idle size"),
        unit: "MiB".into(),
        better: Better::Less,
        ours: of(at),
        theirs: of(4),
        goal: Some(Goal::Ours(64.0)),
    };
    Ok(vec![
        memory("the replicator's memory at its most in the first sync, over its idle size", 2),
        memory("the same at rest", 3),
        Row {
            what: "objects per second, start of the replicator → complete in the cache; a client that reads the source's watch-list".into(),
            unit: "/s".into(),
            better: Better::More,
            ours: of(0),
            theirs: of(1),
            goal: None,
        },
    ])
}

fn start(stand: &mut Stand, resource: &str) {
    let flags = ["--shard", SHARD, "--resource", resource];
    stand.replicator = Some(Server::replicator(stand.source.address, stand.cache().address, &flags));
}

/// Objects per second that the source sends to a client which asks as the replicator does and throws them
/// away.
async fn listed(stand: &Stand, objects: usize) -> Result<f64, Refusal> {
    let mut client = Client::connect(stand.source.address).await?;
    let began = Instant::now();
    let query =
        "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    within("the source's watch-list", async {
        client.watch(&format!("{COLLECTION}?{query}")).await?;
        Ok(client.initial_events(objects).await?)
    })
    .await?;
    Ok(objects as f64 / began.elapsed().as_secs_f64())
}
