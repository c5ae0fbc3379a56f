//! From a read object to the bytes that are stored: a few edits, in one copy.
//!
//! Edits are collected as (position, bytes to cut, bytes to put) over the compact text; what is put
//! lies in one scratch buffer, where the places that the store must know are marked.

use std::ops::Range;

use shardcache_storage::{BODY_MAX, Draft, Key, PLACEHOLDER, RecordError, Span, Spans};
use smallvec::SmallVec;

use super::document::{Field, Member};
use super::{CLUSTER_ANNOTATION, Object, SHARD_ANNOTATION};

/// Values that the server puts into an object; `None` leaves what was sent, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assigned<'a> {
    /// `metadata.uid`.
    pub uid: Option<&'a str>,
    /// `metadata.creationTimestamp`.
    pub creation_timestamp: Option<&'a str>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
}

impl Object<'_> {
    /// Encodes the object as the one with this key.
    ///
    /// The key's name, namespace, shard and cluster win over what was sent; whether they may is for the
    /// caller to judge first. Errors if a part is larger than a record can hold.
    pub fn encode(&self, key: &Key, assigned: Assigned<'_>) -> Result<Draft, RecordError> {
        let mut editor = Editor { object: self, put: Vec::with_capacity(512), edits: SmallVec::new() };
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

/// Places in the scratch buffer.
#[derive(Default)]
struct Marks {
    resource_version: usize,
    uid: Option<Range<usize>>,
    api_version: Option<Range<usize>>,
    /// `metadata`, if there was none.
    metadata: Option<Range<usize>>,
}

struct Editor<'o, 'a> {
    object: &'o Object<'a>,
    put: Vec<u8>,
    edits: SmallVec<[Edit; 12]>,
}

impl Editor<'_, '_> {
    fn edit(&mut self, key: &Key, assigned: Assigned<'_>) -> Marks {
        let mut marks = Marks::default();
        self.plain_api_version(&mut marks);
        // Members that are missing go to the end of `metadata`, all in one edit, written last.
        let mut tail = Vec::with_capacity(256);
        let mut members = self.object.document.metadata_len;
        let parts = key.parts();
        if parts.namespace.is_empty() {
            members -= usize::from(self.remove(Field::Namespace));
        }
        if self.object.name() != parts.name {
            self.set(Field::Name, "name", &quoted(parts.name), &mut tail, &mut members);
        }
        if !parts.namespace.is_empty() && self.object.namespace() != parts.namespace {
            self.set(Field::Namespace, "namespace", &quoted(parts.namespace), &mut tail, &mut members);
        }
        let uid_in_tail = self.set_uid(assigned.uid, &mut marks, &mut tail, &mut members);
        if let Some(time) = assigned.creation_timestamp {
            self.set(Field::CreationTimestamp, "creationTimestamp", &quoted(time), &mut tail, &mut members);
        }
        if let Some(generation) = assigned.generation {
            let generation = generation.to_string();
            self.set(Field::Generation, "generation", generation.as_bytes(), &mut tail, &mut members);
        }
        self.annotate(parts.shard, parts.cluster, &mut tail, &mut members);
        let version_in_tail = self.set_version(&mut marks, &mut tail, &mut members);
        let tail_at = self.append(&tail, &mut marks);
        if version_in_tail.is_some() || uid_in_tail.is_some() {
            let moved = |range: Range<usize>| tail_at + range.start..tail_at + range.end;
            if let Some(range) = version_in_tail {
                marks.resource_version = moved(range).start;
            }
            if let Some(range) = uid_in_tail {
                marks.uid = Some(moved(range));
            }
        }
        marks
    }

    /// Spans hold the value itself, so an `apiVersion` that was sent with escapes is written plainly.
    fn plain_api_version(&mut self, marks: &mut Marks) {
        let Some(span) = self.object.document.api_version else { return };
        if self.object.raw(span).contains(&b'\\') {
            let put = self.replace(span, &quoted(&self.object.api_version()));
            marks.api_version = Some(put.start + 1..put.end - 1);
        }
    }

    /// Same for the uid; the range of the value if it went to the tail.
    fn set_uid(
        &mut self,
        assigned: Option<&str>,
        marks: &mut Marks,
        tail: &mut Vec<u8>,
        members: &mut usize,
    ) -> Option<Range<usize>> {
        let sent = self.object.field(Field::Uid);
        let uid = match assigned {
            Some(uid) => uid.into(),
            None if sent.is_some_and(|sent| self.object.raw(sent.value).contains(&b'\\')) => {
                self.object.uid()
            }
            None => return None,
        };
        let value = quoted(&uid);
        if let Some(member) = sent {
            let put = self.replace(member.value, &value);
            marks.uid = Some(put.start + 1..put.end - 1);
            return None;
        }
        let at = push_member(tail, members, "uid", &value);
        Some(at.start + 1..at.end - 1)
    }

    /// The placeholder; its range if it went to the tail.
    fn set_version(
        &mut self,
        marks: &mut Marks,
        tail: &mut Vec<u8>,
        members: &mut usize,
    ) -> Option<Range<usize>> {
        let mut value = [b'"'; PLACEHOLDER.len() + 2];
        value[1..=PLACEHOLDER.len()].copy_from_slice(PLACEHOLDER);
        if let Some(member) = self.object.field(Field::ResourceVersion) {
            marks.resource_version = self.replace(member.value, &value).start + 1;
            return None;
        }
        let at = push_member(tail, members, "resourceVersion", &value);
        Some(at.start + 1..at.end - 1)
    }

    /// The two annotations that say where an object is from.
    fn annotate(&mut self, shard: &str, cluster: &str, tail: &mut Vec<u8>, members: &mut usize) {
        let object = self.object;
        let mut added = Vec::new();
        let mut count = object.document.annotations.len();
        for (name, value) in [(SHARD_ANNOTATION, shard), (CLUSTER_ANNOTATION, cluster)] {
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
        match object.field(Field::Annotations) {
            Some(member) if object.raw(member.value).starts_with(b"{") => {
                let end = Span { at: member.value.at + member.value.len - 1, len: 0 };
                self.replace(end, &added);
            }
            Some(member) => drop(self.replace(member.value, &braced(&added))),
            None => drop(push_member(tail, members, "annotations", &braced(&added))),
        }
    }

    /// Replaces a member of `metadata`, or adds it to the tail.
    fn set(&mut self, field: Field, name: &str, value: &[u8], tail: &mut Vec<u8>, members: &mut usize) {
        match self.object.field(field) {
            Some(member) => drop(self.replace(member.value, value)),
            None => drop(push_member(tail, members, name, value)),
        }
    }

    /// Takes a member out of `metadata`, with one comma; whether it was there.
    fn remove(&mut self, field: Field) -> bool {
        let Some(Member { key, value }) = self.object.field(field) else { return false };
        let (mut from, mut to) = (key.at as usize, (value.at + value.len) as usize);
        if self.object.text.get(to) == Some(&b',') {
            to += 1;
        } else if self.object.text[from - 1] == b',' {
            from -= 1;
        }
        let here = self.put.len();
        self.edits.push(Edit { at: from, cut: to - from, put: here..here });
        true
    }

    /// Puts the tail at the end of `metadata`; where it lies in the scratch buffer.
    fn append(&mut self, tail: &[u8], marks: &mut Marks) -> usize {
        let object = self.object;
        match object.document.metadata {
            Some(span) if object.raw(span).starts_with(b"{") => {
                self.replace(Span { at: span.at + span.len - 1, len: 0 }, tail).start
            }
            Some(null) => {
                let put = self.replace(null, &braced(tail));
                marks.metadata = Some(put.clone());
                put.start + 1
            }
            None => {
                let end = Span { at: object.text.len() as u32 - 1, len: 0 };
                let comma = if object.text.len() > 2 { "," } else { "" };
                let mut member = format!("{comma}\"metadata\":").into_bytes();
                let value_at = member.len();
                member.extend_from_slice(&braced(tail));
                let put = self.replace(end, &member);
                marks.metadata = Some(put.start + value_at..put.end);
                put.start + value_at + 1
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
        if text.len() + self.put.len() > BODY_MAX + self.edits.iter().map(|edit| edit.cut).sum::<usize>() {
            return Err(RecordError::TooLarge { what: "object", len: text.len(), max: BODY_MAX });
        }
        self.edits.sort_by_key(|edit| edit.at);
        let mut body = Vec::with_capacity(text.len() + self.put.len());
        let mut copied = 0;
        for edit in &self.edits {
            body.extend_from_slice(&text[copied..edit.at]);
            body.extend_from_slice(&self.put[edit.put.clone()]);
            copied = edit.at + edit.cut;
        }
        body.extend_from_slice(&text[copied..]);
        let uid_sent = self.object.field(Field::Uid).map(|member| member.value);
        let spans = Spans {
            resource_version_at: self.placed(marks.resource_version) as u32,
            metadata: self.span(marks.metadata.as_ref(), self.object.document.metadata, 0),
            api_version: self.span(
                marks.api_version.as_ref(),
                self.if_string(self.object.document.api_version),
                1,
            ),
            uid: self.span(marks.uid.as_ref(), self.if_string(uid_sent), 1),
        };
        Ok((body, spans))
    }

    fn if_string(&self, span: Option<Span>) -> Option<Span> {
        span.filter(|span| self.object.raw(*span).starts_with(b"\""))
    }

    /// A span of the result: what was put, or else what was sent less `quotes` bytes at both ends.
    fn span(&self, put: Option<&Range<usize>>, sent: Option<Span>, quotes: u32) -> Span {
        if let Some(put) = put {
            return Span { at: self.placed(put.start) as u32, len: put.len() as u32 };
        }
        let Some(sent) = sent else { return Span::default() };
        let (start, end) = (self.moved(sent.at), self.moved(sent.at + sent.len));
        Span { at: start + quotes, len: end - start - 2 * quotes }
    }

    /// Where a byte of the scratch buffer is in the result. Edits are sorted.
    fn placed(&self, at: usize) -> usize {
        let mut shift = 0isize;
        for edit in &self.edits {
            if edit.put.contains(&at) {
                return (edit.at + at - edit.put.start).wrapping_add_signed(shift);
            }
            shift += edit.put.len() as isize - edit.cut as isize;
        }
        unreachable!("marks lie in what was put")
    }

    /// Where a position between tokens of the text is in the result. Edits are sorted.
    fn moved(&self, at: u32) -> u32 {
        let mut moved = i64::from(at);
        for edit in self.edits.iter().take_while(|edit| edit.at < at as usize) {
            moved += edit.put.len() as i64 - edit.cut as i64;
        }
        moved as u32
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
