//! The API server whose objects are pushed: complete lists in pages, watches, and its newest version.
//!
//! Lists are quorum reads (no resourceVersion is sent). Objects are handed on as the bytes they came in; no
//! more than a page of them is held.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use shardcache_proxy::push::client::number;
use shardcache_proxy::push::lines::Lines;

use super::selection::Resource;

/// Objects of a page.
const PAGE: usize = 500;
/// Longest time a watch is asked to last.
pub(super) const WATCH_TIME: Duration = Duration::from_mins(5);
/// Time for a request that is not a watch.
const REQUEST_TIME: Duration = Duration::from_mins(1);
/// Bytes of one event: an object, and what a watch adds.
const LINE_MAX: usize = 16 << 20;
/// Cause of kube's answer to a version that is still to come.
const TOO_LARGE: &str = "ResourceVersionTooLarge";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Why the source did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SourceError {
    /// The version asked for is gone (410).
    #[error("the source has forgotten this version")]
    Expired,
    /// The source has not come to this version (504 with its cause): it is not the one that had it.
    #[error("the source is behind what was sent of it")]
    Behind,
    /// The source does not know such requests (400, 422).
    #[error("the source does not support this")]
    Unsupported,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for SourceError {
    fn from(problem: String) -> Self {
        Self::Failed(problem)
    }
}

/// One type at a source. Cheap to clone.
#[derive(Clone)]
pub(super) struct Source {
    client: Client,
    /// Of the type's version.
    base: String,
    /// Of the type.
    path: String,
    plural: String,
    selectors: String,
    /// Whether the source is known to have no watch-lists.
    pages_only: Arc<AtomicBool>,
}

/// A page of a list.
pub(super) struct Page {
    bytes: Bytes,
}

/// A page, read.
#[derive(Deserialize)]
pub(super) struct PageContent<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: String,
    remaining_item_count: Option<u64>,
}

impl PageContent<'_> {
    pub(super) fn version(&self) -> Result<u64, String> {
        number("metadata.resourceVersion", &self.metadata.resource_version)
    }

    pub(super) fn next(&self) -> Option<&str> {
        Some(&*self.metadata.r#continue).filter(|token| !token.is_empty())
    }

    pub(super) fn remaining(&self) -> u64 {
        self.metadata.remaining_item_count.unwrap_or(0)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &str> {
        self.items.iter().flatten().map(|item| item.get())
    }
}

impl Page {
    pub(super) fn read(&self) -> Result<PageContent<'_>, String> {
        serde_json::from_slice(&self.bytes).map_err(|error| format!("a list cannot be read: {error}"))
    }
}

/// One event of a watch, as it stands in a line.
#[derive(Deserialize)]
pub(super) struct WatchLine<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

#[derive(Deserialize)]
struct TypeList {
    resources: Vec<ServedType>,
}

