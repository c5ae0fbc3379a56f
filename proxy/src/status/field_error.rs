//! Errors about one field, with the texts of apimachinery's `field.Error`.

use std::fmt::{self, Write as _};

use super::Cause;

/// One field's error: becomes a part of the message and one cause of an Invalid (422) status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `metadata.name`.
    pub field: String,
    /// Reason of the cause.
    pub reason: &'static str,
    /// Text without the field.
    pub body: String,
}

impl FieldError {
    fn new(field: impl Into<String>, reason: &'static str, body: String) -> Self {
        Self { field: field.into(), reason, body }
    }

    /// `Forbidden: <detail>`
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {detail}"))
    }

    /// `Required value: <detail>`, without the colon if there is no detail.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let colon = if detail.is_empty() { "" } else { ": " };
        Self::new(field, "FieldValueRequired", format!("Required value{colon}{detail}"))
    }

    /// `Invalid value: "<value>": <detail>` for text, quoted as Go quotes.
    pub fn invalid(field: impl Into<String>, value: &str, detail: impl fmt::Display) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {}: {detail}", quote(value)))
    }

    /// `Invalid value: <value>: <detail>` for a value that is printed bare, such as a number.
    pub fn invalid_bare(
        field: impl Into<String>,
        value: impl fmt::Display,
        detail: impl fmt::Display,
    ) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {value}: {detail}"))
    }

    /// `Unsupported value: "<value>": supported values: "a", "b"`
    pub fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        Self::not_supported_bare(field, quote(value), supported)
    }

    /// The same for a value that is printed bare, such as a list.
    pub fn not_supported_bare(
        field: impl Into<String>,
        value: impl fmt::Display,
        supported: &[&str],
    ) -> Self {
        let list = supported.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", ");
        let body = format!("Unsupported value: {value}: supported values: {list}");
        Self::new(field, "FieldValueNotSupported", body)
    }

    /// `Too long: may not be more than <max> bytes`
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(field, "FieldValueTooLong", format!("Too long: may not be more than {max} bytes"))
    }

    /// The cause in `details`.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.reason, message: self.body.clone(), field: self.field.clone() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

/// Go's `%q` of a text: quotes, backslashes and control characters escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\0'..='\x1f' | '\x7f' => {
                // Writing to a text cannot fail.
                let _ = write!(quoted, "\\x{:02x}", char as u32);
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
