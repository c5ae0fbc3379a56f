//! JSON over HTTP.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A server at an address, with a connection for each request under way.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) base: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Null if it is not JSON.
    pub(crate) body: Value,
}

impl Answer {
    /// A header's text, empty without it.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Server {
    pub(crate) fn new(base: String) -> Self {
        Self { base, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// One request; `Err` when there is no whole answer, and then nobody knows whether it was done.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), String> {
        let (status, _, bytes) = self.raw(method, path, body).await?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// A GET, whatever is answered.
    pub(crate) async fn answer(&self, path: &str) -> Result<Answer, String> {
        let (status, headers, bytes) = self.raw(Method::GET, path, None).await?;
        Ok(Answer { status, headers, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }

    async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", media)
            .body(Full::new(body.map_or_else(Bytes::new, |body| body.to_string().into())))
            .map_err(|error| failed(&error))?;
        let whole = async {
            let response = self.client.request(request).await.map_err(|error| failed(&error))?;
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|error| failed(&error))?.to_bytes();
            Ok((head.status, head.headers, bytes))
        };
        tokio::time::timeout(crate::PATIENCE, whole).await.map_err(|_| failed(&"no answer"))?
    }

    /// A GET that must succeed.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        let (status, value) = self.call(Method::GET, path, None).await?;
        if status.is_success() { Ok(value) } else { Err(format!("{path}: {status} {value}")) }
    }

    /// What `/metrics` says of one series; 0 if nothing.
    pub(crate) async fn metric(&self, series: &str) -> Result<f64, String> {
        let (_, _, text) = self.raw(Method::GET, "/metrics", None).await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.map_or(0.0, |value| value.parse().expect("a number")))
    }
}
