//! Response bodies: shared bytes in ropes, so that an encoded object reaches the socket uncopied.
//!
//! A frame is a [`Rope`] of up to [`CHUNKS_MAX`] chunks. Its `chunks_vectored` lets one `writev` carry
//! all of them, and hyper counts it as one buffer. [`Body`] is one concrete enum rather than a stack of
//! adaptors, because adaptors drop the exact size hint and the response silently turns chunked.
//!
//! [`BytesBody`] gives clients in the same process (`kube::Client`) the same chunks one by one.

mod chunk;
mod produce;
mod weave;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use shardcache_storage::Piece;

use chunk::Chunk;
pub use produce::Sink;
pub use weave::Weave;

/// Chunks that one `writev` takes; a rope should not hold more.
pub const CHUNKS_MAX: usize = 64;

/// A body ended early; the client sees a cut connection, never a wrong body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// A bug; the request dies alone.
    #[error("the response ended early: producing it failed")]
    Panicked,
    /// The client accepted no byte for too long.
    #[error("the client accepted no data for {0} s")]
    Stalled(u64),
    /// Reading what is sent failed.
    #[error("the response ended early: {0}")]
    Read(#[from] std::io::Error),
}

/// Bytes in several shared chunks, in order.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// No chunk is empty.
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl Rope {
    /// An empty rope with room for [`CHUNKS_MAX`] chunks.
    pub fn new() -> Self {
        Self { chunks: VecDeque::with_capacity(CHUNKS_MAX), len: 0 }
    }

    /// Appends a chunk; empty ones are left out.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push_back(Chunk::Bytes(chunk));
        }
    }

    /// Appends part of an object; nothing if it is empty.
    pub fn push_stored(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.chunks.push_back(Chunk::Stored(piece));
        }
    }

    /// Bytes in the rope.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Takes the first chunk.
    fn pop(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.pop_front()?;
        self.len -= chunk.len();
        Some(chunk.into())
    }
}

impl From<Bytes> for Rope {
    fn from(chunk: Bytes) -> Self {
        let mut rope = Self { chunks: VecDeque::with_capacity(1), len: 0 };
        rope.push(chunk);
        rope
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&[], Chunk::as_ref)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = self.chunks.len().min(slices.len());
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk.as_ref());
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "advanced past the end of a rope");
        self.len -= count;
        while count > 0 {
            let first = self.chunks.front_mut().expect("the lengths of the chunks add up to `len`");
            if first.len() > count {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.chunks.pop_front();
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        if let Some(first) = self.chunks.front_mut()
            && first.len() >= len
        {
            let out = first.split_to(len);
            self.len -= len;
            if first.len() == 0 {
                self.chunks.pop_front();
            }
            return out;
        }
        let mut out = bytes::BytesMut::with_capacity(len);
        assert!(len <= self.len, "copied past the end of a rope");
        while out.len() < len {
            let step = self.chunk().len().min(len - out.len());
            out.extend_from_slice(&self.chunk()[..step]);
            self.advance(step);
        }
        out.freeze()
    }
}

/// What produces the frames of a streamed body. Dropping it ends whatever feeds it.
pub trait Frames: Send {
    /// The next frame; `None` ends the body properly, an error cuts it.
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>>;

    /// Bytes still to come, where known; the response then carries a Content-Length.
    fn exact_len(&self) -> Option<u64> {
        None
    }

    /// Asked before the first frame: whether the frames will be those of a gzip member, for which some
    /// keep ready what others would compress each time.
    fn compress(self: Pin<&mut Self>) -> bool {
        false
    }
}

/// The body of every response.
#[derive(Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// All bytes at once; taken when they are sent.
    Full(Bytes),
    /// Bytes as they are produced: lists, watches, backups.
    Stream(Pin<Box<dyn Frames>>),
}

impl Body {
    /// A body of known bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }

    /// A streamed body.
    pub fn stream(frames: impl Frames + 'static) -> Self {
        Self::Stream(Box::pin(frames))
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Rope;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, BodyError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let rope = Rope::from(std::mem::take(bytes));
                *self = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(rope))))
            }
            Self::Stream(frames) => {
                // A panic here would take the whole connection, or a caller in the same process, along.
                let polled = catch_unwind(AssertUnwindSafe(|| frames.as_mut().poll_frame(cx)))
                    .unwrap_or(Poll::Ready(Some(Err(BodyError::Panicked))));
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    *self = Self::Empty;
                }
                polled.map(|frame| frame.map(|rope| rope.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(frames) => frames.exact_len().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// The same body for callers that take `Bytes`: each chunk is a frame, none is copied.
#[derive(Debug, Default)]
pub struct BytesBody {
    body: Body,
    rope: Rope,
}

impl From<Body> for BytesBody {
    fn from(body: Body) -> Self {
        Self { body, rope: Rope::default() }
    }
}

impl http_body::Body for BytesBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(chunk) = self.rope.pop() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(rope) = frame.into_data() {
                        self.rope = rope;
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rope.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let pending = self.rope.len() as u64;
        self.body
            .size_hint()
            .exact()
            .map_or_else(SizeHint::default, |len| SizeHint::with_exact(len + pending))
    }
}

#[cfg(test)]
mod tests;
