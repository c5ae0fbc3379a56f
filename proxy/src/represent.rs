//! Objects as the client asked for them: in another served version, metadata only, or as rows of a
//! `Table`.
//!
//! Of objects and metadata nothing is parsed and no body is encoded a second time: a stored object is
//! valid JSON whose spans are known, so another `apiVersion` or the bare metadata are slices of the shared
//! bytes with a little text around them. As in kube-apiserver without conversion webhooks, versions differ
//! in `apiVersion` only. Rows are made object by object (`table`).

mod untyped;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;
use shardcache_storage::{DIGITS, Event, KeyParts, Object, ResourceVersion, Sizes, Span, Spans};

use crate::body::{Rope, Weave};
pub use crate::http::accept::{IncludeObject, MetaVersion, Shape};
use crate::http::protobuf;
use crate::scope::Scope;
use crate::table::Table;
use crate::types::TypeInfo;

const PARTIAL_START: &[u8] = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
const PARTIAL_START_BETA: &[u8] =
    br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":"#;
const PARTIAL_ITEM_START: &[u8] = br#"{"metadata":"#;
const PARTIAL_END: &[u8] = b"}";
const PARTIAL_ITEM_END: &[u8] = b"},";

/// How one request wants objects of one type.
#[derive(Debug)]
pub struct Form {
    /// `group/version`, or `version` in the core group.
    api_version: Bytes,
    kind: Box<str>,
    list_kind: Box<str>,
    show: Show,
}

#[derive(Debug)]
enum Show {
    /// The whole object.
    Object,
    /// The whole object without its own `kind` and `apiVersion`.
    Untyped,
    /// Its metadata, after a text.
    Metadata(MetaVersion, &'static [u8]),
    /// Its row, or a table of it.
    Row(Box<Rows>),
}

/// Rows of a `Table`.
#[derive(Debug)]
struct Rows {
    table: Table,
    include: IncludeObject,
    version: MetaVersion,
    /// Each object is a `Table` of its own, as in a GET and in a watch, rather than a row in a list.
    alone: bool,
    /// The next table says what its columns are; in a watch only the first one does.
    defined: bool,
}

/// An object's bytes and where things are in them.
#[derive(Clone, Copy)]
struct Encoded<'a> {
    /// A bookmark has none.
    key: Option<KeyParts<'a>>,
    body: &'a Bytes,
    spans: Spans,
}

/// Name and value of an annotation.
pub type Annotation = (&'static str, Cow<'static, str>);

impl Form {
    /// The form of a type in one of its served versions.
    pub fn new(type_info: &TypeInfo, version: &str, shape: Shape) -> Self {
        Self::within(None, type_info, version, shape)
    }

    /// The same, for a request that may span shards and logical clusters.
    pub fn in_scope(scope: &Scope, type_info: &TypeInfo, version: &str, shape: Shape) -> Self {
        Self::within(Some(scope), type_info, version, shape)
    }

    fn within(scope: Option<&Scope>, type_info: &TypeInfo, version: &str, shape: Shape) -> Self {
        let show = match shape {
            Shape::UntypedItems if protobuf::knows(&type_info.api_version(version), &type_info.kind) => {
                Show::Untyped
            }
            Shape::Object | Shape::UntypedItems => Show::Object,
            Shape::PartialMetadata(version) => Show::Metadata(version, version.partial_start()),
            Shape::Table(meta_version, include) => Show::Row(Box::new(Rows {
                table: Table::new(type_info.version(version), scope),
                include,
                version: meta_version,
                alone: true,
                defined: false,
            })),
        };
        Self {
            api_version: type_info.api_version(version).into(),
            kind: type_info.kind.as_str().into(),
            list_kind: type_info.list_kind.as_str().into(),
            show,
        }
    }

    /// The form for items of a list. Items of a `PartialObjectMetadataList`, and those of Kubernetes' own
    /// types for who takes protobuf ([`Shape::UntypedItems`]), do without `kind` and `apiVersion`, as they do
    /// in kube-apiserver's protobuf answer, which client-go asks for first: its consistency detector compares
    /// list items with watched objects, whose type its decoder removes.
    #[must_use]
    pub fn for_items(mut self) -> Self {
        match &mut self.show {
            Show::Object | Show::Untyped => {}
            Show::Metadata(_, start) => *start = PARTIAL_ITEM_START,
            Show::Row(rows) => rows.alone = false,
        }
        self
    }

    /// `apiVersion` and `kind` of lists.
    pub fn list_type(&self) -> (&str, &str) {
        match &self.show {
            Show::Object | Show::Untyped => (self.api_version(), &self.list_kind),
            Show::Metadata(version, _) => (version.api_version(), "PartialObjectMetadataList"),
            Show::Row(rows) => (rows.version.api_version(), "Table"),
        }
    }

