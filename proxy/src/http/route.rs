//! From one request to one response: routing, limits, deadlines, and the headers every answer carries.
//!
//! Guarantees: exactly one response per request, whatever happens; a bug in a handler ends that request
//! with 500 and nothing else. Whether somebody may do something is decided before a body is read, and
//! before it matters whether the type, shard or object exists (D50).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;

use crate::access::{Access, Intent};
use crate::body::Body;
use crate::freshness::admit::unserved;
use crate::freshness::document;
use crate::freshness::level::{Asked, Level};
use crate::http::accept::{self, Expected};
use crate::http::locate::{Located, scope_of};
use crate::http::options::wants_watch;
use crate::http::path::{self, ResourcePath, SHARD_LEVEL_ONLY, ScopedPath, Target};
use crate::http::write::{self, WriteRequest};
use crate::http::{
    admin, discovery, get, guard, health, list, openapi, push, receive, respond, version, watch, websocket,
};
use crate::metrics::labels::{ByCode, Class, Verb};
use crate::scope::{Part, Scope};
use crate::service::Api;
use crate::status::ApiError;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const LINEAGE: HeaderName = HeaderName::from_static("x-cache-lineage");
/// On everything but discovery and OpenAPI.
const NOT_CACHED: HeaderValue = HeaderValue::from_static("no-cache, private");
/// A copy of a large store takes the time it takes.
const ADMIN_TIMEOUT: Duration = Duration::from_hours(24);
/// Longest `Audit-ID` that is echoed.
const AUDIT_ID_MAX: usize = 64;
/// Start of the headers by which a client asks to act as somebody else.
const IMPERSONATE: &str = "impersonate-";

/// Answers a request.
pub(crate) async fn answer<B>(api: &Arc<Api>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    let started = Instant::now();
    let (mut parts, body) = request.into_parts();
    let head = parts.method == Method::HEAD;
    if head {
        parts.method = Method::GET;
    }
    let mut call = Call { api, parts: &parts, verb: Verb::Other, profile: None };
    let handled = AssertUnwindSafe(call.handle(body)).catch_unwind().await;
    let verb = call.verb;
    let outcome = handled.unwrap_or_else(|_| {
        api.metrics.http.panics.inc();
        tracing::error!(method = %parts.method, path = parts.uri.path(), "a request handler panicked");
        Err(ApiError::internal("the handler of this request failed"))
    });
    let mut response = outcome.unwrap_or_else(|error| {
        let wanted = accept::negotiate_error(&parts.headers, parts.uri.query().unwrap_or_default());
        respond::written(respond::error(&error), wanted)
    });
    finish(api, &parts, &mut response);
    if head {
        without_body(&mut response);
    }
    let code = response.status().as_u16();
    api.metrics.http.requests.get_or_create(&ByCode { verb, code }).inc();
    api.metrics.http.duration.get_or_create(&verb.into()).observe(started.elapsed().as_secs_f64());
    response
}

/// The headers of every answer.
fn finish(api: &Api, parts: &Parts, response: &mut Response<Body>) {
    if api.is_draining() && parts.version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(NOT_CACHED);
    headers.insert(LINEAGE, api.lineage.clone());
    let sent = parts.headers.get(AUDIT_ID).filter(|id| (1..=AUDIT_ID_MAX).contains(&id.len()));
    let audit_id = sent.cloned().unwrap_or_else(|| {
        HeaderValue::try_from(uuid::Uuid::new_v4().to_string()).expect("a uuid is visible ASCII")
    });
    headers.insert(AUDIT_ID, audit_id);
}

/// Keeps the length and drops the body, as the answer to HEAD.
fn without_body(response: &mut Response<Body>) {
    if let Some(len) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
    }
    *response.body_mut() = Body::Empty;
}

/// One request on its way.
struct Call<'a> {
    api: &'a Arc<Api>,
    parts: &'a Parts,
    /// What the request turned out to be, for the metrics.
    verb: Verb,
    /// The level that stands in the path.
    profile: Option<Level>,
}

