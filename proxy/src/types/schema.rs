//! The schema of one version of a CRD, kept as it was written.
//!
//! Nothing is validated against it: it is shown in OpenAPI documents, so that `kubectl explain` explains.
//! One that no client could read is as good as none, and must not spoil a document that others are in.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// An OpenAPI v3 schema as JSON text. Cheap to clone and to compare.
#[derive(Clone)]
pub struct Schema {
    text: Arc<str>,
    digest: [u8; 32],
}

impl Schema {
    /// A schema that is well formed; `None` if it is not.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        is_schema(&value).then(|| Self { text: text.into(), digest: Sha256::digest(text).into() })
    }

    /// The schema as a value.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.text).expect("it was parsed before it was kept")
    }
}

/// Whether a value has the shape of a schema, as far as clients decode it into types.
fn is_schema(value: &Value) -> bool {
    let Some(schema) = value.as_object() else { return false };
    schema.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => value.as_str().is_some_and(|name| TYPES.contains(&name)),
        "description"
        | "format"
        | "pattern"
        | "title"
        | "x-kubernetes-list-type"
        | "x-kubernetes-map-type" => value.is_string(),
        "properties" | "patternProperties" | "definitions" => {
            value.as_object().is_some_and(|members| members.values().all(is_schema))
        }
        "items" | "not" => is_schema(value),
        "additionalProperties" => value.is_boolean() || is_schema(value),
        "allOf" | "anyOf" | "oneOf" => value.as_array().is_some_and(|schemas| schemas.iter().all(is_schema)),
        "required" | "x-kubernetes-list-map-keys" => {
            value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
        }
        "enum" => value.is_array(),
        "minimum" | "maximum" | "multipleOf" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.as_i64().is_some()
        }
        "nullable"
        | "uniqueItems"
        | "exclusiveMinimum"
        | "exclusiveMaximum"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-int-or-string"
        | "x-kubernetes-embedded-resource" => value.is_boolean(),
        // A reference leads nowhere in a document that is put together from several CRDs.
        "$ref" => false,
        _ => true,
    })
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}
impl Eq for Schema {}
impl PartialOrd for Schema {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Schema {
    fn cmp(&self, other: &Self) -> Ordering {
        self.digest.cmp(&other.digest)
    }
}
impl Hash for Schema {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// The digest stands for the text: what documents are made from is hashed by this.
impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_that_clients_can_read_are_kept_as_written() {
        for text in [
            "{}",
            r#"{"type":"object","properties":{"a":{"type":"integer","format":"int32"}},"required":["a"]}"#,
            r#"{"type":"array","items":{"type":"string","enum":["x",null]},"maxItems":3}"#,
            r#"{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}"#,
            r#"{"additionalProperties":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.a > 1.50"}]}"#,
        ] {
            let schema = Schema::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(schema.value().to_string(), text);
            assert_eq!(schema, Schema::parse(text).expect("the same"));
        }
        assert_ne!(Schema::parse("{}"), Schema::parse("{ }"));
    }

    #[test]
    fn what_would_spoil_a_document_is_no_schema() {
        for text in [
            "",
            "[]",
            "true",
            r#"{"type":["string","null"]}"#,
            r#"{"type":"text"}"#,
            r#"{"properties":{"a":{"items":[{}]}}}"#,
            r#"{"properties":{"a":true}}"#,
            r#"{"properties":[]}"#,
            r#"{"description":1}"#,
            r#"{"required":"a"}"#,
            r##"{"$ref":"#/definitions/x"}"##,
            r#"{"maxLength":"3"}"#,
        ] {
            assert_eq!(Schema::parse(text), None, "{text}");
        }
    }
}
