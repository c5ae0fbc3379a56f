//! The lines of a watch stream: compact JSON, `type` before `object`, one newline at the end.

use bytes::Bytes;
use serde_json::Value;
use shardcache_storage::ResourceVersion;

use crate::body::Weave;
use crate::cache::{Delivery, Transition};
use crate::represent::Form;
use crate::status::ApiError;

const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;
const MODIFIED: &[u8] = br#"{"type":"MODIFIED","object":"#;
const DELETED: &[u8] = br#"{"type":"DELETED","object":"#;
const END: &[u8] = b"}\n";

/// Appends an event as its watcher sees it.
pub(super) fn event(weave: &mut Weave, form: &Form, delivery: &Delivery) {
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
pub(super) fn added(weave: &mut Weave, form: &Form, object: &shardcache_storage::Object) {
    weave.fixed(ADDED);
    form.object(weave, object);
    weave.fixed(END);
}

/// A bookmark; `ends_initial` marks the end of the initial events.
pub(super) fn bookmark(form: &Form, version: ResourceVersion, ends_initial: bool) -> Bytes {
    let (api_version, kind) = form.object_type();
    let annotations =
        if ends_initial { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let line = format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":{},"apiVersion":{},"metadata":{{"resourceVersion":"{version}"{annotations}}}}}}}"#,
        Value::from(kind),
        Value::from(api_version),
    );
    Bytes::from(line + "\n")
}

/// An error; nothing may follow it.
pub(super) fn error(error: &ApiError) -> Bytes {
    Bytes::from(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", error.status()))
}
