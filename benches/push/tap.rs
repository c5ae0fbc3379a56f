//! A TCP proxy between replicator and cache: it counts the bytes that are sent, cuts connections, and notes
//! when the cache says that a cell goes on.
//!
//! What the cache says is read off the wire: HTTP/2 leaves bodies as they are, and its frames of this size
//! are not split.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// What is kept of a line whose end has not come.
const LINE_MAX: usize = 64 << 10;

/// The proxy; connections end with it.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

/// Since the last [`Tap::mark`].
struct Seen {
    cache: SocketAddr,
    /// Ends the connections of now.
    cut: CancellationToken,
    /// Bytes from the replicator to the cache.
    sent: u64,
    welcomed: Option<Instant>,
    acked: Option<Instant>,
    synced: bool,
}

/// How a cell went on.
pub(crate) struct Resumed {
    /// When the cache said that no sync is needed.
    pub(crate) welcomed: Instant,
    /// When it said that what was sent next is durable: count and digest were right.
    pub(crate) acked: Instant,
    /// Bytes that were sent to it until then.
    pub(crate) sent: u64,
    /// Whether it was pushed anew all the same.
    pub(crate) synced: bool,
}

impl Tap {
    /// In front of a cache.
    pub(crate) async fn open(cache: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Seen {
            cache,
            cut: CancellationToken::new(),
            sent: 0,
            welcomed: None,
            acked: None,
            synced: false,
        };
        let shared = Arc::new(Shared { seen: Mutex::new(seen), changed: Notify::new() });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _task: AbortOnDropHandle::new(task) })
    }

    /// Leads to another cache from the next connection on.
    pub(crate) fn lead_to(&self, cache: SocketAddr) {
        self.shared.seen.lock().cache = cache;
    }

    /// Ends every connection.
    pub(crate) fn cut(&self) {
        let mut seen = self.shared.seen.lock();
        std::mem::replace(&mut seen.cut, CancellationToken::new()).cancel();
    }

    /// Bytes that were sent since the last mark; everything is counted anew.
    pub(crate) fn mark(&self) -> u64 {
        let mut seen = self.shared.seen.lock();
        (seen.welcomed, seen.acked, seen.synced) = (None, None, false);
        std::mem::take(&mut seen.sent)
    }

    /// Waits until a cell goes on.
    pub(crate) async fn resumed(&self) -> Resumed {
        loop {
            let changed = self.shared.changed.notified();
            {
                let seen = self.shared.seen.lock();
                if let (Some(welcomed), Some(acked)) = (seen.welcomed, seen.acked) {
                    return Resumed { welcomed, acked, sent: seen.sent, synced: seen.synced };
                }
            }
            changed.await;
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let (cache, cut) = {
                let seen = shared.seen.lock();
                (seen.cache, seen.cut.clone())
            };
            // Whoever cannot be led to a cache is hung up on.
            let Ok(onward) = TcpStream::connect(cache).await else { return };
            if stream.set_nodelay(true).is_err() || onward.set_nodelay(true).is_err() {
                return;
            }
            let ((from, to), (from_cache, to_cache)) = (stream.into_split(), onward.into_split());
            tokio::select! {
                () = cut.cancelled() => {}
                () = up(from, to_cache, &shared) => {}
                () = down(from_cache, to, &shared) => {}
            }
        });
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        shared.seen.lock().sent += read as u64;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn down(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut line = vec![];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        for byte in &buffer[..read] {
            if *byte == b'\n' || line.len() == LINE_MAX {
                shared.hear(&line);
                line.clear();
            } else {
                line.push(*byte);
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// A line of the cache, with what HTTP/2 puts before it.
    fn hear(&self, line: &[u8]) {
        let has = |text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
        let mut seen = self.seen.lock();
        if has(r#""needSync":true"#) || has(r#"{"type":"resync""#) {
            seen.synced = true;
        } else if has(r#"{"type":"welcome""#) && has(r#""position":"#) {
            seen.welcomed.get_or_insert_with(Instant::now);
        } else if has(r#"{"type":"ack""#) && has(r#""position":"#) && seen.welcomed.is_some() {
            // Acks of the control stream have no position.
            seen.acked.get_or_insert_with(Instant::now);
        } else {
            return;
        }
        drop(seen);
        self.changed.notify_waiters();
    }
}
