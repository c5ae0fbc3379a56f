//! Writes: POST, PUT, PATCH, DELETE and DELETECOLLECTION, as kube-apiserver answers them for custom
//! resources, narrowed to what a cache of others' objects may do (D29).

use std::sync::Arc;

use ::http::{HeaderMap, Method, Response};
use bytes::Bytes;

use crate::body::Body;
use crate::cache::Snapshot;
use crate::http::path::ResourcePath;
use crate::scope::Scope;
use crate::service::Api;
use crate::status::ApiError;
use crate::types::TypeInfo;

/// A write whose path is resolved and whose body is read, but not yet looked at.
#[derive(Clone)]
pub struct WriteRequest {
    /// POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// Group, version, resource, name and subresource of the path.
    pub path: ResourcePath,
    /// Shard, logical cluster and namespace of the path.
    pub scope: Scope,
    /// The type the path resolved to.
    pub type_info: Arc<TypeInfo>,
    /// Version of the path: what answers are shown in.
    pub version: String,
    /// The query string, percent-encoded, without `?`; may be empty.
    pub query: String,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The whole body; the reader bounds its size.
    pub body: Bytes,
    /// The newest published snapshot when the request came.
    pub snapshot: Arc<Snapshot>,
}

/// Performs a write. When this resolves to a success, the write is durable and published: every list
/// and watch from then on shows it.
pub async fn write(api: &Api, request: WriteRequest) -> Result<Response<Body>, ApiError> {
    let _ = (api, request);
    todo!()
}
