//! Writes: POST, PUT, PATCH, DELETE and DELETECOLLECTION, as kube-apiserver answers them for custom
//! resources, narrowed to what a cache of others' objects may do (D29):
//! - objects are stored as sent; what the server fills in is listed in [`crate::ingest`];
//! - `kcp.io/shard` in a created object's annotations means that it is somebody's copy: `uid`,
//!   `creationTimestamp` and `generation` are kept; without it the server assigns them;
//! - `generation` is never raised, finalizers and grace periods do not hold up a deletion, and there
//!   are no subresources to write to: one PUT changes metadata, spec and status together;
//! - there is no server-side apply and no strategic merge patch (415).
//!
//! Guarantee: a success is answered after the write is durable *and* published, so every list, get and
//! watch from then on shows it. A refusal that tells of an object is answered after that state of it is
//! published. Where the outcome is not known (504, 503) the write may yet happen, as everywhere.
//!
//! Order of checks: scope (405), answer's representation (406), body's type (415), options (400, 422),
//! body (400), apiVersion and kind (400), namespace and name (400), metadata (422), store (404, 409).

mod body;
mod commit;
mod create;
mod delete;
mod delete_collection;
mod heartbeat;
mod modify;
mod patch;
mod respond;
mod unchanged;
mod update;

pub(crate) use commit::store_error;

use std::sync::Arc;

use ::http::{HeaderMap, Method, Response};
use bytes::Bytes;
use shardcache_storage::{Cell, CellName, Key};

use crate::body::Body;
use crate::http::path::ResourcePath;
use crate::http::{protobuf, route};
use crate::metrics::labels::WriteRefusal;
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
}

/// Performs a write. When this resolves to a success, the write is durable and published: every list
/// and watch from then on shows it. Dropping the future does not take back what was submitted.
pub async fn write(api: &Api, mut request: WriteRequest) -> Result<Response<Body>, ApiError> {
    let outcome = match protobuf::into_json(&mut request.headers, &mut request.body) {
        Ok(()) => dispatch(api, &request).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &outcome {
        api.metrics.write.refusals.get_or_create(&refusal(error).into()).inc();
    }
    outcome
}

async fn dispatch(api: &Api, request: &WriteRequest) -> Result<Response<Body>, ApiError> {
    let place = Place::of(request)?;
    // The writer judges this again, in log order; here it also stops what would not be written.
    let snapshot = api.cache.snapshot();
    let cell = CellName::new(place.shard, request.type_info.name.clone());
    if snapshot.state.cell(&cell).is_some_and(Cell::is_managed) {
        let holder = snapshot.state.tenure(place.shard).map_or("", |tenure| &*tenure.holder);
        let name = request.path.name.as_deref().unwrap_or_default();
        return Err(commit::push_managed(&request.type_info.name, name, holder));
    }
    if request.path.subresource.is_some() {
        return Err(ApiError::no_such_path());
    }
    match (request.method.as_str(), request.path.name.as_deref()) {
        ("POST", None) => create::create(api, request, &place).await,
        ("PUT", Some(name)) => update::update(api, request, &place.key(request, name)?).await,
        ("PATCH", Some(name)) => patch::patch(api, request, &place.key(request, name)?).await,
        ("DELETE", Some(name)) => delete::delete(api, request, &place.key(request, name)?).await,
        ("DELETE", None) => delete_collection::delete_collection(api, request).await,
        _ => Err(route::not_allowed()),
    }
}

/// Where a write goes: one shard, one logical cluster, and a namespace exactly if the type has them.
struct Place<'a> {
    shard: &'a str,
    cluster: &'a str,
    /// `""` for cluster-scoped types.
    namespace: &'a str,
}

impl<'a> Place<'a> {
    fn of(request: &'a WriteRequest) -> Result<Self, ApiError> {
        let (Some(shard), Some(cluster)) = (request.scope.shard.one(), request.scope.cluster.one()) else {
            let action = format!("{} through a wildcard", action(request));
            return Err(ApiError::method_not_allowed(&request.type_info.name, &action));
        };
        match (request.type_info.namespaced, request.scope.namespace.as_deref()) {
            (true, Some(namespace)) => Ok(Self { shard, cluster, namespace }),
            (false, None) => Ok(Self { shard, cluster, namespace: "" }),
            // As kube-apiserver: the collection across all namespaces can only be read.
            (true, None) if request.path.name.is_none() => Err(route::not_allowed()),
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// The key of an object here; no object has a name that a key cannot hold.
    fn key(&self, request: &WriteRequest, name: &str) -> Result<Key, ApiError> {
        Key::new(self.shard, self.cluster, self.namespace, name)
            .map_err(|_| ApiError::not_found(&request.type_info.name, name))
    }
}

fn action(request: &WriteRequest) -> &'static str {
    match (request.method.as_str(), &request.path.name) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        (_, Some(_)) => "delete",
        (_, None) => "deletecollection",
    }
}

fn refusal(error: &ApiError) -> WriteRefusal {
    match (error.code, error.reason) {
        (_, "AlreadyExists") => WriteRefusal::AlreadyExists,
        (409, _) => WriteRefusal::Conflict,
        (404, _) => WriteRefusal::NotFound,
        (429, _) => WriteRefusal::Overloaded,
        (503 | 504 | 507, _) => WriteRefusal::Unavailable,
        (500, _) => WriteRefusal::Internal,
        _ => WriteRefusal::Invalid,
    }
}

#[cfg(test)]
mod tests;
