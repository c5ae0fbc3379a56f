//! Shard selectors, KEP-5866 (skeleton).
use shardcache_storage::Object;

/// What is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashField {
    /// `object.metadata.uid`
    Uid,
    /// `object.metadata.namespace`
    Namespace,
}

/// A union of half-open hash ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: HashField,
    /// As requested: `(start, end)`, end exclusive, `None` is 2⁶⁴.
    terms: Box<[(u64, Option<u64>)]>,
}

impl ShardSelector {
    /// Parses `shardRange(field, 'start', 'end') || …`; the error begins with `invalid shard selector: `.
    pub fn parse(_text: &str) -> Result<Self, String> {
        todo!()
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
    pub fn contains(&self, _hash: u64) -> bool {
        todo!()
    }
    /// The field hashed.
    pub fn field(&self) -> HashField {
        self.field
    }
    /// The ranges merged and sorted: disjoint, inclusive at both ends.
    pub fn ranges(&self) -> Vec<std::ops::RangeInclusive<u64>> {
        todo!()
    }
}

/// FNV-1a, 64 bit.
pub fn fnv1a64(_text: &str) -> u64 {
    todo!()
}
