//! The write set: what a transaction will install, found again by key.

use crate::key::head_at;
use crate::record::Record;
use crate::version::Version;
use std::ptr::NonNull;
use types::TableId;

/// Up to this many writes, looking at all of them is quicker than a table of them.
const LINEAR_MAX: usize = 32;

/// One key that the transaction will write.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub(super) hash: u64,
    pub(super) table: TableId,
    /// The key's record; a private one where the key was absent, until `linked`.
    pub(super) record: NonNull<Record>,
    /// Private until installed.
    pub(super) version: NonNull<Version>,
    /// The oldest version that stays behind it, once that is known; null where all stay.
    pub(super) kept: *mut Version,
    /// The record is, or was, in the index.
    pub(super) linked: bool,
    /// The place in the node set of the leaf where the key was found absent.
    pub(super) gap: Option<u32>,
}

/// See the module.
#[derive(Default)]
pub(super) struct WriteSet {
    pub(super) entries: Vec<Write>,
    /// A bit for the hash of every entry: most keys that are not here are told apart by it.
    filter: u64,
    /// A bit for the table of every entry.
    tables: u64,
    /// Places of the entries by hash, linear probing, one more than the place or 0; empty up to
    /// `LINEAR_MAX` entries.
    slots: Vec<u32>,
    /// Bytes of keys and values, counting what was overwritten.
    pub(super) bytes: usize,
    /// The writes of the table that was scanned last, in the order of their keys.
    pub(super) ordered: Ordered,
}

/// Places of the writes of one table, in the order of their keys.
#[derive(Default)]
pub(super) struct Ordered {
    table: TableId,
    /// How many of the set's entries were looked at.
    seen: usize,
    pub(super) places: Vec<u32>,
}

/// The hash of a key; the same key in another table has another.
#[inline]
pub(super) fn hash(table: TableId, key: &[u8]) -> u64 {
    // Multiply and rotate, a word at a time: keys are short, and nothing but speed depends on it.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (u64::from(table.0) ^ (key.len() as u64) << 32).wrapping_mul(FACTOR);
    let mut offset = 0;
    while offset < key.len() {
        hash = (hash.rotate_left(26) ^ head_at(key, offset)).wrapping_mul(FACTOR);
        offset += 8;
    }
    hash ^ hash >> 32
}

impl WriteSet {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of the write of `key`.
    #[inline]
    pub(super) fn find(&self, hash: u64, table: TableId, key: &[u8]) -> Option<usize> {
        if self.filter & Self::bit(hash) == 0 {
            return None;
        }
        self.find_likely(hash, table, key)
    }

    fn find_likely(&self, hash: u64, table: TableId, key: &[u8]) -> Option<usize> {
        let is_it = |write: &Write| {
            // SAFETY: the records of a write set are kept by the guard, or private.
            write.hash == hash
                && write.table == table
                && unsafe { Record::key(write.record) } == key
        };
        if self.slots.is_empty() {
            return self.entries.iter().position(is_it);
        }
        let mut slot = self.slot(hash);
        while let Some(place) = self.slots[slot].checked_sub(1) {
            if is_it(&self.entries[place as usize]) {
                return Some(place as usize);
            }
            slot = (slot + 1) % self.slots.len();
        }
        None
    }

    /// Adds a write of a key that is not here yet.
    pub(super) fn push(&mut self, write: Write) {
        self.filter |= Self::bit(write.hash);
        self.tables |= Self::table_bit(write.table);
        self.entries.push(write);
        let count = self.entries.len();
        if count <= LINEAR_MAX {
            return;
        }
        if count * 2 > self.slots.len() {
            self.slots.clear();
            self.slots.resize((count * 4).next_power_of_two(), 0);
            (0..count).for_each(|place| self.enter(place));
        } else {
            self.enter(count - 1);
        }
    }

    fn enter(&mut self, place: usize) {
        let mut slot = self.slot(self.entries[place].hash);
        while self.slots[slot] != 0 {
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = place as u32 + 1;
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 8) as usize % self.slots.len()
    }

    /// Brings `ordered` up to date for a scan of `table`.
    pub(super) fn order(&mut self, table: TableId) {
        /// So many new writes are put where they belong one by one; more are sorted with the rest.
        const FEW: usize = 32;
        let WriteSet { entries, ordered, .. } = self;
        if ordered.table != table {
            *ordered = Ordered { table, seen: 0, places: std::mem::take(&mut ordered.places) };
            ordered.places.clear();
        }
        // SAFETY: the records of a write set are kept by the guard, or private.
        let key = |place: u32| unsafe { Record::key(entries[place as usize].record) };
        let fresh = (ordered.seen..entries.len()).filter(|place| entries[*place].table == table);
        if entries.len() - ordered.seen <= FEW {
            for place in fresh.map(|place| place as u32) {
                let at = ordered.places.partition_point(|other| key(*other) < key(place));
                ordered.places.insert(at, place);
            }
        } else {
            ordered.places.extend(fresh.map(|place| place as u32));
            ordered.places.sort_by(|a, b| key(*a).cmp(key(*b)));
        }
        ordered.seen = entries.len();
    }

    /// May there be a write in this table?
    pub(super) fn touches(&self, table: TableId) -> bool {
        self.tables & Self::table_bit(table) != 0
    }

    fn table_bit(table: TableId) -> u64 {
        1 << (table.0 % 64)
    }

    #[inline]
    fn bit(hash: u64) -> u64 {
        1 << (hash >> 58)
    }

    /// Forgets all writes; keeps their room unless it is uncommonly large.
    pub(super) fn clear(&mut self) {
        const KEPT: usize = 1 << 12;
        self.entries.clear();
        self.entries.shrink_to(KEPT);
        self.slots.clear();
        self.slots.shrink_to(4 * KEPT);
        self.ordered.seen = 0;
        self.ordered.places.clear();
        self.ordered.places.shrink_to(KEPT);
        self.filter = 0;
        self.tables = 0;
        self.bytes = 0;
    }
}
