//! Errors as Kubernetes `Status` objects: the only place where HTTP codes, reasons and shapes meet.

mod build;
mod field_error;

pub use field_error::FieldError;
pub(crate) use field_error::quote;

use serde_json::{Map, Value, json};

/// An answer other than success: HTTP code plus the body of a `Status`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct ApiError {
    /// HTTP status code, also in the body.
    pub code: u16,
    /// Kubernetes' reason; `""` is the unknown reason.
    pub reason: &'static str,
    /// Text for people; clients match on some of them.
    pub message: String,
    /// `details`, absent if all of it is empty.
    pub details: Details,
    /// `metadata.continue`, set with an expired continue token.
    pub continue_token: Option<String>,
}

/// `details` of a `Status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Object name.
    pub name: String,
    /// API group.
    pub group: String,
    /// Plural resource in most errors, the kind in Invalid.
    pub kind: String,
    /// Object uid.
    pub uid: String,
    /// Causes in order.
    pub causes: Vec<Cause>,
    /// Seconds after which to retry; also sent as the header `Retry-After` unless
    /// [`Details::no_retry_header`] is set.
    pub retry_after_seconds: u32,
    /// Suppresses the `Retry-After` header, which client-go and kube-rs obey for minutes.
    pub no_retry_header: bool,
}

/// One cause in [`Details`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    /// Such as `FieldValueForbidden`.
    pub reason: &'static str,
    /// Text.
    pub message: String,
    /// Field path.
    pub field: String,
}

impl ApiError {
    /// An error with empty details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Details::default(), continue_token: None }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = details;
        self
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message,
        });
        let fields = status.as_object_mut().expect("an object");
        if !self.reason.is_empty() {
            fields.insert("reason".into(), self.reason.into());
        }
        let details = self.details.json();
        if !details.is_empty() {
            fields.insert("details".into(), details.into());
        }
        fields.insert("code".into(), self.code.into());
        status
    }
}

impl Details {
    fn json(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (field, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                details.insert(field.into(), text.clone().into());
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".into(), self.causes.iter().map(Cause::json).collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        details
    }
}

impl Cause {
    fn json(&self) -> Value {
        let mut cause = Map::new();
        for (field, text) in [("reason", self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause.insert(field.into(), text.into());
            }
        }
        cause.into()
    }
}

#[cfg(test)]
mod tests;
