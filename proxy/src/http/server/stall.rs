//! A connection that is closed when it accepts no byte for too long (D23).
//!
//! Bodies cannot notice that: nobody asks them for more while the socket is full. The clock runs only
//! while a write waits, so it costs nothing on connections that are idle or read by their clients.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail when they make no progress.
pub(super) struct Guarded<S, F> {
    stream: S,
    patience: Duration,
    on_stall: F,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S, F> Guarded<S, F>
where
    S: Unpin,
    F: Fn() + Unpin,
{
    pub(super) fn new(stream: S, patience: Duration, on_stall: F) -> Self {
        Self { stream, patience, on_stall, waiting: None }
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        if waiting.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        (self.on_stall)();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client accepted no data for too long")))
    }
}

impl<S, F> AsyncRead for Guarded<S, F>
where
    S: AsyncRead + Unpin,
    F: Fn() + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S, F> AsyncWrite for Guarded<S, F>
where
    S: AsyncWrite + Unpin,
    F: Fn() + Unpin,
{
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(cx, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(cx, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn d23_a_reader_that_accepts_nothing_is_cut_and_a_slow_one_is_not() {
        let patience = Duration::from_millis(200);
        let stalls = AtomicUsize::new(0);
        let (near, mut far) = tokio::io::duplex(64);
        let mut guarded = Guarded::new(near, patience, || {
            stalls.fetch_add(1, Ordering::Relaxed);
        });
        let slow_reader = async {
            let mut buf = [0; 64];
            for _ in 0..8 {
                sleep(patience / 4).await;
                far.read_exact(&mut buf).await.expect("bytes");
            }
        };
        let (written, ()) = tokio::join!(guarded.write_all(&[0; 8 * 64]), slow_reader);
        written.expect("progress was made within every interval");
        assert_eq!(stalls.load(Ordering::Relaxed), 0);

        let error = guarded.write_all(&[0; 65]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(stalls.load(Ordering::Relaxed), 1);
    }
}
