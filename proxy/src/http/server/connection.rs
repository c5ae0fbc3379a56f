//! One connection from its handshake to its end.
//!
//! Owns the stream. Sends requests to the front, each with the access that the connection proved. Stops
//! when the client closes it, when a bound is reached, gracefully at the server's stop, at once at its cut.
//! A connection that becomes a WebSocket goes on as another task of the server, under the same bounds.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use super::accept::Open;
use super::detach::detached;
use super::head::{Answer, Progress, Prompt};
use super::stall::Guarded;
use super::{Server, ServerConfig};
use crate::access::Access;
use crate::body::Body;
use crate::http::respond;
use crate::http::websocket::{self, Pace};
use crate::metrics::labels::Limit;
use crate::status::ApiError;

/// What hyper reads beyond our own limit before it gives up on its own, without a `Status`.
const SLACK: usize = 2;

/// Serves one connection.
pub(super) async fn serve<S, F>(server: Server, handshake: F, open: Arc<Open>)
where
    F: Future<Output = io::Result<(S, Access)>> + Send,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let config = &server.config;
    let Ok(Ok((stream, access))) = tokio::time::timeout(config.header_timeout, handshake).await else {
        if let Some(metrics) = &open.metrics {
            metrics.handshake_failures.inc();
        }
        return;
    };
    let progress = Arc::<Progress>::default();
    let requests =
        Requests { server: server.clone(), access, progress: Arc::clone(&progress), open: Arc::clone(&open) };
    let refused = |limit: Limit| {
        let metrics = open.metrics.clone();
        move || {
            if let Some(metrics) = &metrics {
                metrics.refusals.get_or_create(&limit.into()).inc();
            }
        }
    };
    let trickles = refused(Limit::HeadTime);
    let stream = Prompt::new(stream, Arc::clone(&progress), config.header_timeout, trickles);
    let stream = Guarded::new(stream, config.stall_timeout, refused(Limit::StalledReader));
    let builder = builder(config);
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), requests));
    let first_request = tokio::time::sleep(config.header_timeout);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = server.stop.cancelled() => {}
        () = never_asked(first_request, &progress) => {
            refused(Limit::HeadTime)();
            return;
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = server.cut.cancelled() => {}
    }
}

/// Resolves if the connection's first request has not come in time.
async fn never_asked(first_request: tokio::time::Sleep, progress: &Progress) {
    first_request.await;
    if progress.is_begun() {
        std::future::pending::<()>().await;
    }
}

fn builder(config: &ServerConfig) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.idle_timeout)
        .max_buf_size((config.header_bytes_max * SLACK).max(16 << 10))
        .max_headers(config.headers_max * SLACK);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.http2_streams_max)
        .max_header_list_size(u32::try_from(config.header_bytes_max * SLACK).unwrap_or(u32::MAX))
        .keep_alive_interval(config.keep_alive_interval)
        .keep_alive_timeout(config.keep_alive_timeout);
    builder
}

/// The service of one connection.
#[derive(Clone)]
struct Requests {
    server: Server,
    access: Access,
    progress: Arc<Progress>,
    open: Arc<Open>,
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<Answer<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = detached(request);
        let serving = self.progress.arrived(request.version());
        let config = &self.server.config;
        if head_too_large(&request, config) {
            if let Some(metrics) = &self.open.metrics {
                metrics.refusals.get_or_create(&Limit::Head.into()).inc();
            }
            let error = ApiError::new(
                431,
                "RequestHeaderFieldsTooLarge",
                format!(
                    "the request's head is too large: the limits are {} bytes and {} headers",
                    config.header_bytes_max, config.headers_max
                ),
            );
            let answer = respond::error(&error).map(|body| Answer::new(body, serving));
            return Box::pin(std::future::ready(Ok(answer)));
        }
        request.extensions_mut().insert(self.access.clone());
        // There only if the client asked for another protocol.
        let upgrade = request.extensions().get::<OnUpgrade>().cloned();
        let upgrade = upgrade.map(|upgrade| (upgrade, self.clone()));
        let served = self.server.front.clone().call(request);
        Box::pin(async move {
            let mut answer = served.await?;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                serving.upgraded();
                if let Some((upgrade, requests)) = upgrade {
                    requests.go_on_as_websocket(upgrade, std::mem::take(answer.body_mut()));
                }
            }
            Ok(answer.map(|body| Answer::new(body, serving)))
        })
    }
}

impl Requests {
    fn go_on_as_websocket(self, upgrade: OnUpgrade, events: Body) {
        let Self { server, open, .. } = self;
        let pace = Pace {
            ping_interval: server.config.keep_alive_interval,
            pong_timeout: server.config.keep_alive_timeout,
        };
        let cut = server.cut.clone();
        server.connections.spawn(async move {
            // Counted as open to its end.
            let _open = open;
            tokio::select! {
                () = websocket::serve(upgrade, events, pace) => {}
                () = cut.cancelled() => {}
            }
        });
    }
}

fn head_too_large(request: &Request<Incoming>, config: &ServerConfig) -> bool {
    let headers = request.headers();
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    headers.len() > config.headers_max || bytes + target > config.header_bytes_max
}
