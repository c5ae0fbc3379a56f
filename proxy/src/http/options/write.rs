//! Options of POST, PUT and PATCH.

use std::time::Duration;

use crate::status::ApiError;

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
    pub fn parse(_query: &str, _kind: WriteKind) -> Result<Self, ApiError> {
        todo!()
    }
}