impl Call<'_> {
    fn query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }

    async fn handle<B>(&mut self, body: B) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let access = self.parts.extensions.get::<Access>().cloned().unwrap_or_else(Access::internal);
        if access.is_loopback() {
            guard::check(self.parts)?;
        }
        if self.parts.headers.keys().any(|name| name.as_str().starts_with(IMPERSONATE)) {
            return Err(ApiError::forbidden("forbidden: impersonation is not supported"));
        }
        let (profile, path) = path::split_profile(self.parts.uri.path())?;
        self.profile = profile;
        let target = match path::parse(&path) {
            Ok(target) => target,
            // kube-apiserver has plain text for paths that nothing is behind.
            Err(error) if error.code == 404 => return Ok(respond::unknown_path()),
            Err(error) => return Err(error),
        };
        if self.api.is_draining() && !matches!(target, Target::Health { .. } | Target::Metrics) {
            return Err(ApiError::too_many_requests(
                "The apiserver is shutting down, please try again later.",
                5,
            ));
        }
        let deadline = match target {
            Target::Admin(_) => ADMIN_TIMEOUT,
            _ => self.api.config.request_timeout,
        };
        let routed = self.route(&access, target, body);
        tokio::time::timeout(deadline, routed).await.unwrap_or_else(|_| Err(receive::timed_out()))
    }

    async fn route<B>(&mut self, access: &Access, target: Target, body: B) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        match target {
            Target::Scoped { shard, cluster, path: ScopedPath::Resource(path) } => {
                let scope = scope_of(&shard, &cluster, &path);
                self.resource(access, scope, path, body).await
            }
            Target::Scoped { shard, cluster, path } => self.document(access, &shard, &cluster, &path),
            Target::Health { endpoint, check } => {
                self.only_get()?;
                Ok(health::respond(self.api, endpoint, check.as_deref(), self.query()))
            }
            Target::Version => {
                self.only_get()?;
                version::respond(&self.parts.headers)
            }
            Target::Metrics => {
                self.only_get()?;
                access.check_read(self.parts.uri.path())?;
                Ok(health::metrics(self.api))
            }
            Target::Freshness => {
                self.only_get()?;
                access.check_read(self.parts.uri.path())?;
                Ok(respond::value(StatusCode::OK, &document::answer(self.api, self.query())?))
            }
            Target::Push { shard } => push::answer(self.api, access, self.parts, &shard, body),
            Target::Admin(segments) => admin::answer(self.api, access, self.parts, &segments).await,
            Target::ScopedMetrics => Ok(respond::text(StatusCode::NOT_IMPLEMENTED, SHARD_LEVEL_ONLY)),
        }
    }

    /// Discovery and OpenAPI.
    fn document(
        &self,
        access: &Access,
        shard: &Part,
        cluster: &Part,
        path: &ScopedPath,
    ) -> Result<Response<Body>, ApiError> {
        self.only_get()?;
        access.check_read(self.parts.uri.path())?;
        let _share = self.api.limits.reads.take(1, &self.api.metrics)?;
        let (types, headers) = (&self.api.cache.snapshot().types, &self.parts.headers);
        match path {
            ScopedPath::OpenApiV2 | ScopedPath::OpenApiV3(_) => {
                openapi::respond(types, shard, cluster, path, self.query(), headers)
            }
            _ => discovery::respond(types, shard, cluster, path, self.query(), headers),
        }
    }

    /// Everything about objects.
    async fn resource<B>(
        &mut self,
        access: &Access,
        scope: Scope,
        path: ResourcePath,
        body: B,
    ) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        self.verb = self.verb_of(&path)?;
        access.check(&Intent {
            verb: self.verb.as_str(),
            group: &path.group,
            resource: &path.resource,
            name: path.name.as_deref().unwrap_or_default(),
            scope: &scope,
        })?;
        match self.verb {
            Verb::Get | Verb::List | Verb::Watch => {
                self.read(Located::resolve(self.api, scope, path, unserved)?).await
            }
            _ => {
                let located = Located::resolve(self.api, scope, path, |_, _, _, _| ApiError::no_such_path())?;
                if located.type_info.is_own() {
                    return Err(not_allowed());
                }
                self.write(located, body).await
            }
        }
    }

    async fn read(&self, mut located: Located) -> Result<Response<Body>, ApiError> {
        let (api, query) = (self.api, self.query());
        let _occupied = Occupied::new(api, Class::Read);
        let _share = api.limits.reads.take(1, &api.metrics)?;
        let expected = match self.verb {
            Verb::Watch => Expected::Watch,
            Verb::List => Expected::List,
            _ => Expected::Object,
        };
        let representation = accept::negotiate(&self.parts.headers, query, expected)?;
        let shape = representation.shape;
        let asked = Asked::parse(query, &self.parts.headers, self.profile)?;
        let response = match (self.verb, located.path.name.clone()) {
            (Verb::Watch, _) => {
                let response = watch::watch(api, &mut located, query, shape, &asked).await?;
                return Ok(websocket::switch(self.parts, response));
            }
            (_, Some(name)) => get::get(api, &mut located, &name, query, shape, &asked).await?,
            (_, None) => list::list(api, &mut located, query, shape, &asked).await?,
        };
        Ok(respond::encoded(response, representation, &api.config))
    }

    async fn write<B>(&self, located: Located, body: B) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let api = self.api;
        let mut body = Box::pin(body);
        let (body, _body_share) = receive::receive(api, &self.parts.headers, body.as_mut()).await?;
        // After the body: clients that send slowly must not keep others from writing.
        let _occupied = Occupied::new(api, Class::Write);
        let _share = api.limits.writes.take(1, &api.metrics)?;
        let request = WriteRequest {
            method: self.parts.method.clone(),
            version: located.path.version.clone(),
            path: located.path,
            scope: located.scope,
            type_info: located.type_info,
            query: self.query().to_owned(),
            headers: self.parts.headers.clone(),
            body,
        };
        write::write(api, request).await
    }

    /// What the request does; 405 if that is nothing.
    fn verb_of(&self, path: &ResourcePath) -> Result<Verb, ApiError> {
        let method = &self.parts.method;
        let named = path.name.is_some();
        if path.legacy_watch {
            return if method == Method::GET { Ok(Verb::Watch) } else { Err(not_allowed()) };
        }
        Ok(match method.as_str() {
            "GET" if named => Verb::Get,
            "GET" if wants_watch(self.query()) => Verb::Watch,
            "GET" => Verb::List,
            "POST" if !named => Verb::Create,
            "PUT" if named => Verb::Update,
            "PATCH" if named => Verb::Patch,
            "DELETE" if named => Verb::Delete,
            "DELETE" => Verb::DeleteCollection,
            _ => return Err(not_allowed()),
        })
    }

    fn only_get(&self) -> Result<(), ApiError> {
        if self.parts.method == Method::GET { Ok(()) } else { Err(not_allowed()) }
    }
}

/// 405 with client-go's generic text.
pub(crate) fn not_allowed() -> ApiError {
    ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
}

/// Counts a request as in flight while it lives.
struct Occupied<'a> {
    api: &'a Api,
    class: Class,
}

impl<'a> Occupied<'a> {
    fn new(api: &'a Api, class: Class) -> Self {
        api.metrics.http.in_flight.get_or_create(&class.into()).inc();
        Self { api, class }
    }
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.api.metrics.http.in_flight.get_or_create(&self.class.into()).dec();
    }
}
