//! Storage in memory that outlives a replica, but not the process: for tests.

use super::{Cell, RaftStorage};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct InMemoryDisk {
    kept: Arc<Mutex<InMemoryContents>>,
}

#[derive(Debug, Default)]
struct InMemoryContents {
    cells: BTreeMap<Cell, Bytes>,
    log: BTreeMap<u64, Bytes>,
}

impl InMemoryDisk {
    /// A disk on which nothing was written yet.
    #[must_use]
    pub fn new() -> InMemoryDisk {
        InMemoryDisk::default()
    }

    fn kept(&self) -> MutexGuard<'_, InMemoryContents> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftStorage for InMemoryDisk {
    fn cell(&self, cell: Cell) -> io::Result<Option<Bytes>> {
        Ok(self.kept().cells.get(&cell).cloned())
    }

    fn set_cell(&self, cell: Cell, value: &[u8]) -> io::Result<()> {
        self.kept().cells.insert(cell, Bytes::copy_from_slice(value));
        Ok(())
    }

    fn last(&self) -> io::Result<Option<Bytes>> {
        Ok(self.kept().log.values().next_back().cloned())
    }

    fn read(&self, range: Range<u64>) -> io::Result<Vec<Bytes>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.kept().log.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    fn append(&self, first: u64, entries: &[Bytes]) -> io::Result<()> {
        let mut kept = self.kept();
        let last = kept.log.keys().next_back();
        assert!(last.is_none_or(|last| *last < first), "{first} is stored after {last:?}");
        kept.log.extend((first..).zip(entries.iter().cloned()));
        Ok(())
    }

    fn truncate(&self, from: u64) -> io::Result<()> {
        self.kept().log.split_off(&from);
        Ok(())
    }

    fn purge(&self, end: u64) -> io::Result<()> {
        let mut kept = self.kept();
        kept.log = kept.log.split_off(&end);
        Ok(())
    }
}
