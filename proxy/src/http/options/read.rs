//! Options of LIST, WATCH and GET.

use std::num::NonZeroU64;
use std::time::Duration;

use shardcache_storage::ResourceVersion;

use super::query::Query;
use crate::http::continue_token::Token;
use crate::selector::{FieldSelector, LabelSelector, ShardSelector};
use crate::status::{ApiError, FieldError, quote};

/// Which state satisfies a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// resourceVersion unset: everything acknowledged before the request.
    MostRecent,
    /// resourceVersion `0`: whatever is at hand.
    Any,
    /// A state that contains everything up to the version.
    NotOlderThan(ResourceVersion),
}

/// The state a LIST shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAt {
    /// The newest acknowledged state.
    MostRecent,
    /// Whatever is at hand; the limit is already dropped (R12).
    Any,
    /// A state that contains everything up to the version.
    NotOlderThan(ResourceVersion),
    /// The state at exactly this version, or 410 Expired.
    Exact(ResourceVersion),
    /// The page after the token (not yet checked against the scope: [`Token::check`]).
    Continue(Token),
}

/// Options of LIST, and of DELETECOLLECTION.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// The state to show.
    pub at: ListAt,
    /// Objects per page; `None` is all of them.
    pub limit: Option<NonZeroU64>,
    /// Labels.
    pub labels: LabelSelector,
    /// Fields; not yet checked against the type ([`FieldSelector::check`]).
    pub fields: FieldSelector,
    /// Hash ranges; the answer echoes them in `metadata.shardInfo`.
    pub shards: Option<ShardSelector>,
    /// The client's deadline (`timeout=`), uncapped.
    pub timeout: Option<Duration>,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// ADDED for every object of one state, then live. Also what resourceVersion unset or `0` means
    /// without any other parameter.
    InitialEvents {
        /// Which state.
        at_least: Freshness,
        /// Whether the bookmark annotated `k8s.io/initial-events-end` ends the initial events: exactly
        /// if bookmarks are allowed.
        end_bookmark: bool,
    },
    /// Events strictly after the version.
    After(ResourceVersion),
    /// Events from now on, without initial ones; `at_least` is `MostRecent` or `Any`.
    Now {
        /// Which "now".
        at_least: Freshness,
    },
}

/// Options of WATCH.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Where to start.
    pub from: WatchFrom,
    /// Whether bookmarks may be sent.
    pub bookmarks: bool,
    /// `timeoutSeconds`: when the server ends the stream; `None` leaves it to the server.
    pub timeout: Option<Duration>,
    /// Labels.
    pub labels: LabelSelector,
    /// Fields; not yet checked against the type ([`FieldSelector::check`]).
    pub fields: FieldSelector,
    /// Hash ranges.
    pub shards: Option<ShardSelector>,
}

/// Options of GET.
#[derive(Clone, Copy, Debug)]
pub struct GetOptions {
    /// Which state.
    pub at: Freshness,
    /// The client's deadline (`timeout=`), uncapped.
    pub timeout: Option<Duration>,
}

/// The parameters LIST and WATCH share, decoded but not yet judged.
struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    shards: Option<ShardSelector>,
}

impl ListOptions {
    /// Parses and validates; 400 or 422 as kube-apiserver.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        let query = Query::parse(query);
        let timeout = query.timeout()?;
        let limit = query.number("limit")?;
        query.number("timeoutSeconds")?;
        let Selection { labels, fields, shards } = Selection::parse(&query)?;
        refuse_invalid(&list_errors(&query))?;
        // Zero and negative limits mean none.
        let limit = limit.and_then(|limit| u64::try_from(limit).ok()).and_then(NonZeroU64::new);
        let at = list_at(&query, limit.is_some())?;
        // A list at whatever is at hand is complete (R12): a reflector that is paged here would page for ever.
        let limit = if at == ListAt::Any { None } else { limit };
        Ok(Self { at, limit, labels, fields, shards, timeout })
    }
}

