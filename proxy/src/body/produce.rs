//! Bodies written as straight-line async code: a producer hands frames to a [`Sink`] one at a time.
//!
//! The producer runs inside the body's own `poll_frame`, so it needs no task and no queue: it stops at
//! [`Sink::send`] until the frame is taken, and dropping the body drops the producer where it stands.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use super::{Body, BodyError, Frames, Rope};

/// Where a producer puts its frames.
pub struct Sink(Arc<Mutex<Option<Rope>>>);

impl Sink {
    /// Hands over a frame; resolves when the body's reader asks for the next one. Empty frames are
    /// left out.
    pub async fn send(&mut self, rope: Rope) {
        if rope.is_empty() {
            return;
        }
        *self.slot() = Some(rope);
        // No waker: the body takes the frame in the poll that runs this, and polls again for the next.
        std::future::poll_fn(|_| if self.slot().is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Rope>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Produced<F> {
    /// `None` once it has ended.
    producer: Option<F>,
    slot: Arc<Mutex<Option<Rope>>>,
    /// Bytes still to come, if the producer promised how many there are.
    len: Option<u64>,
}

impl Body {
    /// A body whose frames an async producer sends. When it returns `Ok` the body ends properly, when
    /// it returns an error the body is cut. `len` is the number of bytes it will send, if known.
    pub fn produced<F>(len: Option<u64>, producer: impl FnOnce(Sink) -> F) -> Self
    where
        F: Future<Output = Result<(), BodyError>> + Send + 'static,
    {
        let slot = Arc::new(Mutex::new(None));
        let producer = Box::pin(producer(Sink(Arc::clone(&slot))));
        Self::stream(Produced { producer: Some(producer), slot, len })
    }
}

impl<F> Frames for Produced<F>
where
    F: Future<Output = Result<(), BodyError>> + Send + Unpin,
{
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        let Some(producer) = &mut self.producer else { return Poll::Ready(None) };
        let ended = match Pin::new(producer).poll(cx) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        };
        let frame = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (frame, ended) {
            (Some(rope), _) => {
                self.len = self.len.map(|len| len.saturating_sub(rope.len() as u64));
                Poll::Ready(Some(Ok(rope)))
            }
            (None, None) => Poll::Pending,
            (None, Some(ended)) => {
                self.producer = None;
                Poll::Ready(ended.err().map(Err))
            }
        }
    }

    fn exact_len(&self) -> Option<u64> {
        self.len
    }
}
