//! `GET /services/cache/freshness`: every shard with its role, and each of its cells with state and age.
//!
//! `shard=` narrows it to one shard (404 if that is in no roster and nobody has pushed it), `rtype=` to one
//! type, written as `<plural>.<group>`; then the answer also says whether a view of all shards is complete.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shardcache_storage::{Awaited, CellName, Role, State, TypeName};

use super::clock::Instant;
use super::keeper::{Evidence, whole_seconds};
use super::lease::{self, Lease};
use super::view::{self, View, vouching};
use crate::http::options::Query;
use crate::push::status::type_of;
use crate::scope::Scope;
use crate::service::Api;
use crate::status::{ApiError, Cause, quote};

/// The document that a query asks for.
pub(crate) fn answer(api: &Api, query: &str) -> Result<Value, ApiError> {
    let query = Query::parse(query);
    let wanted = |name| query.get(name).filter(|value: &&str| !value.is_empty());
    let type_name = wanted("rtype").map(type_named).transpose()?;
    let snapshot = api.cache.snapshot();
    let shard = wanted("shard");
    if let Some(shard) = shard
        && snapshot.state.tenure(shard).is_none()
        && snapshot.state.member(shard).is_none()
        && Lease::find(&snapshot.state, shard).is_none()
    {
        return Err(unknown_shard(shard));
    }
    let now = api.freshness.now();
    let shards: Vec<Value> = cells_by_shard(api, &snapshot.state)
        .into_iter()
        .filter(|(name, _)| shard.is_none_or(|shard| shard == *name))
        .map(|(name, cells)| {
            let cells =
                cells.into_iter().filter(|cell| type_name.as_ref().is_none_or(|t| t == cell.type_name()));
            of_shard(api, &snapshot.state, name, cells, now)
        })
        .collect();
    let mut document = json!({
        "resourceVersion": snapshot.resource_version().to_string(),
        "seeded": snapshot.state.is_seeded(),
        "shards": shards,
    });
    if let Some(type_name) = &type_name {
        let scope = shard.map_or_else(Scope::wildcard, Scope::shard);
        let view = View::of(&snapshot.state, &api.freshness, type_name, &scope, now);
        document["complete"] = json!(view.complete.as_str());
        document["maxAgeSeconds"] = json!(view.age.filter(|_| view.is_known()).map(whole_seconds));
        document["expected"] = json!(view.expected);
        document["synced"] = json!(view.synced);
        document["live"] = json!(view.live);
    }
    Ok(document)
}

/// 404 for a shard that nobody knows.
pub(crate) fn unknown_shard(shard: &str) -> ApiError {
    let message = format!("shard {} is in no roster, and nobody has pushed it", quote(shard));
    let mut error = ApiError::new(404, "NotFound", message);
    let cause = Cause { field: format!("shards/{shard}"), ..Cause::default() };
    error.details.causes.push(cause);
    error
}

/// The cells of every shard that is a member, was pushed or speaks for itself: those that exist, and those
/// that are announced.
pub(super) fn cells_by_shard<'a>(api: &Api, state: &'a State) -> BTreeMap<&'a str, Vec<CellName>> {
    let mut shards: BTreeMap<&str, Vec<CellName>> = BTreeMap::new();
    for (shard, _) in state.roster() {
        shards.entry(shard).or_default();
    }
    for (shard, tenure) in state.tenures() {
        let announced = tenure.catalog.iter().flat_map(|types| types.iter());
        let cells = announced.map(|type_name| CellName::new(shard, type_name.clone()));
        shards.entry(shard).or_default().extend(cells);
    }
    for (name, cell) in state.cells().filter(|(_, cell)| cell.is_managed()) {
        debug_assert!(cell.generation > 0, "a synced cell has a generation");
        shards.entry(name.shard()).or_default().push(name.clone());
    }
    for shard in vouching(state) {
        let lease = api.freshness.vouchers().lease(state, shard);
        let spoken_for = lease.iter().flat_map(|lease| lease.claim.written.keys());
        let cells = spoken_for.map(|type_name| CellName::new(shard, type_name.clone()));
        shards.entry(shard).or_default().extend(cells);
    }
    for cells in shards.values_mut() {
        cells.sort_unstable();
        cells.dedup();
    }
    shards
}

fn of_shard(
    api: &Api,
    state: &State,
    shard: &str,
    cells: impl Iterator<Item = CellName>,
    now: Instant,
) -> Value {
    let member = state.member(shard);
    let role = match member.map(|member| member.role) {
        Some(Role::Expected) => "expected",
        Some(Role::Joining) => "joining",
        Some(Role::Excused) => "excused",
        None => "unmanaged",
    };
    let awaits = match member.map(|member| &member.awaits) {
        Some(Awaited::Catalog) => Value::Null,
        Some(Awaited::Types(types)) => types.iter().map(type_of).collect(),
        None => json!([]),
    };
    let tenure = state.tenure(shard);
    let heard = tenure.and_then(|tenure| api.presence.of(shard, tenure.term));
    json!({
        "name": shard,
        "role": role,
        "awaits": awaits,
        "holder": tenure.map(|tenure| &*tenure.holder),
        "heardSecondsAgo": heard.map(|(ago, _)| whole_seconds(ago)),
        "cells": cells.map(|cell| of_cell(api, state, &cell, now)).collect::<Vec<_>>(),
    })
}

fn of_cell(api: &Api, state: &State, name: &CellName, now: Instant) -> Value {
    let standing = view::standing(state, &api.freshness, name, now);
    let mut value = type_of(name.type_name());
    value["state"] = json!(standing.condition.as_str());
    value["ageSeconds"] = json!(standing.age.map(whole_seconds));
    if let Some(cell) = state.cell(name) {
        value["generation"] = json!(cell.generation);
        value["position"] = json!(cell.cut.then(|| cell.position.to_string()));
        value["objects"] = json!(cell.count);
    }
    let evidence = api.freshness.of(name, now).evidence.map(Evidence::as_str);
    value["provider"] = json!(if standing.is_vouched { Some("lease") } else { evidence });
    value
}

/// A type as it is named in the query.
fn type_named(text: &str) -> Result<TypeName, ApiError> {
    lease::type_named(text)
        .ok_or_else(|| ApiError::bad_request(format!("rtype: {} is not <plural>.<group>", quote(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_kubectl_names_them() {
        assert_eq!(type_named("apiexports.apis.kcp.io"), Ok(TypeName::new("apis.kcp.io", "apiexports")));
        assert_eq!(type_named("namespaces"), Ok(TypeName::new("", "namespaces")));
        for text in [".apis.kcp.io", "ApiExports", "a/b", "a b.c"] {
            let error = type_named(text).expect_err(text);
            assert!(error.code == 400 && error.message.starts_with("rtype: "), "{}", error.message);
        }
    }
}
