//! Folders on real disks: [`DiskFolder`] implements the trait by which `shoal-wal` reads and writes files.
//!
//! Writes are positioned, and flushes are those of data (`fdatasync`): files of the log have their length before they are
//! written to. A folder belongs to one process at a time, by a lock on its file `lock`, which the system releases when the
//! process ends, in any way.

mod unflushed;

use rustix::fs::{Advice, fadvise};
use shoal_wal::{Folder, FolderError};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use thiserror::Error;
use unflushed::UnflushedWrites;

/// The name of the file that is locked, and has the id of the process that holds the lock.
pub const LOCK: &str = "lock";

/// Why a folder cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenFolderError {
    /// Another process has it, or this one has it open already.
    #[error("{} is in use{}; close it there first", path.display(), by(*process))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The id of the process that uses it, if that could be read.
        process: Option<u32>,
    },
    /// The folder could not be made, read or locked.
    #[error("{}: {what}", path.display())]
    Failed {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        what: String,
    },
}

fn by(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" by process {process}"))
}

fn failed_at(path: &Path, error: &io::Error) -> OpenFolderError {
    OpenFolderError::Failed { path: path.to_owned(), what: error.to_string() }
}

/// Locks the lock of a folder, for as long as the file is open.
fn take_lock(path: &Path, lock: &File) -> Result<(), OpenFolderError> {
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let text = fs::read_to_string(path.join(LOCK)).unwrap_or_default();
            let process = text.trim().parse().ok();
            Err(OpenFolderError::InUse { path: path.to_owned(), process })
        }
        Err(TryLockError::Error(error)) => Err(failed_at(path, &error)),
    }
}

/// Makes a folder, with those around it, where there is none. Their names are on the disk before anything in them counts: also that
/// of a folder which another process may have made, and ended before it had flushed its name.
fn create(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().take_while(|folder| !folder.exists()).count();
    fs::create_dir_all(path)?;
    let mut around = path.ancestors().skip(1);
    if missing == 0 {
        // Best effort: a folder in which others put this one may not be readable.
        let _ = around.next().map(flush_names);
    }
    around.take(missing).try_for_each(flush_names)
}

/// Flushes the names that a folder has.
///
/// # Errors
/// What the system says.
pub fn flush_names(folder: &Path) -> io::Result<()> {
    let is_here = folder.as_os_str().is_empty();
    File::open(if is_here { Path::new(".") } else { folder })?.sync_all()
}

/// A folder on a disk. The handles that [`another`](DiskFolder::another) makes share its lock, and may be used by different
/// threads, though not for the same file at once.
#[derive(Debug)]
pub struct DiskFolder {
    path: PathBuf,
    /// Those that were used.
    files: BTreeMap<String, File>,
    /// Held as long as a handle exists; `None` where the folder is only looked at.
    lock: Option<Arc<File>>,
    /// Whether flushes reach the disk.
    flushes: bool,
    /// How much longer a flush takes than it does.
    flush_delay: Duration,
    /// What was written since the last flush of each file, where the system receives it only then.
    unflushed: Option<Arc<UnflushedWrites>>,
    /// How many flushes are left that do not fail.
    flushes_left: Option<Arc<AtomicU32>>,
}

impl DiskFolder {
    /// Opens a folder to use it; makes it if it does not exist.
    ///
    /// # Errors
    /// See [`OpenFolderError`].
    pub fn open(path: &Path) -> Result<DiskFolder, OpenFolderError> {
        let failed = |error: io::Error| failed_at(path, &error);
        create(path).map_err(failed)?;
        let name = path.join(LOCK);
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut lock = options.open(&name).map_err(failed)?;
        take_lock(path, &lock)?;
        lock.set_len(0).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        let lock = Some(Arc::new(lock));
        let (path, flush_delay) = (path.to_owned(), Duration::ZERO);
        let (files, unflushed, flushes_left) = (BTreeMap::new(), None, None);
        let flushes = true;
        Ok(DiskFolder { path, files, lock, flushes, flush_delay, unflushed, flushes_left })
    }

