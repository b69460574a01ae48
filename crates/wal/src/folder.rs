//! What the log asks of a disk: a folder with files, and the writes and flushes that a [`LogWriter`](crate::LogWriter) wants.

use crate::planted::DiskPlantedBugs;
use std::fmt;
use thiserror::Error;

/// Bytes that are written, and flushed, at once where a segment is made. A flush of the log waits for those of others in the queue of the
/// disk: more at once prolong the longest wait.
const ZEROS_AT_ONCE: usize = 1 << 20;

/// The file of a segment. It keeps its name when it is used again for a later part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile(pub u32);

impl SegmentFile {
    const PREFIX: &str = "log-";

    /// The file that has this name; `None` for names of other files.
    #[must_use]
    pub fn named(name: &str) -> Option<SegmentFile> {
        let number = name.strip_prefix(SegmentFile::PREFIX)?.parse().ok()?;
        let file = SegmentFile(number);
        (file.to_string() == name).then_some(file)
    }
}

impl fmt::Display for SegmentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:06}", SegmentFile::PREFIX, self.0)
    }
}

/// A failed operation on a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}: {what}")]
pub struct FolderError {
    /// The path or name of the file.
    pub file: String,
    /// What the system says.
    pub what: String,
    /// The disk has no room: the same may succeed later. After any other error the state of the file is not known.
    pub is_full: bool,
}

/// A folder that one process uses. Names are those of files in it. What is written is durable once the file is flushed; that
/// a file exists, has a new name, or is gone, once the folder is flushed.
pub trait Folder {
    /// The names of all files.
    ///
    /// # Errors
    /// What the system says, as for all methods.
    fn names(&mut self) -> Result<Vec<String>, FolderError>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn length(&mut self, name: &str) -> Result<u64, FolderError>;

    /// Reads from the disk, not from what the system keeps in memory where the two can be distinguished. Fewer bytes than fit into
    /// `into` are read at the end of the file only.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, FolderError>;

    /// Creates an empty file. One of the same name is replaced.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn create(&mut self, name: &str) -> Result<(), FolderError>;

    /// Writes bytes at a place in a file, which grows as needed.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), FolderError>;

    /// Has the system begin to write a part of a file to the disk, so that a later flush, and those of other files behind it, wait
    /// less. It makes nothing durable.
    fn write_back(&mut self, _name: &str, _offset: u64, _bytes: usize) {}

    /// Makes what was written to a file durable. Never called again for a file once it has failed.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn flush(&mut self, name: &str) -> Result<(), FolderError>;

    /// Gives a file another name. A file that has that name is replaced, in one step.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn rename(&mut self, from: &str, to: &str) -> Result<(), FolderError>;

    /// Removes a file.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn remove(&mut self, name: &str) -> Result<(), FolderError>;

    /// Makes names durable.
    ///
    /// # Errors
    /// See [`names`](Folder::names).
    fn flush_folder(&mut self) -> Result<(), FolderError>;

    /// The bugs that are planted in what uses the folder: none, but for folders of tests.
    fn planted(&self) -> DiskPlantedBugs {
        DiskPlantedBugs::default()
    }
}

/// What a [`LogWriter`](crate::LogWriter) wants to have done. Each effect is answered with one event. Effects other than
/// [`Make`](LogEffect::Make) are carried out in the order in which they were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEffect {
    /// Make a file of `bytes` zeros, durably. It may take long, and should delay no write: the log is written meanwhile.
    Make {
        /// The file, which does not exist, or is the rest of an earlier attempt.
        file: SegmentFile,
        /// Its length.
        bytes: u64,
    },
    /// Write bytes into a file that exists. No flush is asked for before it is answered.
    Write {
        /// The segment.
        file: SegmentFile,
        /// Where in the file; a multiple of [`SECTOR`](crate::SECTOR).
        offset: u64,
        /// What to write; its length is a multiple of [`SECTOR`](crate::SECTOR).
        bytes: Vec<u8>,
    },
    /// Make the last write durable.
    Flush {
        /// The segment.
        file: SegmentFile,
    },
    /// Remove a file that is not needed any more.
    Remove {
        /// The file of a former segment.
        file: SegmentFile,
    },
}

/// The answer to a [`LogEffect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    /// A file was made.
    Made(SegmentFile),
    /// The last write is done.
    Written,
    /// The last write is durable.
    Flushed,
    /// A file was removed.
    Removed(SegmentFile),
    /// There is no room to make this file. The owner reports [`Retry`](LogEvent::Retry) after a while.
    Full(SegmentFile),
    /// Try again what failed for lack of room.
    Retry,
    /// An operation failed. What of it is on the disk is not known: the writer does nothing more, and its process ends.
    Failed(FolderError),
}

/// Carries out an effect in a folder.
pub fn perform(folder: &mut (impl Folder + ?Sized), effect: &LogEffect) -> LogEvent {
    let done = match effect {
        LogEffect::Make { file, bytes } => match make(folder, &file.to_string(), *bytes) {
            Err(error) if error.is_full => {
                // What there is of it takes the room that others need. If it cannot be removed, it is made anew all the same.
                let _ = folder.remove(&file.to_string());
                return LogEvent::Full(*file);
            }
            made => made.map(|()| LogEvent::Made(*file)),
        },
        LogEffect::Write { file, offset, bytes } => {
            folder.write(&file.to_string(), *offset, bytes).map(|()| LogEvent::Written)
        }
        LogEffect::Flush { file } => {
            flush_segment(folder, &file.to_string()).map(|()| LogEvent::Flushed)
        }
        LogEffect::Remove { file } => {
            folder.remove(&file.to_string()).map(|()| LogEvent::Removed(*file))
        }
    };
    done.unwrap_or_else(LogEvent::Failed)
}

fn flush_segment(folder: &mut (impl Folder + ?Sized), name: &str) -> Result<(), FolderError> {
    let planted = folder.planted();
    if planted.skip_flush {
        return Ok(());
    }
    let flushed = folder.flush(name);
    // The system takes pages whose write has failed for clean: the second flush finds nothing to write.
    if flushed.is_err() && planted.retry_failed_flush { folder.flush(name) } else { flushed }
}

/// Makes a file of zeros, durably, and little by little. The zeros are written, so that later writes change no length and find their blocks: a
/// flush then writes data only.
fn make(folder: &mut (impl Folder + ?Sized), name: &str, bytes: u64) -> Result<(), FolderError> {
    folder.create(name)?;
    let zeros = vec![0; ZEROS_AT_ONCE.min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    let mut offset = 0;
    while offset < bytes {
        let count = (bytes - offset).min(zeros.len() as u64);
        folder.write(name, offset, &zeros[..count as usize])?;
        folder.flush(name)?;
        offset += count;
    }
    folder.flush_folder()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_are_read_back() {
        assert_eq!(SegmentFile::named("log-000012"), Some(SegmentFile(12)));
        assert_eq!(
            SegmentFile::named(&SegmentFile(1_234_567).to_string()),
            Some(SegmentFile(1_234_567))
        );
        for other in ["log-12", "log-+00012", "log-", "lock", "checkpoint-000012"] {
            assert_eq!(SegmentFile::named(other), None, "{other}");
        }
    }
}
