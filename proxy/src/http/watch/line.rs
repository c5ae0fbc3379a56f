//! The lines of a watch stream: compact JSON, `type` before `object`, one newline at the end.

use bytes::Bytes;
use shardcache_storage::ResourceVersion;

use crate::body::Weave;
use crate::cache::{Delivery, Transition};
use crate::represent::{Annotation, Form};
use crate::status::ApiError;

const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;
const MODIFIED: &[u8] = br#"{"type":"MODIFIED","object":"#;
const DELETED: &[u8] = br#"{"type":"DELETED","object":"#;
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","object":"#;
const END: &[u8] = b"}\n";

/// Appends an event as its watcher sees it.
pub(super) fn event(weave: &mut Weave, form: &mut Form, delivery: &Delivery) {
    let event = &delivery.event;
    match (delivery.kind, &event.current) {
        (Transition::Added, Some(current)) => added(weave, form, current),
        (Transition::Modified, Some(current)) => {
            weave.fixed(MODIFIED);
            form.object(weave, current);
            weave.fixed(END);
        }
        _ => {
            weave.fixed(DELETED);
            form.departed(weave, event);
            weave.fixed(END);
        }
    }
}

/// Appends an object as ADDED.
pub(super) fn added(weave: &mut Weave, form: &mut Form, object: &shardcache_storage::Object) {
    weave.fixed(ADDED);
    form.object(weave, object);
    weave.fixed(END);
}

/// Appends a bookmark.
pub(super) fn bookmark(
    weave: &mut Weave,
    form: &mut Form,
    version: ResourceVersion,
    annotations: &[Annotation],
) {
    weave.fixed(BOOKMARK);
    form.bookmark(weave, version, annotations);
    weave.fixed(END);
}

/// An error; nothing may follow it.
pub(super) fn error(error: &ApiError) -> Bytes {
    Bytes::from(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", error.status()))
}
