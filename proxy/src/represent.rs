//! Objects as the client asked for them: in another served version, or metadata only.
//!
//! Nothing is parsed and no body is encoded a second time: a stored object is valid JSON whose spans
//! are known, so another `apiVersion` or the bare metadata are slices of the shared bytes with a little
//! text around them. As in kube-apiserver without conversion webhooks, versions differ in `apiVersion`
//! only.

use bytes::Bytes;
use shardcache_storage::{Event, Object, Sizes, Spans};

use crate::body::{Rope, Weave};
pub use crate::http::accept::Shape;
use crate::types::TypeInfo;

const PARTIAL_START: &[u8] = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
const PARTIAL_ITEM_START: &[u8] = br#"{"metadata":"#;
const PARTIAL_END: &[u8] = b"}";

/// How one request wants objects of one type.
#[derive(Clone, Debug)]
pub struct Form {
    /// `group/version`, or `version` in the core group.
    api_version: Bytes,
    kind: Box<str>,
    list_kind: Box<str>,
    shape: Shape,
    partial_start: &'static [u8],
}

impl Form {
    /// The form of a type in one of its served versions.
    pub fn new(type_info: &TypeInfo, version: &str, shape: Shape) -> Self {
        Self {
            api_version: type_info.api_version(version).into(),
            kind: type_info.kind.as_str().into(),
            list_kind: type_info.list_kind.as_str().into(),
            shape,
            partial_start: PARTIAL_START,
        }
    }

    /// The form for items of a list. Items of a `PartialObjectMetadataList` do without `kind` and
    /// `apiVersion`, as they do in kube-apiserver's protobuf answer, which client-go asks for first: its
    /// consistency detector compares list items with watched objects, whose type its decoder removes.
    #[must_use]
    pub fn for_items(self) -> Self {
        Self { partial_start: PARTIAL_ITEM_START, ..self }
    }

    /// `apiVersion` and `kind` of single objects, as on bookmarks.
    pub fn object_type(&self) -> (&str, &str) {
        match self.shape {
            Shape::PartialMetadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            Shape::Object | Shape::Table => (self.api_version(), &self.kind),
        }
    }

    /// `apiVersion` and `kind` of lists.
    pub fn list_type(&self) -> (&str, &str) {
        match self.shape {
            Shape::PartialMetadata => ("meta.k8s.io/v1", "PartialObjectMetadataList"),
            Shape::Object | Shape::Table => (self.api_version(), &self.list_kind),
        }
    }

    /// Appends an object.
    pub fn object(&self, weave: &mut Weave, object: &Object) {
        self.body(weave, &object.body(), object.spans());
    }

    /// Appends the object of a DELETED event: the previous state under the event's version. Appends
    /// nothing if the event created the object.
    pub fn departed(&self, weave: &mut Weave, event: &Event) {
        if let (Some(body), Some(previous)) = (event.departed(), &event.previous) {
            self.body(weave, &body, previous.spans());
        }
    }

    /// Bytes that [`Form::object`] appends.
    pub fn len(&self, object: &Object) -> usize {
        let spans = object.spans();
        match self.shape {
            Shape::PartialMetadata => {
                self.partial_start.len() + spans.metadata.len as usize + PARTIAL_END.len()
            }
            Shape::Object | Shape::Table => {
                object.body_bytes().len() - spans.api_version.len as usize + self.api_version.len()
            }
        }
    }

    /// Bytes that [`Form::object`] appends for all of some objects together.
    pub fn sum(&self, sizes: Sizes, objects: u64) -> u64 {
        match self.shape {
            Shape::PartialMetadata => {
                sizes.metadata + objects * (self.partial_start.len() + PARTIAL_END.len()) as u64
            }
            Shape::Object | Shape::Table => {
                sizes.bodies - sizes.api_versions + objects * self.api_version.len() as u64
            }
        }
    }

    /// The object as one piece; the stored bytes themselves if that is what was asked for.
    pub fn bytes(&self, object: &Object) -> Bytes {
        let body = object.body();
        let stored = &body[object.spans().api_version.range()];
        if self.shape != Shape::PartialMetadata && stored == self.api_version {
            return body;
        }
        let mut weave = Weave::new();
        self.body(&mut weave, &body, object.spans());
        let mut rope: Rope = weave.take();
        let len = rope.len();
        bytes::Buf::copy_to_bytes(&mut rope, len)
    }

    fn body(&self, weave: &mut Weave, body: &Bytes, spans: Spans) {
        if self.shape == Shape::PartialMetadata {
            weave.fixed(self.partial_start);
            weave.shared(body.slice(spans.metadata.range()));
            weave.fixed(PARTIAL_END);
            return;
        }
        let at = spans.api_version.range();
        if body[at.clone()] == self.api_version {
            weave.shared(body.clone());
        } else {
            weave.shared(body.slice(..at.start));
            weave.text(&self.api_version);
            weave.shared(body.slice(at.end..));
        }
    }

    fn api_version(&self) -> &str {
        std::str::from_utf8(&self.api_version).expect("it was a string")
    }
}

/// The body of an object of this type in one of its served versions.
pub fn object(object: &Object, type_info: &TypeInfo, version: &str, shape: Shape) -> Bytes {
    Form::new(type_info, version, shape).bytes(object)
}
