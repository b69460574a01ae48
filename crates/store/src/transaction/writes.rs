//! The write set: what a transaction will install, found again by key.

use crate::record::Record;
use crate::version::Version;
use crate::work::{self, Work};
use shoal_types::TableId;
use std::borrow::Borrow;
use std::cmp;
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// A set that held more writes gives the room back.
const KEPT_MAX: usize = 1 << 9;

/// Up to this many writes, looking at all of them is quicker than a table of them.
const LINEAR_MAX: usize = 32;

/// A key that the transaction will write.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub(super) hash: u64,
    pub(super) table: TableId,
    /// The key's record; a private one where the key was absent, until `linked`.
    pub(super) record: NonNull<Record>,
    /// No other session sees it before it is installed.
    pub(super) version: NonNull<Version>,
    /// The oldest version that stays behind it, once that is known; null where all stay.
    pub(super) kept: *mut Version,
    /// How seldom the chain behind it is walked; see `commit.rs`.
    pub(super) level: u8,
    /// The record is, or was, in the index.
    pub(super) linked: bool,
    /// The place in the node set of the leaf where the key was found absent.
    pub(super) gap: Option<u32>,
}

/// The writes of a transaction, found by key and kept in the order of locking.
#[derive(Default)]
pub(super) struct WriteSet {
    pub(super) entries: Vec<Write>,
    /// A bit for the hash of every entry: most keys that are not here are distinguished by it.
    filter: u64,
    /// A bit for the table of every entry.
    tables: u64,
    /// Places of the entries by hash, linear probing, one more than the place or 0; empty up to
    /// `LINEAR_MAX` entries.
    slots: Vec<u32>,
    /// Bytes of keys and values, counting what was overwritten.
    pub(super) bytes: usize,
    ordered: Ordered,
}

/// The writes of a table by key.
pub(super) type TableWrites = BTreeMap<WrittenKey, u32>;

/// The writes by table and key, as far as scans have asked for them.
#[derive(Default)]
struct Ordered {
    /// How many of the set's entries are here: each is looked at once, in any scan.
    seen: usize,
    /// The place in `tables` of each table, one more than the place or 0.
    places: Vec<u16>,
    tables: Vec<OrderedTable>,
}

#[derive(Default)]
struct OrderedTable {
    /// Places of entries that are not in `rows` yet.
    fresh: Vec<u32>,
    rows: TableWrites,
}

/// The key of a record in the write set.
///
/// Invariant: the records of a write set are kept by the guard, or private, until it is cleared; so the
/// key can be read as long as it stands in [`Ordered`].
pub(super) struct WrittenKey(NonNull<Record>);

impl Borrow<[u8]> for WrittenKey {
    fn borrow(&self) -> &[u8] {
        // SAFETY: the invariant.
        unsafe { Record::key(self.0) }
    }
}

impl Ord for WrittenKey {
    fn cmp(&self, other: &WrittenKey) -> cmp::Ordering {
        work::count(Work::KeyCompared);
        let (ours, theirs): (&[u8], &[u8]) = (self.borrow(), other.borrow());
        ours.cmp(theirs)
    }
}

impl PartialOrd for WrittenKey {
    fn partial_cmp(&self, other: &WrittenKey) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WrittenKey {
    fn eq(&self, other: &WrittenKey) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for WrittenKey {}

impl Ordered {
    /// The place of a table.
    fn place(&mut self, table: TableId) -> usize {
        let at = table.0 as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if self.places[at] == 0 {
            self.tables.push(OrderedTable::default());
            self.places[at] = self.tables.len() as u16;
        }
        usize::from(self.places[at]) - 1
    }

    /// Takes in what was written since the last scan. Returns the place of `table`, whose writes are in
    /// order now.
    fn update(&mut self, entries: &[Write], table: TableId) -> usize {
        for (place, write) in entries.iter().enumerate().skip(self.seen) {
            let at = self.place(write.table);
            self.tables[at].fresh.push(place as u32);
        }
        self.seen = entries.len();
        let at = self.place(table);
        let OrderedTable { fresh, rows } = &mut self.tables[at];
        rows.extend(
            fresh.drain(..).map(|place| (WrittenKey(entries[place as usize].record), place)),
        );
        at
    }

    fn clear(&mut self) {
        /// More tables than this are given up, with what they have room for.
        const KEPT: usize = 16;
        if self.seen == 0 {
            return;
        }
        if self.seen > KEPT_MAX || self.tables.len() > KEPT {
            *self = Ordered::default();
            return;
        }
        self.seen = 0;
        for table in &mut self.tables {
            table.fresh.clear();
            table.rows.clear();
        }
    }
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
            work::count(Work::SetProbed);
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
            work::count(Work::SetProbed);
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = place as u32 + 1;
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize % self.slots.len()
    }

    /// Lends out the writes of `table` by key, for a scan; [`return_rows`](WriteSet::return_rows) takes
    /// them back.
    pub(super) fn lend_rows(&mut self, table: TableId) -> TableWrites {
        if !self.touches(table) {
            return TableWrites::new();
        }
        let at = self.ordered.update(&self.entries, table);
        std::mem::take(&mut self.ordered.tables[at].rows)
    }

    pub(super) fn return_rows(&mut self, table: TableId, rows: TableWrites) {
        if self.touches(table) {
            let at = self.ordered.place(table);
            self.ordered.tables[at].rows = rows;
        }
    }

    /// Bytes that the lists have room for, but for what scans have asked to be ordered.
    pub(super) fn bytes_listed(&self) -> usize {
        self.entries.capacity() * size_of::<Write>() + self.slots.capacity() * size_of::<u32>()
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
        self.entries.clear();
        self.entries.shrink_to(KEPT_MAX);
        self.slots.clear();
        self.slots.shrink_to(4 * KEPT_MAX);
        self.ordered.clear();
        self.filter = 0;
        self.tables = 0;
        self.bytes = 0;
    }
}
