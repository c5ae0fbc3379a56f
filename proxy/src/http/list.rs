//! LIST: one state, one filter, perhaps one page of it, streamed as it lies in memory.
//!
//! Guarantees: every item and the list's resourceVersion are of the same state; items are in key order;
//! memory is a frame plus eight bytes per selected object, however large the list is. What each
//! combination of resourceVersion, match, continue and limit means was settled by
//! [`ListOptions::parse`]; here it meets the versions that exist.

mod frames;

use std::sync::Arc;

use http::{Response, StatusCode};
use shardcache_storage::{Object, ResourceVersion, Revision};
use tokio::time::{Instant, timeout};

use crate::body::Body;
use crate::cache::CacheError;
use crate::freshness::admit::{Read, admit};
use crate::freshness::level::{Asked, At};
use crate::http::accept::Shape;
use crate::http::continue_token::Token;
use crate::http::items::{Collection, Items, Source};
use crate::http::lease::Lease;
use crate::http::locate::Located;
use crate::http::options::{ListAt, ListOptions};
use crate::http::{receive, respond};
use crate::represent::Form;
use crate::service::Api;
use crate::status::ApiError;

pub(crate) use frames::reserve;
use frames::{Frame, Header};

/// Lists of up to this many objects are picked before they are sent, so that their length is known.
const PICKED_MAX: usize = 1_000;

/// The state a list shows.
pub(crate) struct Shown {
    pub(crate) source: Source,
    pub(crate) version: ResourceVersion,
    /// Key after which the page begins.
    pub(crate) after: Option<Box<str>>,
    /// Objects of the scope after that key, if an earlier page counted them.
    counted: Option<u64>,
}

/// A list whose state is found.
struct Listing<'a> {
    api: &'a Api,
    located: &'a Located,
    form: Form,
    collection: Arc<Collection>,
    version: ResourceVersion,
    after: Option<Box<str>>,
    counted: Option<u64>,
}

/// One page, or everything.
struct Page {
    items: Items,
    /// Bytes of the items and the commas between them, if known.
    len: Option<u64>,
    next: Option<Next>,
}

/// What follows a page.
struct Next {
    token: String,
    /// Objects after the page, where that is not hidden by selectors.
    remaining: Option<u64>,
}

/// Answers GET on a collection.
pub(crate) async fn list(
    api: &Api,
    located: &mut Located,
    query: &str,
    shape: Shape,
    asked: &Asked,
) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::parse(query)?;
    let patience = options.timeout.unwrap_or(api.config.request_timeout);
    let began = Instant::now();
    // Ends in the same time, but with another answer.
    let admitted = admit(api, located, asked, at(&options.at), Read::Collection, options.timeout).await?;
    let left = patience.saturating_sub(began.elapsed());
    let listed = timeout(left, answer(api, located, options, shape)).await;
    listed.unwrap_or_else(|_| Err(receive::timed_out())).map(|response| admitted.annotate(response))
}

/// What the version of a list says of its freshness.
fn at(at: &ListAt) -> At {
    match at {
        ListAt::MostRecent => At::Unset,
        ListAt::Any => At::Any,
        ListAt::NotOlderThan(_) => At::NotOlderThan,
        ListAt::Exact(_) => At::Fixed,
        ListAt::Continue(_) => At::Open,
    }
}

async fn answer(
    api: &Api,
    located: &Located,
    options: ListOptions,
    shape: Shape,
) -> Result<Response<Body>, ApiError> {
    let limit = options.limit.map(|limit| usize::try_from(limit.get()).unwrap_or(usize::MAX - 1));
    let echo = options.shards.as_ref().map(ToString::to_string);
    let filter = located.filter(options.labels, options.fields, options.shards)?;
    let Shown { source, version, after, counted } = show(api, located, options.at).await?;
    let collection = Collection { source, type_name: located.type_info.name.clone(), filter };
    let form = Form::in_scope(&located.scope, &located.type_info, &located.path.version, shape).for_items();
    let listing = Listing { api, located, form, collection: Arc::new(collection), version, after, counted };
    let page = match limit {
        Some(limit) => listing.page(limit).await?,
        None => listing.everything().await?,
    };
    let (kind, next, start) = (listing.form.list_type(), page.next.as_ref(), listing.form.list_start());
    let header = Header { kind, version, next, echo: echo.as_deref(), start: &start }.encode();
    let reserved = reserve(api)?;
    let body = frames::body(api, reserved, Frame { header, len: page.len }, page.items, listing.form);
    Ok(respond::with_type(StatusCode::OK, respond::JSON, body))
}

