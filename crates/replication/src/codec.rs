//! Writes as bytes, and a reader that checks every length.
//!
//! ```text
//! writes = count u32 | write*
//! write  = table u32 | key length u16 | key | value length u32 | (value | delta)
//! delta  = epoch u32 | clock u64 | patch length u32 | patch
//! ```
//! Little-endian. A value length of `ffffffff` is a tombstone's. One with the highest bit set is followed by a delta: the
//! version that it changes, and the ranges that differ, as in the store's `change.rs`. Not derived: each write is encoded in place from borrowed
//! bytes, and the count is put in front once it is known.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use shoal_store::{Change, Delta, ReplayedWrite};
use shoal_types::limits::VALUE_BYTES_MAX;
use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch, StampRef, TableId};
use std::fmt;

const TOMBSTONE: u32 = u32::MAX;

/// Set in the length of a value of which a delta follows.
const DELTA: u32 = 1 << 31;

const _: () = assert!(VALUE_BYTES_MAX < DELTA as usize);

/// Entries of a stream that are not durable, beyond which no more parts of a long transaction are appended: what does not
/// fit on the way to the replicas stays where it is.
pub const PARTS_AHEAD_MAX: usize = 16;

/// Longest part by default, but for one write, in bytes of keys and values. Longer ones cost fewer steps.
pub const PART_BYTES_MAX: usize = 1 << 20;

/// Most writes of a part by default.
pub const PART_WRITES_MAX: usize = 1 << 12;

/// What a transaction makes of one row.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct StreamWrite {
    /// The table of the key.
    #[coded(short)]
    pub table: TableId,
    /// The key that is written.
    pub key: Bytes,
    /// What becomes of its row.
    pub change: Change<Bytes>,
}

/// A write of a list, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRef<'w> {
    /// The table of the key.
    pub table: TableId,
    /// The key that is written.
    pub key: &'w [u8],
    /// What becomes of its row.
    pub change: Change<&'w [u8]>,
}

impl<'w> WriteRef<'w> {
    /// A row that is written whole.
    pub fn row(table: TableId, key: &'w [u8], value: &'w [u8]) -> WriteRef<'w> {
        WriteRef { table, key, change: Change::Row(value) }
    }

    /// The same, as it is replayed under this stamp.
    pub fn replayed(self, stamp: StampRef<'w>) -> ReplayedWrite<'w> {
        let WriteRef { table, key, change } = self;
        ReplayedWrite { table, key, change, stamp }
    }
}

impl StreamWrite {
    /// The same, borrowed.
    pub fn borrowed(&self) -> WriteRef<'_> {
        WriteRef { table: self.table, key: &self.key, change: self.change.borrowed() }
    }
}

/// A list of writes as it is in an entry: nothing is allocated for its rows.
///
/// Invariant: all lengths in it were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedWrites {
    /// The writes, without their count.
    bytes: Bytes,
    count: usize,
}

impl EncodedWrites {
    /// How many writes there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of keys and values, and of what deltas are based on.
    pub fn content_bytes(&self) -> usize {
        self.bytes.len() - self.count * WRITE_HEADER_BYTES
    }

    /// The writes, in their order.
    pub fn iter(&self) -> impl Iterator<Item = WriteRef<'_>> + Clone {
        let mut rest = &self.bytes[..];
        (0..self.count).map(move |_| take_write(&mut rest).expect("its lengths were checked"))
    }

    /// The same, each to be kept for longer: it keeps the whole entry.
    pub fn shared(&self) -> impl Iterator<Item = StreamWrite> {
        self.iter().map(|WriteRef { table, key, change }| StreamWrite {
            table,
            key: self.bytes.slice_ref(key),
            change: change.map(|bytes| self.bytes.slice_ref(bytes)),
        })
    }
}

/// Table, and lengths of key and value.
const WRITE_HEADER_BYTES: usize = 4 + 2 + 4;

/// Takes the next write off; `None` where the bytes end before it does, or it is malformed.
fn take_write<'w>(rest: &mut &'w [u8]) -> Option<WriteRef<'w>> {
    let (table, after) = rest.split_first_chunk()?;
    let (key_bytes, after) = after.split_first_chunk()?;
    let (key, after) = after.split_at_checked(u16::from_le_bytes(*key_bytes).into())?;
    let (value_bytes, mut after) = after.split_first_chunk()?;
    let change = match u32::from_le_bytes(*value_bytes) {
        TOMBSTONE => Change::Delete,
        bytes if bytes & DELTA != 0 => Change::Delta(take_delta(bytes & !DELTA, &mut after)?),
        bytes => Change::Row(take_bytes(bytes, &mut after)?),
    };
    *rest = after;
    Some(WriteRef { table: TableId(u32::from_le_bytes(*table)), key, change })
}

/// Takes off the delta of a row of this length.
fn take_delta<'w>(length: u32, rest: &mut &'w [u8]) -> Option<Delta<&'w [u8]>> {
    let (epoch, after) = rest.split_first_chunk()?;
    let (clock, after) = after.split_first_chunk()?;
    let (bytes, mut after) = after.split_first_chunk()?;
    let patch = take_bytes(u32::from_le_bytes(*bytes), &mut after)?;
    let base = (Epoch(u32::from_le_bytes(*epoch)), Clock(u64::from_le_bytes(*clock)));
    *rest = after;
    let delta = Delta { base, length, patch };
    delta.is_well_formed().then_some(delta)
}

