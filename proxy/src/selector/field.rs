//! Field selectors: equality on an object's name, namespace and the selectable fields of its type.
//!
//! Name and namespace come from the key. Other fields are read out of the JSON body when an object is
//! matched, without building it in memory; a field that is missing compares as the empty text.

mod leaf;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use shardcache_storage::{KeyParts, Object};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// One term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldTerm {
    /// Field path, such as `metadata.name`.
    pub field: Arc<str>,
    /// Value.
    pub value: Arc<str>,
    /// `=` or `==` if true, `!=` if false.
    pub equal: bool,
}

/// A conjunction of terms, sorted and without duplicates. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector(Box<[FieldTerm]>);

impl FieldSelector {
    /// Parses Kubernetes' grammar; the error is the message kube-apiserver gives (400).
    ///
    /// Terms are separated by commas, empty ones are skipped. In values `\\`, `\,` and `\=` stand for the
    /// character; any other backslash, and a bare `=`, is an error. White space is significant.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        // As apimachinery, which names the first wrong term in this order.
        let mut parts = split_terms(text);
        parts.sort_unstable();
        for term in parts {
            if term.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = split_term(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            // As apimachinery: nothing equal to nothing is no condition.
            if field.is_empty() && value.is_empty() {
                continue;
            }
            terms.push(FieldTerm { field: field.into(), value: unescape(value)?.into(), equal });
        }
        terms.sort();
        terms.dedup();
        Ok(Self(terms.into()))
    }

    /// Refuses fields that are not selectable: `metadata.name`, `metadata.namespace` if `namespaced`, and
    /// `selectable` (such as `spec.color`) are. The error is kube's `field label not supported: …`.
    pub fn check(&self, namespaced: bool, selectable: &[impl AsRef<str>]) -> Result<(), String> {
        for term in &self.0 {
            let known = match &*term.field {
                NAME => true,
                NAMESPACE => namespaced,
                field => selectable.iter().any(|candidate| candidate.as_ref() == field),
            };
            if !known {
                return Err(format!("field label not supported: {}", term.field));
            }
        }
        Ok(())
    }

    /// Whether the object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.is_empty() || self.matches_parts(object.parts(), object.body_bytes())
    }

    /// Whether an object with this key and JSON body is selected.
    pub(crate) fn matches_parts(&self, key: KeyParts<'_>, body: &[u8]) -> bool {
        self.0.iter().all(|term| {
            let found = match &*term.field {
                NAME => Cow::Borrowed(key.name),
                NAMESPACE => Cow::Borrowed(key.namespace),
                field => leaf::text(body, field),
            };
            (*found == *term.value) == term.equal
        })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name an equal `metadata.name` term demands.
    pub fn name(&self) -> Option<&str> {
        self.0.iter().find(|term| term.equal && *term.field == *NAME).map(|term| &*term.value)
    }

    /// The terms.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.0
    }
}

/// The canonical text: parses to an equal selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field, if self.equal { "=" } else { "!=" })?;
        for char in self.value.chars() {
            let backslash = if matches!(char, '\\' | ',' | '=') { "\\" } else { "" };
            write!(f, "{backslash}{char}")?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash precedes; the escapes stay in the terms.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator; nothing can be escaped on its left.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let (field, rest) = term.split_at(at);
    if let Some(field) = field.strip_suffix('!') {
        return Some((field, false, &rest[1..]));
    }
    Some((field, true, rest.strip_prefix("==").unwrap_or(&rest[1..])))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            // apimachinery prints the character's number here.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", char as u32));
            }
            _ => text.push(char),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
