//! From bytes to a draft: the one place where a client's object is looked into.
//!
//! ```text
//! bytes ──read──► Object: facts for the handlers ──encode(key, assigned)──► storage::Draft
//! ```
//!
//! Guarantees: what [`read`] accepts is one JSON object that every client can read back (valid UTF-8,
//! no half surrogates, nested at most [`DEPTH_MAX`] deep, metadata of the types Kubernetes gives it);
//! what [`Object::encode`] makes is that object byte for byte, except that insignificant white space
//! is gone (a watch event is one line), and
//! - `metadata.resourceVersion` is a placeholder that the store fills in,
//! - `metadata.annotations` has `kcp.io/shard` and `kcp.io/cluster` as the key says, and, of a pushed
//!   object, its version and uid at the source,
//! - `metadata.name` and `.namespace` are filled in where they were left to the server,
//! - `metadata.uid`, `.creationTimestamp` and `.generation` are replaced where the caller assigns them,
//! - of duplicate keys the last is kept (such an object is re-encoded).
//!
//! Key order, numbers (`1e400`, `1.0`, `-0`), escapes and unknown fields stay as sent.
//!
//! Does not judge names, labels or versions (`http::names`, `http::write`), and knows no HTTP.

mod document;
mod encode;
mod keys;
mod metadata;
mod scan;
mod timestamp;
mod tree;

use std::borrow::Cow;

use shardcache_storage::Span;

pub use document::DEPTH_MAX;
pub(crate) use document::duplicate_keys;
pub use encode::{Assigned, Original};
pub(crate) use timestamp::{rfc3339, unix_seconds};
pub(crate) use tree::parse as parse_value;

use document::{Document, Field, Member};

/// Annotation that names the owning shard.
pub const SHARD_ANNOTATION: &str = "kcp.io/shard";
/// Annotation that names the owning logical cluster.
pub const CLUSTER_ANNOTATION: &str = "kcp.io/cluster";

/// Annotation of a pushed object: its resourceVersion at the source.
pub const ORIGINAL_VERSION_ANNOTATION: &str = "cache.kcp.io/original-resource-version";
/// Annotation of a pushed object: its uid at the source.
pub const ORIGINAL_UID_ANNOTATION: &str = "cache.kcp.io/original-resource-UID";

/// Why bytes are not an object; the texts are kube-apiserver's where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// Not UTF-8.
    #[error("couldn't get version/kind; json parse error: invalid UTF-8 in the body at byte {0}")]
    Utf8(usize),
    /// Not JSON, not an object, or nested too deep.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(String),
    /// A field of `metadata`, `kind` or `apiVersion` has another type than Kubernetes gives it.
    #[error("{0}")]
    Field(String),
}

/// A checked object and where its parts are.
#[derive(Debug)]
pub struct Object<'a> {
    /// Compact JSON.
    text: Cow<'a, [u8]>,
    document: Document,
    duplicates: Vec<String>,
}

/// Reads the body of a write.
pub fn read(body: &[u8]) -> Result<Object<'_>, IngestError> {
    let text = std::str::from_utf8(body).map_err(|error| IngestError::Utf8(error.valid_up_to()))?;
    let reading = document::read(text).map_err(IngestError::Json)?;
    let object = if reading.duplicates.is_empty() {
        let text = reading.compact.map_or(Cow::Borrowed(body), Cow::Owned);
        Object { text, document: reading.document, duplicates: Vec::new() }
    } else {
        let last_wins = tree::parse(text).map_err(IngestError::Json)?.to_string();
        Object { duplicates: reading.duplicates, ..unique(last_wins)? }
    };
    object.check_types()?;
    Ok(object)
}

/// Reads a value that was patched together here.
pub(crate) fn read_value(value: &serde_json::Value) -> Result<Object<'static>, IngestError> {
    let object = unique(value.to_string())?;
    object.check_types()?;
    Ok(object)
}

