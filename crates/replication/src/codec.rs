//! Writes as bytes, and a reader that checks every length.
//!
//! ```text
//! writes = count u32 | write*
//! write  = table u32 | key length u16 | key | value length u32 | value
//! ```
//! Little-endian. A value length of `ffffffff` is a tombstone's. Not derived: each write is encoded in place from borrowed
//! bytes, and the count is put in front once it is known.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use shoal_types::TableId;
use shoal_types::wire::Coded;
use std::fmt;

const TOMBSTONE: u32 = u32::MAX;

/// Entries of a stream that are not durable, beyond which no more parts of a long transaction are appended: what does not
/// fit on the way to the replicas stays where it is.
pub const PARTS_AHEAD_MAX: usize = 16;

/// Longest part by default, but for one write, in bytes of keys and values. Longer ones cost fewer steps.
pub const PART_BYTES_MAX: usize = 1 << 20;

/// Most writes of a part by default.
pub const PART_WRITES_MAX: usize = 1 << 12;

/// One key's new value, or `None` for a tombstone.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct StreamWrite {
    /// The table of the key.
    #[coded(short)]
    pub table: TableId,
    /// The key that is written.
    pub key: Bytes,
    /// The new value; `None` for a tombstone.
    pub value: Option<Bytes>,
}

/// A write of a list, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRef<'w> {
    /// The table of the key.
    pub table: TableId,
    /// The key that is written.
    pub key: &'w [u8],
    /// The new value; `None` for a tombstone.
    pub value: Option<&'w [u8]>,
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

    /// Bytes of keys and values.
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
        self.iter().map(|WriteRef { table, key, value }| StreamWrite {
            table,
            key: self.bytes.slice_ref(key),
            value: value.map(|value| self.bytes.slice_ref(value)),
        })
    }
}

/// Table, and lengths of key and value.
const WRITE_HEADER_BYTES: usize = 4 + 2 + 4;

/// Takes the next write off; `None` where the bytes end before it does.
fn take_write<'w>(rest: &mut &'w [u8]) -> Option<WriteRef<'w>> {
    let (table, after) = rest.split_first_chunk()?;
    let (key_bytes, after) = after.split_first_chunk()?;
    let (key, after) = after.split_at_checked(u16::from_le_bytes(*key_bytes).into())?;
    let (value_bytes, after) = after.split_first_chunk()?;
    let (value, after) = match u32::from_le_bytes(*value_bytes) {
        TOMBSTONE => (None, after),
        bytes => {
            let (value, after) = after.split_at_checked(bytes as usize)?;
            (Some(value), after)
        }
    };
    *rest = after;
    Some(WriteRef { table: TableId(u32::from_le_bytes(*table)), key, value })
}

impl fmt::Display for StreamWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={}", self.key.escape_ascii(), value.escape_ascii()),
            None => write!(f, "{} deleted", self.key.escape_ascii()),
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
    pub fn put(&mut self, bytes: &mut BytesMut, table: TableId, key: &[u8], value: Option<&[u8]>) {
        self.count += 1;
        bytes.put_u32_le(table.0);
        bytes.put_u16_le(key.len() as u16);
        bytes.put_slice(key);
        bytes.put_u32_le(value.map_or(TOMBSTONE, |value| value.len() as u32));
        bytes.put_slice(value.unwrap_or_default());
    }

    /// All have been put.
    pub fn end(&self, bytes: &mut BytesMut) {
        bytes[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Adds writes; `writes` calls its argument for each of them.
pub fn put_writes(
    bytes: &mut BytesMut,
    writes: impl FnOnce(&mut dyn FnMut(TableId, &[u8], Option<&[u8]>)),
) {
    let mut put = PutWrites::begin(bytes);
    writes(&mut |table, key, value| put.put(bytes, table, key, value));
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