    /// The same folder, where what is written counts as durable when the kernel has it: flushes do nothing.
    #[must_use]
    pub fn without_flushes(self) -> DiskFolder {
        DiskFolder { flushes: false, ..self }
    }

    /// The same folder, as if on a disk whose flushes take so much longer: to measure what that costs.
    #[must_use]
    pub fn with_flush_delay(self, flush_delay: Duration) -> DiskFolder {
        DiskFolder { flush_delay, ..self }
    }

    /// The same folder, where what is written reaches the system only with a flush: a process that is killed loses the rest, as a
    /// machine does that loses power. For tests.
    #[must_use]
    pub fn losing_unflushed(self) -> DiskFolder {
        DiskFolder { unflushed: Some(Arc::default()), ..self }
    }

    /// The same folder, where after so many flushes of files all fail. For tests.
    #[must_use]
    pub fn failing_after(self, flushes: u32) -> DiskFolder {
        DiskFolder { flushes_left: Some(Arc::new(AtomicU32::new(flushes))), ..self }
    }

    /// Checks that no process uses the folder, where it exists.
    ///
    /// # Errors
    /// [`OpenFolderError::InUse`], and where its lock cannot be read.
    pub fn check_free(path: &Path) -> Result<(), OpenFolderError> {
        match File::open(path.join(LOCK)) {
            Ok(lock) => take_lock(path, &lock),
            // A folder that was never used.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed_at(path, &error)),
        }
    }

    /// Opens a folder to look at it, whether or not a process uses it. What would change it fails, and flushes do nothing.
    ///
    /// # Errors
    /// Where it is no folder.
    pub fn view(path: &Path) -> Result<DiskFolder, OpenFolderError> {
        fs::read_dir(path).map_err(|error| failed_at(path, &error))?;
        let (path, files, flush_delay) = (path.to_owned(), BTreeMap::new(), Duration::ZERO);
        let (lock, unflushed, flushes_left) = (None, None, None);
        let flushes = false;
        Ok(DiskFolder { path, files, lock, flushes, flush_delay, unflushed, flushes_left })
    }

    /// Another handle of the same folder, for another thread.
    #[must_use]
    pub fn another(&self) -> DiskFolder {
        let DiskFolder { path, lock, unflushed, flushes_left, .. } = self;
        let (path, lock, unflushed) = (path.clone(), lock.clone(), unflushed.clone());
        let (flushes, flush_delay, files) = (self.flushes, self.flush_delay, BTreeMap::new());
        let flushes_left = flushes_left.clone();
        DiskFolder { path, files, lock, flushes, flush_delay, unflushed, flushes_left }
    }

    /// Whether flushes reach the disk.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.flushes
    }

    /// Flushes all files, and their names, also where flushes [do nothing](DiskFolder::without_flushes).
    ///
    /// # Errors
    /// What the system says.
    pub fn flush_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            match File::open(entry?.path()) {
                Ok(file) => file.sync_data()?,
                // Another thread has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        flush_names(&self.path)
    }

    /// The folder's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes that are free on the folder's disk for this process.
    ///
    /// # Errors
    /// What the system says.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn failed(&self, name: &str, error: &io::Error) -> FolderError {
        let is_full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let file = self.path.join(name).display().to_string();
        FolderError { file, what: error.to_string(), is_full }
    }

    fn check_owned(&self, name: &str) -> Result<(), FolderError> {
        let refused = || io::Error::other("the folder is only looked at");
        self.lock.as_ref().map(drop).ok_or_else(|| self.failed(name, &refused()))
    }

    /// A file that exists. When it is opened, what the system keeps of it in memory is dropped as far as it is on the disk: after
    /// a failed flush that may be more than the disk has.
    fn file(&mut self, name: &str) -> Result<&File, FolderError> {
        if !self.files.contains_key(name) {
            let is_owned = self.lock.is_some();
            let opened = OpenOptions::new().read(true).write(is_owned).open(self.path.join(name));
            let file = opened.map_err(|error| self.failed(name, &error))?;
            // Advice, which some file systems do not take.
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
            self.files.insert(name.to_owned(), file);
        }
        Ok(&self.files[name])
    }

    /// A file of this name is another one from now on.
    fn forget(&mut self, name: &str) {
        self.files.remove(name);
        if let Some(unflushed) = &self.unflushed {
            unflushed.take(name);
        }
    }

    fn with_file<T>(
        &mut self,
        name: &str,
        operation: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<T, FolderError> {
        let done = operation(self.file(name)?);
        done.map_err(|error| self.failed(name, &error))
    }
}

