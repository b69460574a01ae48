//! What a replica keeps through restarts: its log, and a few small facts.
//!
//! Storage knows nothing of what it stores. All calls block until they are done, and what was written
//! is on disk then; so a replica on a slow disk wants a runtime of its own.
//!
//! The log is compacted: once a snapshot is stored, the entries that it covers are removed, but for the last few.

mod disk;
mod memory;

pub use disk::DiskStorage;
pub use memory::InMemoryDisk;

use bytes::Bytes;
use std::fmt;
use std::io;
use std::ops::Range;

/// A small fact, of which the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// The leader that the replica follows, or the candidate it has voted for. Forgetting it may elect two leaders.
    Vote,
    /// Up to where the log is known to be committed. May be forgotten.
    Committed,
    /// Up to where the log was purged.
    Purged,
    /// Which volume this is.
    Volume,
    /// The snapshot that the log begins with.
    Snapshot,
}

/// Where a replica keeps what it must not forget. One replica at a time, which writes one thing at a
/// time; it reads at any time, and should not have to wait for a write to reach the disk.
///
/// An implementation promises that writes reach the disk in the order of the calls, each before
/// its call returns, but for [`Cell::Committed`]; and that each is done wholly or not at all.
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

    /// Adds entries from index `first` on, which is after all that are there. (That there is no gap is
    /// for others to see: the library's own tests leave some.)
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
