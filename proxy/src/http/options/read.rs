//! Options of LIST, WATCH and GET.

use std::num::NonZeroU64;
use std::time::Duration;

use shardcache_storage::ResourceVersion;

use crate::http::continue_token::Token;
use crate::selector::{FieldSelector, LabelSelector, ShardSelector};
use crate::status::ApiError;

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

impl ListOptions {
    /// Parses and validates; 400 or 422 as kube-apiserver.
    pub fn parse(_query: &str) -> Result<Self, ApiError> {
        todo!()
    }
}

impl WatchOptions {
    /// Parses and validates; 400 or 422 as kube-apiserver.
    pub fn parse(_query: &str) -> Result<Self, ApiError> {
        todo!()
    }
}

impl GetOptions {
    /// Parses and validates; 400 as kube-apiserver.
    pub fn parse(_query: &str) -> Result<Self, ApiError> {
        todo!()
    }
}
