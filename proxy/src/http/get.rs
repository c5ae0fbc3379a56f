//! GET of one object: the newest state of it, as bytes that are already there.

use http::{Response, StatusCode};
use shardcache_storage::Key;

use crate::body::Body;
use crate::freshness::admit::{Read, absent, admit};
use crate::freshness::level::Asked;
use crate::http::accept::Shape;
use crate::http::locate::Located;
use crate::http::options::GetOptions;
use crate::http::respond;
use crate::represent::Form;
use crate::service::Api;
use crate::status::ApiError;

/// What a GET by name through a wildcard is told: the name alone does not say which object is meant.
const AMBIGUOUS: &str = "an object cannot be read by name through a wildcard: name its shard and logical cluster, or \
     list with fieldSelector=metadata.name=<name>";

/// Answers GET on one object, or on its `status` (the object too: the cache mirrors both).
pub(crate) async fn get(
    api: &Api,
    located: &mut Located,
    name: &str,
    query: &str,
    shape: Shape,
    asked: &Asked,
) -> Result<Response<Body>, ApiError> {
    let options = GetOptions::parse(query)?;
    if located.scope.is_wildcard() {
        return Err(ApiError::bad_request(AMBIGUOUS));
    }
    if located.path.subresource.as_deref().is_some_and(|subresource| subresource != "status") {
        return Err(ApiError::no_such_path());
    }
    let admitted = admit(api, located, asked, options.at.into(), Read::Object, options.timeout).await?;
    let (Some(shard), Some(cluster)) = (located.scope.shard.one(), located.scope.cluster.one()) else {
        return Err(ApiError::bad_request(AMBIGUOUS));
    };
    located.fresh_enough(api, options.at)?;
    let type_name = &located.type_info.name;
    let namespace = located.scope.namespace.as_deref().unwrap_or_default();
    let object = Key::new(shard, cluster, namespace, name)
        .ok()
        .and_then(|key| located.snapshot.state.get(type_name, key.as_str()));
    let Some(object) = object else {
        absent(api, located, asked)?;
        return Err(ApiError::not_found(type_name, name));
    };
    let mut form = Form::new(&located.type_info, &located.path.version, shape);
    Ok(admitted.annotate(respond::json(StatusCode::OK, form.bytes(object))))
}
