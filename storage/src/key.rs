//! What an object is called: its type and its key. Byte order of keys is list order.
//!
//! A [`TypeName`] is the *rtype* of the design: group, resource and API identity; the version is not
//! part of it. A [`Key`] is shard, logical cluster, namespace and name, joined by NUL so that the
//! byte order of the joined text is the order (shard, cluster, namespace, name) and every scope is a
//! range of it. Cluster-scoped objects have the empty namespace.
//!
//! Neither checks what Kubernetes allows in a name (the edge does that): they only refuse NUL.

use std::fmt;
use std::sync::Arc;

/// API group of what the server itself writes, about the shards it knows.
pub const OWN_GROUP: &str = "cache.shardcache.dev";
/// Separates the parts of a [`Key`]; no legal name contains it.
pub const SEPARATOR: char = '\0';

/// Group, resource (plural) and API identity. Cheap to clone.
///
/// The core group is `""`; a type without an API identity has the identity `""`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeName(Arc<(Box<str>, Box<str>, Box<str>)>);

impl TypeName {
    /// A type without an API identity.
    pub fn new(group: &str, resource: &str) -> Self {
        Self::with_identity(group, resource, "")
    }

    /// A type of one `APIExport`'s identity (hash), so that equal names of two exports never mix.
    pub fn with_identity(group: &str, resource: &str, identity: &str) -> Self {
        Self(Arc::new((group.into(), resource.into(), identity.into())))
    }

    /// API group; `""` is the core group.
    pub fn group(&self) -> &str {
        &self.0.0
    }

    /// Plural resource name, such as `apiexports`.
    pub fn resource(&self) -> &str {
        &self.0.1
    }

    /// Identity hash; `""` where the type has none.
    pub fn identity(&self) -> &str {
        &self.0.2
    }

    /// `resource.group`, or `resource` alone in the core group: the form of Kubernetes' messages.
    pub fn qualified(&self) -> String {
        if self.group().is_empty() {
            self.resource().to_owned()
        } else {
            format!("{}.{}", self.resource(), self.group())
        }
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.qualified())?;
        if !self.identity().is_empty() {
            write!(f, ":{}", self.identity())?;
        }
        Ok(())
    }
}

/// A part of a key contained the separator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name contains NUL")]
pub struct NulInName;

/// Shard, logical cluster, namespace (`""` if none) and name, joined by [`SEPARATOR`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Joins the four parts.
    pub fn new(shard: &str, cluster: &str, namespace: &str, name: &str) -> Result<Self, NulInName> {
        let parts = [shard, cluster, namespace, name];
        if parts.iter().any(|part| part.contains(SEPARATOR)) {
            return Err(NulInName);
        }
        Ok(Self(parts.join("\0").into_boxed_str()))
    }

    /// The joined text; its byte order is list order.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The four parts.
    pub fn parts(&self) -> KeyParts<'_> {
        KeyParts::split(&self.0).expect("built by `new`, so it has four parts")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.replace(SEPARATOR, "|"))
    }
}

/// The parts of a joined key, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyParts<'a> {
    /// Owning shard.
    pub shard: &'a str,
    /// Owning logical cluster.
    pub cluster: &'a str,
    /// Namespace; `""` for cluster-scoped objects.
    pub namespace: &'a str,
    /// Object name.
    pub name: &'a str,
}

impl<'a> KeyParts<'a> {
    /// Splits a joined key; `None` if it does not have exactly four parts.
    pub fn split(joined: &'a str) -> Option<Self> {
        let mut parts = joined.split(SEPARATOR);
        let key = Self {
            shard: parts.next()?,
            cluster: parts.next()?,
            namespace: parts.next()?,
            name: parts.next()?,
        };
        parts.next().is_none().then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_is_the_order_of_the_parts() {
        // "a" is a prefix of "a-b", and '-' sorts below every letter but above NUL.
        let mut keys: Vec<_> =
            [("a-b", "c", "", "x"), ("a", "z", "", "x"), ("a", "c", "n", "x"), ("a", "c", "", "y")]
                .into_iter()
                .map(|(s, c, ns, n)| Key::new(s, c, ns, n).expect("legal"))
                .collect();
        keys.sort();
        let by_parts = {
            let mut copy = keys.clone();
            copy.sort_by(|a, b| a.parts().cmp(&b.parts()));
            copy
        };
        assert_eq!(keys, by_parts);
        assert_eq!(keys[0].parts(), KeyParts { shard: "a", cluster: "c", namespace: "", name: "y" });
    }

    #[test]
    fn nul_is_refused_and_malformed_keys_do_not_split() {
        assert_eq!(Key::new("a\0", "", "", ""), Err(NulInName));
        assert_eq!(KeyParts::split("a\0b\0c"), None);
        assert_eq!(KeyParts::split("a\0b\0c\0d\0e"), None);
    }
}
