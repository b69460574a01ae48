//! Why a database cannot be opened, or backed up.

use shoal_disk::OpenFolderError;
use shoal_types::Error;
use shoal_wal::{FolderError, LogError};
use std::path::PathBuf;

/// Why a database on disk could not be opened, or backed up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder cannot be used, or another process uses it.
    #[error(transparent)]
    Folder(#[from] OpenFolderError),
    /// The log or a checkpoint cannot be used. Nothing was changed.
    #[error("{0}; `shoal doctor` says more")]
    Log(#[from] LogError),
    /// The rows do not fit the limits of the database, or it is not open any more.
    #[error(transparent)]
    Store(#[from] Error),
    /// A backup goes into an empty folder.
    #[error("{} is not empty; name a new folder", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The database is in memory, or is a cluster: it has no files.
    #[error("this database is not on disk; open one with Db::open")]
    NotOnDisk,
    /// The system gave no thread.
    #[error("cannot start a thread: {reason}")]
    Thread {
        /// What the system says.
        reason: String,
    },
}

impl From<FolderError> for OpenError {
    fn from(error: FolderError) -> OpenError {
        OpenError::Log(error.into())
    }
}
