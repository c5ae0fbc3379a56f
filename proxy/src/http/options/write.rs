//! Options of POST, PUT and PATCH.

use std::time::Duration;

use serde::Serialize;

use super::query::Query;
use crate::status::{ApiError, FieldError};

/// Bytes of `fieldManager`.
const FIELD_MANAGER_MAX: usize = 128;

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Say nothing.
    Ignore,
    /// Answer with `Warning` headers.
    #[default]
    Warn,
    /// Refuse with 400.
    Strict,
}

/// Which options type a refusal names: the `kind` in the 422 body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
}

/// Options of POST, PUT and PATCH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Validate and answer, store nothing.
    pub dry_run: bool,
    /// As sent; the default is the caller's business.
    pub field_manager: Option<String>,
    /// Unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// The client's deadline (`timeout=`), uncapped.
    pub timeout: Option<Duration>,
}

impl WriteOptions {
    /// Parses and validates; 400 or 422 as kube-apiserver.
    pub fn parse(query: &str, kind: WriteKind) -> Result<Self, ApiError> {
        let query = Query::parse(query);
        let timeout = query.timeout()?;
        let mut errors = Vec::new();
        if kind == WriteKind::Patch && query.get("force").is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        let field_manager = query.text("fieldManager");
        errors.extend(field_manager_errors(field_manager));
        let dry_run: Vec<_> = query.all("dryRun").collect();
        errors.extend(dry_run_error(&dry_run));
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", other, &supported));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind.options(), "", &errors));
        }
        let field_manager = Some(field_manager.to_owned()).filter(|manager| !manager.is_empty());
        Ok(Self { dry_run: !dry_run.is_empty(), field_manager, field_validation, timeout })
    }
}

impl WriteKind {
    fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch => "PatchOptions",
        }
    }
}

/// `All` is the only stage there is.
pub(super) fn dry_run_error<T: AsRef<str> + Serialize>(values: &[T]) -> Option<FieldError> {
    if values.iter().all(|value| value.as_ref() == "All") {
        return None;
    }
    let list = serde_json::to_string(values).expect("a list of texts always encodes");
    Some(FieldError::not_supported_bare("dryRun", list, &["All"]))
}

fn field_manager_errors(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_MAX));
    }
    for (at, char) in manager.char_indices() {
        // Go's unicode.IsPrint: of white space, the blank alone is printable.
        if char.is_control() || (char != ' ' && char.is_whitespace()) {
            let why = format!("invalid character U+{:04X} (at position {at})", char as u32);
            errors.push(FieldError::invalid("fieldManager", manager, why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(query: &str, kind: WriteKind) -> ApiError {
        WriteOptions::parse(query, kind).expect_err(query)
    }

    #[test]
    fn defaults_and_legal_values() {
        assert_eq!(WriteOptions::parse("", WriteKind::Create), Ok(WriteOptions::default()));
        let query =
            "fieldManager=kubectl-create&fieldValidation=Strict&dryRun=All&dryRun=All&timeout=10s&pretty=1";
        let expected = WriteOptions {
            dry_run: true,
            field_manager: Some("kubectl-create".into()),
            field_validation: FieldValidation::Strict,
            timeout: Some(Duration::from_secs(10)),
        };
        assert_eq!(WriteOptions::parse(query, WriteKind::Update), Ok(expected));
        let ignore =
            WriteOptions::parse("fieldValidation=Ignore&fieldManager=", WriteKind::Patch).expect("legal");
        assert_eq!((ignore.field_validation, ignore.field_manager), (FieldValidation::Ignore, None));
        // `force` belongs to server-side apply; elsewhere it is an unknown parameter.
        assert!(WriteOptions::parse("force=true", WriteKind::Create).is_ok());
    }

    #[test]
    fn bad_options_are_422_with_kube_s_texts() {
        let long = "m".repeat(129);
        let table = [
            ("dryRun=Some".to_owned(), "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
            ("dryRun=".to_owned(), "dryRun: Unsupported value: [\"\"]: supported values: \"All\""),
            (
                "dryRun=All&dryRun=x".to_owned(),
                "dryRun: Unsupported value: [\"All\",\"x\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=strict".to_owned(),
                "fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (format!("fieldManager={long}"), "fieldManager: Too long: may not be more than 128 bytes"),
            (
                "fieldManager=a%09b".to_owned(),
                "fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)",
            ),
        ];
        for (query, message) in table {
            for (kind, name) in [
                (WriteKind::Create, "CreateOptions"),
                (WriteKind::Update, "UpdateOptions"),
                (WriteKind::Patch, "PatchOptions"),
            ] {
                let error = error(&query, kind);
                assert_eq!((error.code, error.reason), (422, "Invalid"));
                assert_eq!(error.message, format!("{name}.meta.k8s.io \"\" is invalid: {message}"));
                assert_eq!((&*error.details.group, &*error.details.kind), ("meta.k8s.io", name));
            }
        }
        let error = error("force=true&dryRun=x", WriteKind::Patch);
        assert_eq!(
            error.message,
            "PatchOptions.meta.k8s.io \"\" is invalid: [force: Forbidden: may not be specified for non-apply patch, \
             dryRun: Unsupported value: [\"x\"]: supported values: \"All\"]"
        );
        assert_eq!(error.details.causes.len(), 2);
    }
}