fn take_bytes<'w>(bytes: u32, rest: &mut &'w [u8]) -> Option<&'w [u8]> {
    let (taken, after) = rest.split_at_checked(bytes as usize)?;
    *rest = after;
    Some(taken)
}

impl fmt::Display for StreamWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.escape_ascii();
        match &self.change {
            Change::Delete => write!(f, "{key} deleted"),
            Change::Row(value) => write!(f, "{key}={}", value.escape_ascii()),
            Change::Delta(Delta { base: (epoch, clock), patch, .. }) => {
                write!(f, "{key} of {epoch}:{clock} patched by {}", patch.escape_ascii())
            }
        }
    }
}

/// Items with blanks between them.
pub fn spaced<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// Writes that are being added to a buffer, one by one.
pub struct PutWrites {
    count_at: usize,
    count: u32,
}

impl PutWrites {
    /// Adds an empty list of writes to a buffer.
    pub fn begin(bytes: &mut BytesMut) -> PutWrites {
        let count_at = bytes.len();
        bytes.put_u32_le(0);
        PutWrites { count_at, count: 0 }
    }

    /// Adds a write to the list.
    pub fn put(&mut self, bytes: &mut BytesMut, write: WriteRef<'_>) {
        let WriteRef { table, key, change } = write;
        self.count += 1;
        bytes.put_u32_le(table.0);
        bytes.put_u16_le(key.len() as u16);
        bytes.put_slice(key);
        match change {
            Change::Delete => bytes.put_u32_le(TOMBSTONE),
            Change::Row(value) => bytes.put_u32_le(value.len() as u32),
            Change::Delta(Delta { base: (epoch, clock), length, patch }) => {
                bytes.put_u32_le(length | DELTA);
                bytes.put_u32_le(epoch.0);
                bytes.put_u64_le(clock.0);
                bytes.put_u32_le(patch.len() as u32);
            }
        }
        bytes.put_slice(change.content());
    }

    /// All have been put.
    pub fn end(&self, bytes: &mut BytesMut) {
        bytes[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Adds writes; `writes` calls its argument for each of them.
pub fn put_writes(bytes: &mut BytesMut, writes: impl FnOnce(&mut dyn FnMut(WriteRef<'_>))) {
    let mut put = PutWrites::begin(bytes);
    writes(&mut |write| put.put(bytes, write));
    put.end(bytes);
}

/// A buffer that has grown beyond this, by a large transaction, is not kept.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// Copies a finished entry out of the buffer in which it was made, and begins another with an empty header. A buffer
/// for each would grow step by step, and each time the system would have to find and clear pages.
pub fn take_entry(buffer: &mut BytesMut, header_bytes: usize) -> Bytes {
    let entry = match buffer.capacity() > BUFFER_BYTES_MAX {
        true => std::mem::take(buffer).freeze(),
        false => Bytes::copy_from_slice(buffer),
    };
    buffer.clear();
    buffer.resize(header_bytes, 0);
    entry
}

/// Bytes that are no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry of {bytes} bytes is malformed at its byte {at}")]
pub struct MalformedEntry {
    at: usize,
    bytes: usize,
}

/// Takes apart what has its lengths checked. Keys and values stay where they are.
pub struct EntryReader {
    rest: Bytes,
    bytes: usize,
}

impl EntryReader {
    /// Reads an entry from its first byte.
    pub fn new(entry: Bytes) -> EntryReader {
        EntryReader { bytes: entry.len(), rest: entry }
    }

    /// What was read last makes no sense.
    pub fn malformed(&self) -> MalformedEntry {
        MalformedEntry { at: self.bytes - self.rest.len(), bytes: self.bytes }
    }

    fn need(&self, count: usize) -> Result<(), MalformedEntry> {
        if self.rest.len() < count {
            return Err(self.malformed());
        }
        Ok(())
    }

    /// Reads the next byte.
    ///
    /// # Errors
    /// Where the entry ends before.
    pub fn u8(&mut self) -> Result<u8, MalformedEntry> {
        self.need(1)?;
        Ok(self.rest.get_u8())
    }

    /// Reads the next four bytes, little-endian.
    ///
    /// # Errors
    /// Where the entry ends before.
    pub fn u32(&mut self) -> Result<u32, MalformedEntry> {
        self.need(4)?;
        Ok(self.rest.get_u32_le())
    }

    /// Reads the next eight bytes, little-endian.
    ///
    /// # Errors
    /// Where the entry ends before.
    pub fn u64(&mut self) -> Result<u64, MalformedEntry> {
        self.need(8)?;
        Ok(self.rest.get_u64_le())
    }

    /// Reads the next list of writes, which stays as it is.
    ///
    /// # Errors
    /// Where the entry ends before.
    pub fn encoded_writes(&mut self) -> Result<EncodedWrites, MalformedEntry> {
        let count = self.u32()? as usize;
        let mut rest = &self.rest[..];
        for _ in 0..count {
            take_write(&mut rest).ok_or_else(|| self.malformed())?;
        }
        let bytes = self.rest.len() - rest.len();
        Ok(EncodedWrites { bytes: self.rest.split_to(bytes), count })
    }

    /// Reads the next list of writes.
    ///
    /// # Errors
    /// Where the entry ends before.
    pub fn writes(&mut self) -> Result<Vec<StreamWrite>, MalformedEntry> {
        Ok(self.encoded_writes()?.shared().collect())
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), MalformedEntry> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.malformed()),
        }
    }
}
