//! Patches: JSON patch (RFC 6902) and merge patch (RFC 7386), applied to one JSON value.
//!
//! Pure. A patch is bounded in what it makes of an object, not only in its own size: copies may not
//! multiply it, and nothing may nest deeper than an object may. Numbers keep their digits, and merge
//! patches keep the order of keys.
//!
//! Does not judge the result; `http::write` reads it as if it had been sent.

mod json;

use serde_json::{Map, Value};

use crate::http::accept::PatchFormat;
use crate::ingest;
use crate::status::{ApiError, Cause, Details};

use json::Operation;

/// Operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

/// A decoded patch.
#[derive(Debug)]
pub(crate) enum Patch {
    /// Operations in order.
    Json(Vec<Operation>),
    /// Members to set, or with null to remove.
    Merge(Map<String, Value>),
}

impl Patch {
    /// Decodes the body of a PATCH, and the paths of its duplicate keys. 400 if it is malformed, 413 if
    /// it has too many operations.
    pub(crate) fn decode(format: PatchFormat, body: &[u8]) -> Result<(Self, Vec<String>), ApiError> {
        let malformed = |why: &str| ApiError::bad_request(format!("error decoding patch: {why}"));
        let text = std::str::from_utf8(body).map_err(|_| malformed("invalid UTF-8"))?;
        let value = ingest::parse_value(text).map_err(|why| malformed(&why))?;
        let duplicates = ingest::duplicate_keys(text).map_err(|why| malformed(&why))?;
        let patch = match (format, value) {
            (PatchFormat::Merge, Value::Object(members)) => Self::Merge(members),
            (PatchFormat::Merge, other) => {
                return Err(malformed(&unmarshal(&other, "map[string]interface {}")));
            }
            (PatchFormat::Json, Value::Array(operations)) => {
                if operations.len() > OPERATIONS_MAX {
                    return Err(ApiError::request_entity_too_large(format!(
                        "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
                        operations.len()
                    )));
                }
                let decoded = operations.into_iter().enumerate().map(|(at, operation)| {
                    Operation::decode(operation).map_err(|why| malformed(&format!("operation {at}: {why}")))
                });
                Self::Json(decoded.collect::<Result<_, _>>()?)
            }
            (PatchFormat::Json, other) => return Err(malformed(&unmarshal(&other, "[]interface {}"))),
        };
        Ok((patch, duplicates))
    }

    /// Whether it is meant for one version of the object only, or for none.
    pub(crate) fn names_version(&self) -> bool {
        match self {
            Self::Json(operations) => operations.iter().any(Operation::names_version),
            Self::Merge(members) => {
                let metadata = members.get("metadata");
                metadata.and_then(|metadata| metadata.get("resourceVersion")).is_some_and(Value::is_string)
            }
        }
    }

    /// Applies the patch. 422 if it does not fit the object, 413 if it would blow it up.
    pub(crate) fn apply(&self, to: &mut Value) -> Result<(), ApiError> {
        match self {
            Self::Json(operations) => json::apply(operations, to),
            Self::Merge(members) => {
                merge(to, members);
                Ok(())
            }
        }
    }
}

/// RFC 7386. Recursion is bounded by the nesting of the patch, which was parsed with a bound.
fn merge(to: &mut Value, members: &Map<String, Value>) {
    if !to.is_object() {
        *to = Value::Object(Map::new());
    }
    let Value::Object(object) = to else { return };
    for (key, value) in members {
        match value {
            Value::Null => drop(object.shift_remove(key)),
            Value::Object(members) => merge(object.entry(key).or_insert(Value::Null), members),
            other => drop(object.insert(key.clone(), other.clone())),
        }
    }
}

/// Go's words for a value of the wrong type.
fn unmarshal(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// kube's generic 422; the cause says what did not fit.
fn rejected(why: String) -> ApiError {
    let cause = Cause { reason: "UnexpectedServerResponse", message: why, field: String::new() };
    ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
        .with_details(Details { causes: vec![cause], ..Details::default() })
}

#[cfg(test)]
mod tests;
