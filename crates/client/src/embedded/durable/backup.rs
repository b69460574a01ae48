//! A copy of a database that is in use, into another folder: the newest checkpoint, and the log from there.

use super::checkpoint::Checkpoints;
use super::open_error::OpenError;
use super::shared::{Shared, Told};
use shoal_disk::{DiskFolder, LOCK};
use shoal_types::{Rejected, Unknown};
use shoal_wal::{Folder, FolderError, Position, SECTOR, SegmentFile, checkpoint_name};
use std::path::Path;
use std::sync::mpsc;

/// Bytes that are copied at once.
const COPIED_AT_ONCE: usize = 1 << 20;

/// Copies the files of `from`, as far as the log is flushed, into a folder that is new or empty. `checkpoints` are locked
/// by the caller: so no segment that is copied is used again meanwhile.
///
/// # Errors
/// See [`OpenError`]. What was copied stays, and is not complete.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    checkpoints: &Checkpoints,
    shared: &Shared,
) -> Result<(), OpenError> {
    let mut target = DiskFolder::open(to)?;
    if target.names()?.iter().any(|name| name != LOCK) {
        return Err(OpenError::NotEmpty { path: to.to_owned() });
    }
    let mut source = DiskFolder::view(from)?;
    let (answer, answered) = mpsc::channel();
    if !shared.tell(Told::Segments(answer)) {
        let reason = "its log has ended".into();
        return Err(OpenError::Store(Rejected::NotOpen { reason }.into()));
    }
    let Ok((segments, end)) = answered.recv() else {
        return Err(OpenError::Store(Unknown::LogFailed.into()));
    };
    let first = checkpoints.kept.first().map_or(1, |kept| kept.first);
    for (serial, file) in segments {
        if serial >= first && serial <= end.serial {
            copy_segment(&mut source, &mut target, file, Position { serial, ..end }, end)?;
        }
    }
    // Last: without it, a copy that was not completed does not look like one that was.
    if let Some(kept) = checkpoints.kept.first() {
        let name = checkpoint_name(kept.number);
        let bytes = source.length(&name)?;
        copy_file(&mut source, &mut target, &name, bytes)?;
    }
    Ok(target.flush_folder()?)
}

fn copy_segment(
    source: &mut DiskFolder,
    target: &mut DiskFolder,
    file: SegmentFile,
    place: Position,
    end: Position,
) -> Result<(), FolderError> {
    let name = file.to_string();
    let bytes = source.length(&name)?;
    let used = match place.serial == end.serial {
        true => end.offset.next_multiple_of(SECTOR),
        false => bytes,
    };
    copy_file(source, target, &name, used)?;
    // The rest is zeros, which take no room here.
    if used < bytes {
        target.write(&name, bytes - 1, &[0])?;
        target.flush(&name)?;
    }
    Ok(())
}

fn copy_file(
    source: &mut DiskFolder,
    target: &mut DiskFolder,
    name: &str,
    bytes: u64,
) -> Result<(), FolderError> {
    target.create(name)?;
    let mut buffer = vec![0; COPIED_AT_ONCE];
    let mut offset = 0;
    while offset < bytes {
        let wanted = buffer.len().min((bytes - offset) as usize);
        let count = source.read(name, offset, &mut buffer[..wanted])?;
        if count == 0 {
            let what = "it became shorter while it was copied".to_owned();
            return Err(FolderError { file: name.to_owned(), what, is_full: false });
        }
        target.write(name, offset, &buffer[..count])?;
        offset += count as u64;
    }
    target.flush(name)
}
