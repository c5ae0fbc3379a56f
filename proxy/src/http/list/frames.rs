//! The bytes of a list: a header, the items with commas between them, a trailer; a frame at a time.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use serde_json::Value;
use shardcache_storage::ResourceVersion;

use super::Next;
use crate::body::{Body, BodyError, Frames, Rope, Weave};
use crate::http::gzip::member::{Member, Part};
use crate::http::gzip::pages::{Page, Pages};
use crate::http::items::Items;
use crate::http::lease::Lease;
use crate::metrics::ListMetrics;
use crate::represent::Form;
use crate::service::Api;
use crate::status::ApiError;

/// What a streamed list is reckoned to occupy: the frames that hyper queues before the socket takes
/// them, or a compressor's tables.
const BYTES_IN_FLIGHT: usize = 512 << 10;
const TRAILER: &[u8] = b"]}";
/// Bytes after which a frame of compressed pages is full.
const COMPRESSED_FRAME_BYTES: usize = 128 << 10;
/// Bytes of objects after whose compression a frame is full: about a millisecond of work.
const MADE_PER_FRAME_BYTES: u32 = 256 << 10;

/// Everything before the first item.
pub(super) struct Header<'a> {
    /// `apiVersion` and `kind`.
    pub(super) kind: (&'a str, &'a str),
    pub(super) version: ResourceVersion,
    pub(super) next: Option<&'a Next>,
    /// The shard selector that was honoured: the only proof of support that clients look at.
    pub(super) echo: Option<&'a str>,
    /// What comes after the metadata.
    pub(super) start: &'a str,
}

impl Header<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (api_version, kind) = self.kind;
        let mut header = String::with_capacity(256);
        let _ = write!(
            header,
            r#"{{"kind":{},"apiVersion":{},"metadata":{{"resourceVersion":"{}""#,
            Value::from(kind),
            Value::from(api_version),
            self.version
        );
        if let Some(Next { token, remaining }) = self.next {
            let _ = write!(header, r#","continue":"{token}""#);
            if let Some(remaining) = remaining {
                let _ = write!(header, r#","remainingItemCount":{remaining}"#);
            }
        }
        if let Some(selector) = self.echo {
            let _ = write!(header, r#","shardInfo":{{"selector":{}}}"#, Value::from(selector));
        }
        header.push_str("},");
        header.push_str(self.start);
        header.into_bytes()
    }
}

/// What stands around the items.
pub(super) struct Frame {
    pub(super) header: Vec<u8>,
    /// Bytes of the items and their commas, if known.
    pub(super) len: Option<u64>,
}

/// A list's share of the bytes in flight; 429 if too many lists are being sent.
pub(crate) fn reserve(api: &Api) -> Result<Arc<Lease>, ApiError> {
    api.limits.list_bytes.take(BYTES_IN_FLIGHT, &api.metrics)
}

/// The body of a list.
pub(super) fn body(api: &Api, lease: Arc<Lease>, frame: Frame, items: Items, form: Form) -> Body {
    api.metrics.list.in_flight_bytes.inc_by(BYTES_IN_FLIGHT as i64);
    let around = (frame.header.len() + TRAILER.len()) as u64;
    Body::stream(ListFrames {
        len: frame.len.map(|items| items + around),
        header: frame.header,
        items,
        form,
        ended: false,
        sent: Sent { metrics: api.metrics.list.clone(), objects: 0, bytes: 0 },
        pages: Arc::clone(&api.pages),
        gzip: None,
        lease,
    })
}

struct ListFrames {
    header: Vec<u8>,
    items: Items,
    form: Form,
    ended: bool,
    /// Bytes still to come.
    len: Option<u64>,
    sent: Sent,
    pages: Arc<Pages>,
    gzip: Option<Gzip>,
    lease: Arc<Lease>,
}

/// The gzip member that a list is sent as.
struct Gzip {
    member: Member,
    /// [`Form::depends_on`].
    depends_on: Bytes,
}

impl Frames for ListFrames {
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        this.lease.proceed()?;
        let rope = match this.gzip.take() {
            Some(gzip) => this.compressed_frame(gzip),
            None => this.frame(),
        };
        Poll::Ready(Some(Ok(rope)))
    }

    fn exact_len(&self) -> Option<u64> {
        self.len
    }

    fn compress(self: Pin<&mut Self>) -> bool {
        let this = self.get_mut();
        let depends_on = this.form.depends_on();
        this.gzip = depends_on.map(|depends_on| Gzip { member: Member::default(), depends_on });
        if this.gzip.is_some() {
            this.len = None;
        }
        this.gzip.is_some()
    }
}

impl ListFrames {
    /// The bytes as they lie in memory.
    fn frame(&mut self) -> Rope {
        let mut weave = Weave::new();
        weave.text(&std::mem::take(&mut self.header));
        let (form, sent) = (&mut self.form, &mut self.sent);
        let more = self.items.portion(|object, last| {
            form.listed(&mut weave, object, last);
            sent.objects += 1;
            !weave.is_full()
        });
        if !more {
            weave.fixed(TRAILER);
            self.ended = true;
        }
        let rope = weave.take();
        self.sent.bytes += rope.len() as u64;
        self.len = self.len.map(|len| len.saturating_sub(rope.len() as u64));
        rope
    }

    /// Pages of them, compressed before or now; few enough now that no poll takes long.
    fn compressed_frame(&mut self, Gzip { mut member, depends_on }: Gzip) -> Rope {
        let mut rope = Rope::new();
        let header = std::mem::take(&mut self.header);
        if !header.is_empty() {
            rope.push(Member::start());
            rope.push(member.append(&Part::of(&header[..])));
            self.sent.bytes += header.len() as u64;
        }
        let mut made = 0;
        while made < MADE_PER_FRAME_BYTES && rope.len() < COMPRESSED_FRAME_BYTES {
            let mut page = Page::default();
            let more = self.items.portion(|object, last| page.add(object, last));
            if page.objects() > 0 {
                let compressed = self.pages.compressed(&page, &mut self.form, &depends_on);
                let bytes = compressed.part.bytes();
                if !compressed.was_kept {
                    made += bytes;
                }
                rope.push(member.append(&compressed.part));
                self.sent.objects += page.objects() as u64;
                self.sent.bytes += u64::from(bytes);
            }
            if !more {
                rope.push(member.append(&Part::of(TRAILER)));
                rope.push(member.end());
                self.sent.bytes += TRAILER.len() as u64;
                self.ended = true;
                return rope;
            }
        }
        self.gzip = Some(Gzip { member, depends_on });
        rope
    }
}

/// Reports a list when its body is dropped, sent or not.
struct Sent {
    metrics: ListMetrics,
    objects: u64,
    bytes: u64,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.metrics.objects.observe(self.objects as f64);
        self.metrics.bytes.observe(self.bytes as f64);
        self.metrics.in_flight_bytes.dec_by(BYTES_IN_FLIGHT as i64);
    }
}
