//! From a read object to the bytes that are stored: a few edits, in one copy.
//!
//! Edits are collected as (position, bytes to cut, bytes to put) over the compact text; what is put
//! lies in one scratch buffer, where the places that the store must know are marked.

use std::borrow::Cow;
use std::ops::Range;

use shardcache_storage::{BODY_MAX, Draft, Key, PLACEHOLDER, RecordError, Span, Spans};
use smallvec::SmallVec;

use super::document::{Field, Member};
use super::{
    CLUSTER_ANNOTATION, ORIGINAL_UID_ANNOTATION, ORIGINAL_VERSION_ANNOTATION, Object, SHARD_ANNOTATION,
};

/// Values that the server puts into an object; `None` leaves what was sent, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assigned<'a> {
    /// `metadata.uid`.
    pub uid: Option<&'a str>,
    /// `metadata.creationTimestamp`.
    pub creation_timestamp: Option<&'a str>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What a pushed object is called at its source.
    pub original: Option<Original<'a>>,
}

/// A pushed object's names at its source; they become kcp's annotations (D8).
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// Its resourceVersion there.
    pub version: &'a str,
    /// Its uid there; empty if it has none.
    pub uid: &'a str,
}

impl Object<'_> {
    /// Encodes the object as the one with this key.
    ///
    /// The key's name, namespace, shard and cluster win over what was sent; whether they may is for the
    /// caller to judge first. Errors if a part is larger than a record can hold.
    pub fn encode(&self, key: &Key, assigned: Assigned<'_>) -> Result<Draft, RecordError> {
        let mut editor = Editor::new(self);
        let marks = editor.edit(key, assigned);
        let (body, spans) = editor.apply(&marks)?;
        let labels: SmallVec<[_; 8]> = self.labels().collect();
        Draft::new(key, &labels, &body, spans)
    }
}

/// One edit of the compact text.
struct Edit {
    at: usize,
    cut: usize,
    /// What is put there: a range of the scratch buffer.
    put: Range<usize>,
}

/// Where something that was put lies.
#[derive(Clone)]
enum Put {
    /// In the scratch buffer.
    Scratch(Range<usize>),
    /// In the tail.
    Tail(Range<usize>),
}

/// Where the parts lie that the store must know; `None` is as sent. Strings include their quotes.
struct Marks {
    resource_version: Range<usize>,
    uid: Option<Range<usize>>,
    api_version: Option<Range<usize>>,
    /// `metadata`, if there was none.
    metadata: Option<Range<usize>>,
}

struct Editor<'o, 'a> {
    object: &'o Object<'a>,
    put: Vec<u8>,
    edits: SmallVec<[Edit; 12]>,
    /// Members that `metadata` lacks; they go to its end in one edit.
    tail: Vec<u8>,
    /// Members of `metadata`, those of the tail included.
    members: usize,
}

impl<'o, 'a> Editor<'o, 'a> {
    fn new(object: &'o Object<'a>) -> Self {
        Self {
            object,
            put: Vec::with_capacity(512),
            edits: SmallVec::new(),
            tail: Vec::with_capacity(256),
            members: object.document.metadata_len,
        }
    }

