//! Request bodies in Kubernetes' protobuf, turned into the JSON that they stand for.
//!
//! Typed Go clients write built-in types in protobuf and do not fall back when it is refused: leader
//! election on leases, event recorders, `kubectl create namespace|role|clusterrole`. So the kinds of the
//! built-in table that have a protobuf form are read here; of any other kind a protobuf body is 415, as
//! for every custom resource. Answers are JSON always, which those clients accept.
//!
//! Pure. Unknown fields are dropped, as Kubernetes does. Nesting is bounded by the messages known.

mod describe;
mod field;
mod schema;
mod wire;

use std::time::{Duration, UNIX_EPOCH};

use ::http::HeaderMap;
use ::http::header::CONTENT_TYPE;
use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::respond;
use crate::ingest;
use crate::status::ApiError;
pub(crate) use describe::{object_meta, schema_of};
use field::{Field, Kind, Presence};
use wire::{Fields, WireError};

/// Whether Kubernetes itself defines a type, so that its own answers of it exist in protobuf.
pub(crate) fn knows(api_version: &str, kind: &str) -> bool {
    schema::message(api_version, kind).is_some()
}

/// Media type of a protobuf body.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// First bytes of every body; `runtime.Unknown` follows.
const MAGIC: &[u8] = b"k8s\0";
/// Seconds from 1970 to the year 10000, where RFC 3339 ends.
const SECONDS_MAX: u64 = 253_402_300_800;

/// Why a body cannot be turned into JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum DecodeError {
    /// Not Kubernetes' envelope.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    /// A kind without a known protobuf form.
    #[error("the kind has no protobuf form")]
    UnknownKind,
    /// Not protobuf.
    #[error("proto: {0}")]
    Wire(#[from] WireError),
    /// A field with a value of another type than its own.
    #[error("proto: wrong wire type for field {0}")]
    Type(&'static str),
    /// A value that JSON cannot show.
    #[error("proto: illegal value of field {0}")]
    Value(&'static str),
}

/// Turns a protobuf body into a JSON one, headers included; leaves every other body alone. 400 if it is
/// not what it claims to be, 415 if the kind has no protobuf form here.
pub(crate) fn into_json(headers: &mut HeaderMap, body: &mut Bytes) -> Result<(), ApiError> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(PROTOBUF) {
        return Ok(());
    }
    if !body.is_empty() {
        let value = decode(body).map_err(|error| match error {
            DecodeError::UnknownKind => ApiError::unsupported_media_type(&["application/json"]),
            error => ApiError::bad_request(error.to_string()),
        })?;
        *body = Bytes::from(value.to_string());
    }
    headers.insert(CONTENT_TYPE, respond::JSON);
    Ok(())
}

/// The object in an envelope.
fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let unknown = body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(unknown) {
        match field? {
            (1, wire::Value::Bytes(type_meta)) => {
                for field in Fields(type_meta) {
                    match field? {
                        (1, value) => api_version = text("apiVersion", value)?,
                        (2, value) => kind = text("kind", value)?,
                        _ => {}
                    }
                }
            }
            (2, wire::Value::Bytes(bytes)) => raw = bytes,
            // A content encoding or type of its own: nobody sends one.
            (3 | 4, wire::Value::Bytes(bytes)) if !bytes.is_empty() => return Err(DecodeError::UnknownKind),
            _ => {}
        }
    }
    let fields = schema::message(&api_version, &kind).ok_or(DecodeError::UnknownKind)?;
    let mut object = Map::new();
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    message(fields, raw, &mut object)?;
    Ok(object.into())
}

fn message(fields: &[Field], bytes: &[u8], object: &mut Map<String, Value>) -> Result<(), DecodeError> {
    for sent in Fields(bytes) {
        let (number, sent) = sent?;
        if let Some(field) = fields.iter().find(|field| field.number == number) {
            read(field, sent, object)?;
        }
    }
    for field in fields.iter().filter(|field| field.presence == Presence::NullableList) {
        object.entry(field.name).or_insert(Value::Null);
    }
    Ok(())
}

