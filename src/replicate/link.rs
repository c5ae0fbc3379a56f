//! The way to the cache: one HTTP/2 connection, or the service itself in the same process, and full-duplex
//! push streams on it.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use shardcache_proxy::access::Access;
use shardcache_proxy::body::BytesBody;
use shardcache_proxy::front::Front;
use shardcache_proxy::push::NDJSON;
use shardcache_proxy::push::lines::Lines;
use shardcache_proxy::push::server::ServerFrame;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::selection::Resource;
use crate::config::tls;

/// Time to connect, and to have a stream opened.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Bytes of one frame of a server.
const LINE_MAX: usize = 1 << 20;
/// Pieces of output that wait for the connection.
const PIECES_WAITING: usize = 8;
/// Frames of the server that wait to be looked at.
const FRAMES_WAITING: usize = 256;
/// How often an idle connection is asked whether it lives, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIME: Duration = Duration::from_secs(10);

/// Where the cache is.
#[derive(Clone)]
pub enum Target {
    /// At an URL, such as `https://cache:7443/services/cache`.
    Network(Box<Network>),
    /// In this process; what [`crate::embedded::EmbeddedCache::push_target`] gives.
    InProcess(Front, Access),
}

/// A cache at an URL, and what is shown to it.
#[derive(Clone)]
pub struct Network {
    /// Base URL, `/services/cache` included.
    pub url: Uri,
    /// Authorities of its certificate, as PEM; those of the system if it is not given. This and the files
    /// below are read for every connection, so that what replaces them counts from the next one on.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key, as PEM.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// A bearer token.
    pub token_file: Option<PathBuf>,
}

/// Why the cache cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LinkError(pub(super) String);

type RequestBody = UnsyncBoxBody<Bytes, Infallible>;
type ResponseBody = UnsyncBoxBody<Bytes, String>;

/// A connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Link {
    door: Door,
    base: String,
    token_file: Option<PathBuf>,
}

#[derive(Clone)]
enum Door {
    Http2(http2::SendRequest<RequestBody>),
    Service(Front, Access),
}

/// A push stream. Dropping it ends it.
pub(super) struct Stream {
    /// What is sent.
    pub(super) output: mpsc::Sender<Bytes>,
    /// What the server says; closed when it has ended.
    pub(super) input: mpsc::Receiver<Result<ServerFrame, LinkError>>,
    pub(super) _reader: tokio_util::task::AbortOnDropHandle<()>,
}

impl Link {
    /// Connects.
    pub(super) async fn connect(target: &Target) -> Result<Self, LinkError> {
        match target {
            Target::InProcess(service, access) => Ok(Self {
                door: Door::Service(service.clone(), access.clone()),
                base: "/services/cache".to_owned(),
                token_file: None,
            }),
            Target::Network(network) => {
                let connecting = tokio::time::timeout(CONNECT_TIME, network.connect()).await;
                let door =
                    connecting.map_err(|_| LinkError(format!("{}: does not answer", network.url)))??;
                let base = network.url.to_string();
                let base = base.trim_end_matches('/').to_owned();
                Ok(Self { door: Door::Http2(door), base, token_file: network.token_file.clone() })
            }
        }
    }

    /// Opens the stream of a type, or the shard's control stream.
    pub(super) async fn open(&self, shard: &str, resource: Option<&Resource>) -> Result<Stream, LinkError> {
        let query = resource.map_or(String::new(), |resource| {
            format!("?group={}&version={}&resource={}", resource.group, resource.version, resource.plural)
        });
        let (output, pieces) = mpsc::channel::<Bytes>(PIECES_WAITING);
        let pieces = futures::stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(piece)), pieces))
        });
        let mut request = Request::post(format!("{}/shards/{shard}/push{query}", self.base))
            .header("content-type", NDJSON)
            .body(StreamBody::new(pieces).boxed_unsync())
            .map_err(|error| LinkError(error.to_string()))?;
        if let Some(path) = &self.token_file {
            request.headers_mut().insert(http::header::AUTHORIZATION, token(path)?);
        }
        let answer = tokio::time::timeout(CONNECT_TIME, self.door.clone().send(request)).await;
        let response = answer.map_err(|_| LinkError("the cache does not answer".to_owned()))??;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        let (frames, input) = mpsc::channel(FRAMES_WAITING);
        let reader = tokio::spawn(read(Lines::new(response.into_body(), LINE_MAX), frames));
        Ok(Stream { output, input, _reader: tokio_util::task::AbortOnDropHandle::new(reader) })
    }
}