    fn edit(&mut self, key: &Key, assigned: Assigned<'_>) -> Marks {
        let object = self.object;
        let parts = key.parts();
        if parts.namespace.is_empty() {
            self.remove(Field::Namespace);
        }
        if object.name() != parts.name {
            self.set(Field::Name, "name", &quoted(parts.name));
        }
        if !parts.namespace.is_empty() && object.namespace() != parts.namespace {
            self.set(Field::Namespace, "namespace", &quoted(parts.namespace));
        }
        // Spans hold the value itself, so what was sent with escapes is written plainly.
        let escaped = |span: Option<Span>| span.is_some_and(|span| object.raw(span).contains(&b'\\'));
        let uid = match assigned.uid {
            Some(uid) => Some(Cow::Borrowed(uid)),
            None => escaped(self.sent(Field::Uid)).then(|| object.uid()),
        };
        let uid = uid.map(|uid| self.set(Field::Uid, "uid", &quoted(&uid)));
        let api_version = object.document.api_version.filter(|span| escaped(Some(*span)));
        let api_version = api_version.map(|span| self.replace(span, &quoted(&object.api_version())));
        if let Some(time) = assigned.creation_timestamp {
            self.set(Field::CreationTimestamp, "creationTimestamp", &quoted(time));
        }
        if let Some(generation) = assigned.generation {
            self.set(Field::Generation, "generation", generation.to_string().as_bytes());
        }
        let original = assigned.original.map(|original| {
            [(ORIGINAL_VERSION_ANNOTATION, original.version), (ORIGINAL_UID_ANNOTATION, original.uid)]
        });
        let own = [(SHARD_ANNOTATION, parts.shard), (CLUSTER_ANNOTATION, parts.cluster)];
        self.annotate(own.into_iter().chain(original.into_iter().flatten()));
        let version = [b"\"".as_slice(), PLACEHOLDER, b"\""].concat();
        let version = self.set(Field::ResourceVersion, "resourceVersion", &version);
        let (tail_at, metadata) = self.append_tail();
        let placed = |put: Put| match put {
            Put::Scratch(range) => range,
            Put::Tail(range) => tail_at + range.start..tail_at + range.end,
        };
        Marks { resource_version: placed(version), uid: uid.map(placed), api_version, metadata }
    }

