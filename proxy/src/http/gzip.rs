//! gzip for GET and LIST, streamed: one member, level 1, as kube-apiserver does above 128 KiB.
//!
//! A list is made of pages that were compressed before, where they have not changed since ([`pages`]), and
//! joined to one member ([`member`]); everything else is compressed as it is sent. Never for watches:
//! clients' decoders stop after the first member or do not decode streams at all.

pub(crate) mod member;
pub(crate) mod pages;

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Response;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, VARY};
use http_body::Body as _;

use crate::body::{Body, BodyError, Frames, Rope};
use crate::service::ApiConfig;

/// Output is passed on in frames of about this size.
const FRAME_BYTES: usize = 32 << 10;

/// Compresses an answer if the client accepts that and the body is long enough, or of unknown length.
pub(crate) fn compress(response: Response<Body>, accepted: bool, config: &ApiConfig) -> Response<Body> {
    let long = response.body().size_hint().exact().is_none_or(|len| len > config.gzip_bytes_min as u64);
    let (mut parts, mut body) = response.into_parts();
    parts.headers.append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    if !accepted || !long {
        return Response::from_parts(parts, body);
    }
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(CONTENT_LENGTH);
    if let Body::Stream(frames) = &mut body
        && frames.as_mut().compress()
    {
        return Response::from_parts(parts, body);
    }
    let encoder = GzEncoder::new(Vec::with_capacity(FRAME_BYTES), Compression::fast());
    Response::from_parts(parts, Body::stream(Compressed { body, encoder: Some(encoder) }))
}

struct Compressed {
    body: Body,
    /// `None` once the trailer is written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Frames for Compressed {
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        while let Some(mut encoder) = self.encoder.take() {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    self.encoder = Some(encoder);
                    return Poll::Pending;
                }
            };
            match frame {
                None => {
                    let last = encoder.finish()?;
                    return Poll::Ready(Some(Ok(Bytes::from(last).into())));
                }
                Some(frame) => {
                    if let Ok(mut rope) = frame?.into_data() {
                        while rope.has_remaining() {
                            let written = encoder.write(rope.chunk())?;
                            rope.advance(written);
                        }
                    }
                }
            }
            let ready = encoder.get_ref().len() >= FRAME_BYTES;
            let output = if ready { std::mem::take(encoder.get_mut()) } else { Vec::new() };
            self.encoder = Some(encoder);
            if ready {
                return Poll::Ready(Some(Ok(Bytes::from(output).into())));
            }
        }
        Poll::Ready(None)
    }
}
