//! Storage in one file, as a `redb` database: each write is a transaction of its own.

use super::{Cell, RaftStorage};
use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::io;
use std::ops::{Range, RangeBounds};
use std::path::Path;

const CELLS: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("cells");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// The storage of a replica in one file.
#[derive(Debug)]
pub struct DiskStorage {
    database: Database,
}

impl DiskStorage {
    /// Opens the file at `path`, or makes it. Its folder has to exist.
    ///
    /// # Errors
    /// If it cannot be read or made, is of another format, or is open in another process.
    pub fn open(path: &Path) -> io::Result<DiskStorage> {
        let database = Database::create(path).map_err(failed)?;
        let transaction = database.begin_write().map_err(failed)?;
        transaction.open_table(CELLS).map_err(failed)?;
        transaction.open_table(LOG).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(DiskStorage { database })
    }

    fn remove(&self, range: impl RangeBounds<u64>) -> io::Result<()> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut log = transaction.open_table(LOG).map_err(failed)?;
            log.retain_in(range, |_, _| false).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
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
        transaction.commit().map_err(failed)
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
        transaction.commit().map_err(failed)
    }

    fn truncate(&self, from: u64) -> io::Result<()> {
        self.remove(from..)
    }

    fn purge(&self, end: u64) -> io::Result<()> {
        self.remove(..end)
    }
}
