//! Storage in one file, as a `redb` database: each write is a transaction of its own.
//!
//! The file keeps more room on the disk than it uses ([`RESERVED_BYTES`]): on a full disk managers go on, and with them the leases by
//! which nodes answer reads.

use super::{Cell, RaftStorage};
use bytes::Bytes;
use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Range, RangeBounds};
use std::path::Path;

const CELLS: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("cells");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// The room of the file on the disk. Its length is near 1 MiB, and goes up and down with what it has: a snapshot, and the entries
/// since.
const RESERVED_BYTES: u64 = 4 << 20;

/// The storage of a replica in one file.
#[derive(Debug)]
pub struct DiskStorage {
    database: Database,
    /// After the database, which gives room back when it is closed.
    file: ReservedFile,
}

/// A file that keeps room on the disk.
#[derive(Debug)]
struct ReservedFile(File);

impl ReservedFile {
    /// Reserves the room again, which a file gives back when it gets shorter. Some file systems reserve none, and a disk may have
    /// none: then a write may fail later, which ends the node.
    fn reserve(&self) {
        let _ = fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, RESERVED_BYTES);
    }
}

impl Drop for ReservedFile {
    fn drop(&mut self) {
        self.reserve();
    }
}

impl DiskStorage {
    /// Opens the file at `path`, or makes it. Its folder has to exist.
    ///
    /// # Errors
    /// If it cannot be read or made, is of another format, or is open in another process.
    pub fn open(path: &Path) -> io::Result<DiskStorage> {
        let database = Database::create(path).map_err(failed)?;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let storage = DiskStorage { database, file: ReservedFile(file) };
        storage.file.reserve();
        let transaction = storage.database.begin_write().map_err(failed)?;
        transaction.open_table(CELLS).map_err(failed)?;
        transaction.open_table(LOG).map_err(failed)?;
        storage.commit(transaction)?;
        Ok(storage)
    }

    fn commit(&self, transaction: WriteTransaction) -> io::Result<()> {
        transaction.commit().map_err(failed)?;
        self.file.reserve();
        Ok(())
    }

    fn remove(&self, range: impl RangeBounds<u64>) -> io::Result<()> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut log = transaction.open_table(LOG).map_err(failed)?;
            log.retain_in(range, |_, _| false).map_err(failed)?;
        }
        self.commit(transaction)
    }
}

/// The key of a cell in the file.
fn number(cell: Cell) -> u8 {
    match cell {
        Cell::Vote => 0,
        Cell::Committed => 1,
        Cell::Purged => 2,
        Cell::Volume => 3,
        Cell::Snapshot => 4,
    }
}

fn failed(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(error) => error,
        error => io::Error::other(error),
    }
}

impl RaftStorage for DiskStorage {
    fn cell(&self, cell: Cell) -> io::Result<Option<Bytes>> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let cells = transaction.open_table(CELLS).map_err(failed)?;
        let value = cells.get(number(cell)).map_err(failed)?;
        Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn set_cell(&self, cell: Cell, value: &[u8]) -> io::Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        if cell == Cell::Committed {
            transaction.set_durability(Durability::None).map_err(failed)?;
        }
        {
            let mut cells = transaction.open_table(CELLS).map_err(failed)?;
            cells.insert(number(cell), value).map_err(failed)?;
        }
        self.commit(transaction)
    }

    fn last(&self) -> io::Result<Option<Bytes>> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let log = transaction.open_table(LOG).map_err(failed)?;
        let last = log.last().map_err(failed)?;
        Ok(last.map(|(_, entry)| Bytes::copy_from_slice(entry.value())))
    }

    fn read(&self, range: Range<u64>) -> io::Result<Vec<Bytes>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let transaction = self.database.begin_read().map_err(failed)?;
        let log = transaction.open_table(LOG).map_err(failed)?;
        let entries = log.range(range).map_err(failed)?;
        entries
            .map(|entry| {
                let (_, entry) = entry.map_err(failed)?;
                Ok(Bytes::copy_from_slice(entry.value()))
            })
            .collect()
    }

    fn append(&self, first: u64, entries: &[Bytes]) -> io::Result<()> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut log = transaction.open_table(LOG).map_err(failed)?;
            let last = log.last().map_err(failed)?.map(|(last, _)| last.value());
            assert!(last.is_none_or(|last| last < first), "{first} is stored after {last:?}");
            for (index, entry) in (first..).zip(entries) {
                log.insert(index, &entry[..]).map_err(failed)?;
            }
        }
        self.commit(transaction)
    }

    fn truncate(&self, from: u64) -> io::Result<()> {
        self.remove(from..)
    }

    fn purge(&self, end: u64) -> io::Result<()> {
        self.remove(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Where the file system can reserve room, which the usual ones of Linux can.
    #[test]
    fn the_file_has_more_room_than_it_uses() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let storage = DiskStorage::open(&path).expect("a file");
        let room = || std::fs::metadata(&path).expect("a file").blocks() * 512;
        let value = vec![7; 1 << 20];
        for index in 0..8 {
            storage.append(index, &[Bytes::from(value.clone())]).expect("written");
            storage.purge(index).expect("removed");
            assert!(room() >= RESERVED_BYTES, "{} bytes after {index}", room());
        }
        drop(storage);
        assert!(room() >= RESERVED_BYTES, "{} bytes after it was closed", room());
        let storage = DiskStorage::open(&path).expect("a file");
        assert_eq!(storage.last().expect("read"), Some(Bytes::from(value)));
    }
}