/// A list of these objects, which belong to the type, at a version.
pub(crate) fn of_objects(
    api: &Api,
    reserved: Arc<Lease>,
    located: &Located,
    objects: Vec<Object>,
    version: ResourceVersion,
    shape: Shape,
) -> Response<Body> {
    let form = Form::new(&located.type_info, &located.path.version, shape).for_items();
    let (kind, start) = (form.list_type(), form.list_start());
    let header = Header { kind, version, next: None, echo: None, start: &start }.encode();
    let frame = Frame { header, len: length(&form, &objects) };
    let body = frames::body(api, reserved, frame, Items::Picked(objects.into_iter()), form);
    respond::with_type(StatusCode::OK, respond::JSON, body)
}

/// Bytes of objects with commas between them, if known before they are made.
fn length(form: &Form, objects: &[Object]) -> Option<u64> {
    let commas = objects.len().saturating_sub(1) as u64;
    form.len_of(objects).map(|items| items + commas)
}

/// Finds the state to show.
pub(crate) async fn show(api: &Api, located: &Located, at: ListAt) -> Result<Shown, ApiError> {
    let newest = || Shown {
        source: Source::Newest(Arc::clone(&located.snapshot)),
        version: located.snapshot.resource_version(),
        after: None,
        counted: None,
    };
    match at {
        ListAt::MostRecent | ListAt::Any => Ok(newest()),
        ListAt::NotOlderThan(version) => {
            located.issued(api, version)?;
            Ok(newest())
        }
        ListAt::Exact(version) => {
            let revision = located.issued(api, version)?;
            let source = at_revision(api, located, revision).await?.ok_or_else(ApiError::list_expired)?;
            Ok(Shown { source, version, ..newest() })
        }
        ListAt::Continue(token) => {
            token.check(&located.type_info.name, &located.scope)?;
            let (source, version) = match token.at {
                None => (Source::Newest(Arc::clone(&located.snapshot)), located.snapshot.resource_version()),
                Some(version) => {
                    // Whatever a token's version cannot be served for, the rest of the list can be.
                    let expired = || ApiError::continue_expired(token.inconsistent().encode());
                    let revision = located.issued(api, version).map_err(|_| expired())?;
                    (at_revision(api, located, revision).await?.ok_or_else(expired)?, version)
                }
            };
            Ok(Shown { source, version, counted: token.remaining, after: Some(token.after) })
        }
    }
}

/// The objects exactly at an issued revision; `None` if that history is gone.
async fn at_revision(api: &Api, located: &Located, revision: Revision) -> Result<Option<Source>, ApiError> {
    if revision == located.snapshot.state.head() {
        return Ok(Some(Source::Newest(Arc::clone(&located.snapshot))));
    }
    match api.cache.objects_at(&located.type_info.name, revision).await {
        Ok(objects) => Ok(Some(Source::Earlier(Arc::new(objects)))),
        Err(CacheError::TooOld { .. }) => Ok(None),
        Err(CacheError::Storage(error)) => Err(ApiError::internal(error)),
    }
}

impl Listing<'_> {
    async fn page(&self, limit: usize) -> Result<Page, ApiError> {
        let mut objects = self.collection.pick(self.after.clone(), limit + 1).await?;
        let more = objects.len() > limit;
        objects.truncate(limit);
        let next = objects.last().filter(|_| more).map(|last| self.next(last, objects.len()));
        Ok(Page { len: length(&self.form, &objects), items: Items::Picked(objects.into_iter()), next })
    }

    fn next(&self, last: &Object, returned: usize) -> Next {
        if let Source::Newest(snapshot) = &self.collection.source {
            self.api.cache.retain(snapshot);
        }
        let counted = match self.counted {
            Some(counted) => (!self.collection.filter.has_selectors()).then_some(counted),
            None => self.collection.remaining(self.after.as_deref()).map(|count| count as u64),
        };
        let remaining = counted.map(|counted| counted.saturating_sub(returned as u64));
        let (type_name, scope) = (&self.located.type_info.name, &self.located.scope);
        let token = Token::new(Some(self.version), last.key(), type_name, scope).with_remaining(remaining);
        Next { token: token.encode(), remaining }
    }

    async fn everything(&self) -> Result<Page, ApiError> {
        let walked = || Items::Walked { collection: Arc::clone(&self.collection), after: self.after.clone() };
        let whole = self.collection.sizes().filter(|_| self.after.is_none());
        if let Some((objects, sizes)) = whole.filter(|(objects, _)| *objects > PICKED_MAX as u64) {
            let len = self.form.sum(sizes, objects).map(|items| items + objects - 1);
            return Ok(Page { items: walked(), len, next: None });
        }
        let selected = self.collection.filter.has_selectors();
        let limit = if selected { usize::MAX } else { PICKED_MAX + 1 };
        let objects = self.collection.pick(self.after.clone(), limit).await?;
        if !selected && objects.len() > PICKED_MAX {
            return Ok(Page { items: walked(), len: None, next: None });
        }
        let len = length(&self.form, &objects);
        Ok(Page { items: Items::Picked(objects.into_iter()), len, next: None })
    }
}