#[derive(Deserialize)]
struct ServedType {
    name: String,
    kind: String,
    namespaced: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusBody {
    code: u16,
    message: String,
    details: StatusDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusDetails {
    causes: Vec<StatusCause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    reason: String,
}

/// The lines of an open watch.
pub(super) type WatchLines = Lines<Body>;

impl Source {
    pub(super) fn new(client: Client, resource: &Resource, prefix: &str) -> Self {
        let base = match &*resource.group {
            "" => format!("{prefix}/api/{}", resource.version),
            group => format!("{prefix}/apis/{group}/{}", resource.version),
        };
        let mut selectors = String::new();
        for (name, value) in
            [("labelSelector", &resource.label_selector), ("fieldSelector", &resource.field_selector)]
        {
            if let Some(value) = value {
                selectors.push('&');
                selectors.push_str(name);
                selectors.push('=');
                selectors.push_str(&escaped(value));
            }
        }
        let plural = resource.plural.clone();
        let path = format!("{base}/{plural}");
        Self { client, path, base, plural, selectors, pages_only: Arc::default() }
    }

    /// Kind of the type, and whether it has namespaces.
    pub(super) async fn describe(&self) -> Result<(String, bool), SourceError> {
        let page = self.fetch(self.base.clone(), "application/json").await?;
        let types: TypeList = serde_json::from_slice(&page.bytes)
            .map_err(|error| SourceError::Failed(format!("{}: {error}", self.base)))?;
        let found = types.resources.into_iter().find(|served| served.name == self.plural);
        let found = found.ok_or_else(|| SourceError::Failed(format!("{}: is not served", self.path)))?;
        Ok((found.kind, found.namespaced))
    }

    /// The newest version of the source, by a quorum read.
    pub(super) async fn head(&self) -> Result<u64, SourceError> {
        let page = self.get("limit=1", "application/json").await?;
        Ok(page.read()?.version()?)
    }

    /// A watch that begins with everything there is, as a quorum read (KEP-3157); `None` if the source does
    /// not have that.
    pub(super) async fn watch_list(&self) -> Result<Option<WatchLines>, SourceError> {
        if self.pages_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let from = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        match self.open_watch(from, WATCH_TIME).await {
            Err(SourceError::Unsupported) => {
                self.pages_only.store(true, Ordering::Relaxed);
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// A page of the complete list; the first without a token.
    pub(super) async fn page(&self, token: Option<&str>) -> Result<Page, SourceError> {
        let token = token.map(|token| format!("&continue={}", escaped(token))).unwrap_or_default();
        self.get(&format!("limit={PAGE}{token}{}", self.selectors), "application/json").await
    }

    /// A page of the metadata of all objects: as they were at a version, or by a quorum read.
    pub(super) async fn metadata(&self, at: Option<u64>, token: Option<&str>) -> Result<Page, SourceError> {
        let at = match (token, at) {
            (Some(token), _) => format!("&continue={}", escaped(token)),
            (None, Some(version)) => format!("&resourceVersion={version}&resourceVersionMatch=Exact"),
            (None, None) => String::new(),
        };
        self.get(&format!("limit={PAGE}{at}{}", self.selectors), METADATA_ONLY).await
    }

    /// Watches from a version on, for at most `time`, which counts in whole seconds.
    pub(super) async fn watch(&self, version: u64, time: Duration) -> Result<WatchLines, SourceError> {
        self.open_watch(&format!("resourceVersion={version}"), time).await
    }

    async fn open_watch(&self, from: &str, time: Duration) -> Result<WatchLines, SourceError> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&{from}&timeoutSeconds={}{}",
            self.path,
            time.as_secs(),
            self.selectors
        );
        let response = tokio::time::timeout(REQUEST_TIME, self.send(uri, "application/json")).await;
        Ok(Lines::new(response.map_err(|_| late())??.into_body(), LINE_MAX))
    }

    async fn get(&self, query: &str, accept: &str) -> Result<Page, SourceError> {
        self.fetch(format!("{}?{query}", self.path), accept).await
    }

    async fn fetch(&self, uri: String, accept: &str) -> Result<Page, SourceError> {
        let whole = async {
            let response = self.send(uri, accept).await?;
            let body = response.into_body().collect().await;
            body.map_err(|error| SourceError::Failed(format!("{}: {error}", self.path)))
        };
        let body = tokio::time::timeout(REQUEST_TIME, whole).await.map_err(|_| late())??;
        Ok(Page { bytes: body.to_bytes() })
    }

    async fn send(&self, uri: String, accept: &str) -> Result<http::Response<Body>, SourceError> {
        let request = Request::get(uri).header("accept", accept).body(Body::empty());
        let request = request.map_err(|error| SourceError::Failed(error.to_string()))?;
        let response = self.client.send(request).await;
        let response = response.map_err(|error| SourceError::Failed(format!("{}: {error}", self.path)))?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        Err(failure(&self.path, code, &body.unwrap_or_default()))
    }
}

/// What an ERROR event of a watch means.
pub(super) fn watch_error(object: &str) -> SourceError {
    let status: StatusBody = serde_json::from_str(object).unwrap_or_default();
    if status.code == 410 { SourceError::Expired } else { SourceError::Failed(status.message) }
}

fn failure(path: &str, code: StatusCode, body: &[u8]) -> SourceError {
    if code == StatusCode::GONE {
        return SourceError::Expired;
    }
    if matches!(code, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
        return SourceError::Unsupported;
    }
    let status: StatusBody = serde_json::from_slice(body).unwrap_or_default();
    if status.details.causes.iter().any(|cause| cause.reason == TOO_LARGE) {
        return SourceError::Behind;
    }
    let message = if status.message.is_empty() { code.to_string() } else { status.message };
    SourceError::Failed(format!("{path}: {message}"))
}

fn late() -> SourceError {
    SourceError::Failed("the source does not answer".to_owned())
}

/// A value of a query.
fn escaped(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_a_source_are_told_apart() {
        let of = |code: u16, body: &str| {
            failure("/apis", StatusCode::from_u16(code).expect("a code"), body.as_bytes())
        };
        // As kube-apiserver answers a list at a version that it has not come to.
        let behind = r#"{"code":504,"message":"Timeout: Too large resource version: 303, current: 5",
            "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}"#;
        assert_eq!(of(504, behind), SourceError::Behind);
        assert_eq!(of(410, "{}"), SourceError::Expired);
        assert_eq!(of(422, "{}"), SourceError::Unsupported);
        assert_eq!(of(504, r#"{"message":"slow"}"#), SourceError::Failed("/apis: slow".to_owned()));
        assert!(matches!(of(500, "no JSON"), SourceError::Failed(_)));
    }
}
