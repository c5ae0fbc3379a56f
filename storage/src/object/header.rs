//! The fixed part of a record, and the proof that its lengths and offsets fit.

use crate::key::KeyParts;
use crate::resource_version::{DIGITS, Revision};

use super::{FORMAT, HEADER, Labels, OP_DELETE, OP_PUT, RecordError, Span, Spans};

#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) previous: Revision,
    pub(super) type_id: u32,
    pub(super) labels_len: u32,
    pub(super) resource_version_at: u32,
    pub(super) metadata: Span,
    pub(super) api_version_at: u32,
    pub(super) uid_at: u32,
    pub(super) key_len: u16,
    pub(super) op: u8,
    pub(super) api_version_len: u8,
    pub(super) uid_len: u8,
}

impl Header {
    pub(super) fn parse(record: &[u8]) -> Result<Self, RecordError> {
        if record.len() < HEADER {
            return Err(RecordError::Damaged("shorter than its header"));
        }
        if record[0] != FORMAT {
            return Err(RecordError::Format(record[0]));
        }
        Ok(Self {
            previous: Revision(u64::from_le_bytes(record[8..16].try_into().expect("eight bytes"))),
            type_id: get_u32(record, 4),
            labels_len: get_u32(record, 32),
            resource_version_at: get_u32(record, 40),
            metadata: Span { at: get_u32(record, 44), len: get_u32(record, 48) },
            api_version_at: get_u32(record, 52),
            uid_at: get_u32(record, 60),
            key_len: u16::from_le_bytes([record[2], record[3]]),
            op: record[1],
            api_version_len: record[56],
            uid_len: record[57],
        })
    }

    /// Parses and proves that every length and offset lies inside the record.
    pub(super) fn check(record: &[u8]) -> Result<Self, RecordError> {
        let header = Self::parse(record)?;
        let body_len = get_u32(record, 36) as usize;
        let sum = (HEADER + usize::from(header.key_len))
            .checked_add(header.labels_len as usize)
            .and_then(|sum| sum.checked_add(body_len));
        if sum != Some(record.len()) {
            return Err(RecordError::Damaged("lengths do not add up"));
        }
        let key = std::str::from_utf8(&record[HEADER..HEADER + usize::from(header.key_len)]);
        if key.ok().and_then(KeyParts::split).is_none() {
            return Err(RecordError::Damaged("key"));
        }
        if header.op == OP_DELETE {
            return if body_len == 0 && header.labels_len == 0 {
                Ok(header)
            } else {
                Err(RecordError::Damaged("deletion with a body"))
            };
        }
        if header.op != OP_PUT {
            return Err(RecordError::Damaged("operation"));
        }
        let mut labels = Labels(&record[HEADER + usize::from(header.key_len)..header.body_at()]);
        while labels.next().is_some() {}
        if !labels.0.is_empty() {
            return Err(RecordError::Damaged("labels"));
        }
        let body = &record[header.body_at()..];
        let spans = header.spans();
        for span in [spans.metadata, spans.api_version, spans.uid] {
            if span.at as usize + span.len as usize > body.len() {
                return Err(RecordError::Damaged("span outside the body"));
            }
        }
        let digits =
            body.get(header.resource_version_at as usize..header.resource_version_at as usize + DIGITS);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit)) {
            return Err(RecordError::Damaged("resourceVersion digits"));
        }
        if std::str::from_utf8(&body[spans.uid.range()]).is_err()
            || std::str::from_utf8(&body[spans.api_version.range()]).is_err()
        {
            return Err(RecordError::Damaged("text is not UTF-8"));
        }
        Ok(header)
    }

    pub(super) fn body_at(&self) -> usize {
        HEADER + usize::from(self.key_len) + self.labels_len as usize
    }

    pub(super) fn spans(&self) -> Spans {
        Spans {
            resource_version_at: self.resource_version_at,
            metadata: self.metadata,
            api_version: Span { at: self.api_version_at, len: self.api_version_len.into() },
            uid: Span { at: self.uid_at, len: self.uid_len.into() },
        }
    }

    pub(super) fn uid<'a>(&self, record: &'a [u8]) -> &'a str {
        let at = self.body_at() + self.uid_at as usize;
        std::str::from_utf8(&record[at..at + usize::from(self.uid_len)])
            .expect("checked when the record is read")
    }
}

pub(super) fn get_u32(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn put_u32(record: &mut [u8], at: usize, value: u32) {
    record[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..64]), &record[HEADER..])
}

pub(super) fn verify_checksum(record: &[u8]) -> Result<(), RecordError> {
    if get_u32(record, 64) == checksum(record) { Ok(()) } else { Err(RecordError::Damaged("checksum")) }
}