impl Folder for DiskFolder {
    fn names(&mut self) -> Result<Vec<String>, FolderError> {
        let entries = fs::read_dir(&self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|error| self.failed("", &error))?;
        // Names that are not text are those of others.
        let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.collect())
    }

    fn length(&mut self, name: &str) -> Result<u64, FolderError> {
        let unflushed = self.unflushed.clone();
        let written = self.with_file(name, |file| Ok(file.metadata()?.len()))?;
        Ok(unflushed.map_or(written, |unflushed| unflushed.length(name, written)))
    }

    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, FolderError> {
        let unflushed = self.unflushed.clone();
        let read = self.with_file(name, |file| file.read_at(into, offset))?;
        Ok(unflushed.map_or(read, |unflushed| unflushed.read(name, offset, into, read)))
    }

    fn create(&mut self, name: &str) -> Result<(), FolderError> {
        self.check_owned(name)?;
        self.forget(name);
        let created = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path.join(name));
        let file = created.map_err(|error| self.failed(name, &error))?;
        self.files.insert(name.to_owned(), file);
        Ok(())
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), FolderError> {
        self.check_owned(name)?;
        if let Some(unflushed) = &self.unflushed {
            unflushed.write(name, offset, bytes);
            return Ok(());
        }
        self.with_file(name, |file| file.write_all_at(bytes, offset))
    }

    fn write_back(&mut self, name: &str, offset: u64, bytes: usize) {
        let written = self.files.get(name).filter(|_| self.flushes && self.unflushed.is_none());
        if let Some(file) = written {
            // The system begins to write what it is advised to drop. Some file systems take no advice.
            let _ = fadvise(file, offset, NonZeroU64::new(bytes as u64), Advice::DontNeed);
        }
    }

    fn flush(&mut self, name: &str) -> Result<(), FolderError> {
        // First: on a slow disk nothing becomes durable before its flush is almost over.
        if self.flushes && !self.flush_delay.is_zero() {
            thread::park_timeout(self.flush_delay);
        }
        let written = self.unflushed.as_ref().map(|unflushed| unflushed.take(name));
        for (offset, bytes) in written.unwrap_or_default() {
            self.with_file(name, |file| file.write_all_at(&bytes, offset))?;
        }
        let is_spent = |left: &Arc<AtomicU32>| {
            let next = |left: u32| left.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err()
        };
        if self.flushes_left.as_ref().is_some_and(is_spent) {
            return Err(self.failed(name, &io::Error::other("flushes fail, as was asked for")));
        }
        if self.flushes {
            self.with_file(name, File::sync_data)?;
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), FolderError> {
        self.check_owned(from)?;
        self.forget(to);
        let (old, new) = (self.path.join(from), self.path.join(to));
        fs::rename(old, new).map_err(|error| self.failed(from, &error))?;
        self.files.remove(from).map(|file| self.files.insert(to.to_owned(), file));
        if let Some(unflushed) = &self.unflushed {
            unflushed.rename(from, to);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), FolderError> {
        self.check_owned(name)?;
        self.forget(name);
        fs::remove_file(self.path.join(name)).map_err(|error| self.failed(name, &error))
    }

    fn flush_folder(&mut self) -> Result<(), FolderError> {
        if !self.flushes {
            return Ok(());
        }
        flush_names(&self.path).map_err(|error| self.failed("", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::{NodeId, ShardId};
    use shoal_wal::{LogIdentity, LogWriter, Record, WriterOptions, perform, recover};
    use std::collections::VecDeque;

    const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(0), volume: 7 };

    #[test]
    fn a_folder_has_one_user_and_the_error_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = DiskFolder::open(folder.path()).unwrap();
        let second = first.another();
        drop(first);
        let error = DiskFolder::open(folder.path()).unwrap_err();
        assert_eq!(DiskFolder::check_free(folder.path()), Err(error.clone()));
        let process = Some(std::process::id());
        assert_eq!(error, OpenFolderError::InUse { path: folder.path().to_owned(), process });
        drop(second);
        assert_eq!(DiskFolder::check_free(folder.path()), Ok(()));
        DiskFolder::open(folder.path()).expect("it is free");
    }

    #[test]
    fn what_is_only_looked_at_does_not_change() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), b"abc").unwrap();
        let mut view = DiskFolder::view(folder.path()).unwrap();
        let mut bytes = [0; 8];
        assert_eq!((view.read("x", 1, &mut bytes), view.flush("x")), (Ok(2), Ok(())));
        assert!(view.write("x", 0, b"z").is_err() && view.remove("x").is_err());
        assert!(view.create("y").is_err() && view.rename("x", "y").is_err());
        assert_eq!(view.names().unwrap(), ["x"]);
        assert!(DiskFolder::view(&folder.path().join("none")).is_err());
    }

    #[test]
    fn what_is_not_flushed_is_lost_with_the_handles_where_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = DiskFolder::open(folder.path()).unwrap().losing_unflushed();
        disk.create("x").unwrap();
        disk.write("x", 0, b"abcd").unwrap();
        disk.flush("x").unwrap();
        disk.write("x", 1, b"BC").unwrap();
        disk.write("x", 2, b"cde").unwrap();
        disk.write("x", 6, b"g").unwrap();
        // Other handles of the process read it.
        let mut another = disk.another();
        let read = |disk: &mut DiskFolder, name: &str, offset| {
            let mut bytes = [b'.'; 9];
            let read = disk.read(name, offset, &mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        };
        assert_eq!((disk.length("x").unwrap(), read(&mut another, "x", 0)), (7, "aBcde\0g".into()));
        assert_eq!(read(&mut another, "x", 4), "e\0g");
        assert_eq!(read(&mut another, "x", 7), "");
        disk.rename("x", "y").unwrap();
        assert_eq!(read(&mut disk, "y", 1), "Bcde\0g");
        // The process that comes next does not.
        let mut view = DiskFolder::view(folder.path()).unwrap();
        assert_eq!(read(&mut view, "y", 0), "abcd");
        another.flush("y").unwrap();
        assert_eq!(read(&mut view, "y", 0), "aBcde\0g");
        disk.write("y", 0, b"z").unwrap();
        disk.create("y").unwrap();
        assert_eq!((disk.length("y").unwrap(), read(&mut disk, "y", 0)), (0, String::new()));
    }

    #[test]
    fn a_log_is_written_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions { segment_bytes: 8192, ..WriterOptions::default() };
        for start in 0..3 {
            let mut disk = DiskFolder::open(folder.path()).unwrap();
            let mut found = Vec::new();
            let visit = &mut |record: shoal_wal::RecordRef<'_>| found.push(record.payload.to_vec());
            let recovered = recover(&mut disk, Some(IDENTITY), 1, visit).unwrap();
            let expected: Vec<_> = (0..start).map(|number| vec![number; 5000]).collect();
            assert_eq!(found, expected);
            let mut effects = Vec::new();
            let mut writer = LogWriter::begin(IDENTITY, options, recovered, &mut effects);
            writer.append(Record { kind: 1, shard: ShardId(0), payload: vec![start; 5000] });
            writer.go_on(&mut effects);
            let mut effects = VecDeque::from(effects);
            while let Some(effect) = effects.pop_front() {
                let mut more = Vec::new();
                writer.step(perform(&mut disk, &effect), &mut more);
                effects.extend(more);
            }
            assert_eq!((writer.persisted(), writer.failure()), (1, None));
        }
    }
}
