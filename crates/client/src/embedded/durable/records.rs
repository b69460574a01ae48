//! What an embedded database writes into its log and its checkpoints. `docs/log-format.md` has the grammar.

use shoal_store::{Change, Delta, DeltaUse, Locked, Session};
use shoal_types::{Clock, Epoch, TableId};
use std::ops::DerefMut;

/// The kinds of records in the log.
pub(super) const TRANSACTION: u8 = 1;
pub(super) const TABLE_CREATED: u8 = 2;
pub(super) const TABLE_DROPPED: u8 = 3;

/// The kinds of blocks of a checkpoint.
pub(super) const HEAD: u8 = 1;
pub(super) const ROWS: u8 = 2;
pub(super) const TAIL: u8 = 3;

/// Where a tombstone has its value's length.
const TOMBSTONE: u32 = u32::MAX;

/// Where a delta has its value's length.
const DELTA: u32 = u32::MAX - 1;

/// A write, as it stands in a record or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteRef<'r> {
    pub(super) table: TableId,
    pub(super) key: &'r [u8],
    pub(super) change: Change<&'r [u8]>,
}

impl WriteRef<'_> {
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        let value_length = match self.change {
            Change::Delete => TOMBSTONE,
            Change::Row(row) => row.len() as u32,
            Change::Delta(_) => DELTA,
        };
        into.extend(self.table.0.to_le_bytes());
        into.extend((self.key.len() as u32).to_le_bytes());
        into.extend(value_length.to_le_bytes());
        into.extend(self.key);
        if let Change::Delta(Delta { base: (_, base), length, patch }) = self.change {
            into.extend(base.0.to_le_bytes());
            into.extend(length.to_le_bytes());
            into.extend((patch.len() as u32).to_le_bytes());
        }
        into.extend(self.change.content());
    }
}

/// The record of a transaction, with room for its clock: that is drawn later. A row that stays the same in most places is a
/// delta: the version that it overwrites has a lower clock, so it is in the log before, or in the checkpoint.
pub(super) fn encode_transaction<S: DerefMut<Target = Session>>(locked: &Locked<S>) -> Vec<u8> {
    let (mut record, mut patch) = (vec![0; 8], Vec::new());
    locked.writes(|locked| {
        let change = locked.change(DeltaUse::Short, |_| true, &mut patch);
        WriteRef { table: locked.table, key: locked.key, change }.encode(&mut record);
    });
    record
}

/// Puts the clock into a transaction's record.
pub(super) fn set_clock(record: &mut [u8], clock: Clock) {
    record[..8].copy_from_slice(&clock.0.to_le_bytes());
}

/// The record of a table: its id, and its name where it was created.
pub(super) fn encode_table(table: TableId, name: &str) -> Vec<u8> {
    [&table.0.to_le_bytes(), name.as_bytes()].concat()
}

/// Reads numbers and bytes from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'r>(pub(super) &'r [u8]);

impl<'r> Fields<'r> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(super) fn write(&mut self) -> Option<WriteRef<'r>> {
        let (table, key, value) = (TableId(self.u32()?), self.u32()?, self.u32()?);
        let key = self.bytes(key as usize)?;
        let change = match value {
            TOMBSTONE => Change::Delete,
            DELTA => Change::Delta(self.delta()?),
            length => Change::Row(self.bytes(length as usize)?),
        };
        change.is_well_formed().then_some(WriteRef { table, key, change })
    }

    fn delta(&mut self) -> Option<Delta<&'r [u8]>> {
        let base = (Epoch::default(), Clock(self.u64()?));
        let (length, patch) = (self.u32()?, self.u32()?);
        Some(Delta { base, length, patch: self.bytes(patch as usize)? })
    }

    /// A table's id and the rest as its name.
    pub(super) fn table(&mut self) -> Option<(TableId, &'r str)> {
        let table = TableId(self.u32()?);
        Some((table, std::str::from_utf8(self.bytes(self.0.len())?).ok()?))
    }
}

/// What a checkpoint begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckpointBegin {
    /// All transactions up to this clock are in it.
    pub(super) clock: Clock,
    /// Above the ids of all tables that were ever created.
    pub(super) next_table: TableId,
    /// The tables that exist; all other ids are of dropped ones.
    pub(super) tables: Vec<(Box<str>, TableId)>,
}

impl CheckpointBegin {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = self.clock.0.to_le_bytes().to_vec();
        block.extend(self.next_table.0.to_le_bytes());
        for (name, table) in &self.tables {
            block.extend(table.0.to_le_bytes());
            block.extend((name.len() as u32).to_le_bytes());
            block.extend(name.as_bytes());
        }
        block
    }

    pub(super) fn decode(block: &[u8]) -> Option<CheckpointBegin> {
        let mut fields = Fields(block);
        let (clock, next_table) = (Clock(fields.u64()?), TableId(fields.u32()?));
        let mut tables = Vec::new();
        while !fields.is_empty() {
            let (table, length) = (TableId(fields.u32()?), fields.u32()?);
            let name = std::str::from_utf8(fields.bytes(length as usize)?).ok()?;
            tables.push((name.into(), table));
        }
        Some(CheckpointBegin { clock, next_table, tables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let patch = &[1, 0, 1, 0, 7][..];
        let delta = Delta { base: (Epoch::default(), Clock(8)), length: 3, patch };
        let writes = [
            WriteRef { table: TableId(3), key: b"k", change: Change::Row(b"value") },
            WriteRef { table: TableId(4), key: b"key", change: Change::Delete },
            WriteRef { table: TableId(6), key: b"key", change: Change::Delta(delta) },
            WriteRef { table: TableId(5), key: b"", change: Change::Row(b"") },
        ];
        let mut bytes = Vec::new();
        writes.iter().for_each(|write| write.encode(&mut bytes));
        let mut fields = Fields(&bytes);
        assert_eq!(writes.map(Some), std::array::from_fn(|_| fields.write()));
        assert!(fields.is_empty());
        let begin = CheckpointBegin {
            clock: Clock(7),
            next_table: TableId(9),
            tables: vec![("a".into(), TableId(2)), ("table".into(), TableId(8))],
        };
        assert_eq!(CheckpointBegin::decode(&begin.encode()), Some(begin));
        let table = encode_table(TableId(6), "name");
        assert_eq!(Fields(&table).table(), Some((TableId(6), "name")));
    }

    #[test]
    fn what_is_cut_is_not_decoded() {
        let delta =
            Delta { base: (Epoch::default(), Clock(8)), length: 3, patch: &[1, 0, 1, 0, 7][..] };
        for change in [Change::Row(&b"value"[..]), Change::Delta(delta)] {
            let mut bytes = Vec::new();
            WriteRef { table: TableId(3), key: b"k", change }.encode(&mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(Fields(&bytes[..cut]).write(), None);
            }
        }
    }

    #[test]
    fn a_delta_beyond_its_row_is_not_decoded() {
        let mut bytes = Vec::new();
        let delta =
            Delta { base: (Epoch::default(), Clock(8)), length: 1, patch: &[1, 0, 1, 0, 7][..] };
        WriteRef { table: TableId(3), key: b"k", change: Change::Delta(delta) }.encode(&mut bytes);
        assert_eq!(Fields(&bytes).write(), None);
    }
}
