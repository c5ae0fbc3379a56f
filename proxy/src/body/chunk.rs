//! One piece of a rope: shared bytes, or part of a stored object.

use bytes::{Buf, Bytes};
use shardcache_storage::Piece;

/// Shared memory of either kind; neither is copied.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    /// Made for one response, or for many.
    Bytes(Bytes),
    /// Part of an object, without the allocation that `Bytes` of it would be.
    Stored(Piece),
}

impl Chunk {
    pub(super) fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// # Panics
    /// If the chunk is shorter.
    pub(super) fn advance(&mut self, count: usize) {
        match self {
            Self::Bytes(bytes) => bytes.advance(count),
            Self::Stored(piece) => piece.advance(count),
        }
    }

    /// The first bytes, which leave the chunk.
    ///
    /// # Panics
    /// If the chunk is shorter.
    pub(super) fn split_to(&mut self, len: usize) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.split_to(len),
            Self::Stored(piece) => {
                let out = Bytes::from_owner(piece.clone()).slice(..len);
                piece.advance(len);
                out
            }
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Stored(piece) => piece.as_ref(),
        }
    }
}

impl From<Chunk> for Bytes {
    fn from(chunk: Chunk) -> Self {
        match chunk {
            Chunk::Bytes(bytes) => bytes,
            Chunk::Stored(piece) => Self::from_owner(piece),
        }
    }
}
