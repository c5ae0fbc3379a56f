//! Objects as the client asked for them: in another served version, or metadata only.
//!
//! A stored body is served as it is wherever that is what was asked for; then nothing is copied.

use bytes::Bytes;
use shardcache_storage::Object;

use crate::types::TypeInfo;

/// What of an object a response carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The whole object.
    #[default]
    Object,
    /// `meta.k8s.io/v1` `PartialObjectMetadata`.
    PartialMetadata,
}

/// The body of an object of this type in one of its served versions.
pub fn object(_object: &Object, _type_info: &TypeInfo, _version: &str, _shape: Shape) -> Bytes {
    todo!()
}