fn read(field: &Field, sent: wire::Value<'_>, object: &mut Map<String, Value>) -> Result<(), DecodeError> {
    let name = field.name;
    match (field.presence, field.kind) {
        (Presence::Inline, Kind::Of(fields)) => return message(fields, bytes_of(name, sent)?, object),
        (_, Kind::Map) => {
            let (key, value) = entry(name, bytes_of(name, sent)?)?;
            let map = object.entry(name).or_insert_with(|| Map::new().into());
            map.as_object_mut().ok_or(DecodeError::Value(name))?.insert(key, value.into());
            return Ok(());
        }
        _ => {}
    }
    let Some(value) = value(field, sent)? else { return Ok(()) };
    match field.presence {
        Presence::List | Presence::NullableList => {
            let list = object.entry(name).or_insert_with(|| Vec::<Value>::new().into());
            list.as_array_mut().ok_or(DecodeError::Value(name))?.push(value);
        }
        Presence::Omitted if is_zero(&value) => {}
        Presence::Kept | Presence::Omitted | Presence::Inline => {
            object.insert(name.into(), value);
        }
    }
    Ok(())
}

/// One value as JSON; `None` for a time that is not set.
fn value(field: &Field, sent: wire::Value<'_>) -> Result<Option<Value>, DecodeError> {
    let name = field.name;
    Ok(Some(match (field.kind, sent) {
        (Kind::Text, sent) => text(name, sent)?.into(),
        (Kind::Int, wire::Value::Varint(number)) => number.cast_signed().into(),
        (Kind::Bool, wire::Value::Varint(number)) => (number != 0).into(),
        (Kind::Bytes, sent) => base64::engine::general_purpose::STANDARD.encode(bytes_of(name, sent)?).into(),
        (Kind::Time, sent) => return time(name, bytes_of(name, sent)?, false),
        (Kind::MicroTime, sent) => return time(name, bytes_of(name, sent)?, true),
        (Kind::Json, sent) => return json(name, bytes_of(name, sent)?),
        (Kind::Of(fields), sent) => {
            let mut object = Map::new();
            message(fields, bytes_of(name, sent)?, &mut object)?;
            object.into()
        }
        (Kind::Int | Kind::Bool | Kind::Map, _) => return Err(DecodeError::Type(name)),
    }))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

fn bytes_of<'a>(name: &'static str, sent: wire::Value<'a>) -> Result<&'a [u8], DecodeError> {
    match sent {
        wire::Value::Bytes(bytes) => Ok(bytes),
        wire::Value::Varint(_) | wire::Value::Fixed => Err(DecodeError::Type(name)),
    }
}

fn text(name: &'static str, sent: wire::Value<'_>) -> Result<String, DecodeError> {
    let bytes = bytes_of(name, sent)?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Value(name))
}

/// One entry of a map: key (1), value (2).
fn entry(name: &'static str, bytes: &[u8]) -> Result<(String, String), DecodeError> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in Fields(bytes) {
        match field? {
            (1, sent) => key = text(name, sent)?,
            (2, sent) => value = text(name, sent)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Seconds (1) and nanoseconds (2) since 1970; nothing at all is the time that is not set.
fn time(name: &'static str, bytes: &[u8], micros: bool) -> Result<Option<Value>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields(bytes) {
        match field? {
            (1, wire::Value::Varint(number)) => seconds = number,
            (2, wire::Value::Varint(number)) => nanos = number,
            _ => {}
        }
    }
    // Before 1970 the number is negative, that is, above the bound.
    if seconds >= SECONDS_MAX || nanos >= 1_000_000_000 {
        return Err(DecodeError::Value(name));
    }
    let mut text = ingest::rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
    if micros {
        text = format!("{}.{:06}Z", text.trim_end_matches('Z'), nanos / 1_000);
    }
    Ok(Some(text.into()))
}

/// `FieldsV1`: JSON in a field (1) of its own.
fn json(name: &'static str, bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
    for field in Fields(bytes) {
        if let (1, wire::Value::Bytes(json)) = field? {
            return serde_json::from_slice(json).map(Some).map_err(|_| DecodeError::Value(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
