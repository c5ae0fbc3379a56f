//! Lets a read through, makes it wait, or refuses it (D38, D41, D42).
//!
//! Refusals are HTTP 500, reason `ServerTimeout`: Kubernetes' own code for what cannot be completed in
//! reasonable time. Not 503 or 504, which kube-rs and client-go retry by themselves for minutes, so that
//! an outage would be hidden from who asked; for the same reason there is no `Retry-After` header.

use std::time::Duration;

use futures::future::join_all;
use http::Response;
use shardcache_storage::{Cell, CellName, State, TypeName};
use tokio::time::{Instant as Deadline, timeout_at};

use super::clock::Instant;
use super::document::unknown_shard;
use super::lease;
use super::level::{Asked, At, Need};
use super::probe;
use super::report::{annotate, describe};
use super::standing::{Condition, Standing};
use super::view::{self, View};
use crate::http::locate::Located;
use crate::metrics::labels::Refusal;
use crate::scope::Scope;
use crate::service::Api;
use crate::status::{ApiError, Cause, Details};

/// Cells that a refusal names.
const CAUSES_MAX: usize = 100;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A collection: what is absent matters.
    Collection,
    /// One object that is there: its absence is judged by [`absent`].
    Object,
}

/// What was let through: what its answer says of itself.
pub(crate) struct Admitted(Option<View>);

/// Lets a read through whose need is met, perhaps after a while, and gives it the newest state. `patience`
/// is the client's, if it has one.
pub(crate) async fn admit(
    api: &Api,
    located: &mut Located,
    asked: &Asked,
    at: At,
    read: Read,
    patience: Option<Duration>,
) -> Result<Admitted, ApiError> {
    if is_ours(located) {
        located.renew(api);
        return Ok(Admitted(None));
    }
    let is_newest = !matches!(at, At::Fixed | At::Open);
    let need = asked.need(at, located.scope.shard.one().is_some(), api.freshness.config())?;
    if read == Read::Collection && is_newest {
        gate(api, located, asked).map_err(|error| counted(api, error))?;
    }
    if let Some(slack) = need.slack {
        let began = Deadline::now();
        let confirmed = confirm(api, located, need, slack, patience).await;
        api.metrics.freshness.waits.observe(began.elapsed().as_secs_f64());
        confirmed.map_err(|error| counted(api, error))?;
        // What it waited for has changed: the end of a sync, say.
        located.renew(api);
    }
    // In this order: what counts as confirmed now is in the state that is taken afterwards.
    let (type_name, scope) = (&located.type_info.name, &located.scope);
    let now = api.freshness.now();
    let view = is_newest.then(|| View::of(&located.snapshot.state, &api.freshness, type_name, scope, now));
    located.renew(api);
    Ok(Admitted(view))
}

impl Admitted {
    /// Says how fresh and how complete an answer is. What shows an earlier state says nothing.
    pub(crate) fn annotate<B>(&self, mut response: Response<B>) -> Response<B> {
        if let Some(view) = &self.0 {
            annotate(response.headers_mut(), view);
        }
        response
    }
}

/// Waits until every cell of the scope is confirmed; an error names those that are not in time.
async fn confirm(
    api: &Api,
    located: &Located,
    need: Need,
    slack: Duration,
    patience: Option<Duration>,
) -> Result<(), ApiError> {
    let longest = api.freshness.config().patience;
    let deadline = Deadline::now() + patience.map_or(longest, |patience| patience.min(longest));
    let arrived = api.freshness.now();
    let cells = cells(api, located, need)?;
    let reader = Reader { arrived, since: arrived.before(slack), deadline };
    let outcomes = join_all(cells.iter().map(|cell| confirmed(api, cell, reader))).await;
    let causes: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    if causes.is_empty() {
        return Ok(());
    }
    Err(refusal(&located.type_info.name, "the source's newest state could not be confirmed", causes))
}

/// The gate (D42), and a shard that was never synced: what is absent must not be shown as empty.
fn gate(api: &Api, located: &Located, asked: &Asked) -> Result<(), ApiError> {
    let (state, type_name) = (&located.snapshot.state, &located.type_info.name);
    if asked.allow_incomplete || is_ours(located) {
        return Ok(());
    }
    settled(api, state, &located.scope, type_name)
}