impl Door {
    async fn send(
        self,
        mut request: Request<RequestBody>,
    ) -> Result<http::Response<ResponseBody>, LinkError> {
        let failed =
            |error: &dyn std::fmt::Display| LinkError(format!("the connection to the cache: {error}"));
        match self {
            Self::Http2(mut sender) => {
                sender.ready().await.map_err(|error| failed(&error))?;
                let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
                Ok(response.map(|body| body.map_err(|error| error.to_string()).boxed_unsync()))
            }
            Self::Service(service, access) => {
                request.extensions_mut().insert(access);
                let response = service.oneshot(request).await.unwrap_or_else(|never| match never {});
                Ok(response
                    .map(|body| BytesBody::from(body).map_err(|error| error.to_string()).boxed_unsync()))
            }
        }
    }
}

fn token(path: &Path) -> Result<http::HeaderValue, LinkError> {
    let failed = |problem: &dyn std::fmt::Display| LinkError(format!("{}: {problem}", path.display()));
    let token = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    format!("Bearer {}", token.trim()).parse().map_err(|_| failed(&"is no token"))
}

async fn refusal(response: http::Response<ResponseBody>) -> LinkError {
    let code = response.status();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let status: Option<serde_json::Value> = serde_json::from_slice(&body.unwrap_or_default()).ok();
    let message = status.as_ref().and_then(|status| status.get("message")?.as_str());
    LinkError(format!(
        "the cache refuses the stream: {}",
        message.map_or_else(|| code.to_string(), str::to_owned)
    ))
}

async fn read(mut lines: Lines<ResponseBody>, frames: mpsc::Sender<Result<ServerFrame, LinkError>>) {
    loop {
        let frame = match lines.next().await {
            Ok(Some(line)) => ServerFrame::read(&line).map_err(LinkError),
            Ok(None) => return,
            Err(error) => Err(LinkError(error.to_string())),
        };
        let failed = frame.is_err();
        if frames.send(frame).await.is_err() || failed {
            return;
        }
    }
}

impl Network {
    /// Whether the files can be used.
    pub fn check(&self) -> Result<(), LinkError> {
        if self.url.scheme() == Some(&Scheme::HTTPS) {
            tls::client(self.ca_file.as_deref(), self.identity_files.as_ref()).map_err(LinkError)?;
        }
        match &self.token_file {
            Some(path) => token(path).map(drop),
            None => Ok(()),
        }
    }

    async fn connect(&self) -> Result<http2::SendRequest<RequestBody>, LinkError> {
        let url = &self.url;
        let failed = |error: &dyn std::fmt::Display| LinkError(format!("{url}: {error}"));
        let host = url.host().ok_or_else(|| failed(&"has no host"))?;
        let is_tls = url.scheme() == Some(&Scheme::HTTPS);
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
        let stream = stream.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        if !is_tls {
            return handshake(stream).await.map_err(|error| failed(&error));
        }
        let config = tls::client(self.ca_file.as_deref(), self.identity_files.as_ref())
            .map_err(|problem| failed(&problem))?;
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| failed(&error))?;
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        handshake(stream.map_err(|error| failed(&error))?).await.map_err(|error| failed(&error))
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<http2::SendRequest<RequestBody>, hyper::Error> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(hyper_util::rt::TokioTimer::new());
    builder.keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_TIME).keep_alive_while_idle(true);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // Ends when the last sender and stream are gone.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
