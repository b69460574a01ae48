//! Writes that the system has not received yet, for folders that lose them with their process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A write: where it begins in its file, and its bytes.
pub(crate) type Write = (u64, Vec<u8>);

/// The writes to each file since it was flushed, in their order.
#[derive(Debug, Default)]
pub(crate) struct UnflushedWrites(Mutex<BTreeMap<String, Vec<Write>>>);

impl UnflushedWrites {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Write>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self, name: &str, offset: u64, bytes: &[u8]) {
        self.files().entry(name.to_owned()).or_default().push((offset, bytes.to_vec()));
    }

    /// The writes to a file, which are gone then.
    pub(crate) fn take(&self, name: &str) -> Vec<Write> {
        self.files().remove(name).unwrap_or_default()
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let mut files = self.files();
        files.remove(from).map(|writes| files.insert(to.to_owned(), writes));
    }

    /// The length of a file that has `written` bytes without these writes.
    pub(crate) fn length(&self, name: &str, written: u64) -> u64 {
        let files = self.files();
        let ends = files.get(name).into_iter().flatten();
        ends.map(|(offset, bytes)| offset + bytes.len() as u64).fold(written, u64::max)
    }

    /// Puts these writes over what was read of a file at `offset`, which were so many bytes. Returns how many there are now.
    pub(crate) fn read(&self, name: &str, offset: u64, into: &mut [u8], read: usize) -> usize {
        let files = self.files();
        let Some(writes) = files.get(name) else { return read };
        let mut length = read;
        for (at, bytes) in writes {
            let (first, end) = ((*at).max(offset), at + bytes.len() as u64);
            let end = end.min(offset + into.len() as u64);
            if first >= end {
                continue;
            }
            let place = (first - offset) as usize..(end - offset) as usize;
            // What lies between the end of the file and a write is zeros.
            if place.start > length {
                into[length..place.start].fill(0);
            }
            length = length.max(place.end);
            into[place].copy_from_slice(&bytes[(first - at) as usize..(end - at) as usize]);
        }
        length
    }
}
