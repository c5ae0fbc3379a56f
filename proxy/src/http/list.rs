//! LIST: one state, one filter, perhaps one page of it, streamed as it lies in memory.
//!
//! Guarantees: every item and the list's resourceVersion are of the same state; items are in key order;
//! memory is a frame plus eight bytes per selected object, however large the list is. What each
//! combination of resourceVersion, match, continue and limit means was settled by
//! [`ListOptions::parse`]; here it meets the versions that exist.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Response, StatusCode};
use serde_json::Value;
use shardcache_storage::{Object, ResourceVersion, Revision};

use crate::body::{Body, BodyError, Frames, Rope, Weave};
use crate::cache::CacheError;
use crate::http::accept::Representation;
use crate::http::continue_token::Token;
use crate::http::items::{Collection, Items, Source};
use crate::http::limits::Share;
use crate::http::locate::Located;
use crate::http::options::{ListAt, ListOptions};
use crate::http::{gzip, respond};
use crate::represent::Form;
use crate::service::Api;
use crate::status::ApiError;

/// Lists of up to this many objects are picked before they are sent, so that their length is known.
const PICKED_MAX: usize = 1_000;
/// What a streamed list is reckoned to occupy: the frames that hyper queues before the socket takes
/// them, or a compressor's tables.
const BYTES_IN_FLIGHT: usize = 512 << 10;
const TRAILER: &[u8] = b"]}";

/// The state a list shows.
pub(crate) struct Shown {
    pub(crate) source: Source,
    pub(crate) version: ResourceVersion,
    /// Key after which the page begins.
    pub(crate) after: Option<Box<str>>,
    /// Objects of the scope after that key, if an earlier page counted them.
    counted: Option<u64>,
}

/// One page, or everything.
struct Page {
    items: Items,
    /// Bytes of the items and the commas between them, if known.
    len: Option<u64>,
    /// Token of the next page and number of objects after this one.
    next: Option<(String, Option<u64>)>,
}

/// Answers GET on a collection.
pub(crate) async fn list(
    api: &Api,
    located: &Located,
    query: &str,
    representation: Representation,
) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::parse(query)?;
    let limit = options.limit.map(|limit| usize::try_from(limit.get()).unwrap_or(usize::MAX - 1));
    let echo = options.shards.as_ref().map(ToString::to_string);
    let filter = located.filter(options.labels, options.fields, options.shards)?;
    let shown = show(api, located, options.at).await?;
    let version = shown.version;
    let collection =
        Arc::new(Collection { source: shown.source, type_name: located.type_info.name.clone(), filter });
    let form = Form::new(&located.type_info, &located.path.version, representation.shape).for_items();
    let page = match limit {
        Some(limit) => {
            paged(api, located, &form, &collection, shown.after, shown.counted, limit, version).await?
        }
        None => unpaged(&form, &collection, shown.after).await?,
    };
    let share = reserve(api)?;
    Ok(respond_with(api, share, form, page, version, echo.as_deref(), representation))
}

/// A list's share of the bytes in flight; 429 if there is none.
pub(crate) fn reserve(api: &Api) -> Result<Share, ApiError> {
    api.limits.list_bytes.take(BYTES_IN_FLIGHT, &api.metrics)
}

fn respond_with(
    api: &Api,
    share: Share,
    form: Form,
    page: Page,
    version: ResourceVersion,
    echo: Option<&str>,
    representation: Representation,
) -> Response<Body> {
    api.metrics.list.in_flight_bytes.inc_by(BYTES_IN_FLIGHT as i64);
    let header = header(&form, version, page.next.as_ref(), echo);
    let body = Body::stream(ListFrames {
        len: page.len.map(|items| items + (header.len() + TRAILER.len()) as u64),
        header,
        items: page.items,
        form,
        progress: Progress::Header,
        sent: Sent { api_metrics: api.metrics.clone(), objects: 0, bytes: 0 },
        _share: share,
    });
    let response = respond::with_type(StatusCode::OK, respond::JSON, body);
    gzip::compress(response, representation, &api.config)
}

