//! Whether an update changes anything: compared as JSON values, so that key order, white space and
//! escapes do not count, nor the resourceVersion, nor the served version of the type that was used.

use serde_json::Value;
use shardcache_storage::{DIGITS, Draft, Object, Spans};

use crate::ingest;

/// Whether storing the draft in place of the object would be no news to anybody.
pub(super) fn is_unchanged(draft: &Draft, object: &Object) -> bool {
    let (new, old) = (Body::new(draft.body(), draft.spans()), Body::new(object.body_bytes(), object.spans()));
    if new.same_bytes(&old) {
        return true;
    }
    // Without escapes, equal values have equally long compact texts, whatever their key order.
    if new.compared_len() != old.compared_len() && !new.has_escapes() && !old.has_escapes() {
        return false;
    }
    matches!((new.value(), old.value()), (Some(new), Some(old)) if new == old)
}

struct Body<'a> {
    text: &'a [u8],
    spans: Spans,
}

impl<'a> Body<'a> {
    fn new(text: &'a [u8], spans: Spans) -> Self {
        Self { text, spans }
    }

    fn same_bytes(&self, other: &Self) -> bool {
        let digits = |body: &Self| body.spans.resource_version_at as usize;
        self.text.len() == other.text.len()
            && digits(self) == digits(other)
            && self.text[..digits(self)] == other.text[..digits(self)]
            && self.text[digits(self) + DIGITS..] == other.text[digits(self) + DIGITS..]
    }

    fn compared_len(&self) -> usize {
        self.text.len() - self.spans.api_version.len as usize
    }

    fn has_escapes(&self) -> bool {
        self.text.contains(&b'\\')
    }

    /// The value without what is not compared.
    fn value(&self) -> Option<Value> {
        let mut value = ingest::parse_value(std::str::from_utf8(self.text).ok()?).ok()?;
        let object = value.as_object_mut()?;
        object.remove("apiVersion");
        object.get_mut("metadata")?.as_object_mut()?.remove("resourceVersion");
        Some(value)
    }
}
