//! The front of the service: what a request meets before the API, in every phase of the server's life.
//!
//! A [`Front`] exists before the store is open. While the server loads, `/livez` answers, `/readyz` says
//! 500, and every other request waits for readiness up to its deadline, then gets 503 (D59). When the API
//! is ready, the front hands requests through; when the server failed, it answers 503 with the cause
//! `CacheUnavailable` (D60). It also turns bearer tokens into an [`Access`], so that whatever is behind it
//! knows who asks.
//!
//! Owns no state but the phase, which one [`Stage`] moves; never blocks, never reads a body.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response, Uri};
use tokio::sync::watch;
use tower_service::Service;

use crate::access::{Access, Identity};
use crate::body::Body;
use crate::http::health::{self, Check, CountsFor};
use crate::http::path::{self, Target};
use crate::http::respond;
use crate::http::websocket::bearer;
use crate::service::ProxyService;
use crate::status::{ApiError, Cause};

/// Where the server is in its life (D59).
#[derive(Clone)]
pub enum Phase {
    /// The store's file is being opened.
    Opening,
    /// Objects are being read into memory.
    Loading,
    /// Requests are served.
    Ready(ProxyService),
    /// Requests in flight end, new ones are refused.
    Draining(ProxyService),
    /// The end, asked for.
    Stopped,
    /// The end, not asked for; the text says why.
    Failed(Arc<str>),
}

/// Moves the phase; dropping it leaves the front in its last phase.
#[derive(Debug)]
pub struct Stage {
    phase: watch::Sender<Phase>,
}

/// The service in all phases. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    phase: watch::Receiver<Phase>,
    tokens: Arc<Tokens>,
    /// Longest a request waits for readiness.
    patience: Duration,
}

/// Bearer tokens and whom they stand for.
#[derive(Debug, Default)]
pub struct Tokens(HashMap<Box<str>, Access>);

impl Tokens {
    /// The access of each token.
    pub fn new(tokens: impl IntoIterator<Item = (String, Identity)>) -> Self {
        Self(tokens.into_iter().map(|(token, who)| (token.into(), Access::of(&who))).collect())
    }

    /// Replaces what the connection proved by what a token proves, if there is one. A token that nobody
    /// issued is 401 even where anonymous requests are served: its sender expects to be somebody.
    /// A token that is accepted is taken out of the request.
    fn identify<B>(&self, request: &mut Request<B>) -> Result<Option<Access>, ApiError> {
        let unauthorized = || ApiError::new(401, "Unauthorized", "Unauthorized");
        let known = |token: &str| self.0.get(token).cloned().ok_or_else(unauthorized);
        if let Some(value) = request.headers().get(AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|value| {
                let (scheme, token) = value.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            let access = known(token.ok_or_else(unauthorized)?)?;
            request.headers_mut().remove(AUTHORIZATION);
            return Ok(Some(access));
        }
        let Some(token) = bearer::token(request).map_err(|_| unauthorized())? else { return Ok(None) };
        let access = known(&token)?;
        bearer::remove(request.headers_mut());
        Ok(Some(access))
    }
}

impl Phase {
    /// One word, as in logs and health checks.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Loading => "loading",
            Self::Ready(_) => "ready",
            Self::Draining(_) => "draining",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Front").field(&*self.phase.borrow()).finish()
    }
}

impl Stage {
    /// A front in [`Phase::Opening`], and what moves it on.
    pub fn new(tokens: Tokens, patience: Duration) -> (Self, Front) {
        let (phase, receiver) = watch::channel(Phase::Opening);
        (Self { phase }, Front { phase: receiver, tokens: Arc::new(tokens), patience })
    }

    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Enters [`Phase::Loading`] from [`Phase::Opening`]; any other phase stays.
    pub fn loading(&self) {
        self.phase.send_if_modified(|phase| {
            let opening = matches!(phase, Phase::Opening);
            if opening {
                *phase = Phase::Loading;
            }
            opening
        });
    }
}

impl Front {
    /// A front that is ready from the start: for tests and for callers that have opened the store.
    pub fn ready(service: ProxyService) -> Self {
        let patience = service.api().config.request_timeout;
        let (stage, front) = Stage::new(Tokens::default(), patience);
        stage.enter(Phase::Ready(service));
        front
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Waits for the phase to be one that `wanted` accepts, or the server's end.
    pub async fn wait_for(&mut self, wanted: impl Fn(&Phase) -> bool) -> Phase {
        if let Ok(phase) = self.phase.wait_for(|phase| wanted(phase)).await {
            return phase.clone();
        }
        // The stage is gone, so the last phase is final.
        self.phase()
    }

    /// The API behind the front, once it is ready. `Err` is the answer until then.
    async fn api(mut self, uri: &Uri) -> Result<ProxyService, Response<Body>> {
        if let Some(answer) = health(&self.phase(), uri) {
            return Err(answer);
        }
        let settled = |phase: &Phase| !matches!(phase, Phase::Opening | Phase::Loading);
        let patience = self.patience;
        let phase = tokio::time::timeout(patience, self.wait_for(settled)).await;
        match phase.unwrap_or(Phase::Loading) {
            Phase::Ready(service) | Phase::Draining(service) => Ok(service),
            Phase::Opening | Phase::Loading => Err(unavailable("the server is loading its store", 1)),
            Phase::Stopped => Err(unavailable("the server is shutting down", 1)),
            Phase::Failed(why) => Err(unavailable(&format!("the cache has failed: {why}"), 5)),
        }
    }
}

/// What the health paths say while there is no API to ask.
fn health(phase: &Phase, uri: &Uri) -> Option<Response<Body>> {
    let (failure, counts_for) = match phase {
        Phase::Ready(_) | Phase::Draining(_) => return None,
        Phase::Opening | Phase::Loading => ("the store is loading", CountsFor::Readiness),
        // Only a restart helps.
        Phase::Stopped => ("the server has stopped", CountsFor::Liveness),
        Phase::Failed(_) => ("the server has failed", CountsFor::Liveness),
    };
    let Ok(Target::Health { endpoint, check }) = path::parse(uri.path()) else { return None };
    let checks = [
        Check::new("ping", CountsFor::Liveness, None),
        Check::new("store", counts_for, Some(failure.to_owned())),
    ];
    Some(health::report(&checks, endpoint, check.as_deref(), uri.query().unwrap_or_default()))
}

fn unavailable(message: &str, retry_after_seconds: u32) -> Response<Body> {
    let mut error = ApiError::new(503, "ServiceUnavailable", message);
    error.details.retry_after_seconds = retry_after_seconds;
    error.details.causes.push(Cause {
        reason: "CacheUnavailable",
        message: message.into(),
        ..Cause::default()
    });
    respond::error(&error)
}

impl<B> Service<Request<B>> for Front
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.tokens.identify(&mut request) {
            Ok(None) => {}
            Ok(Some(access)) => {
                let from_browser = request.extensions().get::<Access>().is_some_and(Access::is_loopback);
                request.extensions_mut().insert(access.on_loopback(from_browser));
            }
            Err(error) => return Box::pin(std::future::ready(Ok(respond::error(&error)))),
        }
        // The usual case, without a further task or allocation.
        if let Phase::Ready(mut service) = self.phase() {
            return service.call(request);
        }
        let front = self.clone();
        Box::pin(async move {
            match front.api(request.uri()).await {
                Ok(mut service) => service.call(request).await,
                Err(answer) => Ok(answer),
            }
        })
    }
}
