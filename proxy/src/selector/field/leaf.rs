//! One field of a JSON document as text, without parsing the rest into memory.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The text of the field at a dotted path: strings unquoted, booleans and numbers as written. Missing,
/// null, lists and maps are `""`; so is everything in a body that is not JSON.
pub(super) fn text<'a>(body: &'a [u8], path: &str) -> Cow<'a, str> {
    let Some(raw) = find(body, path) else { return Cow::Borrowed("") };
    let raw = raw.get();
    match raw.as_bytes().first() {
        // A core event's `source` is a map; kube selects on its component, or else on the reporter's.
        Some(b'{') if path == "source" => match text(body, "source.component") {
            component if component.is_empty() => text(body, "reportingComponent"),
            component => component,
        },
        Some(b'"') if !raw.contains('\\') => Cow::Borrowed(&raw[1..raw.len() - 1]),
        Some(b'"') => Cow::Owned(serde_json::from_str(raw).unwrap_or_default()),
        Some(b'{' | b'[' | b'n') | None => Cow::Borrowed(""),
        Some(_) => Cow::Borrowed(raw),
    }
}

fn find<'a>(body: &'a [u8], path: &str) -> Option<&'a RawValue> {
    let mut steps = path.split('.');
    let mut value = member(body, steps.next()?)?;
    for step in steps {
        value = member(value.get().as_bytes(), step)?;
    }
    Some(value)
}

fn member<'a>(json: &'a [u8], name: &str) -> Option<&'a RawValue> {
    serde_json::Deserializer::from_slice(json).deserialize_map(Member(name)).ok()?
}

/// Finds one member of a map.
struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(hit) = map.next_key_seed(Is(self.0))? {
            if hit {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a key without keeping it.
struct Is<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}