/// An error if objects of a type in a scope may exist without having been here.
fn settled(api: &Api, state: &State, scope: &Scope, type_name: &TypeName) -> Result<(), ApiError> {
    if let Some(shard) = scope.shard.one() {
        let cell = CellName::new(shard, type_name.clone());
        let standing = view::standing(state, &api.freshness, &cell, api.freshness.now());
        if standing.condition == Condition::NeverSynced {
            return Err(refusal(type_name, "the shard has not been synced yet", vec![absent_cause(shard)]));
        }
        return Ok(());
    }
    let causes: Vec<_> = state
        .awaited(type_name)
        .filter(|shard| !speaks_for(api, state, shard, type_name))
        .map(|shard| Cause {
            reason: "Incomplete",
            message: "is expected and has not been synced since this store was made".to_owned(),
            field: format!("shards/{shard}"),
        })
        .collect();
    if causes.is_empty() {
        return Ok(());
    }
    Err(refusal(type_name, "not every expected shard has been synced yet", causes))
}

/// The error for a type that is not served in a scope: 404, unless a shard that ought to be there has not said
/// yet whether it has it. A lost store has lost its types too.
pub(crate) fn unserved(api: &Api, state: &State, scope: &Scope, type_name: &TypeName) -> ApiError {
    let settled = settled(api, state, scope, type_name);
    settled.err().map_or_else(ApiError::no_such_path, |error| counted(api, error))
}

/// Whether a GET that found nothing may say 404: only if the shard's objects are here, so that absence means
/// something.
pub(crate) fn absent(api: &Api, located: &Located, asked: &Asked) -> Result<(), ApiError> {
    gate(api, located, asked).map_err(|error| counted(api, error))
}

/// The cells that have to be confirmed.
fn cells(api: &Api, located: &Located, need: Need) -> Result<Vec<CellName>, ApiError> {
    let (state, type_name) = (&located.snapshot.state, &located.type_info.name);
    let is_managed = |cell: &CellName| state.cell(cell).is_some_and(Cell::is_managed);
    let now = api.freshness.now();
    let standing_of = |cell: &CellName| view::standing(state, &api.freshness, cell, now);
    let Some(shard) = located.scope.shard.one() else {
        let names = state.tenures().map(|(shard, _)| CellName::new(shard, type_name.clone()));
        let mut cells: Vec<_> = names.filter(is_managed).collect();
        if need.asked {
            // What requests have written and nobody speaks for cannot be confirmed, and is in the answer.
            let is_unspoken = |cell: &CellName, standing: Standing| {
                standing.condition == Condition::Unmanaged && view::has_objects(state, cell)
            };
            let shards =
                view::others(state, type_name).into_iter().chain(state.roster().map(|(name, _)| name));
            let others = shards.map(|shard| CellName::new(shard, type_name.clone()));
            cells.extend(others.filter(|cell| {
                let standing = standing_of(cell);
                standing.is_vouched || is_unspoken(cell, standing)
            }));
        }
        return Ok(cells);
    };
    let cell = CellName::new(shard, type_name.clone());
    let standing = standing_of(&cell);
    let is_asked_of_somebody = standing.condition != Condition::Unmanaged && !standing.is_vouched;
    // Nobody can be asked about what is written by ordinary requests; by default that is said and not held
    // against it.
    if !is_asked_of_somebody && !need.asked {
        return Ok(vec![]);
    }
    if standing.condition != Condition::Unmanaged {
        return Ok(vec![cell]);
    }
    if !is_known(state, shard) {
        return Err(unknown_shard(shard));
    }
    Ok(vec![cell])
}

/// Whether something is what the store says: nobody pushes it, and nothing of it is absent. So are the objects
/// of the server itself, and the Lease by which a shard speaks.
fn is_ours(located: &Located) -> bool {
    let (type_info, scope) = (&located.type_info, &located.scope);
    type_info.is_own()
        || type_info.name == *lease::type_name()
            && scope.shard.one().and_then(lease::key).is_some_and(|key| {
                let place = key.parts();
                scope.cluster.one() == Some(place.cluster)
                    && scope.namespace.as_deref() == Some(place.namespace)
                    && located.path.name.as_deref() == Some(place.name)
            })
}

