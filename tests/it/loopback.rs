//! HTTP servers of tests on loopback, that stand for API servers.

use std::convert::Infallible;

use bytes::Bytes;
use futures::Stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A server that listens until it is dropped, with every connection.
pub(crate) struct Listening {
    /// Where: `http://ADDR`.
    pub(crate) url: String,
    _task: AbortOnDropHandle<()>,
}

/// Answers every request so, on a free port.
pub(crate) async fn listen<F, R>(answer: F) -> Listening
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let answered = answer(request);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                let server = auto::Builder::new(TokioExecutor::new());
                // Whoever has gone has gone.
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    Listening { url, _task: AbortOnDropHandle::new(task) }
}

/// A whole JSON body.
pub(crate) fn whole(code: u16, body: &Value) -> Answer {
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).expect("a legal answer")
}

/// A watch: a line for each event.
pub(crate) fn events(events: impl Stream<Item = Value> + Send + 'static) -> Answer {
    use futures::StreamExt;
    let lines = events.map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
    Response::new(StreamBody::new(lines).boxed_unsync())
}
