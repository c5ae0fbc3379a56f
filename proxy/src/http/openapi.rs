//! OpenAPI v3: an index of documents, and one document per group version served at a scope.
//!
//! kubectl reads two things from it: that POST and PATCH of a kind take `fieldValidation` (then it
//! leaves validation to the server, and `create` and `apply` work without flags), and that the list
//! operation takes `shardSelector` (KEP-5866). So every operation is there with its parameters and its
//! `x-kubernetes-group-version-kind`. Schemas are for `kubectl explain`: those of CRDs as they were written,
//! of built-in types too; the fields of Kubernetes' own types; and open objects for all others. What is stored is not validated
//! against any. Under a wildcard whose CRDs differ, a schema would be wrong for some, and there is none.
//!
//! `/openapi/v2` is a document without paths: kubectl asks for it when a kind is not in v3, and with
//! nothing in it goes on to say that there is no such kind; older ones find nothing to check against.
//!
//! A document's URL carries a hash of what it is made from. With that hash it may be kept for ever; with
//! another one the client is sent to the right URL.

mod document;
mod v2;

use ::http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use ::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::accept::negotiate_json;
use super::discovery::gv_path;
use super::document::{Freshness, answer, digest};
use super::path::ScopedPath;
use super::respond;
use crate::body::Body;
use crate::scope::Part;
use crate::status::ApiError;
use crate::types::{TypeInfo, Types};
use document::GroupVersion;

/// Answers a GET of `/openapi/v3`, one of its documents, or `/openapi/v2`; everything else is 404.
pub fn respond(
    types: &Types,
    shard: &Part,
    cluster: &Part,
    path: &ScopedPath,
    query: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let piece = match path {
        ScopedPath::OpenApiV3(piece) => piece,
        ScopedPath::OpenApiV2 => return v2::respond(headers),
        _ => return Err(ApiError::no_such_path()),
    };
    let writable = matches!((shard, cluster), (Part::One(_), Part::One(_)));
    let documents = documents(types, shard, cluster, writable);
    let Some(piece) = piece else {
        let body = Bytes::from(index(&documents).to_string());
        return Ok(answer(headers, respond::JSON, body, Freshness::Revalidate));
    };
    let document = documents.get(piece.trim_end_matches('/')).ok_or_else(ApiError::no_such_path)?;
    let freshness = match query.split('&').find_map(|pair| pair.strip_prefix("hash=")) {
        None | Some("") => Freshness::Revalidate,
        Some(hash) if hash == document.hash() => Freshness::Immutable,
        Some(_) => return Ok(moved(&document.hash())),
    };
    negotiate_json(headers)?;
    let body = Bytes::from(document.json().to_string());
    Ok(answer(headers, respond::JSON, body, freshness))
}

/// The documents of a scope by their path below `/openapi/v3/`.
fn documents<'a>(
    types: &'a Types,
    shard: &'a Part,
    cluster: &'a Part,
    writable: bool,
) -> BTreeMap<String, GroupVersion<'a>> {
    let mut documents: BTreeMap<String, GroupVersion<'a>> = BTreeMap::new();
    for info in types.in_scope(shard, cluster) {
        for version in &info.versions {
            let group_version = documents
                .entry(gv_path(info.name.group(), &version.name))
                .or_insert_with(|| GroupVersion::new(info.name.group(), &version.name, writable));
            group_version.types.push(info);
        }
    }
    documents
}

/// Clients put their own base URL (with shard and cluster) in front of paths below `/openapi/v3`.
fn index(documents: &BTreeMap<String, GroupVersion<'_>>) -> Value {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash());
            (path.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// To the same path with the right hash. Not to be kept: the wrong hash may be right again later.
fn moved(hash: &str) -> Response<Body> {
    let mut response = respond::text(StatusCode::MOVED_PERMANENTLY, "");
    let location = HeaderValue::from_str(&format!("?hash={hash}"));
    response.headers_mut().insert(LOCATION, location.expect("hexadecimal digits are a legal header"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
