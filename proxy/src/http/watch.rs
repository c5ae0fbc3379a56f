//! WATCH: one client's stream of events, from its first byte to a clean end.
//!
//! Owns a [`Watcher`], which knows what this client still needs. Guarantees the wire format (one event,
//! one line), a bookmark at least every [`ApiConfig::bookmark_interval`] where they are allowed, and that
//! whatever goes wrong after admission is said inside the stream, because clients retry an HTTP error
//! with the same version for ever (README decision 3). Each event was encoded at ingest; here it gets a
//! prefix and a suffix. All events that are ready go into one frame, because the system call is the cost.
//!
//! The same stream is cut into messages for who asks for a WebSocket ([`super::websocket`]).

mod line;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use shardcache_storage::{ResourceVersion, Revision, Standing};

use crate::body::Body;
use crate::cache::{CacheError, Watcher};
use crate::filter::Filter;
use crate::freshness::admit::{Read, admit};
use crate::freshness::level::{Asked, At};
use crate::http::accept::Shape;
use crate::http::items::{Collection, Source};
use crate::http::locate::Located;
use crate::http::options::{Freshness, WatchFrom, WatchOptions};
use crate::http::respond;
use crate::represent::Form;
use crate::selector::FieldSelector;
use crate::service::{Api, ApiConfig};
use crate::status::ApiError;

use stream::{Initial, Stream};

/// Longest lifetime a client can ask for: far more than any connection lives.
const LIFETIME_MAX: Duration = Duration::from_hours(365 * 24);

/// Answers a watch. An error is an HTTP error: the request cannot be understood, or there is no room.
pub(crate) async fn watch(
    api: &Arc<Api>,
    located: &mut Located,
    query: &str,
    shape: Shape,
    asked: &Asked,
) -> Result<Response<Body>, ApiError> {
    let options = WatchOptions::parse(query)?;
    let at = match options.from {
        WatchFrom::InitialEvents { at_least, .. } => at_least.into(),
        WatchFrom::After(_) => At::Fixed,
        WatchFrom::Now { .. } => At::Open,
    };
    let admitted = admit(api, located, asked, at, Read::Collection, options.timeout).await?;
    let fields = named(options.fields, located.path.name.as_deref())?;
    let filter = located.filter(options.labels, fields, options.shards)?;
    let place = api.limits.watches.take(1, &api.metrics)?;
    let body = match start(api, located, &filter, options.from) {
        Ok((watcher, initial)) => {
            let lifetime = options.timeout.unwrap_or_else(|| default_lifetime(&api.config)).min(LIFETIME_MAX);
            let form = Form::in_scope(&located.scope, &located.type_info, &located.path.version, shape);
            let of = (located.type_info.name.clone(), located.scope.clone());
            let stream = Stream::new(Arc::clone(api), watcher, of, form, options.bookmarks, lifetime, place);
            Body::produced(None, |sink| stream.run(initial, sink))
        }
        Err(error) => Body::full(line::error(&error)),
    };
    Ok(admitted.annotate(respond::with_type(StatusCode::OK, respond::JSON, body)))
}

/// The field selector, narrowed to the name in a legacy `/watch/…/<name>` path.
fn named(fields: FieldSelector, name: Option<&str>) -> Result<FieldSelector, ApiError> {
    let Some(name) = name else { return Ok(fields) };
    if fields.is_empty() {
        // A name is a value here, whatever it holds: what the grammar gives a meaning is escaped.
        let value = name.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
        return FieldSelector::parse(&format!("metadata.name={value}")).map_err(ApiError::bad_request);
    }
    if fields.name() == Some(name) && fields.terms().len() == 1 {
        return Ok(fields);
    }
    Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"))
}

/// Uniform between the shortest default lifetime and its double, so that ends do not come in waves.
fn default_lifetime(config: &ApiConfig) -> Duration {
    config.watch_timeout_min.mul_f64(rand::random_range(1.0..2.0))
}

/// Registers the watcher at its start. An error is to be said inside the stream.
fn start(
    api: &Api,
    located: &Located,
    filter: &Filter,
    from: WatchFrom,
) -> Result<(Watcher, Option<Initial>), ApiError> {
    let head = located.snapshot.state.head();
    match from {
        WatchFrom::After(version) => {
            let after = issued(api, located, version)?;
            Ok((register(api, located, filter, after, version)?, None))
        }
        WatchFrom::Now { .. } => {
            let version = located.snapshot.resource_version();
            Ok((register(api, located, filter, head, version)?, None))
        }
        WatchFrom::InitialEvents { at_least, end_bookmark } => {
            if let Freshness::NotOlderThan(version) = at_least {
                issued(api, located, version)?;
            }
            let version = located.snapshot.resource_version();
            // Registered before the first initial event is sent: what happens meanwhile follows them.
            let watcher = register(api, located, filter, head, version)?;
            let collection = Collection {
                source: Source::Newest(Arc::clone(&located.snapshot)),
                type_name: located.type_info.name.clone(),
                filter: filter.clone(),
            };
            let end_bookmark = end_bookmark.then_some(version);
            Ok((watcher, Some(Initial { collection: Arc::new(collection), end_bookmark })))
        }
    }
}

fn issued(api: &Api, located: &Located, version: ResourceVersion) -> Result<Revision, ApiError> {
    match api.store.lineage().classify(version, located.snapshot.state.head()) {
        Standing::Issued(revision) => Ok(revision),
        // kube's words first: clients that know no reasons look for them.
        Standing::Foreign => Err(ApiError::expired(format!(
            "too old resource version: {version} ({}): it is from another timeline of this store",
            located.snapshot.resource_version()
        ))),
        Standing::Future => Err(ApiError::expired(format!(
            "The resourceVersion {version} is larger than the current {}: list again without it.",
            located.snapshot.resource_version()
        ))),
    }
}

fn register(
    api: &Api,
    located: &Located,
    filter: &Filter,
    after: Revision,
    version: ResourceVersion,
) -> Result<Watcher, ApiError> {
    let watcher = api.cache.watch(&located.type_info.name, filter.clone(), after);
    watcher.map_err(|error| match error {
        CacheError::TooOld { floor } => {
            let lineage = api.store.lineage();
            match lineage.version_of(floor, located.snapshot.state.head()) {
                Some(oldest) => ApiError::too_old_resource_version(version, oldest),
                None => ApiError::watch_expired(),
            }
        }
        CacheError::Storage(error) => ApiError::internal(error),
    })
}