impl WatchOptions {
    /// Parses and validates; 400 or 422 as kube-apiserver.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        let query = Query::parse(query);
        let timeout = query.number("timeoutSeconds")?;
        query.number("limit")?;
        let Selection { labels, fields, shards } = Selection::parse(&query)?;
        refuse_invalid(&watch_errors(&query))?;
        let bookmarks = query.flag("allowWatchBookmarks");
        let at_least = freshness(&query)?;
        let from = match (query.optional_flag("sendInitialEvents"), at_least) {
            (Some(true), at_least) => WatchFrom::InitialEvents { at_least, end_bookmark: bookmarks },
            (_, Freshness::NotOlderThan(version)) => WatchFrom::After(version),
            (Some(false), at_least) => WatchFrom::Now { at_least },
            // kube's default for a watch without a version, bookmark included.
            (None, at_least) => WatchFrom::InitialEvents { at_least, end_bookmark: bookmarks },
        };
        let timeout = timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        Ok(Self { from, bookmarks, timeout: timeout.map(Duration::from_secs), labels, fields, shards })
    }
}

impl GetOptions {
    /// Parses and validates; 400 as kube-apiserver. A `resourceVersionMatch` is ignored.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        let query = Query::parse(query);
        Ok(Self { at: freshness(&query)?, timeout: query.timeout()? })
    }
}

impl Selection {
    fn parse(query: &Query<'_>) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(ApiError::bad_request)?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(ApiError::bad_request)?;
        // An empty parameter is an absent one, as for every text in kube's ListOptions.
        let shards = Some(query.text("shardSelector")).filter(|text| !text.is_empty());
        let shards = shards.map(ShardSelector::parse).transpose().map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields, shards })
    }
}

/// Judges by the tables of Kubernetes' API concepts, in kube-apiserver's order.
fn list_at(query: &Query<'_>, limited: bool) -> Result<ListAt, ApiError> {
    let token = query.text("continue");
    if !token.is_empty() {
        let token = Token::decode(token)?;
        if !matches!(query.text("resourceVersion"), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return Ok(ListAt::Continue(token));
    }
    Ok(match (freshness(query)?, query.text("resourceVersionMatch")) {
        (Freshness::MostRecent, _) => ListAt::MostRecent,
        (Freshness::Any, _) => ListAt::Any,
        (Freshness::NotOlderThan(version), "Exact") => ListAt::Exact(version),
        // Before there was `resourceVersionMatch`, paging pinned the version; clients still rely on it.
        (Freshness::NotOlderThan(version), "") if limited => ListAt::Exact(version),
        (Freshness::NotOlderThan(version), _) => ListAt::NotOlderThan(version),
    })
}

fn freshness(query: &Query<'_>) -> Result<Freshness, ApiError> {
    match query.text("resourceVersion") {
        "" => Ok(Freshness::MostRecent),
        "0" => Ok(Freshness::Any),
        text => ResourceVersion::parse(text).map(Freshness::NotOlderThan).map_err(|why| {
            let quoted = quote(text);
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing \
                 {quoted}: {why}"
            ))
        }),
    }
}

fn list_errors(query: &Query<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (version, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    if !matching.is_empty() {
        let mut forbid = |why| errors.push(FieldError::forbidden("resourceVersionMatch", why));
        if version.is_empty() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !query.text("continue").is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &supported));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    }
    if query.get("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch_errors(query: &Query<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut matching = query.text("resourceVersionMatch");
    let mut initial = query.get("sendInitialEvents").is_some();
    // kube's default for a watch without a version is applied before the options are judged.
    if matching.is_empty() && !initial && matches!(query.text("resourceVersion"), "" | "0") {
        (matching, initial) = ("NotOlderThan", true);
    }
    if initial && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden("resourceVersionMatch", why));
    }
    if !matching.is_empty() {
        if !initial {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
        }
        if !query.text("continue").is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    }
    errors
}

fn refuse_invalid(errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors))
}

#[cfg(test)]
mod tests;
