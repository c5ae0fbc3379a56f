//! One pass over an object's text: checks it, removes white space, finds duplicate keys, and notes
//! where the fields lie that the server reads or writes.
//!
//! Iterative, so that nesting costs memory in proportion and never stack; bounded by [`DEPTH_MAX`].
//! Positions are those in the compact text.

use smallvec::SmallVec;

use shardcache_storage::Span;

use super::keys::Keys;
use super::scan::{Scanner, SyntaxError};

/// Objects and arrays that may lie in each other, the object itself included. Clients built on
/// `serde_json` read at most 127, and lists and watch events wrap objects in up to two more.
pub const DEPTH_MAX: usize = 120;

/// A member of an object: where its key (with quotes) starts, and its value (strings with quotes).
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) key: Span,
    pub(super) value: Span,
}

/// The members of `metadata` that the server knows; the others are only checked as JSON.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Name,
    GenerateName,
    Namespace,
    Uid,
    ResourceVersion,
    CreationTimestamp,
    Generation,
    Labels,
    Annotations,
    DeletionTimestamp,
    DeletionGracePeriodSeconds,
    SelfLink,
    Finalizers,
    OwnerReferences,
    ManagedFields,
}

/// Number of [`Field`]s.
pub(super) const FIELDS: usize = Field::ManagedFields as usize + 1;

impl Field {
    fn named(key: &[u8]) -> Option<Self> {
        Some(match key {
            b"name" => Self::Name,
            b"generateName" => Self::GenerateName,
            b"namespace" => Self::Namespace,
            b"uid" => Self::Uid,
            b"resourceVersion" => Self::ResourceVersion,
            b"creationTimestamp" => Self::CreationTimestamp,
            b"generation" => Self::Generation,
            b"labels" => Self::Labels,
            b"annotations" => Self::Annotations,
            b"deletionTimestamp" => Self::DeletionTimestamp,
            b"deletionGracePeriodSeconds" => Self::DeletionGracePeriodSeconds,
            b"selfLink" => Self::SelfLink,
            b"finalizers" => Self::Finalizers,
            b"ownerReferences" => Self::OwnerReferences,
            b"managedFields" => Self::ManagedFields,
            _ => return None,
        })
    }
}

/// Where things are in the compact text of an object. Of duplicate keys, the last.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) api_version: Option<Span>,
    pub(super) kind: Option<Span>,
    pub(super) metadata: Option<Span>,
    /// By [`Field`].
    pub(super) fields: [Option<Member>; FIELDS],
    /// Members of `metadata`.
    pub(super) metadata_len: usize,
    /// Members of `metadata.labels`, if that is an object.
    pub(super) labels: SmallVec<[Member; 8]>,
    /// Members of `metadata.annotations`, if that is an object.
    pub(super) annotations: SmallVec<[Member; 8]>,
}

/// What [`read`] makes of a text.
pub(super) struct Reading {
    pub(super) document: Document,
    /// The text without insignificant white space; `None` if there was none.
    pub(super) compact: Option<Vec<u8>>,
    /// Paths of duplicate keys.
    pub(super) duplicates: Vec<String>,
}

/// Reads a text that must be one JSON object and nothing else.
pub(super) fn read(text: &str) -> Result<Reading, SyntaxError> {
    let text = text.as_bytes();
    let mut walk = Walk {
        scanner: Scanner::new(text),
        keys: Keys::new(text),
        compact: Vec::new(),
        copied: 0,
        removed: 0,
    };
    let document = walk.root()?;
    let Walk { keys, mut compact, copied, removed, .. } = walk;
    if removed > 0 {
        compact.extend_from_slice(&text[copied..]);
    }
    let compact = (removed > 0).then_some(compact);
    Ok(Reading { document, compact, duplicates: keys.into_duplicates() })
}

