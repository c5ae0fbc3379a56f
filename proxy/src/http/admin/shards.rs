//! `/services/cache/admin/shards`: the roster of shards (D42), for operators.
//!
//! GET shows every member, what is awaited of it and who pushes it, and the shards that are only written by
//! ordinary writers; `POST …/shards/<shard>/expect`, `…/excuse` and `…/forget` change a place. What the
//! words mean is the store's (`storage/src/ledger/roster.rs`); an answer comes once reads see the change.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use shardcache_storage::{Awaited, Member, Objects, Push, Role, RosterChange, State, TypeName, Verdict};

use crate::access::Access;
use crate::body::Body;
use crate::http::{path, respond, route, store_error};
use crate::metrics::labels;
use crate::push::status::type_of;
use crate::service::Api;
use crate::status::ApiError;

/// What an operator says of a shard.
#[derive(Clone, Copy, Debug)]
enum Word {
    Expect,
    Excuse,
    Forget,
}

/// Answers a request below `/services/cache/admin/shards`.
pub(super) async fn answer(
    api: &Api,
    access: &Access,
    method: &Method,
    segments: &[String],
) -> Result<Response<Body>, ApiError> {
    match segments {
        [] if method == Method::GET => list(api).await,
        [shard, word] => {
            let Some(word) = Word::parse(word) else { return Ok(respond::unknown_path()) };
            if method != Method::POST {
                return Err(route::not_allowed());
            }
            change(api, access, shard, word).await
        }
        [] => Err(route::not_allowed()),
        _ => Ok(respond::unknown_path()),
    }
}

impl Word {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "expect" => Some(Self::Expect),
            "excuse" => Some(Self::Excuse),
            "forget" => Some(Self::Forget),
            _ => None,
        }
    }

    fn change(self, shard: &str) -> RosterChange {
        let shard = shard.into();
        match self {
            Self::Expect => RosterChange::Expect { shard },
            Self::Excuse => RosterChange::Excuse { shard },
            Self::Forget => RosterChange::Forget { shard },
        }
    }

    /// Whether a state shows that it was said.
    fn holds(self, member: Option<&Member>) -> bool {
        match (self, member) {
            (Self::Expect, Some(member)) => member.role == Role::Expected,
            (Self::Excuse, Some(member)) => member.role == Role::Excused || member.awaits.is_nothing(),
            (Self::Forget, None) => true,
            _ => false,
        }
    }
}

async fn change(api: &Api, access: &Access, shard: &str, word: Word) -> Result<Response<Body>, ApiError> {
    if !path::is_shard_name(shard) {
        return Err(ApiError::bad_request(format!("shard: {shard:?} is not the name of a shard")));
    }
    let push = Push::Roster(word.change(shard));
    let pushed = api.store.push(push).await.map_err(|error| store_error(&error))?;
    if let Verdict::Broken(problem) = pushed.verdict {
        let is_pushed = pushed.tenure.term > 0;
        let (code, reason) = if is_pushed { (409, "Conflict") } else { (404, "NotFound") };
        return Err(ApiError::new(code, reason, problem));
    }
    // Who is told so may read at once.
    let shown = api.cache.showing(|snapshot| word.holds(snapshot.state.member(shard)));
    tokio::time::timeout(api.config.request_timeout, shown)
        .await
        .map_err(|_| ApiError::timeout("the change is not shown yet", 1))?;
    tracing::warn!(shard, word = ?word, user = access.user(), "the roster was changed");
    let snapshot = api.cache.snapshot();
    let version = snapshot.resource_version().to_string();
    let cells = cells_of(&snapshot.state);
    let value = json!({"shard": describe(api, &snapshot.state, &cells, shard), "resourceVersion": version});
    Ok(respond::value(StatusCode::OK, &value))
}

async fn list(api: &Api) -> Result<Response<Body>, ApiError> {
    let snapshot = api.cache.snapshot();
    // A seek per shard and type: at ten thousand shards, more than a thread of the runtime has time for.
    let looked = {
        let snapshot = std::sync::Arc::clone(&snapshot);
        tokio::task::spawn_blocking(move || with_objects(&snapshot.state)).await
    };
    let mut names = looked.map_err(ApiError::internal)?;
    names.extend(snapshot.state.roster().map(|(shard, _)| shard.to_owned()));
    names.extend(snapshot.state.tenures().map(|(shard, _)| shard.to_owned()));
    let cells = cells_of(&snapshot.state);
    let shards: Vec<_> = names.iter().map(|shard| describe(api, &snapshot.state, &cells, shard)).collect();
    let value = json!({
        "seeded": snapshot.state.is_seeded(),
        "shards": shards,
        "resourceVersion": snapshot.resource_version().to_string(),
    });
    Ok(respond::value(StatusCode::OK, &value))
}

/// Names of the shards that have objects.
fn with_objects(state: &State) -> BTreeSet<String> {
    state.types().flat_map(|(_, objects)| shards_of(objects)).collect()
}

fn shards_of(objects: &Objects) -> impl Iterator<Item = String> {
    let mut after: Option<String> = None;
    std::iter::from_fn(move || {
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let shard = objects.range(from, Bound::Unbounded).next()?.parts().shard.to_owned();
        // Above every key of the shard and below the next: NUL separates the parts of a key.
        after = Some(format!("{shard}\u{1}"));
        Some(shard)
    })
}

/// The cells of each shard: their types, and whether they were synced.
type Cells<'a> = HashMap<&'a str, Vec<(&'a TypeName, bool)>>;

fn cells_of(state: &State) -> Cells<'_> {
    let mut all = Cells::new();
    for (name, cell) in state.cells() {
        all.entry(name.shard()).or_default().push((name.type_name(), cell.is_managed()));
    }
    all
}

fn describe(api: &Api, state: &State, cells: &Cells<'_>, shard: &str) -> Value {
    let (member, tenure) = (state.member(shard), state.tenure(shard));
    let role = member.map_or("unmanaged", |member| labels::Role::from(member.role).as_str());
    let awaits: Vec<_> = match member.map(|member| &member.awaits) {
        Some(Awaited::Types(types)) => types.iter().map(type_of).collect(),
        Some(Awaited::Catalog) | None => Vec::new(),
    };
    let pusher = tenure.map(|tenure| {
        let heard = api.presence.of(shard, tenure.term);
        json!({
            "holder": tenure.holder,
            "term": tenure.term,
            "streams": heard.map_or(0, |(_, streams)| streams),
            "heardSecondsAgo": heard.map(|(ago, _)| ago.as_secs_f64()),
        })
    });
    let catalog = tenure.and_then(|tenure| tenure.catalog.as_deref());
    let mut types: BTreeSet<_> = catalog.into_iter().flatten().collect();
    let cells = cells.get(shard).map(Vec::as_slice).unwrap_or_default();
    types.extend(cells.iter().map(|(type_name, _)| *type_name));
    let synced = cells.iter().filter(|(_, synced)| *synced).count();
    json!({
        "shard": shard,
        "role": role,
        "gates": member.is_some_and(Member::gates),
        "catalog": catalog.is_some(),
        "awaits": awaits,
        "pusher": pusher,
        "cells": {"synced": synced, "total": types.len()},
    })
}
