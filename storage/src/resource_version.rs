//! Revisions and resourceVersions: the two numbers every other module speaks of.
//!
//! A [`Revision`] counts events of one store. A [`ResourceVersion`] is what a client sees and sends
//! back: the revision shifted left by ten bits, with the *tag* of the incarnation that issued it in
//! the low bits. A stock reflector sends back one number and nothing else, so whatever detects a
//! foreign timeline has to live inside that number (see [`crate::lineage`]).
//!
//! Every resourceVersion is a plain decimal of exactly [`DIGITS`] digits from 1985 to 2109, smaller
//! than 2⁶³, so it can be patched in place in encoded bytes and held by clients in an `int64`.

use std::fmt;

/// Bits of a [`ResourceVersion`] that hold the incarnation's tag.
pub const TAG_BITS: u32 = 10;
/// Largest tag; tags are `1..=TAG_MAX`, 0 is never issued.
pub const TAG_MAX: u16 = (1 << TAG_BITS) - 1;
/// Decimal digits of every issued resourceVersion.
pub const DIGITS: usize = 19;
/// Stands in an encoded object where the writer patches the resourceVersion at commit.
pub const PLACEHOLDER: &[u8; DIGITS] = b"0000000000000000000";
/// Largest revision that still fits a resourceVersion below 2⁶³.
pub const REVISION_MAX: u64 = (1 << 53) - 1;

/// One event's place in the log of one store: +1 per event inside an incarnation.
///
/// `Revision::ZERO` is before every event and means "none" where a revision is optional on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Before every event.
    pub const ZERO: Self = Self(0);

    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The low bits of a resourceVersion: which incarnation issued it, modulo 1023. In `1..=TAG_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(u16);

impl Tag {
    /// `None` unless `1 <= tag <= TAG_MAX`.
    pub fn new(tag: u16) -> Option<Self> {
        (1..=TAG_MAX).contains(&tag).then_some(Self(tag))
    }

    /// The tag as a number.
    pub fn value(self) -> u16 {
        self.0
    }
}

/// The version clients see, compare and send back: a decimal below 2⁶³ without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

/// Why a text is not a resourceVersion; the text of [`fmt::Display`] is Go's `strconv.ParseUint`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not a decimal number (also: empty, signs, spaces, leading zeros).
    #[error("invalid syntax")]
    Syntax,
    /// Does not fit 64 bits.
    #[error("value out of range")]
    Range,
}

impl ResourceVersion {
    /// Before every version; never issued.
    pub(crate) const ZERO: Self = Self(0);

    /// The version of `revision` as issued by the incarnation with `tag`.
    pub fn new(revision: Revision, tag: Tag) -> Self {
        debug_assert!(revision.0 <= REVISION_MAX);
        Self((revision.0 << TAG_BITS) | u64::from(tag.0))
    }

    /// The revision inside, whoever issued it.
    pub fn revision(self) -> Revision {
        Revision(self.0 >> TAG_BITS)
    }

    /// The tag inside; `None` for a number no store issues (tag bits 0).
    pub fn tag(self) -> Option<Tag> {
        Tag::new((self.0 & u64::from(TAG_MAX)) as u16)
    }

    /// The raw number.
    pub fn value(self) -> u64 {
        self.0
    }

    /// Parses what a client sent. `"0"` parses, to a version that no store issued: callers treat
    /// `""` and `"0"` before they come here. Numbers of 2⁶³ and above parse too (they lie in the
    /// future of every store); leading zeros do not (KEP-5504).
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseError::Syntax);
        }
        if text.len() > 1 && text.starts_with('0') {
            return Err(ParseError::Syntax);
        }
        text.parse().map(Self).map_err(|_| ParseError::Range)
    }

    /// The number as exactly [`DIGITS`] bytes, to patch over [`PLACEHOLDER`]. Versions issued before
    /// 1985 or after 2109 do not have that length and cannot be issued (see `lineage`).
    pub fn digits(self) -> [u8; DIGITS] {
        let mut out = *PLACEHOLDER;
        let mut rest = self.0;
        for digit in out.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        debug_assert!(rest == 0 && out[0] != b'0', "resourceVersion outside 1985..2109");
        out
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_the_round_trip() {
        let tag = Tag::new(1023).expect("in range");
        let version = ResourceVersion::new(Revision(1_790_000_000_000 << 11), tag);
        assert_eq!(version.to_string().len(), DIGITS);
        assert_eq!(version.digits().as_slice(), version.to_string().as_bytes());
        let parsed = ResourceVersion::parse(&version.to_string()).expect("parses");
        assert_eq!((parsed.revision(), parsed.tag()), (version.revision(), Some(tag)));
        assert!(version.value() < 1 << 63);
    }

    #[test]
    fn only_plain_decimals_parse() {
        for text in ["", "abc", "-1", "+1", " 1", "01", "00", "1.0", "1e3", "٣"] {
            assert_eq!(ResourceVersion::parse(text), Err(ParseError::Syntax), "{text:?}");
        }
        assert_eq!(ResourceVersion::parse("18446744073709551616"), Err(ParseError::Range));
        assert!(ResourceVersion::parse("18446744073709551615").is_ok());
    }
}
