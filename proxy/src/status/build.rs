//! Constructors named after Kubernetes' errors, with its codes, reasons, texts and details.

use std::fmt;

use shardcache_storage::TypeName;

use super::{ApiError, Cause, Details, FieldError};

/// Text of an expired continue token; upstream's tests match on it.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can \
     start a new list without the continue parameter, or use the continue token in this response to retrieve the \
     remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
     created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl ApiError {
    /// 400 `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403 Forbidden with a free text.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// 404 for an object that does not exist.
    pub fn not_found(type_name: &TypeName, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", type_name.qualified());
        Self::new(404, "NotFound", message).about(type_name, name)
    }

    /// 404 for a path, group, version or type that is not served; clients read it as "unknown type".
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405: `<action> is not supported on resources of kind "<resource>"`.
    pub fn method_not_allowed(type_name: &TypeName, action: &str) -> Self {
        let resource = type_name.qualified();
        let message = format!("{action} is not supported on resources of kind \"{resource}\"");
        Self::new(405, "MethodNotAllowed", message).about(type_name, "")
    }

    /// 406: the client accepts nothing we can write.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// 409: an object has the name.
    pub fn already_exists(type_name: &TypeName, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", type_name.qualified());
        Self::new(409, "AlreadyExists", message).about(type_name, name)
    }

    /// 409: `generateName` met taken names only.
    pub fn generate_name_conflict(type_name: &TypeName, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            type_name.qualified()
        );
        let mut error = Self::new(409, "AlreadyExists", message).about(type_name, name);
        error.details.retry_after_seconds = 1;
        error
    }

    /// 409: `Operation cannot be fulfilled on … : <why>`.
    pub fn conflict(type_name: &TypeName, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", type_name.qualified());
        Self::new(409, "Conflict", message).about(type_name, name)
    }

    /// 409: the resourceVersion sent is not the object's.
    pub fn modified(type_name: &TypeName, name: &str) -> Self {
        Self::conflict(
            type_name,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409: a uid precondition does not hold.
    pub fn uid_precondition(type_name: &TypeName, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(type_name, name, why)
    }

    /// 410 Expired with a free text.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 410: a LIST at a version that is compacted or of another timeline.
    pub fn list_expired() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// 410: a WATCH after a version that is compacted or of another timeline.
    pub fn watch_expired() -> Self {
        Self::expired("The resourceVersion for the provided watch is too old.")
    }

    /// 410: a WATCH from before the history: `too old resource version: <requested> (<oldest>)`.
    pub fn too_old_resource_version(requested: impl fmt::Display, oldest: impl fmt::Display) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// 410: the page's version is gone; the client may go on with the encoded token, which is put in
    /// `metadata.continue` and should be the expired one's inconsistent form.
    pub fn continue_expired(inconsistent_token: String) -> Self {
        let mut error = Self::expired(CONTINUE_EXPIRED);
        error.continue_token = Some(inconsistent_token);
        error
    }

    /// 413: the body is larger than `limit` bytes.
    pub fn too_large(limit: u64) -> Self {
        Self::request_entity_too_large(format!("limit is {limit}"))
    }

    /// 413: `Request entity too large: <why>`.
    pub fn request_entity_too_large(why: impl fmt::Display) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
    }

    /// 415: the body is none of the accepted media types.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422: `<Kind>.<group> "<name>" is invalid: <errors>`, one cause per error.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{kind}{dot}{group} \"{name}\" is invalid: {text}");
        Self::new(422, "Invalid", message).with_details(Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes: errors.iter().map(FieldError::cause).collect(),
            ..Details::default()
        })
    }

    /// 429 with `Retry-After`.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message);
        error.details.retry_after_seconds = retry_after_seconds;
        error
    }

    /// 500 `InternalError` with kube's prefix.
    pub fn internal(message: impl fmt::Display) -> Self {
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.details.causes.push(Cause { message: message.to_string(), ..Cause::default() });
        error
    }

    /// 503 with `Retry-After`.
    pub fn unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(503, "ServiceUnavailable", message);
        error.details.retry_after_seconds = retry_after_seconds;
        error
    }

    /// 504: `Timeout: <why>`.
    pub fn timeout(why: impl fmt::Display, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(504, "Timeout", format!("Timeout: {why}"));
        error.details.retry_after_seconds = retry_after_seconds;
        error
    }

    /// 504: a version that is still to come; the cause is what client-go recognises (R14).
    pub fn too_large_resource_version(requested: impl fmt::Display, current: impl fmt::Display) -> Self {
        let why = format!("Too large resource version: {requested}, current: {current}");
        let mut error = Self::timeout(why, 1);
        error.details.causes.push(Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        });
        error
    }

    /// 507: the store holds as much as it may.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::new(507, "InsufficientStorage", message)
    }

    fn about(mut self, type_name: &TypeName, name: &str) -> Self {
        self.details.name = name.into();
        self.details.group = type_name.group().into();
        self.details.kind = type_name.resource().into();
        self
    }
}