/// Paths of the duplicate keys in a JSON value of any kind.
pub(crate) fn duplicate_keys(text: &str) -> Result<Vec<String>, SyntaxError> {
    let mut walk = Walk::new(text);
    walk.gap();
    walk.value()?;
    walk.end()?;
    Ok(walk.keys.into_duplicates())
}

struct Walk<'a> {
    scanner: Scanner<'a>,
    keys: Keys<'a>,
    /// The compact text up to `copied`; unused while nothing was removed.
    compact: Vec<u8>,
    copied: usize,
    removed: usize,
}

/// A key in the original text, quotes excluded, and its span in the compact text, quotes included.
struct KeyAt {
    at: usize,
    len: usize,
    span: Span,
    /// The key itself where it was written with escapes.
    decoded: Option<String>,
}

impl<'a> Walk<'a> {
    fn new(text: &'a str) -> Self {
        let text = text.as_bytes();
        Self {
            scanner: Scanner::new(text),
            keys: Keys::new(text),
            compact: Vec::new(),
            copied: 0,
            removed: 0,
        }
    }
}

impl Walk<'_> {
    fn root(&mut self) -> Result<Document, SyntaxError> {
        self.gap();
        if self.scanner.peek() != Some(b'{') {
            let kind = match self.scanner.peek() {
                Some(b'[') => "array",
                Some(b'"') => "string",
                Some(b't' | b'f') => "bool",
                Some(b'n') => "null",
                Some(b'-' | b'0'..=b'9') => "number",
                _ => return Err(self.scanner.unexpected("looking for beginning of value")),
            };
            return Err(format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            ));
        }
        let mut document = Document::default();
        self.open_object()?;
        while let Some(key) = self.next_key()? {
            match self.key_bytes(&key) {
                b"apiVersion" => document.api_version = Some(self.value()?),
                b"kind" => document.kind = Some(self.value()?),
                b"metadata" => document.metadata = Some(self.metadata(&mut document)?),
                _ => drop(self.value()?),
            }
        }
        self.end()?;
        Ok(document)
    }

    /// Nothing but white space may follow.
    fn end(&mut self) -> Result<(), SyntaxError> {
        self.gap();
        if self.scanner.peek().is_some() {
            Err(self.scanner.unexpected("after top-level value"))
        } else {
            Ok(())
        }
    }

    fn metadata(&mut self, document: &mut Document) -> Result<Span, SyntaxError> {
        document.fields = [None; FIELDS];
        document.metadata_len = 0;
        document.labels.clear();
        document.annotations.clear();
        if self.scanner.peek() != Some(b'{') {
            return self.value();
        }
        let start = self.position();
        self.open_object()?;
        while let Some(key) = self.next_key()? {
            let field = Field::named(self.key_bytes(&key));
            let value = match field {
                Some(Field::Labels) => self.map(&mut document.labels)?,
                Some(Field::Annotations) => self.map(&mut document.annotations)?,
                _ => self.value()?,
            };
            document.metadata_len += 1;
            if let Some(field) = field {
                document.fields[field as usize] = Some(Member { key: key.span, value });
            }
        }
        Ok(self.span_from(start))
    }

    /// A value whose members are noted if it is an object.
    fn map(&mut self, members: &mut SmallVec<[Member; 8]>) -> Result<Span, SyntaxError> {
        members.clear();
        if self.scanner.peek() != Some(b'{') {
            return self.value();
        }
        let start = self.position();
        self.open_object()?;
        while let Some(key) = self.next_key()? {
            let value = self.value()?;
            members.push(Member { key: key.span, value });
        }
        Ok(self.span_from(start))
    }

    /// Consumes one value of any kind.
    fn value(&mut self) -> Result<Span, SyntaxError> {
        let start = self.position();
        let outside = self.keys.depth();
        loop {
            let ended = match self.scanner.peek() {
                Some(b'{') => {
                    self.open_object()?;
                    self.next_key()?.is_none()
                }
                Some(b'[') => {
                    self.open_array()?;
                    !self.first_element()
                }
                Some(b'"') => {
                    self.scanner.string()?;
                    true
                }
                _ => {
                    self.scanner.scalar()?;
                    true
                }
            };
            if !ended {
                continue;
            }
            // A value ended: go on with the innermost container that has another one.
            loop {
                if self.keys.depth() == outside {
                    return Ok(self.span_from(start));
                }
                let more =
                    if self.keys.in_array() { self.next_element()? } else { self.next_key()?.is_some() };
                if more {
                    break;
                }
            }
        }
    }

    fn open_object(&mut self) -> Result<(), SyntaxError> {
        self.deeper()?;
        self.keys.open_object();
        Ok(())
    }

    fn open_array(&mut self) -> Result<(), SyntaxError> {
        self.deeper()?;
        self.keys.open_array();
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), SyntaxError> {
        if self.keys.depth() == DEPTH_MAX {
            return Err(too_deep());
        }
        self.scanner.advance();
        Ok(())
    }

    /// Moves to the value of the next member of the innermost object; `None` closes it.
    fn next_key(&mut self) -> Result<Option<KeyAt>, SyntaxError> {
        self.gap();
        let first = self.keys.is_first();
        if self.scanner.peek() == Some(b'}') {
            self.scanner.advance();
            self.keys.close();
            return Ok(None);
        }
        if !first {
            self.scanner.expect(b',', "after object key:value pair")?;
            self.gap();
        }
        if self.scanner.peek() != Some(b'"') {
            return Err(self.scanner.unexpected("looking for beginning of object key string"));
        }
        let start = self.position();
        let at = self.scanner.at() + 1;
        let escaped = self.scanner.string()?;
        let len = self.scanner.at() - 1 - at;
        let span = self.span_from(start);
        let decoded = if escaped { Some(decode(&self.scanner.text()[at - 1..=at + len])) } else { None };
        self.keys.push(at, len, decoded.as_deref());
        self.gap();
        self.scanner.expect(b':', "after object key")?;
        self.gap();
        Ok(Some(KeyAt { at, len, span, decoded }))
    }

    /// Moves to the first element of the array just opened; `false` closes it.
    fn first_element(&mut self) -> bool {
        self.gap();
        if self.scanner.peek() != Some(b']') {
            return true;
        }
        self.scanner.advance();
        self.keys.close();
        false
    }

    /// Moves to the next element of the innermost array; `false` closes it.
    fn next_element(&mut self) -> Result<bool, SyntaxError> {
        self.gap();
        if self.scanner.peek() == Some(b']') {
            self.scanner.advance();
            self.keys.close();
            return Ok(false);
        }
        self.scanner.expect(b',', "after array element")?;
        self.keys.next_element();
        self.gap();
        Ok(true)
    }

    fn key_bytes<'k>(&'k self, key: &'k KeyAt) -> &'k [u8] {
        match &key.decoded {
            Some(decoded) => decoded.as_bytes(),
            None => &self.scanner.text()[key.at..key.at + key.len],
        }
    }

    /// Skips white space between tokens and leaves it out of the compact text.
    fn gap(&mut self) {
        let start = self.scanner.at();
        if self.scanner.skip_space() {
            self.compact.extend_from_slice(&self.scanner.text()[self.copied..start]);
            self.copied = self.scanner.at();
            self.removed += self.copied - start;
        }
    }

    fn position(&self) -> usize {
        self.scanner.at() - self.removed
    }

    fn span_from(&self, start: usize) -> Span {
        Span { at: start as u32, len: (self.position() - start) as u32 }
    }
}

/// The error of a document that is nested deeper than [`DEPTH_MAX`].
pub(super) fn too_deep() -> SyntaxError {
    format!("exceeded max depth of {DEPTH_MAX}")
}

/// The text of a string token, quotes included, that a [`Scanner`] accepted.
pub(super) fn decode(token: &[u8]) -> String {
    serde_json::from_slice(token).expect("the scanner accepts only strings that serde_json reads")
}
