//! What operators are told of all cells at once: gauges, and whether this process may call itself ready.

use std::time::Duration;

use shardcache_storage::{CellName, State};

use super::document::cells_by_shard;
use super::keeper::whole_seconds;
use super::standing::{Condition, Standing};
use super::view;
use crate::metrics::labels::{ByCell, ByShard, ByShardState};
use crate::service::Api;

/// Sets the gauges of every shard, and of every cell if that is asked for.
pub(crate) fn measure(api: &Api) {
    let metrics = &api.metrics.freshness;
    metrics.age.clear();
    metrics.cells.clear();
    metrics.synced.clear();
    metrics.cell.clear();
    let snapshot = api.cache.snapshot();
    let now = api.freshness.now();
    for (name, cells) in cells_by_shard(api, &snapshot.state) {
        let shard = || ByShard { shard: name.to_owned() };
        let mut oldest = Some(Duration::ZERO);
        let mut synced = None;
        for cell in &cells {
            let standing = view::standing(&snapshot.state, &api.freshness, cell, now);
            oldest = oldest.zip(standing.age).map(|(one, other)| one.max(other));
            let state = standing.condition.as_str();
            metrics.cells.get_or_create(&ByShardState { shard: name.to_owned(), state }).inc();
            synced = synced_at(&snapshot.state, cell).into_iter().chain(synced).min();
            if api.freshness.config().measures_cells {
                measure_cell(api, &snapshot.state, cell, standing);
            }
        }
        if !cells.is_empty() {
            metrics.age.get_or_create(&shard()).set(seconds(oldest));
        }
        if let Some(synced) = synced {
            metrics.synced.get_or_create(&shard()).set(synced);
        }
    }
}

fn measure_cell(api: &Api, state: &State, name: &CellName, standing: Standing) {
    let metrics = &api.metrics.freshness.cell;
    let type_name = name.type_name();
    let labels = ByCell {
        shard: name.shard().to_owned(),
        group: type_name.group().to_owned(),
        resource: type_name.resource().to_owned(),
    };
    metrics.age.get_or_create(&labels).set(seconds(standing.age));
    if let Some(synced) = synced_at(state, name) {
        metrics.synced.get_or_create(&labels).set(synced);
    }
    let Some(cell) = state.cell(name) else { return };
    let set = |gauge: &prometheus_client::metrics::gauge::Gauge, value: u64| {
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    };
    set(&metrics.objects.get_or_create(&labels), cell.count);
    set(&metrics.generation.get_or_create(&labels), cell.generation);
    if cell.cut {
        set(&metrics.position.get_or_create(&labels), cell.position);
    }
}

/// Wall clock of a cell's last sync, seconds since 1970.
fn synced_at(state: &State, name: &CellName) -> Option<i64> {
    let cell = state.cell(name).filter(|cell| cell.is_managed())?;
    Some(i64::try_from(cell.synced_ms / 1000).unwrap_or(i64::MAX))
}

fn seconds(age: Option<Duration>) -> f64 {
    age.map_or(f64::INFINITY, |age| age.as_secs_f64())
}

/// Why this process may not call itself ready: something in it is older than it may be. `None`: it may, or
/// nobody has set a bound.
pub(crate) fn too_old(api: &Api) -> Option<String> {
    let max = api.freshness.config().staleness_max?;
    let snapshot = api.cache.snapshot();
    let now = api.freshness.now();
    let cells = cells_by_shard(api, &snapshot.state).into_values().flatten();
    let mut late = cells.filter_map(|cell| {
        let standing = view::standing(&snapshot.state, &api.freshness, &cell, now);
        // What was never here is the gate's business, and what nobody speaks for has no age.
        let has_age = !matches!(standing.condition, Condition::NeverSynced | Condition::Unmanaged);
        (has_age && standing.age.is_none_or(|age| age > max)).then_some((cell, standing))
    });
    let (cell, standing) = late.next()?;
    let since = |age| format!("was last confirmed {}s ago", whole_seconds(age));
    let since =
        standing.age.map_or("has not been confirmed since this server has been open".to_owned(), since);
    let others = late.count();
    let type_name = cell.type_name().qualified();
    Some(format!("{type_name} of shard {} {since}, and {others} others are too old", cell.shard()))
}
