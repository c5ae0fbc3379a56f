//! How a stream ends, and what its pusher is told last.

use shardcache_storage::Pushed;

use super::lines::LineError;
use super::presence::Holder;
use super::server::ServerFrame;
use crate::metrics::labels::PushEnd;
use crate::status::ApiError;

/// Why a stream ends.
pub(super) enum End {
    /// In order, or the pusher is gone: nothing is to be said.
    Quiet(PushEnd),
    /// With a last frame.
    Told(PushEnd, ServerFrame),
}

impl From<ApiError> for End {
    fn from(error: ApiError) -> Self {
        let end = match error.code {
            409 => PushEnd::Held,
            429 | 503 => PushEnd::Unavailable,
            500 => PushEnd::Internal,
            _ => PushEnd::Invalid,
        };
        Self::Told(end, ServerFrame::Error { status: error.status() })
    }
}

impl From<LineError> for End {
    fn from(error: LineError) -> Self {
        match error {
            LineError::TooLong(max) => ApiError::too_large(max as u64).into(),
            LineError::Broken(_) => Self::Quiet(PushEnd::Gone),
        }
    }
}

pub(super) fn check_seq(found: u64, expected: u64) -> Result<(), ApiError> {
    if found == expected {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("seq: is {found}, but {expected} is next")))
}

pub(super) fn silent() -> End {
    let error = ApiError::timeout("nothing was heard on this stream for too long", 0);
    End::Told(PushEnd::Silent, ServerFrame::Error { status: error.status() })
}

pub(super) fn draining() -> End {
    let error = ApiError::unavailable("the server is shutting down", 1);
    End::Told(PushEnd::Drain, ServerFrame::Error { status: error.status() })
}

pub(super) fn fenced(pushed: &Pushed) -> End {
    let (term, holder) = (pushed.tenure.term, pushed.tenure.holder.to_string());
    End::Told(PushEnd::Fenced, ServerFrame::Fenced { term, holder })
}

pub(super) fn replaced(holder: Holder) -> End {
    let Holder { term, name } = holder;
    End::Told(PushEnd::Fenced, ServerFrame::Fenced { term, holder: name.into() })
}
