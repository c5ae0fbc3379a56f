//! What freshness costs while nothing happens: 1,000 shards of 20 types, all live, watched, and confirmed
//! every minute.

use std::time::Duration;

use serde_json::Value;

use crate::harness::client::Client;
use crate::harness::machine::undisturbed;
use crate::harness::run::within;
use crate::harness::scale::{full_scale, note, scaled};
use crate::harness::server::{Server, cpu_seconds};
use crate::harness::verdict::{Goal, Refusal, Row};
use crate::shards::{Shards, TYPES, shard};
use crate::stand::Stand;

pub(crate) const SHARDS: usize = 1_000;
/// How long is measured: every cell is confirmed once.
const WINDOW: Duration = Duration::from_mins(1);
const ROUNDS: usize = 2;
/// Before that: the first confirmations are over, and the views of shards have followed.
const SETTLE: Duration = Duration::from_secs(20);
/// What the goal allows of one core, in per cent.
const SHARE_MAX: f64 = 2.0;
/// No cell may be older, in seconds.
const AGE_MAX: f64 = 90.0;
/// How often it is looked whether every cell is live.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A server with this only hears signs of life.
const UNCONFIRMED: [&str; 2] = ["--confirm-interval", "1h"];

/// What a server spends while nothing happens, a value per round.
struct Spent {
    /// Of one core, in per cent: the server, and this process, which pushes and watches.
    server: Vec<f64>,
    pushers: Vec<f64>,
    /// Barriers per second.
    barriers: Vec<f64>,
    /// The oldest cell, in seconds.
    age: Vec<f64>,
}

pub(crate) async fn idle(stand: &mut Stand) -> Result<Vec<Row>, Refusal> {
    let confirmed = spent(stand, &[]).await?;
    let unconfirmed = spent(stand, &UNCONFIRMED).await?;
    let row = Row::less;
    let shards = scaled(SHARDS) as f64;
    let each = |values: &[f64]| values.iter().map(|share| share / shards).collect::<Vec<_>>();
    let goal = Some(Goal::Ours(SHARE_MAX));
    let cost = confirmed.server.iter().zip(&unconfirmed.server).map(|(with, without)| with - without);
    Ok(vec![
        row("what confirming costs the server, of one core", "%", cost.collect(), vec![], goal),
        row(
            "all that the server does, of one core; the same with `--confirm-interval 1h`",
            "%",
            confirmed.server,
            unconfirmed.server,
            goal,
        ),
        row("barriers per second; the same", "", confirmed.barriers, unconfirmed.barriers, None),
        row("the oldest cell at the end of a round", "s", confirmed.age, vec![], Some(Goal::Ours(AGE_MAX))),
        row(
            "a pusher of 20 types, of one core; the same",
            "%",
            each(&confirmed.pushers),
            each(&unconfirmed.pushers),
            None,
        ),
    ])
}

async fn spent(stand: &mut Stand, flags: &[&str]) -> Result<Spent, Refusal> {
    stand.empty_cache(flags).await?;
    let (shards, types) = (scaled(SHARDS), TYPES.len());
    let address = stand.cache().address;
    let mut pushers = within("the shards", Shards::push(address, shards)).await?;
    within("every cell live", every_cell_is_live(stand, shards * types)).await?;
    note(&format!("  {} cells are live", shards * types));
    // Views say a little later what is so.
    tokio::time::sleep(if full_scale() { SETTLE } else { Duration::ZERO }).await;
    let mut watchers = vec![];
    for path in [
        "*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports".to_owned(),
        "*/clusters/*/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        format!("{}/clusters/root/apis/apis.kcp.io/v1alpha2/apiexports", shard(0)),
        "*/clusters/*/apis/cache.shardcache.dev/v1alpha1/shardviews".to_owned(),
    ] {
        let path = format!("/services/cache/shards/{path}");
        let mut watcher = Client::watcher(address).await?;
        let list = watcher.get(&format!("{path}?limit=1")).await?;
        let version = crate::harness::seed::version_of(&list)?;
        watcher.watch(&format!("{path}?watch=true&resourceVersion={version}")).await?;
        watchers.push((path, watcher));
    }
    let window = if full_scale() { WINDOW } else { Duration::from_secs(2) };
    let rounds = undisturbed(stand, if full_scale() { ROUNDS } else { 1 }, async |stand: &mut Stand, _| {
        let cache = stand.cache();
        let barriers = barriers(cache).await;
        let (server, ours) = (cache.cpu_seconds(), cpu_seconds("self"));
        tokio::time::sleep(window).await;
        let per_second = |amount: f64| amount / window.as_secs_f64();
        let server = 100.0 * per_second(cache.cpu_seconds() - server);
        let ours = 100.0 * per_second(cpu_seconds("self") - ours);
        let barriers = per_second(self::barriers(cache).await - barriers);
        let (live, age) = cells(stand).await?;
        note(&format!("  server {server:.2} %, pushers {ours:.2} %, {barriers:.0} barriers/s, {age:.0} s"));
        if flags.is_empty() && live != shards * types {
            let difference = format!("{live} of {} are", shards * types);
            return Err(Refusal::Unequal { what: "cells that are live".into(), difference });
        }
        Ok([server, ours, barriers, age])
    })
    .await?;
    pushers.check()?;
    for (path, watcher) in &mut watchers {
        let surplus = watcher.surplus()?;
        // Cells that nobody confirms are lagging after a while, and their views say so.
        let is_due = !flags.is_empty() && path.ends_with("/shardviews");
        if !surplus.is_empty() && !is_due {
            let what = format!("events of {path} while nothing happened");
            return Err(Refusal::Unequal { what, difference: surplus });
        }
    }
    let of = |at: usize| rounds.iter().map(|round| round[at]).collect::<Vec<_>>();
    Ok(Spent { server: of(0), pushers: of(1), barriers: of(2), age: of(3) })
}

async fn barriers(cache: &Server) -> f64 {
    cache.metric("shardcache_freshness_barriers_total").await
}

async fn every_cell_is_live(stand: &Stand, count: usize) -> Result<(), Refusal> {
    loop {
        if cells(stand).await?.0 == count {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Cells that are live, and the oldest one's age in seconds.
async fn cells(stand: &Stand) -> Result<(usize, f64), Refusal> {
    let mut client = Client::connect(stand.cache().address).await?;
    let document = client.get("/services/cache/freshness").await?;
    let document: Value = serde_json::from_slice(&document).map_err(std::io::Error::from)?;
    let shards = document["shards"].as_array().into_iter().flatten();
    let cells: Vec<_> = shards.filter_map(|shard| shard["cells"].as_array()).flatten().collect();
    let live = cells.iter().filter(|cell| cell["state"] == "Live").count();
    let age = |cell: &Value| cell["ageSeconds"].as_f64().unwrap_or(f64::INFINITY);
    Ok((live, cells.iter().map(|cell| age(cell)).fold(0.0, f64::max)))
}
