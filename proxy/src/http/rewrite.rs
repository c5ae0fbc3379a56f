//! Answers rewritten as they stream by: indented, or in another notation.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;

use crate::body::{Body, BodyError, Frames, Rope};

/// Takes compact JSON piece by piece, wherever it is cut, and makes something of it.
pub(crate) trait Rewriter: Default + Send + Unpin + 'static {
    /// The next piece.
    fn write(&mut self, bytes: &[u8]);

    /// What was made so far and not taken yet.
    fn out(&mut self) -> &mut Vec<u8>;

    /// The rest.
    fn finish(self) -> Vec<u8>;
}

/// Rewrites the body of an answer.
pub(crate) fn rewrite<R: Rewriter>(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let body = match body {
        Body::Empty => Body::Empty,
        Body::Full(bytes) => {
            let mut rewriter = R::default();
            rewriter.write(&bytes);
            Body::full(rewriter.finish())
        }
        stream @ Body::Stream(_) => Body::stream(Rewritten { body: stream, rewriter: Some(R::default()) }),
    };
    Response::from_parts(parts, body)
}

struct Rewritten<R> {
    body: Body,
    /// `None` once the end is written.
    rewriter: Option<R>,
}

impl<R: Rewriter> Frames for Rewritten<R> {
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        let Self { body, rewriter } = &mut *self;
        while let Some(current) = rewriter {
            let frame = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return Poll::Pending,
            };
            let Some(frame) = frame else {
                let last = rewriter.take().map(R::finish).unwrap_or_default();
                return Poll::Ready(Some(Ok(Bytes::from(last).into())));
            };
            if let Ok(mut rope) = frame?.into_data() {
                while rope.has_remaining() {
                    let chunk = rope.chunk();
                    current.write(chunk);
                    let len = chunk.len();
                    rope.advance(len);
                }
            }
            // A frame may end in the middle of a text: nothing can be said of it yet.
            let written = std::mem::take(current.out());
            if !written.is_empty() {
                return Poll::Ready(Some(Ok(Bytes::from(written).into())));
            }
        }
        Poll::Ready(None)
    }
}
