//! Weaves frames out of large shared chunks and small text.
//!
//! An object of a few kilobytes is passed on as the chunk it is. Text between objects, and objects so
//! small that one entry of a `writev` costs more than copying them, are gathered in one buffer.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use shardcache_storage::Object;

use super::{CHUNKS_MAX, Rope};

/// Chunks up to this length are copied.
const COPIED_MAX: usize = 512;
/// Chunks left free in a full frame: what one more object may need.
const RESERVE: usize = 4;
/// Bytes after which a frame is full, however few chunks it has.
const FRAME_BYTES: usize = 256 << 10;

/// A frame in the making.
#[derive(Debug, Default)]
pub struct Weave {
    rope: Rope,
    /// Copied text that follows the rope's last chunk.
    text: BytesMut,
    /// Bytes that were read to make the frame, beyond those that are in it.
    read: usize,
}

impl Weave {
    /// An empty frame.
    pub fn new() -> Self {
        Self { rope: Rope::new(), text: BytesMut::new(), read: 0 }
    }

    /// Appends a copy of some text.
    pub fn text(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    /// Appends constant text, copied only where it joins other text.
    pub fn fixed(&mut self, text: &'static [u8]) {
        if self.text.is_empty() {
            self.rope.push(Bytes::from_static(text));
        } else {
            self.text.extend_from_slice(text);
        }
    }

    /// Appends bytes that somebody else owns, copied only if they are few.
    pub fn shared(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_MAX {
            self.text.extend_from_slice(&bytes);
        } else {
            self.flush();
            self.rope.push(bytes);
        }
    }

    /// Appends part of an object's body and of the comma after it, copied only if it is short.
    pub fn stored(&mut self, object: &Object, range: Range<usize>) {
        if range.len() <= COPIED_MAX {
            self.text.extend_from_slice(object.bytes(range));
        } else {
            self.flush();
            self.rope.push_stored(object.piece(range));
        }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.rope.len() + self.text.len()
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says that bytes were read to make what is in the frame: work counts as length, so that no poll
    /// takes long however little comes of what it reads.
    pub fn charge(&mut self, bytes: usize) {
        self.read += bytes;
    }

    /// Whether the frame should be sent before another object goes in.
    pub fn is_full(&self) -> bool {
        self.rope.chunks() + RESERVE > CHUNKS_MAX || self.len() + self.read >= FRAME_BYTES
    }

    /// The frame; a new one begins.
    pub fn take(&mut self) -> Rope {
        self.flush();
        self.read = 0;
        std::mem::take(&mut self.rope)
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.rope.push(self.text.split().freeze());
        }
    }
}