    /// The annotations that say where an object is from.
    fn annotate<'n>(&mut self, annotations: impl Iterator<Item = (&'n str, &'n str)>) {
        let object = self.object;
        let mut added = Vec::new();
        let mut count = object.document.annotations.len();
        for (name, value) in annotations {
            let sent = object.document.annotations.iter().find(|member| object.string(member.key) == name);
            match sent {
                Some(member) if object.string(member.value) == value => {}
                Some(member) => drop(self.replace(member.value, &quoted(value))),
                None => drop(push_member(&mut added, &mut count, name, &quoted(value))),
            }
        }
        if added.is_empty() {
            return;
        }
        match self.sent(Field::Annotations) {
            Some(map) if object.raw(map).starts_with(b"{") => {
                self.replace(Span { at: map.at + map.len - 1, len: 0 }, &added);
            }
            _ => drop(self.set(Field::Annotations, "annotations", &braced(&added))),
        }
    }

    fn sent(&self, field: Field) -> Option<Span> {
        self.object.field(field).map(|member| member.value)
    }

    /// Replaces a member of `metadata`, or adds it to the tail; where the value lies.
    fn set(&mut self, field: Field, name: &str, value: &[u8]) -> Put {
        match self.sent(field) {
            Some(span) => Put::Scratch(self.replace(span, value)),
            None => Put::Tail(push_member(&mut self.tail, &mut self.members, name, value)),
        }
    }

    /// Takes a member out of `metadata`, with one comma. Before anything goes to the tail, because
    /// whether that begins with a comma depends on what is left.
    fn remove(&mut self, field: Field) {
        let Some(Member { key, value }) = self.object.field(field) else { return };
        let (mut from, mut to) = (key.at as usize, (value.at + value.len) as usize);
        if self.object.text.get(to) == Some(&b',') {
            to += 1;
        } else if self.object.text[from - 1] == b',' {
            from -= 1;
        }
        let here = self.put.len();
        self.edits.push(Edit { at: from, cut: to - from, put: here..here });
        self.members -= 1;
    }

    /// Puts the tail at the end of `metadata`; where it begins in the scratch buffer, and where
    /// `metadata` lies there if there was none.
    fn append_tail(&mut self) -> (usize, Option<Range<usize>>) {
        let object = self.object;
        let tail = std::mem::take(&mut self.tail);
        match object.document.metadata {
            Some(span) if object.raw(span).starts_with(b"{") => {
                let end = Span { at: span.at + span.len - 1, len: 0 };
                (self.replace(end, &tail).start, None)
            }
            Some(null) => {
                let put = self.replace(null, &braced(&tail));
                (put.start + 1, Some(put))
            }
            None => {
                let end = Span { at: object.text.len() as u32 - 1, len: 0 };
                let mut member = Vec::new();
                let mut members = usize::from(object.text.len() > 2);
                let value = push_member(&mut member, &mut members, "metadata", &braced(&tail));
                let at = self.replace(end, &member).start;
                (at + value.start + 1, Some(at + value.start..at + value.end))
            }
        }
    }

    /// Puts bytes in place of a span; where they lie in the scratch buffer.
    fn replace(&mut self, span: Span, bytes: &[u8]) -> Range<usize> {
        let start = self.put.len();
        self.put.extend_from_slice(bytes);
        let put = start..self.put.len();
        self.edits.push(Edit { at: span.at as usize, cut: span.len as usize, put: put.clone() });
        put
    }

    fn apply(mut self, marks: &Marks) -> Result<(Vec<u8>, Spans), RecordError> {
        let text = &*self.object.text;
        let cut: usize = self.edits.iter().map(|edit| edit.cut).sum();
        let len = text.len() + self.put.len() - cut;
        if len > BODY_MAX {
            return Err(RecordError::TooLarge { what: "object", len, max: BODY_MAX });
        }
        self.edits.sort_by_key(|edit| edit.at);
        let mut body = Vec::with_capacity(len);
        let mut copied = 0;
        for edit in &self.edits {
            body.extend_from_slice(&text[copied..edit.at]);
            body.extend_from_slice(&self.put[edit.put.clone()]);
            copied = edit.at + edit.cut;
        }
        body.extend_from_slice(&text[copied..]);
        let document = &self.object.document;
        let spans = Spans {
            resource_version_at: self.placed(marks.resource_version.start + 1),
            metadata: self.span(marks.metadata.as_ref(), document.metadata),
            api_version: self.text_span(marks.api_version.as_ref(), document.api_version),
            uid: self.text_span(marks.uid.as_ref(), self.sent(Field::Uid)),
        };
        Ok((body, spans))
    }

    /// The inside of a string in the result; empty if it is none.
    fn text_span(&self, put: Option<&Range<usize>>, sent: Option<Span>) -> Span {
        let sent = sent.filter(|span| self.object.raw(*span).starts_with(b"\""));
        let Span { at, len } = self.span(put, sent);
        if len == 0 { Span::default() } else { Span { at: at + 1, len: len - 2 } }
    }

    /// Where something is in the result, given where it was put, or else where it was sent.
    fn span(&self, put: Option<&Range<usize>>, sent: Option<Span>) -> Span {
        match (put, sent) {
            (Some(put), _) => Span { at: self.placed(put.start), len: put.len() as u32 },
            (None, Some(sent)) => {
                let (start, end) = (self.moved(sent.at), self.moved(sent.at + sent.len));
                Span { at: start, len: end - start }
            }
            (None, None) => Span::default(),
        }
    }

    /// Where a byte of the scratch buffer is in the result. Edits are sorted.
    fn placed(&self, at: usize) -> u32 {
        let edit = self.edits.iter().find(|edit| edit.put.contains(&at));
        let edit = edit.expect("all of the scratch buffer was put by an edit");
        self.moved(edit.at as u32) + (at - edit.put.start) as u32
    }

    /// Where a position between tokens of the text is in the result. Edits are sorted.
    fn moved(&self, at: u32) -> u32 {
        let before = self.edits.iter().take_while(|edit| edit.at < at as usize);
        let (put, cut) = before.fold((0, 0), |(put, cut), edit| (put + edit.put.len(), cut + edit.cut));
        (at as usize + put - cut) as u32
    }
}

/// Appends `"name":value`, after a comma unless it is the object's first member; where the value lies.
fn push_member(to: &mut Vec<u8>, members: &mut usize, name: &str, value: &[u8]) -> Range<usize> {
    if *members > 0 {
        to.push(b',');
    }
    *members += 1;
    to.push(b'"');
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b"\":");
    let start = to.len();
    to.extend_from_slice(value);
    start..to.len()
}

fn braced(members: &[u8]) -> Vec<u8> {
    [b"{", members, b"}"].concat()
}

fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("writing a string to memory cannot fail")
}
