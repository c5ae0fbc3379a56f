//! What can go wrong with a store, and what a caller should do about it.

use std::path::PathBuf;

use crate::object::RecordError;
use crate::resource_version::Revision;

/// A store operation failed as a whole. Refused single changes are [`crate::Refusal`], not errors.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The store file, or the directory for it, cannot be used; the text says what to do.
    #[error("{path}: {problem}", path = path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong and what to do, one line.
        problem: String,
    },
    /// Written by a newer version of this program.
    #[error(
        "the store has format {found}, this program reads up to {supported}: use the newer program, or restore an older backup"
    )]
    NewerFormat {
        /// Format version in the file.
        found: u32,
        /// Newest format this program reads.
        supported: u32,
    },
    /// What is on disk is not what was written.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The disk is full: reads go on, writes are possible again once space is free.
    #[error("the disk is full; writes are refused until space is free")]
    DiskFull,
    /// Writing failed for good: reads go on, writes need a restart.
    #[error("the store is read-only after a failed write: {0}")]
    ReadOnly(String),
    /// The writer's queue is full.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
    /// The history of the type before `floor` was compacted.
    #[error("history after {requested} is not complete: compacted up to {floor}")]
    Compacted {
        /// The revision asked for.
        requested: Revision,
        /// The oldest that can be asked for.
        floor: Revision,
    },
    /// A backup could not be written.
    #[error("backup failed: {0}")]
    Backup(String),
}

/// What a caller of a failed operation should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Fix the environment or the arguments.
    Invalid,
    /// Start over from the current state.
    Expired,
    /// Slow down and try again.
    Overloaded,
    /// Try again later or elsewhere.
    Unavailable,
    /// Stop; somebody must look at it.
    Corrupt,
}

impl StorageError {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Open { .. } | Self::NewerFormat { .. } | Self::Backup(_) => ErrorKind::Invalid,
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::DiskFull | Self::ReadOnly(_) | Self::Closed => ErrorKind::Unavailable,
            Self::Overloaded => ErrorKind::Overloaded,
            Self::Compacted { .. } => ErrorKind::Expired,
        }
    }
}

impl From<RecordError> for StorageError {
    fn from(error: RecordError) -> Self {
        Self::Corrupt(error.to_string())
    }
}
