//! `/livez`, `/readyz`, `/healthz` and `/metrics`.
//!
//! | check | fails when | counts for |
//! |---|---|---|
//! | `ping` | never | all |
//! | `cache` | the task that follows the store has ended: only a restart helps | all |
//! | `shutdown` | the server is shutting down | readyz, healthz |
//! | `store` | the store is closed | readyz, healthz |
//! | `freshness` | something that was synced is older than `--max-staleness` allows, or of unknown age | readyz, healthz |
//! | `store-writable` | the disk is full or the store is read-only after a failed write | nothing |
//!
//! A store that cannot write still serves every read, and taking it out of a load balancer would end
//! the reads too; so `store-writable` fails alone, at `/readyz/store-writable`, in `?verbose` and in the
//! metrics. Liveness depends on nothing outside the process. Texts and codes are kube-apiserver's
//! (`k8s.io/apiserver/pkg/server/healthz`).

use std::fmt::Write as _;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};
use shardcache_storage::Health;

use super::path::HealthEndpoint;
use super::respond;
use crate::body::Body;
use crate::cache::Following;
use crate::freshness::measure;
use crate::metrics::labels::Source;
use crate::service::Api;

const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// One thing that can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name, as in `/readyz/<name>`.
    pub name: &'static str,
    /// What is wrong, if anything.
    pub failure: Option<String>,
    /// Which endpoints fail with it.
    pub counts_for: CountsFor,
}

/// Which endpoints fail with a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountsFor {
    /// `/livez`, `/readyz`, `/healthz`.
    Liveness,
    /// `/readyz`, `/healthz`.
    Readiness,
    /// None: it is shown, and has a path of its own.
    Nothing,
}

impl Check {
    /// A check with its outcome.
    pub fn new(name: &'static str, counts_for: CountsFor, failure: Option<String>) -> Self {
        Self { name, failure, counts_for }
    }

    fn is_part_of(&self, endpoint: HealthEndpoint) -> bool {
        self.counts_for == CountsFor::Liveness || endpoint != HealthEndpoint::Livez
    }
}

/// Answers a GET of a health endpoint, or of one check of it.
pub fn respond(api: &Api, endpoint: HealthEndpoint, check: Option<&str>, query: &str) -> Response<Body> {
    let checks = checks(api, endpoint);
    report(&checks, endpoint, check, query)
}

/// The checks of a server whose store is open. What costs more than a look is left out where it does not count.
fn checks(api: &Api, endpoint: HealthEndpoint) -> Vec<Check> {
    let health = api.store.health();
    let closed = (health == Health::Closed).then(|| "the store is closed".to_owned());
    let not_writable = match health {
        Health::Writable => None,
        Health::DiskFull => Some("the disk is full; writes are refused until space is free".to_owned()),
        Health::ReadOnly(why) => Some(format!("read-only until a restart: {why}")),
        Health::Closed => Some("the store is closed".to_owned()),
    };
    let following = api.cache.following();
    let ended = (following == Following::Ended).then(|| "the cache no longer follows its store".to_owned());
    let too_old = (endpoint != HealthEndpoint::Livez).then(|| measure::too_old(api)).flatten();
    let draining = api.is_draining() || following == Following::Draining;
    let draining = draining.then(|| "the server is shutting down".to_owned());
    vec![
        Check::new("ping", CountsFor::Liveness, None),
        Check::new("cache", CountsFor::Liveness, ended),
        Check::new("shutdown", CountsFor::Readiness, draining),
        Check::new("store", CountsFor::Readiness, closed),
        Check::new("freshness", CountsFor::Readiness, too_old),
        Check::new("store-writable", CountsFor::Nothing, not_writable),
    ]
}

/// The answer that follows from the outcomes of checks. `query` may hold `verbose` and `exclude=<name>`.
pub fn report(
    checks: &[Check],
    endpoint: HealthEndpoint,
    check: Option<&str>,
    query: &str,
) -> Response<Body> {
    let mut checks = checks.iter().filter(|check| check.is_part_of(endpoint));
    if let Some(name) = check {
        return match checks.find(|check| check.name == name).map(|check| &check.failure) {
            None => respond::unknown_path(),
            Some(None) => respond::text(StatusCode::OK, "ok"),
            Some(Some(why)) => {
                respond::text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
            }
        };
    }
    let parameters = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut excluded: Vec<&str> =
        parameters().filter(|(key, _)| *key == "exclude").map(|(_, name)| name).collect();
    let (mut text, mut failed) = (String::new(), false);
    for check in checks {
        let is_excluded = excluded.contains(&check.name);
        excluded.retain(|name| *name != check.name);
        let counts = check.counts_for != CountsFor::Nothing;
        let _ = match (&check.failure, is_excluded) {
            (_, true) => writeln!(text, "[+]{} excluded: ok", check.name),
            (None, _) => writeln!(text, "[+]{} ok", check.name),
            (Some(_), _) if counts => writeln!(text, "[-]{} failed: reason withheld", check.name),
            (Some(_), _) => writeln!(text, "[~]{} failed: reason withheld", check.name),
        };
        failed |= counts && check.failure.is_some() && !is_excluded;
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    let name = match endpoint {
        HealthEndpoint::Healthz => "healthz",
        HealthEndpoint::Livez => "livez",
        HealthEndpoint::Readyz => "readyz",
    };
    if failed {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{name} check failed\n"));
    }
    if parameters().any(|(key, _)| key == "verbose") {
        return respond::text(StatusCode::OK, format!("{text}{name} check passed\n"));
    }
    respond::text(StatusCode::OK, "ok")
}

/// Answers a GET of `/metrics`: OpenMetrics text of everything registered.
pub fn metrics(api: &Api) -> Response<Body> {
    let counts = api.cache.snapshot().types.counts();
    let types = &api.metrics.types;
    let by_source = [
        (Source::Builtin, counts.builtin),
        (Source::Crd, counts.crd),
        (Source::Pushed, counts.pushed),
        (Source::Config, counts.config),
        (Source::Leftover, counts.leftover),
    ];
    for (source, count) in by_source {
        types.served.get_or_create(&source.into()).set(gauge(count));
    }
    types.broken.set(gauge(counts.broken));
    // Two monitors that ask at one moment would count each other's cells.
    let scrape = api.scrape.lock();
    measure::measure(api);
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, &api.registry).is_err() {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be encoded\n");
    }
    drop(scrape);
    let mut response = respond::text(StatusCode::OK, text);
    response.headers_mut().insert(CONTENT_TYPE, OPENMETRICS);
    response
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
