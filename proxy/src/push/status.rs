//! `GET /services/cache/shards/<shard>/push`: who pushes the shard, and how far each of its cells is.

use serde_json::{Value, json};
use shardcache_storage::TypeName;

use crate::service::Api;

/// What is known of a shard's pusher; `None` if nobody ever pushed it.
pub(crate) fn of_shard(api: &Api, shard: &str) -> Option<Value> {
    let snapshot = api.cache.snapshot();
    let tenure = snapshot.state.tenure(shard)?;
    let heard = api.presence.of(shard, tenure.term);
    let cells: Vec<Value> = snapshot
        .state
        .cells()
        .filter(|(name, _)| name.shard() == shard)
        .map(|(name, cell)| {
            let mut value = type_of(name.type_name());
            value["version"] = json!(cell.described.version);
            value["kind"] = json!(cell.described.kind);
            value["pushManaged"] = json!(cell.is_managed());
            value["generation"] = json!(cell.generation);
            value["complete"] = json!(cell.cut);
            value["position"] = json!(cell.position.to_string());
            value["count"] = json!(cell.count);
            value["digest"] = json!(cell.digest.to_string());
            value["source"] = json!(cell.source);
            value
        })
        .collect();
    let catalog = tenure.catalog.as_ref().map(|types| types.iter().map(type_of).collect::<Vec<_>>());
    Some(json!({
        "shard": shard,
        "term": tenure.term,
        "holder": tenure.holder,
        "instance": tenure.instance,
        "election": tenure.election.as_ref().map(|election| json!({"uid": election.uid, "term": election.term})),
        "streams": heard.map_or(0, |(_, streams)| streams),
        "heardSecondsAgo": heard.map(|(ago, _)| ago.as_secs_f64()),
        "catalog": catalog,
        "cells": cells,
        "resourceVersion": snapshot.resource_version().to_string(),
    }))
}

/// A type in the answers about pushing.
pub(crate) fn type_of(name: &TypeName) -> Value {
    let mut value = json!({"group": name.group(), "resource": name.resource()});
    if !name.identity().is_empty() {
        value["identity"] = json!(name.identity());
    }
    value
}
