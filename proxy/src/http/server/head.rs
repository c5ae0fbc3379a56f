//! A request's head that trickles in: bounded for every HTTP/1.1 request, not only a connection's first.
//!
//! hyper's own timeout also runs while a connection is idle, so it has to be as long as clients keep idle
//! connections. Here the clock starts with the first byte that comes while nothing is being served, and
//! stops when the request has arrived. HTTP/2 and upgraded connections are left alone: their bytes are
//! not heads, and pings find out whether somebody is there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::Version;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// No request has come yet; a timer of its own waits for it.
const NEW: u8 = 0;
/// HTTP/1.1, and nothing is being served: the next byte begins a head.
const BETWEEN: u8 = 1;
/// A request has arrived and its answer is not over.
const SERVING: u8 = 2;
/// HTTP/2, or upgraded.
const FREE: u8 = 3;

/// What a connection is doing, as its stream and its service both need to know.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicU8);

/// A request being served; its end is the end of its answer.
#[derive(Debug)]
pub(super) struct Serving(Arc<Progress>);

impl Progress {
    /// Whether a request has ever come.
    pub(super) fn is_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NEW
    }

    /// A request has arrived whole.
    pub(super) fn arrived(self: &Arc<Self>, version: Version) -> Serving {
        let now = if version == Version::HTTP_2 { FREE } else { SERVING };
        self.0.store(now, Ordering::Relaxed);
        Serving(Arc::clone(self))
    }

    fn is_between(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BETWEEN
    }
}

impl Serving {
    /// The connection goes over to another protocol.
    pub(super) fn upgraded(&self) {
        self.0.0.store(FREE, Ordering::Relaxed);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // All of it happens in the connection's task; the atomic is for the compiler.
        let _ = self.0.0.compare_exchange(SERVING, BETWEEN, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// An answer that knows when it is over.
pub(super) struct Answer<B> {
    body: B,
    _serving: Serving,
}

impl<B> Answer<B> {
    pub(super) fn new(body: B, serving: Serving) -> Self {
        Self { body, _serving: serving }
    }
}

impl<B> http_body::Body for Answer<B>
where
    B: http_body::Body + Unpin,
    B::Data: Buf,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose reads fail when a head takes too long.
pub(super) struct Prompt<S, F> {
    stream: S,
    progress: Arc<Progress>,
    patience: Duration,
    on_trickle: F,
    /// Runs while a head has begun and is not whole.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S, F> Prompt<S, F> {
    pub(super) fn new(stream: S, progress: Arc<Progress>, patience: Duration, on_trickle: F) -> Self {
        Self { stream, progress, patience, on_trickle, waiting: None }
    }
}

impl<S, F> AsyncRead for Prompt<S, F>
where
    S: AsyncRead + Unpin,
    F: Fn() + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.progress.is_between() {
            self.waiting = None;
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before && self.waiting.is_none() {
            self.waiting = Some(Box::pin(sleep(self.patience)));
        }
        if let Some(waiting) = &mut self.waiting
            && waiting.as_mut().poll(cx).is_ready()
        {
            (self.on_trickle)();
            let problem = "the head of the request took too long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)));
        }
        read
    }
}

impl<S, F> AsyncWrite for Prompt<S, F>
where
    S: AsyncWrite + Unpin,
    F: Unpin,
{
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