fn is_known(state: &State, shard: &str) -> bool {
    state.tenure(shard).is_some() || state.member(shard).is_some()
}

/// Whether a shard that is awaited, because it pushes nothing, has said that it has written a type.
fn speaks_for(api: &Api, state: &State, shard: &str, type_name: &TypeName) -> bool {
    let lease = api.freshness.vouchers().lease(state, shard);
    lease.is_some_and(|lease| lease.claim.written.contains_key(type_name))
}

/// Who waits for confirmations.
#[derive(Clone, Copy)]
struct Reader {
    /// When it came.
    arrived: Instant,
    /// It needs every write that the source had completed before this.
    since: Instant,
    deadline: Deadline,
}

/// Waits until everything that the source had completed before an instant is in the cache; the error says why
/// that is not shown.
async fn confirmed(api: &Api, cell: &CellName, reader: Reader) -> Result<(), Cause> {
    let entry = api.freshness.entry(cell);
    let mut changes = entry.changes();
    loop {
        let snapshot = api.cache.snapshot();
        let now = api.freshness.now();
        let standing = view::standing(&snapshot.state, &api.freshness, cell, now);
        if standing.age.is_some_and(|age| age <= now.since(reader.since)) {
            return Ok(());
        }
        let probed = probe::probed(&api.freshness, &snapshot.state, cell).filter(|_| standing.is_left());
        let is_probed = probed.is_some();
        if let Some(probed) = probed {
            if let Some(why) = entry.probe_refusal(reader.arrived) {
                return Err(unproven(cell, standing, &why));
            }
            probe::start(api, &entry, probed, reader.since, reader.arrived);
        } else if standing.is_hopeless() {
            return Err(unconfirmed(cell, standing));
        } else {
            entry.want(reader.since);
        }
        if timeout_at(reader.deadline, changes.changed()).await.is_err() {
            let late = "it has not answered in time";
            return Err(if is_probed { unproven(cell, standing, late) } else { unconfirmed(cell, standing) });
        }
    }
}

/// Counts a refusal by the first of its causes.
fn counted(api: &Api, error: ApiError) -> ApiError {
    let reason = match error.details.causes.first().map(|cause| cause.reason) {
        Some("ShardUnconfirmed") => Refusal::Unconfirmed,
        Some("NeverSynced") => Refusal::NeverSynced,
        Some("Incomplete") => Refusal::Incomplete,
        // Asked wrongly.
        _ => return error,
    };
    api.metrics.freshness.refusals.get_or_create(&reason.into()).inc();
    error
}

fn unconfirmed(cell: &CellName, standing: Standing) -> Cause {
    if standing.condition == Condition::NeverSynced {
        return absent_cause(cell.shard());
    }
    Cause {
        reason: "ShardUnconfirmed",
        message: describe(standing),
        field: format!("shards/{}", cell.shard()),
    }
}

/// The source itself was asked.
fn unproven(cell: &CellName, standing: Standing, why: &str) -> Cause {
    let cause = unconfirmed(cell, standing);
    Cause { message: format!("{}; its API was asked: {why}", cause.message), ..cause }
}

fn absent_cause(shard: &str) -> Cause {
    Cause {
        reason: "NeverSynced",
        message: "has not been synced since this store was made".to_owned(),
        field: format!("shards/{shard}"),
    }
}

fn refusal(type_name: &TypeName, why: &str, mut causes: Vec<Cause>) -> ApiError {
    let shards: Vec<_> =
        causes.iter().take(5).map(|cause| cause.field.trim_start_matches("shards/")).collect();
    let more = if causes.len() > shards.len() { ", ..." } else { "" };
    let message = format!(
        "The list operation against {} could not be completed at this time, please try again. ({why}: {}{more})",
        type_name.qualified(),
        shards.join(", ")
    );
    causes.truncate(CAUSES_MAX);
    ApiError::new(500, "ServerTimeout", message).with_details(Details {
        group: type_name.group().into(),
        kind: type_name.resource().into(),
        causes,
        retry_after_seconds: 1,
        no_retry_header: true,
        ..Details::default()
    })
}
