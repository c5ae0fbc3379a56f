//! One stored object: an immutable record whose bytes are the same on disk, in memory and on the wire.
//!
//! A [`Draft`] is built once, at ingest, by whoever parsed the object: the final JSON with a
//! placeholder of 19 digits where `metadata.resourceVersion` goes, and beside it the few facts that
//! dispatch and start-up need without parsing JSON (labels, uid, spans). The store's writer patches
//! the digits and seals the draft into an [`Object`]; from then on nobody copies or changes a byte.
//!
//! Record layout, little endian, [`HEADER`] bytes followed by key, labels and body:
//!
//! ```text
//!  0 u8  format (1)          16 u64 source generation     40 u32 offset of the resourceVersion digits
//!  1 u8  op (1 put, 2 del)   24 u64 source version        44 u32 metadata: offset   48 u32 length
//!  2 u16 key length          32 u32 labels length         52 u32 apiVersion: offset 56 u8  length
//!  4 u32 type id             36 u32 body length           57 u8  uid: length        58 u16 zero
//!  8 u64 previous revision                                60 u32 uid: offset        64 u32 crc32c
//! ```
//!
//! Offsets count from the start of the body; spans of strings exclude the quotes, the metadata span
//! includes its braces. The checksum covers every byte but its own four. Source fields are zero in what
//! was not pushed through the push protocol.

mod draft;
mod header;
mod piece;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

use bytes::Bytes;
use triomphe::ThinArc;

use crate::key::KeyParts;
use crate::resource_version::{DIGITS, ResourceVersion, Revision};

pub use draft::Draft;
use header::{Header, checksum, put_u32, verify_checksum};
pub use piece::Piece;

/// Bytes before the key.
pub(crate) const HEADER: usize = 68;
/// Largest body a record holds, in bytes; a little above the edge's 3 MiB limit on what is sent.
pub const BODY_MAX: usize = 4 << 20;
const FORMAT: u8 = 1;
/// Where the fields of a [`Source`] are in the header.
const SOURCE_GENERATION: usize = 16;
const SOURCE_VERSION: usize = 24;
const OP_PUT: u8 = 1;
const OP_DELETE: u8 = 2;

/// Part of a body, as offset and length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the start of the body.
    pub at: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The span as a range of the body.
    pub fn range(self) -> std::ops::Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }
}

/// Where a pushed state of an object is from. Zero in what was written otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Generation of the source: versions compare inside one.
    pub generation: u64,
    /// The object's version at the source.
    pub version: u64,
}

/// What ingest knows of an encoded object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Where the [`DIGITS`] digits of `metadata.resourceVersion` start.
    pub resource_version_at: u32,
    /// `metadata`, braces included.
    pub metadata: Span,
    /// The value of `apiVersion`, quotes excluded; at most 255 bytes.
    pub api_version: Span,
    /// The value of `metadata.uid`, quotes excluded; at most 255 bytes, empty if the object has none.
    pub uid: Span,
}

/// Why bytes are not a record, or parts do not make one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer version of this program.
    #[error("record format {0} is not known")]
    Format(u8),
    /// Lengths, offsets or checksum do not fit.
    #[error("record is damaged: {0}")]
    Damaged(&'static str),
    /// A part is larger than the record can hold.
    #[error("{what} is {len} bytes long, the limit is {max}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The bound in bytes.
        max: usize,
    },
}

/// A committed object. Cheap to clone; ordered, compared and looked up by its key.
///
/// One allocation: its revision, its record, and after the record the comma that separates it from the
/// next item of a list, so that a list is one piece of memory per object.
#[derive(Clone)]
pub struct Object(ThinArc<Revision, u8>);

/// What separates two items of a JSON list.
const COMMA: u8 = b',';

/// A record in memory that nobody has checked yet.
pub(crate) struct Unchecked(Object);

impl Unchecked {
    /// Copies a record; `buffer` is only used on the way.
    pub(crate) fn copy(revision: Revision, record: &[u8], buffer: &mut Vec<u8>) -> Self {
        buffer.clear();
        buffer.reserve_exact(record.len() + 1);
        buffer.extend_from_slice(record);
        buffer.push(COMMA);
        Self(Object(ThinArc::from_header_and_slice(revision, buffer)))
    }

    /// Checks that it is a put record: lengths, offsets and checksum.
    pub(crate) fn check(self) -> Result<Object, RecordError> {
        let record = self.0.record();
        let header = Header::check(record)?;
        if header.op != OP_PUT {
            return Err(RecordError::Damaged("not a put"));
        }
        verify_checksum(record)?;
        // A draft's placeholder is digits too; what is on disk has a version.
        if record[header.body_at() + header.resource_version_at as usize] == b'0' {
            return Err(RecordError::Damaged("resourceVersion digits"));
        }
        Ok(self.0)
    }
}

impl Object {
    /// Reads a put record; checks lengths, offsets and checksum.
    pub fn decode(revision: Revision, record: &[u8]) -> Result<Self, RecordError> {
        Unchecked::copy(revision, record, &mut Vec::new()).check()
    }

    /// The event that wrote this state of the object.
    pub fn revision(&self) -> Revision {
        self.0.header.header
    }

    fn header(&self) -> Header {
        Header::parse(self.record()).expect("checked when the record is read")
    }

    /// `metadata.resourceVersion` of this state.
    pub fn resource_version(&self) -> ResourceVersion {
        let at = self.header().resource_version_at as usize;
        let digits = &self.body_bytes()[at..at + DIGITS];
        let text = std::str::from_utf8(digits).expect("digits are checked when the record is read");
        ResourceVersion::parse(text).expect("digits are checked when the record is read")
    }

