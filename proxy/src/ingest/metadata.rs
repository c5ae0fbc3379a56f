//! Whether `metadata` has the types that Kubernetes gives it.
//!
//! One object whose `finalizers` is a number would break every typed client's list of its type, so it
//! must not get in. Values are not judged here, and nothing outside `metadata` is.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use shardcache_storage::Span;

use super::document::{Field, Member};
use super::timestamp::is_rfc3339;
use super::{IngestError, Object};
use crate::status::quote;

impl Object<'_> {
    /// Refuses an object whose metadata no client could decode.
    pub(super) fn check_types(&self) -> Result<(), IngestError> {
        for (name, span) in [("kind", self.document.kind), ("apiVersion", self.document.api_version)] {
            if let Some(span) = span {
                self.check_string("TypeMeta", name, span)?;
            }
        }
        check_plain("apiVersion", &self.api_version())?;
        let Some(metadata) = self.document.metadata else { return Ok(()) };
        if !matches!(self.raw(metadata), [b'{', ..] | b"null") {
            return Err(self.wrong_type("", "metadata", metadata, "ObjectMeta"));
        }
        for (field, name) in [
            (Field::Name, "name"),
            (Field::GenerateName, "generateName"),
            (Field::Namespace, "namespace"),
            (Field::Uid, "uid"),
            (Field::ResourceVersion, "resourceVersion"),
            (Field::SelfLink, "selfLink"),
        ] {
            if let Some(member) = self.field(field) {
                self.check_string(META, name, member.value)?;
            }
        }
        check_plain("metadata.uid", &self.uid())?;
        for (field, name) in
            [(Field::CreationTimestamp, "creationTimestamp"), (Field::DeletionTimestamp, "deletionTimestamp")]
        {
            if let Some(member) = self.field(field) {
                self.check_time(name, member.value)?;
            }
        }
        for (field, name) in [
            (Field::Generation, "generation"),
            (Field::DeletionGracePeriodSeconds, "deletionGracePeriodSeconds"),
        ] {
            if let Some(member) = self.field(field) {
                self.check_int64(name, member.value)?;
            }
        }
        self.check_map("labels", Field::Labels, &self.document.labels)?;
        self.check_map("annotations", Field::Annotations, &self.document.annotations)?;
        self.check_list::<AnyText>("finalizers", Field::Finalizers)?;
        self.check_list::<OwnerReference>("ownerReferences", Field::OwnerReferences)?;
        self.check_list::<ManagedFields>("managedFields", Field::ManagedFields)
    }

    fn check_string(&self, holder: &str, name: &str, span: Span) -> Result<(), IngestError> {
        if matches!(self.raw(span), [b'"', ..] | b"null") {
            return Ok(());
        }
        Err(self.wrong_type(holder, name, span, "string"))
    }

    fn check_time(&self, name: &str, span: Span) -> Result<(), IngestError> {
        self.check_string(META, name, span)?;
        if self.raw(span) == b"null" || is_rfc3339(&self.string(span)) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(self.raw(span)).into_owned();
        Err(IngestError::Field(format!(
            "metadata.{name}: parsing time {text} as \"2006-01-02T15:04:05Z07:00\": cannot parse it"
        )))
    }

    fn check_int64(&self, name: &str, span: Span) -> Result<(), IngestError> {
        let raw = self.raw(span);
        let number = std::str::from_utf8(raw).ok().and_then(|text| text.parse::<i64>().ok());
        if raw == b"null" || number.is_some() {
            return Ok(());
        }
        Err(self.wrong_type(META, name, span, "int64"))
    }

    fn check_map(&self, name: &str, field: Field, members: &[Member]) -> Result<(), IngestError> {
        let Some(member) = self.field(field) else { return Ok(()) };
        if !matches!(self.raw(member.value), [b'{', ..] | b"null") {
            return Err(self.wrong_type(META, name, member.value, "map[string]string"));
        }
        // Go would read a null value as "", but clients written in Rust would not read it at all.
        match members.iter().find(|member| !self.raw(member.value).starts_with(b"\"")) {
            Some(member) => Err(self.wrong_type(META, name, member.value, "string")),
            None => Ok(()),
        }
    }

    fn check_list<'de, T: Deserialize<'de>>(&'de self, name: &str, field: Field) -> Result<(), IngestError> {
        let Some(member) = self.field(field) else { return Ok(()) };
        serde_json::from_slice::<Option<Vec<T>>>(self.raw(member.value)).map(drop).map_err(|error| {
            let why = error.to_string();
            // The position would be one inside the list.
            let why = why.split(" at line ").next().unwrap_or_default();
            IngestError::Field(format!("json: cannot unmarshal Go struct field {META}.{name}: {why}"))
        })
    }

    fn wrong_type(&self, holder: &str, name: &str, span: Span, wanted: &str) -> IngestError {
        let found = match self.raw(span).first() {
            Some(b'"') => "string",
            Some(b'{') => "object",
            Some(b'[') => "array",
            Some(b't' | b'f') => "bool",
            Some(b'n') => "null",
            _ if wanted == "int64" => {
                let number = String::from_utf8_lossy(self.raw(span));
                return IngestError::Field(format!(
                    "json: cannot unmarshal number {number} into Go struct field {holder}.{name} of type {wanted}"
                ));
            }
            _ => "number",
        };
        let dot = if holder.is_empty() { "" } else { "." };
        IngestError::Field(format!(
            "json: cannot unmarshal {found} into Go struct field {holder}{dot}{name} of type {wanted}"
        ))
    }
}

/// The store keeps these as slices of the JSON, so they must read the same there.
fn check_plain(name: &str, text: &str) -> Result<(), IngestError> {
    if text.chars().any(|char| matches!(char, '"' | '\\' | '\0'..='\x1f')) {
        let why = "must not contain quotes, backslashes or control characters";
        return Err(IngestError::Field(format!("{name}: Invalid value: {}: {why}", quote(text))));
    }
    Ok(())
}

const META: &str = "ObjectMeta";

/// Any string; nothing is kept of it.
struct AnyText;

impl<'de> Deserialize<'de> for AnyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = AnyText;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, _: &str) -> Result<AnyText, E> {
                Ok(AnyText)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A time, or null.
struct AnyTime;

impl<'de> Deserialize<'de> for AnyTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        if is_rfc3339(&text) { Ok(Self) } else { Err(serde::de::Error::custom("not an RFC 3339 time")) }
    }
}

/// Any object; nothing is kept of it.
struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = AnyObject;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyObject, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(AnyObject)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types of the fields are checked")]
struct OwnerReference {
    api_version: Option<AnyText>,
    kind: Option<AnyText>,
    name: Option<AnyText>,
    uid: Option<AnyText>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types of the fields are checked")]
struct ManagedFields {
    manager: Option<AnyText>,
    operation: Option<AnyText>,
    api_version: Option<AnyText>,
    time: Option<AnyTime>,
    fields_type: Option<AnyText>,
    fields_v1: Option<AnyObject>,
    subresource: Option<AnyText>,
}