/// Reads compact text without duplicate keys.
fn unique(text: String) -> Result<Object<'static>, IngestError> {
    let document = document::read(&text).map_err(IngestError::Json)?.document;
    Ok(Object { text: Cow::Owned(text.into_bytes()), document, duplicates: Vec::new() })
}

impl Object<'_> {
    /// The compact text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Paths of keys that were sent more than once, such as `spec.replicas`; at most 100.
    pub fn duplicates(&self) -> &[String] {
        &self.duplicates
    }

    /// `apiVersion`, `""` if absent.
    pub fn api_version(&self) -> Cow<'_, str> {
        self.document.api_version.map_or(Cow::Borrowed(""), |span| self.string(span))
    }

    /// `kind`, `""` if absent.
    pub fn kind(&self) -> Cow<'_, str> {
        self.document.kind.map_or(Cow::Borrowed(""), |span| self.string(span))
    }

    /// `metadata.name`, `""` if absent.
    pub fn name(&self) -> Cow<'_, str> {
        self.text_of(Field::Name)
    }

    /// `metadata.generateName`, `""` if absent.
    pub fn generate_name(&self) -> Cow<'_, str> {
        self.text_of(Field::GenerateName)
    }

    /// `metadata.namespace`, `""` if absent.
    pub fn namespace(&self) -> Cow<'_, str> {
        self.text_of(Field::Namespace)
    }

    /// `metadata.uid`, `""` if absent.
    pub fn uid(&self) -> Cow<'_, str> {
        self.text_of(Field::Uid)
    }

    /// `metadata.resourceVersion` as sent, `""` if absent.
    pub fn resource_version(&self) -> Cow<'_, str> {
        self.text_of(Field::ResourceVersion)
    }

    /// `metadata.creationTimestamp` as sent, `""` if absent or null.
    pub fn creation_timestamp(&self) -> Cow<'_, str> {
        self.text_of(Field::CreationTimestamp)
    }

    /// Whether `metadata.generation` is there and not null.
    pub(crate) fn has_generation(&self) -> bool {
        self.field(Field::Generation).is_some_and(|member| self.raw(member.value) != b"null")
    }

    /// `metadata.finalizers`: JSON, a list of strings or null.
    pub(crate) fn finalizers(&self) -> Option<&[u8]> {
        self.field(Field::Finalizers).map(|member| self.raw(member.value))
    }

    /// `metadata.ownerReferences`: JSON, a list of owner references or null.
    pub(crate) fn owner_references(&self) -> Option<&[u8]> {
        self.field(Field::OwnerReferences).map(|member| self.raw(member.value))
    }

    /// `metadata.labels` in the order sent.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.document.labels.iter().map(|member| (self.string(member.key), self.string(member.value)))
    }

    /// `metadata.annotations` in the order sent.
    pub fn annotations(&self) -> impl ExactSizeIterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.document.annotations.iter().map(|member| (self.string(member.key), self.string(member.value)))
    }

    /// The value of one annotation; of duplicates the last, as whoever reads the object will find it.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        self.annotations().filter(|(name, _)| name == key).last().map(|(_, value)| value)
    }

    fn field(&self, field: Field) -> Option<Member> {
        self.document.fields[field as usize]
    }

    /// The string in a field, `""` if it is absent or null (checked to be one of these).
    fn text_of(&self, field: Field) -> Cow<'_, str> {
        match self.field(field) {
            Some(member) if self.raw(member.value) != b"null" => self.string(member.value),
            _ => Cow::Borrowed(""),
        }
    }

    fn raw(&self, span: Span) -> &[u8] {
        &self.text[span.range()]
    }

    /// The text of a string token; anything else (`null`) is the empty string.
    fn string(&self, span: Span) -> Cow<'_, str> {
        match self.raw(span) {
            [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => String::from_utf8_lossy(plain),
            token @ [b'"', ..] => Cow::Owned(document::decode(token)),
            _ => Cow::Borrowed(""),
        }
    }
}

#[cfg(test)]
mod tests;
