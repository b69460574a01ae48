//! The durable state of a replica: its log, and a few cells.
//!
//! Storage does not interpret the bytes it stores. All calls block until they are done, and a write is on
//! disk when its call returns; so a replica on a slow disk should have a runtime of its own.
//!
//! The log is compacted: once a snapshot is stored, the entries that it covers are removed, except for the
//! last few.

mod disk;
mod memory;

pub use disk::DiskStorage;
pub use memory::InMemoryDisk;

use bytes::Bytes;
use std::fmt;
use std::io;
use std::ops::Range;

/// A named value, which a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// The leader that the replica follows, or the candidate that it has voted for. Losing it may elect two
    /// leaders.
    Vote,
    /// The index up to which the log is known to be committed. May be lost.
    Committed,
    /// The index up to which the log was purged.
    Purged,
    /// The identity of the volume.
    Volume,
    /// The snapshot with which the log begins.
    Snapshot,
}

/// The durable state of a replica. It is used by one replica at a time, which makes one write at a time;
/// reads happen at any time, and should not wait for a write to reach the disk.
///
/// An implementation guarantees that each write is on disk before its call returns, except for
/// [`Cell::Committed`], that writes reach the disk in order, and that each is atomic.
pub trait RaftStorage: fmt::Debug + Send + Sync + 'static {
    /// The value of a cell, if it was ever set.
    ///
    /// # Errors
    /// If it cannot be read.
    fn cell(&self, cell: Cell) -> io::Result<Option<Bytes>>;

    /// Sets a cell.
    ///
    /// # Errors
    /// If it cannot be written.
    fn set_cell(&self, cell: Cell, value: &[u8]) -> io::Result<()>;

    /// The last entry.
    ///
    /// # Errors
    /// If it cannot be read.
    fn last(&self) -> io::Result<Option<Bytes>>;

    /// The entries in `range` that are there, in order.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, range: Range<u64>) -> io::Result<Vec<Bytes>>;

    /// Adds entries from index `first` on, which is after all that are there. (Storage does not check for
    /// gaps: the library's own tests leave some.)
    ///
    /// # Errors
    /// If they cannot be written.
    fn append(&self, first: u64, entries: &[Bytes]) -> io::Result<()>;

    /// Removes the entries from `from` on.
    ///
    /// # Errors
    /// If they cannot be removed.
    fn truncate(&self, from: u64) -> io::Result<()>;

    /// Removes the entries before `end`.
    ///
    /// # Errors
    /// If they cannot be removed.
    fn purge(&self, end: u64) -> io::Result<()>;
}
