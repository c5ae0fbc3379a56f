//! The same messages as OpenAPI schemas: which fields Kubernetes' own types have, and of what type.
//!
//! Enough for `kubectl explain` to list them. The texts of Kubernetes' documentation are not here, but
//! for the metadata that every object has.

use serde_json::{Map, Value, json};

use super::field::{Field, Kind, Presence};
use super::schema;

/// The schema of a built-in type, without `apiVersion` and `kind`; `None` if its fields are not known.
pub(crate) fn schema_of(api_version: &str, kind: &str) -> Option<Value> {
    schema::message(api_version, kind).map(object)
}

/// The schema of `metadata`.
pub(crate) fn object_meta() -> Value {
    let mut schema = object(schema::OBJECT_META);
    for (name, description) in META_FIELDS {
        schema["properties"][*name]["description"] = (*description).into();
    }
    schema["description"] = "What every object has, whatever its type.".into();
    schema
}

const META_FIELDS: &[(&str, &str)] = &[
    (
        "name",
        "Unique among the objects of a type in one namespace of one logical cluster of one shard. It cannot be changed.",
    ),
    ("generateName", "The beginning of a name, which the server completes if no name is given."),
    (
        "namespace",
        "The part of a logical cluster that the object is in; empty for types without namespaces. It cannot be changed.",
    ),
    ("selfLink", "Not used any more."),
    ("uid", "Tells this object from all others, earlier and later ones of the same name too."),
    (
        "resourceVersion",
        "Changes with every change of the object; an update that names it succeeds only if nothing changed meanwhile.",
    ),
    ("generation", "Counts the desired states of the object."),
    ("creationTimestamp", "When the object was created."),
    (
        "deletionTimestamp",
        "When somebody asked for the object's deletion, if it is still there for its finalizers.",
    ),
    ("deletionGracePeriodSeconds", "Time that the object was given to end."),
    ("labels", "Names and values by which objects are selected."),
    (
        "annotations",
        "Names and values that nobody selects by; kcp.io/shard and kcp.io/cluster say where the object is.",
    ),
    ("ownerReferences", "The objects that this one depends on."),
    ("finalizers", "Who has something to do before the object may go."),
    ("managedFields", "Who set which fields."),
];

fn object(message: &[Field]) -> Value {
    let mut properties = Map::new();
    add_fields(message, &mut properties);
    json!({ "type": "object", "properties": properties })
}

fn add_fields(message: &[Field], properties: &mut Map<String, Value>) {
    for field in message {
        match (field.presence, field.kind) {
            (Presence::Inline, Kind::Of(inner)) => add_fields(inner, properties),
            (Presence::List | Presence::NullableList, kind) => {
                properties.insert(field.name.into(), json!({ "type": "array", "items": value(kind) }));
            }
            (_, kind) => {
                properties.insert(field.name.into(), value(kind));
            }
        }
    }
}

fn value(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Int => json!({ "type": "integer", "format": "int64" }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Bytes => json!({ "type": "string", "format": "byte" }),
        Kind::Map => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Kind::Time | Kind::MicroTime => json!({ "type": "string", "format": "date-time" }),
        Kind::Json => json!({ "type": "object" }),
        Kind::Of(message) => object(message),
    }
}
