//! A `kube::Client`'s transport that is a function call.
//!
//! Each request runs as a task on the cache's runtime; its answer's body comes back chunk by chunk over a
//! short queue, so a slow reader holds up its own request only, and the chunks are the cache's own bytes.
//! Dropping the answer ends the request.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use shardcache_proxy::access::Access;
use shardcache_proxy::body::{Body, BytesBody};
use shardcache_proxy::front::Front;
use shardcache_proxy::scope::Scope;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use tower::{BoxError, Service};

/// Chunks of one answer that may wait for its reader.
const CHUNKS_WAITING_MAX: usize = 16;

/// The transport of one client: its place and its rights.
#[derive(Clone)]
pub(super) struct InProcess {
    front: Front,
    /// `/services/cache/shards/<s>/clusters/<c>`: kcp's round trippers put the same in front.
    prefix: Arc<str>,
    access: Access,
    work: Handle,
    requests: TaskTracker,
}

/// The body of an answer, as its reader sees it.
pub(super) struct Relayed {
    chunks: mpsc::Receiver<Chunk>,
    ended: bool,
}

enum Chunk {
    Data(Bytes),
    Failed(BoxError),
    End,
}

/// The cache was dropped, or a bug ended the request.
#[derive(Debug, thiserror::Error)]
#[error("the embedded cache has ended the request")]
struct Gone;

impl InProcess {
    pub(super) fn new(
        front: Front,
        scope: &Scope,
        access: Access,
        work: Handle,
        requests: TaskTracker,
    ) -> Self {
        let mut prefix = String::from("/services/cache");
        for (level, part) in [("shards", &scope.shard), ("clusters", &scope.cluster)] {
            let _ = write!(prefix, "/{level}/");
            match part.one() {
                Some(name) => push_encoded(&mut prefix, name),
                None => prefix.push('*'),
            }
        }
        Self { front, prefix: prefix.into(), access, work, requests }
    }

    fn place(&self, request: &mut Request<kube::client::Body>) -> Result<(), http::Error> {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let uri = Uri::builder().path_and_query(format!("{}{path}", self.prefix)).build()?;
        *request.uri_mut() = uri;
        request.extensions_mut().insert(self.access.clone());
        Ok(())
    }
}

/// A path segment cannot be left by what a name contains.
fn push_encoded(path: &mut String, name: &str) {
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

impl Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Relayed>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        if let Err(error) = self.place(&mut request) {
            return Box::pin(std::future::ready(Err(error.into())));
        }
        let (reply, answer) = oneshot::channel();
        self.requests.spawn_on(serve(self.front.clone(), request, reply), &self.work);
        Box::pin(async move { answer.await.map_err(|_| Gone.into()) })
    }
}

async fn serve(
    mut front: Front,
    request: Request<kube::client::Body>,
    mut reply: oneshot::Sender<Response<Relayed>>,
) {
    let response = tokio::select! {
        response = front.call(request) => match response {
            Ok(response) => response,
            Err(never) => match never {},
        },
        // The caller has lost interest; a write that was begun goes on in the store.
        () = reply.closed() => return,
    };
    let (sender, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
    let (head, body) = response.into_parts();
    if reply.send(Response::from_parts(head, Relayed { chunks, ended: false })).is_ok() {
        relay(body, &sender).await;
    }
}

/// Ends with the body, or when nobody reads it any more.
async fn relay(body: Body, chunks: &mpsc::Sender<Chunk>) {
    let mut body = BytesBody::from(body);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = chunks.closed() => return,
        };
        let chunk = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Chunk::Data(bytes),
                Err(_) => continue,
            },
            Some(Err(error)) => Chunk::Failed(error),
            None => Chunk::End,
        };
        let last = !matches!(chunk, Chunk::Data(_));
        if chunks.send(chunk).await.is_err() || last {
            return;
        }
    }
}

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let chunk = std::task::ready!(self.chunks.poll_recv(cx));
        let outcome = match chunk {
            Some(Chunk::Data(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Chunk::End) => None,
            Some(Chunk::Failed(error)) => Some(Err(error)),
            // A body that just stops must not be taken for a whole one.
            None => Some(Err(Gone.into())),
        };
        self.ended = true;
        Poll::Ready(outcome)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
