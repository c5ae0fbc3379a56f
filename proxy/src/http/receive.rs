//! Request bodies: bounded in size, in time and in sum, before anybody looks at them.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body::Body;
use http_body_util::BodyExt;

use crate::http::limits::Share;
use crate::metrics::labels::Limit;
use crate::service::Api;
use crate::status::ApiError;

/// How much of a body that is too large is read and thrown away, in bodies of the largest legal size:
/// enough that the client gets to read the answer and to keep its connection, not more.
const DISCARDED_BODIES: usize = 8;
/// A body's share of the budget grows in steps of this many bytes.
const STEP: usize = 64 << 10;

/// Reads a body, and its share of the bytes that all bodies may occupy. It may have at most
/// [`crate::service::ApiConfig::body_bytes_max`] bytes; 413 if it is larger, 504 if it does not come.
/// The time for all of it is the caller's deadline.
pub(crate) async fn receive<B>(
    api: &Api,
    headers: &HeaderMap,
    mut body: B,
) -> Result<(Bytes, Share), ApiError>
where
    B: Body + Send + Unpin,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    let max = api.config.body_bytes_max;
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let mut share = api.limits.body_bytes.take(0, &api.metrics)?;
    let mut reserved = 0;
    let mut collected = Collected::default();
    if declared.is_some_and(|declared| declared > max) {
        // A client that waits for "100 Continue" has sent nothing, so there is nothing to throw away.
        if !headers.contains_key(EXPECT) {
            discard(api, &mut body, 0).await;
        }
        return Err(too_large(api));
    }
    while let Some(mut data) = next(api, &mut body).await? {
        let total = collected.len() + data.remaining();
        if total > max {
            drop(collected);
            discard(api, &mut body, total).await;
            return Err(too_large(api));
        }
        while reserved < total {
            share.grow(STEP, &api.metrics)?;
            reserved += STEP;
        }
        collected.push(data.copy_to_bytes(data.remaining()));
    }
    let bytes = collected.finish();
    api.metrics.http.request_bytes.inc_by(bytes.len() as u64);
    Ok((bytes, share))
}

/// The next data of the body; `None` at its end.
async fn next<B>(api: &Api, body: &mut B) -> Result<Option<B::Data>, ApiError>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    loop {
        let Ok(frame) = tokio::time::timeout(idle_timeout(api), body.frame()).await else {
            api.metrics.http.refusals.get_or_create(&Limit::BodyTime.into()).inc();
            return Err(timed_out());
        };
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                return Err(ApiError::bad_request(format!("unable to read the request body: {error}")));
            }
        }
    }
}

/// Reads on and keeps nothing, until the end or a bound.
async fn discard<B>(api: &Api, body: &mut B, mut seen: usize)
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    while seen <= api.config.body_bytes_max * DISCARDED_BODIES {
        match next(api, body).await {
            Ok(Some(data)) => seen += data.remaining(),
            Ok(None) | Err(_) => return,
        }
    }
}

fn too_large(api: &Api) -> ApiError {
    api.metrics.http.refusals.get_or_create(&Limit::Body.into()).inc();
    ApiError::too_large(api.config.body_bytes_max as u64)
}

/// 504 with kube-apiserver's text.
pub(crate) fn timed_out() -> ApiError {
    ApiError::timeout("request did not complete within the allotted timeout", 0)
}

/// How long a client may send nothing in the middle of a body.
fn idle_timeout(api: &Api) -> Duration {
    api.config.body_idle_timeout
}

/// Pieces of a body; a body of one piece is not copied.
#[derive(Default)]
struct Collected {
    first: Bytes,
    more: BytesMut,
}

impl Collected {
    fn len(&self) -> usize {
        if self.more.is_empty() { self.first.len() } else { self.more.len() }
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.more.is_empty() {
            self.more.extend_from_slice(&self.first);
        }
        self.more.extend_from_slice(&piece);
    }

    fn finish(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}
