//! From the machine's terms to the store's: drafts out, objects back in.

use shardcache_storage::{
    Action, Change, Draft, Guard, Key, Object, PLACEHOLDER, ResourceVersion, Span, Spans, TypeName,
};

use crate::machine::{Content, Kind, Place, Request, Thing};

pub(crate) fn type_name(kind: Kind) -> TypeName {
    TypeName::with_identity(kind.0, kind.1, kind.2)
}

pub(crate) fn key(place: Place) -> Key {
    Key::new(place.0, place.1, place.2, place.3).expect("places have no NUL")
}

/// The JSON of an object with the given digits as its version.
pub(crate) fn body(place: Place, content: &Content, digits: &str) -> String {
    let uid = if content.uid.is_empty() { String::new() } else { format!(r#","uid":"{}""#, content.uid) };
    let labels =
        content.label.map_or(String::new(), |value| format!(r#","labels":{{"tier":"{value}","a":"b"}}"#));
    // Sizes from a few bytes to over a page of the file.
    let fill = "x".repeat(content.payload as usize % 7 * 900);
    format!(
        r#"{{"apiVersion":"v1","kind":"Thing","metadata":{{"name":"{}","resourceVersion":"{digits}"{uid}{labels}}},"spec":{{"payload":{},"fill":"{fill}"}}}}"#,
        place.3, content.payload,
    )
}

fn draft(place: Place, content: &Content) -> Draft {
    let placeholder = std::str::from_utf8(PLACEHOLDER).expect("digits");
    let text = body(place, content, placeholder);
    let at = |needle: &str| text.find(needle).expect("the template has it") + needle.len();
    let metadata = at(r#""metadata":"#);
    let spans = Spans {
        resource_version_at: at(r#""resourceVersion":""#) as u32,
        metadata: Span {
            at: metadata as u32,
            len: (at(r#","spec":"#) - r#","spec":"#.len() - metadata) as u32,
        },
        api_version: Span { at: at(r#""apiVersion":""#) as u32, len: 2 },
        uid: match content.uid {
            "" => Span::default(),
            uid => Span { at: at(r#""uid":""#) as u32, len: uid.len() as u32 },
        },
    };
    let labels: Vec<(&str, String)> =
        content.label.map_or(vec![], |value| vec![("tier", value.to_string()), ("a", "b".to_owned())]);
    Draft::new(&key(place), &labels, text.as_bytes(), spans).expect("small and well-formed")
}

pub(crate) fn change(request: &Request) -> Change {
    let version = |value: u64| ResourceVersion::parse(&value.to_string()).expect("a number");
    Change {
        type_name: type_name(request.kind),
        key: key(request.place),
        guard: Guard {
            exists: request.exists,
            resource_version: request.version.map(version),
            uid: request.uid.map(Into::into),
        },
        action: match &request.content {
            Some(content) => Action::Put(draft(request.place, content)),
            None => Action::Delete,
        },
    }
}

/// The stored object must be the machine's, byte for byte.
pub(crate) fn assert_same(object: &Object, place: Place, thing: &Thing, context: &str) {
    let expected = body(place, &thing.content, &thing.version.to_string());
    assert_eq!(String::from_utf8_lossy(object.body_bytes()), expected, "{context}");
    assert_eq!(object.key(), key(place).as_str(), "{context}");
    assert_eq!(object.revision().0, thing.revision, "{context}");
    assert_eq!(object.resource_version().value(), thing.version, "{context}");
    assert_eq!(object.previous_revision().0, thing.replaced, "{context}: the state it replaced");
    assert_eq!(object.uid(), thing.content.uid, "{context}");
    let labels: Vec<_> = object.labels().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let expected = thing.content.label.map_or(vec![], |value| {
        vec![("a".to_owned(), "b".to_owned()), ("tier".to_owned(), value.to_string())]
    });
    assert_eq!(labels, expected, "{context}");
}