    /// The joined key.
    pub fn key(&self) -> &str {
        std::str::from_utf8(self.key_bytes()).expect("checked when the record is read")
    }

    fn key_bytes(&self) -> &[u8] {
        let record = self.record();
        &record[HEADER..HEADER + usize::from(u16::from_le_bytes([record[2], record[3]]))]
    }

    /// The parts of the key.
    pub fn parts(&self) -> KeyParts<'_> {
        KeyParts::split(self.key()).expect("checked when the record is read")
    }

    /// `metadata.uid`, `""` if the object has none.
    pub fn uid(&self) -> &str {
        self.header().uid(self.record())
    }

    /// Labels in key order.
    pub fn labels(&self) -> Labels<'_> {
        let header = self.header();
        Labels(&self.record()[HEADER + usize::from(header.key_len)..header.body_at()])
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(label, _)| *label == key).map(|(_, value)| value)
    }

    /// The JSON as served; shares the record's memory. [`Object::piece`] is cheaper.
    pub fn body(&self) -> Bytes {
        Bytes::from_owner(self.piece(0..self.body_bytes().len()))
    }

    /// The JSON as served, borrowed.
    pub fn body_bytes(&self) -> &[u8] {
        &self.record()[self.header().body_at()..]
    }

    /// Part of the JSON as served and the one comma after it, borrowed.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.memory()[self.header().body_at()..][range]
    }

    /// Part of the JSON as served and the one comma after it; shares the record's memory.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn piece(&self, range: std::ops::Range<usize>) -> Piece {
        let at = self.header().body_at();
        Piece::new(self.clone(), at + range.start..at + range.end)
    }

    /// Where things are inside [`Object::body`].
    pub fn spans(&self) -> Spans {
        self.header().spans()
    }

    /// Where this state is from.
    pub fn source(&self) -> Source {
        let number = |at: usize| u64::from_le_bytes(*self.record()[at..].first_chunk().expect("a header"));
        Source { generation: number(SOURCE_GENERATION), version: number(SOURCE_VERSION) }
    }

    /// The revision this event superseded; [`Revision::ZERO`] if the object was new.
    pub fn previous_revision(&self) -> Revision {
        self.header().previous
    }

    /// Bytes of the whole record.
    pub fn size(&self) -> usize {
        self.record().len()
    }

    /// The type's interned id in the store file that holds the record.
    pub(crate) fn type_id(&self) -> u32 {
        self.header().type_id
    }

    /// The record as it stands on disk.
    pub(crate) fn record(&self) -> &[u8] {
        let memory = self.memory();
        &memory[..memory.len() - 1]
    }

    /// The record and its comma.
    fn memory(&self) -> &[u8] {
        &self.0.slice
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key().replace('\0', "|"), self.revision())
    }
}

// Bytes rather than text: ordering is the hot path of every lookup and need not check UTF-8 again.
impl Borrow<[u8]> for Object {
    fn borrow(&self) -> &[u8] {
        self.key_bytes()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.key_bytes() == other.key_bytes()
    }
}
impl Eq for Object {}
impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Object {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key_bytes().cmp(other.key_bytes())
    }
}

/// A deletion as it stands on disk: no body, a pointer to the state it removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Interned id of the type.
    pub type_id: u32,
    /// The revision whose state was deleted.
    pub previous: Revision,
    /// The joined key.
    pub key: Box<str>,
}

impl Tombstone {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![0; HEADER];
        record[0] = FORMAT;
        record[1] = OP_DELETE;
        record[2..4].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        put_u32(&mut record, 4, self.type_id);
        record[8..16].copy_from_slice(&self.previous.0.to_le_bytes());
        record.extend_from_slice(self.key.as_bytes());
        let sum = checksum(&record);
        put_u32(&mut record, 64, sum);
        record
    }
}

/// A record read from the log: an object or a deletion.
#[derive(Clone, Debug)]
pub enum Record {
    /// The state an event wrote.
    Put(Object),
    /// The deletion an event made.
    Delete(Tombstone),
}

impl Record {
    /// Reads either kind; checks lengths, offsets and checksum.
    pub fn decode(revision: Revision, record: &[u8]) -> Result<Self, RecordError> {
        let header = Header::check(record)?;
        if header.op == OP_PUT {
            return Object::decode(revision, record).map(Self::Put);
        }
        verify_checksum(record)?;
        let key = std::str::from_utf8(&record[HEADER..]).map_err(|_| RecordError::Damaged("key"))?;
        Ok(Self::Delete(Tombstone { type_id: header.type_id, previous: header.previous, key: key.into() }))
    }
}

/// The few fields of a record that bookkeeping needs, read without checking the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) type_id: u32,
    pub(crate) previous: Revision,
    pub(crate) deletion: bool,
}

impl RecordHead {
    /// Reads the fields; checks only that they are there.
    pub(crate) fn peek(record: &[u8]) -> Result<Self, RecordError> {
        let header = Header::parse(record)?;
        let deletion = match header.op {
            OP_PUT => false,
            OP_DELETE => true,
            _ => return Err(RecordError::Damaged("operation")),
        };
        Ok(Self { type_id: header.type_id, previous: header.previous, deletion })
    }
}

/// Labels of one object in key order, as `(key, value)`.
#[derive(Clone)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Labels<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        // Not consumed if it is not text: `Header::check` looks for such a rest.
        let text = std::str::from_utf8(text).ok()?;
        self.0 = rest;
        Some(text)
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.take()?, self.take()?))
    }
}

#[cfg(test)]
pub(crate) mod tests;
