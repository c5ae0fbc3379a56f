//! `/services/cache/shards/<shard>/push`: the door of the push protocol ([`crate::push`]).

use std::sync::Arc;

use http::header::HeaderValue;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body as HttpBody;
use shardcache_storage::TypeName;

use crate::access::{Access, Intent};
use crate::body::Body;
use crate::http::options::Query;
use crate::http::{respond, route};
use crate::push::session::{self, Subject};
use crate::push::{NDJSON, outlet, status};
use crate::scope::{Part, Scope};
use crate::service::Api;
use crate::status::ApiError;
use crate::types;

/// Answers a request; whether its sender may write for the shard is decided before a byte is read.
pub(crate) fn answer<B>(
    api: &Arc<Api>,
    access: &Access,
    parts: &Parts,
    shard: &Part,
    body: B,
) -> Result<Response<Body>, ApiError>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    let Part::One(shard) = shard else {
        return Err(ApiError::bad_request("a push is for one shard"));
    };
    match parts.method {
        Method::GET => {
            access.check_read(parts.uri.path())?;
            let status = status::of_shard(api, shard);
            let status = status
                .ok_or_else(|| ApiError::new(404, "NotFound", format!("nobody has pushed shard {shard}")))?;
            Ok(respond::value(StatusCode::OK, &status))
        }
        Method::POST => {
            let subject = subject(shard, parts.uri.query().unwrap_or_default())?;
            let resource = match &subject {
                Subject::Cell { type_name, .. } => type_name.clone(),
                Subject::Control { .. } => TypeName::new("", ""),
            };
            access.check(&Intent {
                verb: "push",
                group: resource.group(),
                resource: resource.resource(),
                name: "",
                scope: &Scope { shard: Part::One(shard.clone()), cluster: Part::Any, namespace: None },
            })?;
            let permit = api.limits.pushes.take(1, &api.metrics)?;
            let (context, body) = (Arc::clone(api), Box::pin(body));
            let stream = outlet::body(api, |outlet| session::serve(context, subject, body, outlet, permit));
            Ok(respond::with_type(StatusCode::OK, HeaderValue::from_static(NDJSON), stream))
        }
        _ => Err(route::not_allowed()),
    }
}

/// What the stream is of, by the query: a type, or nothing.
fn subject(shard: &Arc<str>, query: &str) -> Result<Subject, ApiError> {
    let query = Query::parse(query);
    let text = |name| query.get(name).unwrap_or_default();
    let (group, version, resource, identity) =
        (text("group"), text("version"), text("resource"), text("identity"));
    let shard = Box::from(&**shard);
    if resource.is_empty() {
        let alone = group.is_empty() && version.is_empty() && identity.is_empty();
        return if alone {
            Ok(Subject::Control { shard })
        } else {
            Err(ApiError::bad_request("resource: is required on the stream of a type"))
        };
    }
    if version.is_empty() {
        return Err(ApiError::bad_request("version: is required on the stream of a type"));
    }
    if !identity.is_empty() {
        return Err(ApiError::bad_request("identity: types of an API identity are not served yet"));
    }
    let group = if group == "core" { "" } else { group };
    let type_name = TypeName::new(group, resource);
    if types::is_shardviews(&type_name) {
        return Err(route::not_allowed());
    }
    Ok(Subject::Cell { shard, type_name, version: version.to_owned() })
}