    /// What a list has between its metadata and its first item.
    pub fn list_start(&self) -> Cow<'static, str> {
        match &self.show {
            Show::Object | Show::Untyped | Show::Metadata(..) => Cow::Borrowed(r#""items":["#),
            Show::Row(rows) => {
                Cow::Owned(format!(r#""columnDefinitions":{},"rows":["#, rows.table.definitions()))
            }
        }
    }

    /// Appends an object.
    pub fn object(&mut self, weave: &mut Weave, object: &Object) {
        self.listed(weave, object, true);
    }

    /// Appends an object and, unless it is the last one, the comma that follows it in a list.
    pub fn listed(&mut self, weave: &mut Weave, object: &Object, last: bool) {
        if matches!(self.show, Show::Row(_)) {
            let (body, spans) = (object.body(), object.spans());
            self.row(weave, Encoded { key: Some(object.parts()), body: &body, spans });
            if !last {
                weave.fixed(b",");
            }
        } else {
            self.put(weave, &Stored { object, comma: !last });
        }
    }

    /// Appends the object of a DELETED event: the previous state under the event's version. Appends
    /// nothing if the event created the object.
    pub fn departed(&mut self, weave: &mut Weave, event: &Event) {
        if let (Some(body), Some(previous)) = (event.departed(), &event.previous) {
            let spans = previous.spans();
            match &self.show {
                Show::Row(_) => self.row(weave, Encoded { key: Some(previous.parts()), body: &body, spans }),
                _ => self.put(weave, &Copied { body: &body, spans }),
            }
        }
    }

    /// Appends the object of a BOOKMARK: nothing but a version and annotations. Their values need no escapes.
    pub fn bookmark(&mut self, weave: &mut Weave, version: ResourceVersion, annotations: &[Annotation]) {
        let (api_version, kind) = match &self.show {
            Show::Metadata(version, _) => (version.api_version(), "PartialObjectMetadata"),
            Show::Object | Show::Untyped | Show::Row(_) => (self.api_version(), &*self.kind),
        };
        let said: Vec<_> = annotations.iter().map(|(name, value)| format!(r#""{name}":"{value}""#)).collect();
        let annotations = match said.as_slice() {
            [] => String::new(),
            said => format!(r#","annotations":{{{}}}"#, said.join(",")),
        };
        let metadata = format!(r#"{{"resourceVersion":"{version}"{annotations}}}"#);
        let (kind, api_version) = (Value::from(kind), Value::from(api_version));
        let start = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":"#);
        let body = Bytes::from(format!("{start}{metadata}}}"));
        if !matches!(self.show, Show::Row(_)) {
            weave.shared(body);
            return;
        }
        let (kind, at) = (kind.to_string().len(), start.len());
        let spans = Spans {
            resource_version_at: (at + r#"{"resourceVersion":""#.len()) as u32,
            metadata: Span { at: at as u32, len: metadata.len() as u32 },
            api_version: Span {
                at: (r#"{"kind":,"apiVersion":""#.len() + kind) as u32,
                len: self.api_version.len() as u32,
            },
            uid: Span::default(),
        };
        self.row(weave, Encoded { key: None, body: &body, spans });
    }

    /// What the bytes that [`Form::listed`] appends depend on beside the object; `None` if it is more than
    /// can be told, such as the time that a row was made.
    pub fn depends_on(&self) -> Option<Bytes> {
        match &self.show {
            Show::Object => Some(self.api_version.clone()),
            // No `apiVersion` begins with a brace.
            Show::Untyped => Some(Bytes::from_static(b"{")),
            Show::Metadata(_, start) => Some(Bytes::from_static(start)),
            Show::Row(_) => None,
        }
    }

    /// Bytes that [`Form::object`] appends for each of some objects and in sum, or `None` if that takes
    /// making them.
    pub fn len_of(&self, objects: &[Object]) -> Option<u64> {
        match self.show {
            Show::Row(_) => None,
            _ => Some(objects.iter().map(|object| self.len(object) as u64).sum()),
        }
    }

    /// Bytes that [`Form::object`] appends for all of some objects together, or `None` if that takes
    /// making them.
    pub fn sum(&self, sizes: Sizes, objects: u64) -> Option<u64> {
        match self.show {
            Show::Object => Some(sizes.bodies - sizes.api_versions + objects * self.api_version.len() as u64),
            Show::Metadata(_, start) => {
                Some(sizes.metadata + objects * (start.len() + PARTIAL_END.len()) as u64)
            }
            Show::Untyped | Show::Row(_) => None,
        }
    }

    /// The object as one piece; the stored bytes themselves if that is what was asked for.
    pub fn bytes(&mut self, object: &Object) -> Bytes {
        if matches!(self.show, Show::Object) {
            let stored = &object.body_bytes()[object.spans().api_version.range()];
            if stored == self.api_version {
                return object.body();
            }
        }
        let mut weave = Weave::new();
        self.object(&mut weave, object);
        let mut rope: Rope = weave.take();
        let len = rope.len();
        bytes::Buf::copy_to_bytes(&mut rope, len)
    }

    fn len(&self, object: &Object) -> usize {
        let spans = object.spans();
        match self.show {
            Show::Metadata(_, start) => start.len() + spans.metadata.len as usize + PARTIAL_END.len(),
            Show::Untyped => untyped::len(object.body_bytes()),
            Show::Object | Show::Row(_) => {
                object.body_bytes().len() - spans.api_version.len as usize + self.api_version.len()
            }
        }
    }

    fn put(&self, weave: &mut Weave, source: &impl Source) {
        let spans = source.spans();
        match self.show {
            Show::Metadata(_, start) => {
                weave.fixed(start);
                source.put(weave, spans.metadata.range());
                weave.fixed(if source.has_comma() { PARTIAL_ITEM_END } else { PARTIAL_END });
                return;
            }
            Show::Untyped => return untyped::put(weave, source),
            Show::Object | Show::Row(_) => {}
        }
        let (at, end) = (spans.api_version.range(), source.body().len() + usize::from(source.has_comma()));
        if source.body()[at.clone()] == self.api_version {
            source.put(weave, 0..end);
        } else {
            source.put(weave, 0..at.start);
            weave.text(&self.api_version);
            source.put(weave, at.end..end);
        }
    }

    fn row(&mut self, weave: &mut Weave, object: Encoded<'_>) {
        let Show::Row(rows) = &mut self.show else { return };
        let Encoded { key, body, spans } = object;
        weave.charge(body.len());
        if rows.alone {
            weave.text(rows.opening(&body[spans.resource_version_at as usize..][..DIGITS]).as_bytes());
        }
        weave.text(format!(r#"{{"cells":{},"object":"#, rows.table.cells(key, body, spans)).as_bytes());
        let (alone, include, start) = (rows.alone, rows.include, rows.version.partial_start());
        match include {
            IncludeObject::Object => self.put(weave, &Copied { body, spans }),
            // A bookmark is nothing but its metadata.
            IncludeObject::None if key.is_some() => weave.fixed(b"null"),
            IncludeObject::None | IncludeObject::Metadata => metadata(weave, start, body, spans),
        }
        weave.fixed(if alone { b"}]}" } else { b"}" });
    }

    fn api_version(&self) -> &str {
        std::str::from_utf8(&self.api_version).expect("it was a string")
    }
}

impl Rows {
    /// The start of a table of one object.
    fn opening(&mut self, version: &[u8]) -> String {
        let first = !std::mem::replace(&mut self.defined, true);
        format!(
            r#"{{"kind":"Table","apiVersion":"{}","metadata":{{"resourceVersion":"{}"}},"columnDefinitions":{},"rows":["#,
            self.version.api_version(),
            String::from_utf8_lossy(version),
            if first { self.table.definitions() } else { Value::Null },
        )
    }
}

impl MetaVersion {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }

    fn partial_start(self) -> &'static [u8] {
        match self {
            Self::V1 => PARTIAL_START,
            Self::V1Beta1 => PARTIAL_START_BETA,
        }
    }
}

fn metadata(weave: &mut Weave, start: &'static [u8], body: &Bytes, spans: Spans) {
    weave.fixed(start);
    weave.shared(body.slice(spans.metadata.range()));
    weave.fixed(PARTIAL_END);
}

/// Where the bytes of an object come from.
trait Source {
    fn body(&self) -> &[u8];
    fn spans(&self) -> Spans;
    /// Whether a comma follows the body.
    fn has_comma(&self) -> bool;
    /// Appends a part of the body and the comma.
    fn put(&self, weave: &mut Weave, range: Range<usize>);
}

struct Stored<'a> {
    object: &'a Object,
    comma: bool,
}

impl Source for Stored<'_> {
    fn body(&self) -> &[u8] {
        self.object.body_bytes()
    }

    fn spans(&self) -> Spans {
        self.object.spans()
    }

    fn has_comma(&self) -> bool {
        self.comma
    }

    fn put(&self, weave: &mut Weave, range: Range<usize>) {
        weave.stored(self.object, range);
    }
}

struct Copied<'a> {
    body: &'a Bytes,
    spans: Spans,
}

impl Source for Copied<'_> {
    fn body(&self) -> &[u8] {
        self.body
    }

    fn spans(&self) -> Spans {
        self.spans
    }

    fn has_comma(&self) -> bool {
        false
    }

    fn put(&self, weave: &mut Weave, range: Range<usize>) {
        weave.shared(self.body.slice(range));
    }
}