/// A list of these objects, which belong to the type, at a version.
pub(crate) fn of_objects(
    api: &Api,
    share: Share,
    located: &Located,
    objects: Vec<Object>,
    version: ResourceVersion,
    representation: Representation,
) -> Response<Body> {
    let form = Form::new(&located.type_info, &located.path.version, representation.shape).for_items();
    let page =
        Page { len: Some(length(&form, &objects)), items: Items::Picked(objects.into_iter()), next: None };
    respond_with(api, share, form, page, version, None, representation)
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

#[expect(clippy::too_many_arguments, reason = "the page's coordinates, used once")]
async fn paged(
    api: &Api,
    located: &Located,
    form: &Form,
    collection: &Arc<Collection>,
    after: Option<Box<str>>,
    counted: Option<u64>,
    limit: usize,
    version: ResourceVersion,
) -> Result<Page, ApiError> {
    let mut objects = collection.pick(after, limit + 1).await?;
    let more = objects.len() > limit;
    objects.truncate(limit);
    let next = objects.last().filter(|_| more).map(|last| {
        let remaining = match counted {
            Some(counted) if !collection.filter.has_selectors() => {
                Some(counted.saturating_sub(objects.len() as u64))
            }
            _ => collection.remaining(Some(last.key())).map(|count| count as u64),
        };
        if let Source::Newest(snapshot) = &collection.source {
            api.cache.retain(snapshot);
        }
        let token = Token::new(Some(version), last.key(), &located.type_info.name, &located.scope);
        (token.with_remaining(remaining).encode(), remaining)
    });
    Ok(Page { len: Some(length(form, &objects)), items: Items::Picked(objects.into_iter()), next })
}

async fn unpaged(
    form: &Form,
    collection: &Arc<Collection>,
    after: Option<Box<str>>,
) -> Result<Page, ApiError> {
    let selected = collection.filter.has_selectors();
    let limit = if selected { usize::MAX } else { PICKED_MAX + 1 };
    let objects = collection.pick(after.clone(), limit).await?;
    if selected || objects.len() <= PICKED_MAX {
        return Ok(Page {
            len: Some(length(form, &objects)),
            items: Items::Picked(objects.into_iter()),
            next: None,
        });
    }
    Ok(Page { items: Items::Walked { collection: Arc::clone(collection), after }, len: None, next: None })
}

fn length(form: &Form, objects: &[Object]) -> u64 {
    let commas = objects.len().saturating_sub(1) as u64;
    objects.iter().map(|object| form.len(object) as u64).sum::<u64>() + commas
}

/// Everything before the first item.
fn header(
    form: &Form,
    version: ResourceVersion,
    next: Option<&(String, Option<u64>)>,
    echo: Option<&str>,
) -> Vec<u8> {
    let (api_version, kind) = form.list_type();
    let mut header = String::with_capacity(256);
    let _ = write!(
        header,
        r#"{{"kind":{},"apiVersion":{},"metadata":{{"resourceVersion":"{version}""#,
        Value::from(kind),
        Value::from(api_version)
    );
    if let Some((token, remaining)) = next {
        let _ = write!(header, r#","continue":"{token}""#);
        if let Some(remaining) = remaining {
            let _ = write!(header, r#","remainingItemCount":{remaining}"#);
        }
    }
    if let Some(selector) = echo {
        let _ = write!(header, r#","shardInfo":{{"selector":{}}}"#, Value::from(selector));
    }
    header.push_str(r#"},"items":["#);
    header.into_bytes()
}

enum Progress {
    Header,
    /// Items, and whether one was sent.
    Items(bool),
    Done,
}

/// The body of a list.
struct ListFrames {
    header: Vec<u8>,
    items: Items,
    form: Form,
    progress: Progress,
    /// Bytes still to come.
    len: Option<u64>,
    sent: Sent,
    _share: Share,
}

impl Frames for ListFrames {
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        let this = self.get_mut();
        let mut weave = Weave::new();
        let mut first = match this.progress {
            Progress::Header => {
                weave.text(&std::mem::take(&mut this.header));
                true
            }
            Progress::Items(any) => !any,
            Progress::Done => return Poll::Ready(None),
        };
        let (form, sent) = (&this.form, &mut this.sent);
        let more = this.items.fill(&mut weave, |weave, object| {
            if !first {
                weave.fixed(b",");
            }
            first = false;
            form.object(weave, object);
            sent.objects += 1;
        });
        this.progress = Progress::Items(!first);
        if !more {
            weave.fixed(TRAILER);
            this.progress = Progress::Done;
        }
        let rope = weave.take();
        this.sent.bytes += rope.len() as u64;
        this.len = this.len.map(|len| len.saturating_sub(rope.len() as u64));
        Poll::Ready(Some(Ok(rope)))
    }

    fn exact_len(&self) -> Option<u64> {
        self.len
    }
}

/// Reports a list when its body is dropped, sent or not.
struct Sent {
    api_metrics: crate::metrics::Metrics,
    objects: u64,
    bytes: u64,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let metrics = &self.api_metrics;
        metrics.list.objects.observe(self.objects as f64);
        metrics.list.bytes.observe(self.bytes as f64);
        metrics.list.in_flight_bytes.dec_by(BYTES_IN_FLIGHT as i64);
    }
}
