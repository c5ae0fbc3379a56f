//! The digest of a cell: a sum that both sides can keep up to date by one addition per event.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::key::KeyParts;

/// A sum modulo 2¹²⁸. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The sum with one more entry.
    #[must_use]
    pub fn with(self, entry: Self) -> Self {
        Self(self.0.wrapping_add(entry.0))
    }

    /// The sum with one entry less.
    #[must_use]
    pub fn without(self, entry: Self) -> Self {
        Self(self.0.wrapping_sub(entry.0))
    }
}

/// What one object adds to the digest of its cell: the first 16 bytes, as a big-endian number, of SHA-256
/// over logical cluster, namespace, name, uid and source version, joined by NUL; the version in decimal,
/// the namespace of a cluster-scoped object empty.
pub fn entry_digest(key: KeyParts<'_>, uid: &str, source_version: u64) -> Digest {
    let mut hash = Sha256::new();
    for part in [key.cluster, key.namespace, key.name, uid] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(source_version.to_string());
    let bytes = hash.finalize();
    Digest(u128::from_be_bytes(*bytes.first_chunk().expect("SHA-256 has 32 bytes")))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 32 hexadecimal digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let legal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(legal) {
            return Err(NotADigest);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NotADigest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64) -> Digest {
        let key = KeyParts { shard: "amber", cluster: "root", namespace: "", name: "a" };
        entry_digest(key, "u1", version)
    }

    #[test]
    fn d36_an_entry_is_the_head_of_a_sha_256() {
        // printf 'root\0\0a\0u1\00042' | sha256sum | head -c 32
        assert_eq!(entry(42).to_string(), "c14e47de6f3206e87d07620a27d85c88");
    }

    #[test]
    fn d36_sums_do_not_depend_on_the_order_and_take_back() {
        let (a, b) = (entry(1), entry(2));
        assert_ne!(a, b);
        assert_eq!(Digest::default().with(a).with(b), Digest::default().with(b).with(a));
        assert_eq!(Digest::default().with(a).with(b).without(a).without(b), Digest::default());
        assert_eq!(a.to_string().parse(), Ok(a));
        for wrong in ["", "1", "3BD93EDDD9BE8C18B6D5AA6C84B1B7C3", &"+".repeat(32), &"0".repeat(33)] {
            assert_eq!(wrong.parse::<Digest>(), Err(NotADigest), "{wrong}");
        }
    }
}
