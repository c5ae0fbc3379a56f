//! A Kubernetes client that is plain enough to trust: requests in, bytes out, over TCP or in process.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use shardcache_proxy::access::Access;
use shardcache_proxy::service::ProxyService;
use tower::ServiceExt;

use crate::checker::{List, Replay, Step, Version, Violation};

/// Nothing in these tests takes this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Stream = Pin<Box<dyn Body<Data = Bytes, Error = Failure> + Send>>;

/// A way to the server. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Wire {
    /// Through a socket; the text is `http://ADDR`.
    Tcp(Arc<Client<HttpConnector, Full<Bytes>>>, String),
    /// Through the service itself.
    InProcess(ProxyService),
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The lines of an open watch.
pub(crate) struct Watch {
    stream: Stream,
    buffer: BytesMut,
}

impl Wire {
    pub(crate) fn tcp(base: &str) -> Self {
        Self::Tcp(Arc::new(Client::builder(TokioExecutor::new()).build_http()), base.to_owned())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Stream), Failure> {
        let build = |uri: String| {
            let request = Request::builder().method(method).uri(uri).header("content-type", content_type);
            request.body(Full::new(body)).expect("the test writes legal requests")
        };
        match self {
            Self::Tcp(client, base) => {
                let (head, body) = client.request(build(format!("{base}{path}"))).await?.into_parts();
                Ok((head.status, head.headers, Box::pin(body.map_err(Failure::from))))
            }
            Self::InProcess(service) => {
                let mut request = build(path.to_owned());
                request.extensions_mut().insert(Access::internal());
                let response = service.clone().oneshot(request).await;
                let (head, body) = response.unwrap_or_else(|never| match never {}).into_parts();
                let body = body
                    .map_frame(|frame| frame.map_data(|mut rope| rope.copy_to_bytes(rope.remaining())))
                    .map_err(Failure::from);
                Ok((head.status, head.headers, Box::pin(body)))
            }
        }
    }

    /// One request and its whole answer; an error is a connection that broke.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, Failure> {
        let (status, headers, stream) = self.send(method, path, content_type, body.into()).await?;
        let body = stream.collect().await?.to_bytes();
        Ok(Answer { status, headers, body })
    }

    /// [`Self::request`] where the server must be there.
    pub(crate) async fn call(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let answer = self.request(method, path, "application/json", body);
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("answered in time");
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// A LIST of everything at once, or page by page if the query has a `limit`.
    pub(crate) async fn list(&self, path: &str) -> Result<List, Answer> {
        let pages = self.pages(path).await?;
        Ok(List::parse(&pages).unwrap_or_else(|violation| panic!("{path}: {violation}")))
    }

    /// The pages of a LIST. What a page says of the rest must be true.
    pub(crate) async fn pages(&self, path: &str) -> Result<Vec<Value>, Answer> {
        let mut pages: Vec<Value> = vec![];
        let mut next = path.to_owned();
        loop {
            let answer = self.get(&next).await;
            if answer.status != StatusCode::OK {
                return Err(answer);
            }
            pages.push(answer.json());
            let token = pages.last().and_then(|page| page["metadata"]["continue"].as_str()).unwrap_or("");
            if token.is_empty() {
                break;
            }
            next = with(&without_version(path), &format!("continue={token}"));
        }
        let mut following = 0;
        for page in pages.iter().rev() {
            if let Some(told) = page["metadata"].get("remainingItemCount") {
                assert_eq!(told.as_u64(), Some(following), "{path}: remainingItemCount");
            }
            following += page["items"].as_array().map_or(0, Vec::len) as u64;
        }
        Ok(pages)
    }

    /// Opens a watch; `query` as after `watch=true&`.
    pub(crate) async fn watch(&self, path: &str, query: &str) -> Result<Watch, Failure> {
        let path = with(path, &format!("watch=true&{query}"));
        let sent = self.send(Method::GET, &path, "application/json", Bytes::new());
        let (status, _, stream) = tokio::time::timeout(PATIENCE, sent).await??;
        if status != StatusCode::OK {
            let body = stream.collect().await?.to_bytes();
            return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(Watch { stream, buffer: BytesMut::new() })
    }
}

/// For what is a loop of steps, each in time: the whole must be in time too.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it comes to its end in time")
}

/// A path with one more parameter.
pub(crate) fn with(path: &str, parameter: &str) -> String {
    format!("{path}{}{parameter}", if path.contains('?') { '&' } else { '?' })
}

/// A path without the parameters that a continue token replaces.
fn without_version(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let kept = |parameter: &&str| !parameter.starts_with("resourceVersion");
    format!("{path}?{}", query.split('&').filter(kept).collect::<Vec<_>>().join("&"))
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Code and reason, for errors.
    pub(crate) fn reason(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["reason"].as_str().unwrap_or("").to_owned())
    }
}

impl Watch {
    /// The next step; `None` at the end of the stream, whether the server ended it or the connection
    /// broke. Waits as long as it takes.
    pub(crate) async fn next(&mut self) -> Option<Result<Step, Violation>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Some(Step::parse(&line[..end]));
            }
            match self.stream.frame().await? {
                Ok(frame) => self.buffer.extend(frame.into_data().ok()),
                Err(_) => return None,
            }
        }
    }

    /// Reads into a client until it stands at a version.
    pub(crate) async fn follow(&mut self, client: &mut Replay, to: Version) {
        let following = async {
            while client.resume_at() < Some(to) {
                let step = self.expect().await;
                client.step(&step).unwrap_or_else(|violation| panic!("{violation}"));
            }
        };
        within(following).await;
    }

    /// The next step of a stream that must go on.
    pub(crate) async fn expect(&mut self) -> Step {
        let next = tokio::time::timeout(PATIENCE, self.next()).await.expect("a step in time");
        next.expect("the watch goes on").unwrap_or_else(|violation| panic!("{violation}"))
    }
}
