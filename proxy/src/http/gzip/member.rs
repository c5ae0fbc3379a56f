//! One gzip member out of parts that were compressed apart.
//!
//! Each part is a run of deflate blocks that refers to nothing before it and ends on a byte boundary, so
//! parts follow each other in any order and number (RFC 1951, 3.2); the member's checksum is combined from
//! theirs.

use bytes::{Buf, Bytes};
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Deflate, no name, no time, the fastest level, an unknown system (RFC 1952, 2.3).
const START: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// A last block with nothing in it.
const LAST_BLOCK: [u8; 2] = [3, 0];
/// Room that the output of a part grows by.
const ROOM_BYTES: usize = 16 << 10;

/// Compressed text that can stand anywhere in a member.
#[derive(Debug)]
pub(crate) struct Part {
    deflated: Bytes,
    crc: Crc,
}

/// A member in the making.
#[derive(Debug, Default)]
pub(crate) struct Member {
    crc: Crc,
}

impl Part {
    /// Compresses all of a text.
    pub(crate) fn of(mut text: impl Buf) -> Self {
        let mut compressor = Compress::new(Compression::fast(), false);
        let mut crc = Crc::new();
        let mut deflated = Vec::with_capacity(ROOM_BYTES.min(text.remaining() + 64));
        while text.has_remaining() {
            let before = compressor.total_in();
            compress(&mut compressor, text.chunk(), &mut deflated, FlushCompress::None);
            let taken = (compressor.total_in() - before) as usize;
            crc.update(&text.chunk()[..taken]);
            text.advance(taken);
        }
        // The flush is done when it leaves room.
        loop {
            compress(&mut compressor, &[], &mut deflated, FlushCompress::Sync);
            if deflated.len() < deflated.capacity() {
                break;
            }
        }
        deflated.shrink_to_fit();
        Self { deflated: deflated.into(), crc }
    }

    /// Compressed bytes.
    pub(crate) fn deflated(&self) -> &Bytes {
        &self.deflated
    }

    /// Length of the text; a part is less than 4 GiB.
    pub(crate) fn bytes(&self) -> u32 {
        self.crc.amount()
    }
}

fn compress(compressor: &mut Compress, text: &[u8], deflated: &mut Vec<u8>, flush: FlushCompress) {
    if deflated.len() == deflated.capacity() {
        deflated.reserve(ROOM_BYTES);
    }
    let status = compressor.compress_vec(text, deflated, flush);
    // A buffer error only says that there was nothing to do.
    assert!(matches!(status, Ok(Status::Ok | Status::BufError)), "deflate takes any bytes: {status:?}");
}

impl Member {
    /// What stands before the first part.
    pub(crate) fn start() -> Bytes {
        Bytes::from_static(START)
    }

    /// Counts a part in; its bytes come next.
    pub(crate) fn append(&mut self, part: &Part) -> Bytes {
        self.crc.combine(&part.crc);
        part.deflated.clone()
    }

    /// What stands after the last part.
    pub(crate) fn end(self) -> Bytes {
        let (sum, bytes) = (self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes());
        [&LAST_BLOCK[..], &sum, &bytes].concat().into()
    }
}

#[cfg(test)]
mod tests;
