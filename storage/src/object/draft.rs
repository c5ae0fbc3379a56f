//! An object on its way into the log.

use triomphe::ThinArc;

use crate::key::Key;
use crate::resource_version::{DIGITS, ResourceVersion, Revision};

use super::header::{Header, checksum, put_u32};
use super::{
    BODY_MAX, COMMA, FORMAT, HEADER, OP_PUT, Object, RecordError, SOURCE_GENERATION, SOURCE_VERSION, Source,
    Spans,
};

/// An object that is encoded but not yet committed: no revision, no resourceVersion.
#[derive(Clone)]
pub struct Draft {
    /// With room for the comma.
    record: Vec<u8>,
}

impl Draft {
    /// Packs a key, its labels (sorted by label key here) and the final JSON into a record.
    ///
    /// `body[spans.resource_version_at..][..19]` must be digits; they are overwritten at commit.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(
        key: &Key,
        labels: &[(K, V)],
        body: &[u8],
        spans: Spans,
    ) -> Result<Self, RecordError> {
        let key = key.as_str().as_bytes();
        limit("key", key.len(), u16::MAX.into())?;
        limit("object", body.len(), BODY_MAX)?;
        limit("apiVersion", spans.api_version.len as usize, u8::MAX.into())?;
        limit("metadata.uid", spans.uid.len as usize, u8::MAX.into())?;
        let mut sorted: Vec<_> = labels.iter().map(|(k, v)| (k.as_ref(), v.as_ref())).collect();
        sorted.sort_unstable();
        let mut packed = Vec::with_capacity(sorted.iter().map(|(k, v)| k.len() + v.len() + 4).sum());
        for (label, value) in sorted {
            limit("label key", label.len(), u16::MAX.into())?;
            limit("label value", value.len(), u16::MAX.into())?;
            packed.extend_from_slice(&(label.len() as u16).to_le_bytes());
            packed.extend_from_slice(label.as_bytes());
            packed.extend_from_slice(&(value.len() as u16).to_le_bytes());
            packed.extend_from_slice(value.as_bytes());
        }
        let mut record = Vec::with_capacity(HEADER + key.len() + packed.len() + body.len() + 1);
        record.resize(HEADER, 0);
        record[0] = FORMAT;
        record[1] = OP_PUT;
        record[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
        put_u32(&mut record, 32, packed.len() as u32);
        put_u32(&mut record, 36, body.len() as u32);
        put_u32(&mut record, 40, spans.resource_version_at);
        put_u32(&mut record, 44, spans.metadata.at);
        put_u32(&mut record, 48, spans.metadata.len);
        put_u32(&mut record, 52, spans.api_version.at);
        record[56] = spans.api_version.len as u8;
        record[57] = spans.uid.len as u8;
        put_u32(&mut record, 60, spans.uid.at);
        record.extend_from_slice(key);
        record.extend_from_slice(&packed);
        record.extend_from_slice(body);
        Header::check(&record)?;
        Ok(Self { record })
    }

    /// The uid in the draft, `""` if it has none.
    pub fn uid(&self) -> &str {
        Header::parse(&self.record).expect("checked by `new`").uid(&self.record)
    }

    /// The encoded JSON, placeholder digits included.
    pub fn body(&self) -> &[u8] {
        let header = Header::parse(&self.record).expect("checked by `new`");
        &self.record[header.body_at()..]
    }

    /// Where things are inside [`Draft::body`].
    pub fn spans(&self) -> Spans {
        Header::parse(&self.record).expect("checked by `new`").spans()
    }

    /// Bytes of the whole record.
    pub fn size(&self) -> usize {
        self.record.len()
    }

    /// The object as it would look under this version, to be shown to a client that asked not to
    /// store it. It has no place in any log and must not be put into a state.
    pub fn preview(self, version: ResourceVersion) -> Object {
        self.seal(0, version.revision(), version, Revision::ZERO, Source::default())
    }

    /// Whether an object has this content: every byte of the body but the digits of its version.
    pub(crate) fn is_content_of(&self, object: &Object) -> bool {
        let (ours, theirs) = (self.body(), object.body_bytes());
        let at = self.spans().resource_version_at as usize;
        at == object.spans().resource_version_at as usize
            && ours.len() == theirs.len()
            && ours[..at] == theirs[..at]
            && ours[at + DIGITS..] == theirs[at + DIGITS..]
    }

    /// Patches type, versions and checksum: the draft becomes the object of one event.
    pub(crate) fn seal(
        mut self,
        type_id: u32,
        revision: Revision,
        version: ResourceVersion,
        previous: Revision,
        source: Source,
    ) -> Object {
        let header = Header::parse(&self.record).expect("checked by `new`");
        let digits_at = header.body_at() + header.resource_version_at as usize;
        self.record[digits_at..digits_at + DIGITS].copy_from_slice(&version.digits());
        put_u32(&mut self.record, 4, type_id);
        self.record[8..16].copy_from_slice(&previous.0.to_le_bytes());
        self.record[SOURCE_GENERATION..][..8].copy_from_slice(&source.generation.to_le_bytes());
        self.record[SOURCE_VERSION..][..8].copy_from_slice(&source.version.to_le_bytes());
        let sum = checksum(&self.record);
        put_u32(&mut self.record, 64, sum);
        self.record.push(COMMA);
        Object(ThinArc::from_header_and_slice(revision, &self.record))
    }
}

fn limit(what: &'static str, len: usize, max: usize) -> Result<(), RecordError> {
    if len > max { Err(RecordError::TooLarge { what, len, max }) } else { Ok(()) }
}
