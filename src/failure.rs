//! Why the program ends, and with which exit code (those of BSD's `sysexits.h`).
//!
//! One failure is one line on standard error: what is wrong, and what to do where that is not obvious.

use std::path::Path;

use shardcache_storage::StorageError;

/// The program cannot do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A flag, file or key is wrong. Nothing was started. Exit code 64.
    #[error("{0}")]
    Usage(String),
    /// An address, a socket or a server cannot be used. Exit code 69.
    #[error("{0}")]
    Unavailable(String),
    /// The program itself broke. Exit code 70.
    #[error("{0}")]
    Internal(String),
    /// The store, or the directory for it, cannot be used. Exit code 74.
    #[error("{0}")]
    Store(String),
}

impl Failure {
    /// A wrong flag, file or key.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage(what.into())
    }

    /// A flag whose file cannot be read or used.
    pub fn file(flag: &str, path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Usage(format!("--{flag} {}: {problem}", path.display()))
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 64,
            Self::Unavailable(_) => 69,
            Self::Internal(_) => 70,
            Self::Store(_) => 74,
        }
    }

    /// The message on one line, whatever the cause put into it.
    pub fn line(&self) -> String {
        self.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::Store(error.to_string())
    }
}
