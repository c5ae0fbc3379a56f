//! Shard selectors (KEP-5866): hash ranges that split one collection between replicas of a client.
//!
//! The hash is FNV-1a over the text of one metadata field, so it needs no table and every server and
//! client computes the same. Ranges are half open; terms are a union.

mod parse;

use std::fmt;
use std::ops::RangeInclusive;

use shardcache_storage::Object;

/// What is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashField {
    /// `object.metadata.uid`
    Uid,
    /// `object.metadata.namespace`; the empty text for cluster-scoped objects.
    Namespace,
}

impl HashField {
    /// The path in a selector.
    pub fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

/// A union of half-open hash ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: HashField,
    /// As requested: `(start, end)`, end exclusive, `None` is 2⁶⁴. At least one; start < end.
    terms: Box<[(u64, Option<u64>)]>,
}

impl ShardSelector {
    /// Parses `shardRange(field, 'start', 'end') || …`; the error begins with `invalid shard selector: `.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::selector(text).map_err(|why| format!("invalid shard selector: {why}"))
    }

    /// Whether the object's hash lies in a range.
    pub fn matches(&self, object: &Object) -> bool {
        self.contains(self.hash(object))
    }

    /// The hash of an object under this selector's field.
    pub fn hash(&self, object: &Object) -> u64 {
        match self.field {
            HashField::Uid => fnv1a64(object.uid()),
            HashField::Namespace => fnv1a64(object.parts().namespace),
        }
    }

    /// Whether a hash lies in a range.
    pub fn contains(&self, hash: u64) -> bool {
        self.terms.iter().any(|(start, end)| *start <= hash && end.is_none_or(|end| hash < end))
    }

    /// The field hashed.
    pub fn field(&self) -> HashField {
        self.field
    }

    /// The ranges merged and sorted: disjoint, inclusive at both ends.
    pub fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        let mut sorted: Vec<(u64, u64)> =
            self.terms.iter().map(|(start, end)| (*start, end.map_or(u64::MAX, |end| end - 1))).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for (start, last) in sorted {
            match merged.last_mut() {
                Some((_, previous)) if start <= previous.saturating_add(1) => *previous = last.max(*previous),
                _ => merged.push((start, last)),
            }
        }
        merged.into_iter().map(|(start, last)| start..=last).collect()
    }
}

/// The canonical text, which lists echo in `metadata.shardInfo.selector`: terms in request order.
impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (start, end)) in self.terms.iter().enumerate() {
            let or = if index == 0 { "" } else { " || " };
            let field = self.field.path();
            // `end` as 128 bits prints 2⁶⁴ as the grammar wants it, with 17 digits.
            let end = end.map_or(1 << 64, u128::from);
            write!(f, "{or}shardRange({field}, '{start:#018x}', '{end:#018x}')")?;
        }
        Ok(())
    }
}

/// FNV-1a, 64 bit.
pub fn fnv1a64(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
