//! Administration over HTTP: `/services/cache/admin/backup`, `…/release` and `…/shards`.
//!
//! A release gives cells of a pushed shard back to ordinary writers (D30). The roster of shards is shown
//! and changed in [`shards`]. A backup is a consistent copy of the store at one commit boundary, made beside
//! the store and then streamed; the copy's name is gone from the directory before its first byte is sent, so
//! nothing is left behind whatever happens to the client. Allowed to administrators only (D52).

mod shards;

use bytes::BytesMut;
use http::header::{CONTENT_DISPOSITION, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::json;
use shardcache_storage::{BackupReport, Cell, CellName, Push, TypeName};
use tokio::fs::{self, File};
use tokio::io::AsyncReadExt;

use crate::access::Access;
use crate::body::{Body, BodyError, Sink};
use crate::http::limits::Share;
use crate::http::options::Query;
use crate::http::{respond, route, store_error};
use crate::push::status::type_of;
use crate::service::Api;
use crate::status::ApiError;

/// Revision of the commit that a backup is a copy of.
const HEAD: HeaderName = HeaderName::from_static("x-cache-revision");
/// Number of objects in a backup.
const OBJECTS: HeaderName = HeaderName::from_static("x-cache-objects");
/// Bytes read from the copy at a time.
const READ_BYTES: usize = 256 << 10;

/// Answers a request below `/services/cache/admin/`.
pub(crate) async fn answer(
    api: &Api,
    access: &Access,
    parts: &Parts,
    segments: &[String],
) -> Result<Response<Body>, ApiError> {
    access.check_admin("administer the cache")?;
    match segments {
        [backup] if backup == "backup" => {
            if !matches!(parts.method, Method::GET | Method::POST) {
                return Err(route::not_allowed());
            }
            self::backup(api).await
        }
        [release] if release == "release" => {
            if parts.method != Method::POST {
                return Err(route::not_allowed());
            }
            self::release(api, access, parts.uri.query().unwrap_or_default()).await
        }
        [shards, rest @ ..] if shards == "shards" => shards::answer(api, access, &parts.method, rest).await,
        _ => Ok(respond::unknown_path()),
    }
}

/// Ends the sessions of a shard's cells, or of the one cell that is named, and lets everybody write them.
async fn release(api: &Api, access: &Access, query: &str) -> Result<Response<Body>, ApiError> {
    let query = Query::parse(query);
    let text = |name| query.get(name).unwrap_or_default();
    let (shard, group, resource) = (text("shard"), text("group"), text("resource"));
    if shard.is_empty() {
        return Err(ApiError::bad_request("shard: is required"));
    }
    if resource.is_empty() && !group.is_empty() {
        return Err(ApiError::bad_request("resource: is required with a group"));
    }
    let group = if group == "core" { "" } else { group };
    let type_name = (!resource.is_empty()).then(|| TypeName::new(group, resource));
    let meant = |cell: &CellName| {
        cell.shard() == shard && type_name.as_ref().is_none_or(|type_name| type_name == cell.type_name())
    };
    let snapshot = api.cache.snapshot();
    let cells = || snapshot.state.cells().filter(|(cell, _)| meant(cell));
    if cells().next().is_none() {
        let what = type_name.as_ref().map_or("anything".into(), TypeName::qualified);
        return Err(ApiError::new(404, "NotFound", format!("nobody has pushed {what} of shard {shard}")));
    }
    let push = Push::Release { shard: shard.into(), type_name: type_name.clone() };
    let released = api.store.push(push).await.map_err(|error| store_error(&error))?;
    // Who is told so may write at once.
    let shown = api.cache.showing(|snapshot| {
        snapshot.state.cells().all(|(cell, known)| !meant(cell) || !Cell::is_managed(known))
    });
    tokio::time::timeout(api.config.request_timeout, shown)
        .await
        .map_err(|_| ApiError::timeout("the release is not shown yet", 1))?;
    tracing::warn!(shard, what = ?type_name, user = access.user(), "pushed cells were released");
    let names: Vec<_> = cells().map(|(cell, _)| type_of(cell.type_name())).collect();
    let version = released.version.to_string();
    let value = json!({"shard": shard, "released": names, "resourceVersion": version});
    Ok(respond::value(StatusCode::OK, &value))
}

async fn backup(api: &Api) -> Result<Response<Body>, ApiError> {
    let share = api.limits.backups.take(1, &api.metrics)?;
    let directory = api.config.data_dir.as_ref().ok_or_else(|| {
        ApiError::new(
            501,
            "NotImplemented",
            "this server keeps its objects in memory: there is nothing to back up",
        )
    })?;
    let path = directory.join(format!("backup-{}.tmp", uuid::Uuid::new_v4()));
    let copied = match api.store.backup(path.clone()).await {
        Ok(report) => File::open(&path).await.map(|file| (report, file)).map_err(ApiError::internal),
        Err(error) => Err(ApiError::internal(error)),
    };
    // From here on only the open file keeps the copy alive.
    let removed = fs::remove_file(&path).await;
    let (report, file) = copied?;
    removed.map_err(ApiError::internal)?;
    let len = file.metadata().await.map_err(ApiError::internal)?.len();
    let body = Body::produced(Some(len), |sink| send(file, sink, share));
    Ok(describe(
        respond::with_type(StatusCode::OK, HeaderValue::from_static("application/octet-stream"), body),
        &report,
    ))
}

fn describe(mut response: Response<Body>, report: &BackupReport) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(HEAD, report.head.0.into());
    headers.insert(OBJECTS, report.objects.into());
    headers.insert(
        CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"shardcache-backup.redb\""),
    );
    response
}

/// Sends the file; another backup may begin when it is sent, or the client is gone.
async fn send(mut file: File, mut sink: Sink, share: Share) -> Result<(), BodyError> {
    loop {
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        if file.read_buf(&mut bytes).await? == 0 {
            drop(share);
            return Ok(());
        }
        sink.send(bytes.freeze().into()).await;
    }
}
