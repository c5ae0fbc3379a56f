//! Part of an object's memory, kept alive by it.

use std::ops::Range;

use super::Object;

/// Some bytes of an object's body, and perhaps the comma after it. Costs a reference count, nothing else.
#[derive(Clone)]
pub struct Piece {
    object: Object,
    start: u32,
    end: u32,
}

impl Piece {
    /// Bytes of the record and its comma, which are less than 4 GiB.
    pub(super) fn new(object: Object, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= object.memory().len(), "a piece outside its object");
        Self { object, start: range.start as u32, end: range.end as u32 }
    }

    /// Bytes left.
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Leaves out the first bytes.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advanced past the end of a piece");
        self.start += count as u32;
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.object.memory()[self.start as usize..self.end as usize]
    }
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}[{}..{}]", self.object, self.start, self.end)
    }
}
