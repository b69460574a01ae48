//! The folder of a cluster that ends with its measurement.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct RemovedFolder(PathBuf);

impl RemovedFolder {
    /// Makes a folder in `parent` that no other cluster has. Its name begins with `prefix`.
    pub(super) fn new(parent: &Path, prefix: &str) -> io::Result<RemovedFolder> {
        fs::create_dir_all(parent)?;
        for number in 1_u64.. {
            let path = parent.join(format!("{prefix}-{number}"));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| RemovedFolder(path)),
            }
        }
        unreachable!("there are fewer folders than numbers")
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the folder of a measured cluster stays");
        }
    }
}
