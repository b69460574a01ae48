//! Execution: reads that remember what they saw, writes that no other transaction sees yet.

use super::Transaction;
use super::lookup::Found;
use super::nodes::LeafRead;
use super::sets::{READS_AHEAD, Read, Sets};
use super::writes::Write;
use crate::faults::StoreBug;
use crate::guarded::Guarded;
use crate::index::{Index, LeafVersion, Lookup};
use crate::lookahead::TOGETHER;
use crate::reclaim::Memory;
use crate::record::Record;
use crate::session::{Session, SessionState};
use crate::store::Store;
use crate::sync::spin_loop;
use crate::version::{Content, Version, VersionRef};
use shoal_types::limits::{
    TRANSACTION_BYTES_MAX, TRANSACTION_READS_MAX, TRANSACTION_WRITES_MAX, check_key, check_value,
};
use shoal_types::{KeyExcerpt, Rejected, Result, StampRef, TableId};
use std::ops::DerefMut;
use std::ptr::{self, NonNull};

/// How long a reader waits for the holder of a lock, whose commit would make the read stale.
const READ_SPINS: u32 = 64;

/// What a write costs beside its key and its value, so that many small ones have a limit too.
const WRITE_BYTES: usize = size_of::<Version>();

impl<S: DerefMut<Target = Session>> Transaction<S> {
    /// The value of `key`, or `None` where there is none.
    ///
    /// # Errors
    /// [`Rejected`] for an unknown table, an empty or an oversized key.
    #[inline]
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        let index = self.session().store.index(table)?;
        check_key(table, key)?;
        let state = &mut *self.session().state.borrow_mut();
        state.sets.check_reads()?;
        let SessionState { sets, memory, .. } = state;
        let version = sets.read(memory, index, table, key, false).version;
        // SAFETY: a version that this transaction read or wrote lives until it ends; it ends by
        // value, and the slice borrows it.
        Ok(unsafe { Guarded::at(version) }.and_then(Guarded::value))
    }

    /// Says which keys will be read soon, and brings them near together instead of one after the
    /// other: on data larger than the caches most of a read is waiting for memory. Changes nothing
    /// else; unknown tables and keys are ignored.
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        let state = &mut *self.session().state.borrow_mut();
        for batch in keys.chunks(TOGETHER) {
            let SessionState { sets, memory, .. } = state;
            sets.prefetch(memory, &self.session().store, batch);
        }
    }

    /// The newest version of `key` for whose stamp `visible` holds, past this transaction's own
    /// writes. It leaves no trace in the read set: such a read is not validated.
    ///
    /// # Errors
    /// As for [`get`](Transaction::get).
    pub fn get_where(
        &self,
        table: TableId,
        key: &[u8],
        visible: impl Fn(StampRef<'_>) -> bool,
    ) -> Result<Option<VersionRef<'_>>> {
        let index = self.session().store.index(table)?;
        check_key(table, key)?;
        self.session().state.borrow_mut().sets.lent = true;
        // SAFETY: pinned; so for the versions below, which outlive the borrow of the transaction.
        let Lookup::Found(record, _) = (unsafe { index.get(key) }) else { return Ok(None) };
        // SAFETY: as above.
        let mut next = unsafe { record.as_ref() }.word().version();
        // SAFETY: as above.
        while let Some(version) = unsafe { Guarded::at(next) } {
            let stamp = version.stamp_ref();
            if visible(stamp) {
                return Ok(Some(VersionRef { value: version.value(), stamp }));
            }
            next = version.prev();
        }
        Ok(None)
    }

    /// Writes `value` under `key`, whether or not the key exists.
    ///
    /// # Errors
    /// [`Rejected`] for what [`get`](Transaction::get) rejects, an oversized value, and where the
    /// transaction or the store would grow beyond its limits.
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        let index = self.check_write(table, key, value)?;
        let state = &mut *self.session().state.borrow_mut();
        state.write(index, table, key, Content::Value(value), None)
    }

    /// Writes `value` under a key that does not exist.
    ///
    /// # Errors
    /// [`Rejected::KeyExists`] where it does; and as for [`put`](Transaction::put).
    pub fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        let index = self.check_write(table, key, value)?;
        let state = &mut *self.session().state.borrow_mut();
        state.sets.check_reads()?;
        let SessionState { sets, memory, .. } = state;
        let found = sets.read(memory, index, table, key, true);
        // SAFETY: as in `get`.
        if unsafe { found.version.as_ref() }.is_some_and(|version| !version.is_tombstone()) {
            Err(Rejected::KeyExists { table, key: KeyExcerpt::new(key) })?;
        }
        state.write(index, table, key, Content::Value(value), found.gap)
    }

    /// Removes `key`, whether or not it exists. Where the store is full this is still allowed: it is
    /// the way out.
    ///
    /// # Errors
    /// As for [`get`](Transaction::get), and where the transaction would grow beyond its limits.
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        let index = self.session().store.index(table)?;
        check_key(table, key)?;
        let state = &mut *self.session().state.borrow_mut();
        let hash = state.sets.hash_keys.hash(table, key);
        if state.sets.writes.find(hash, table, key).is_none()
            && let Found::Absent(leaf) =
                state.sets.find(&mut state.memory, index, hash, table, key, false)
        {
            // Nothing to remove; that it stays so is all the transaction has to know: a read.
            state.sets.check_reads()?;
            if !self.session().store.options.faults.has(StoreBug::AbsentDeletionUnnoted) {
                state.sets.note_leaf(table, leaf);
            }
            return Ok(());
        }
        // Deletions free memory, and need room in the log.
        if !self.session().store.has_room(0) {
            self.session().store.check_logs()?;
        }
        state.write(index, table, key, Content::Tombstone, None)
    }

    /// Writes what another replica has certified: a value, or a tombstone even where there is nothing to
    /// remove, since what it has to hide may still be on its way here (see
    /// [`Locked::replay`](super::Locked::replay)). A replica takes what its leader took: the database's
    /// limit of memory does not count here.
    ///
    /// It opens a table that is not open: the leader that wrote there knew that it exists. A table that was dropped stays
    /// dropped: nothing is written.
    ///
    /// # Errors
    /// [`Rejected`] for an id that no table can have, an empty or an oversized key or value, and where the transaction would
    /// grow beyond its limits.
    pub fn replicate(&self, table: TableId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let store = &self.session().store;
        check_key(table, key)?;
        check_value(table, key, value.unwrap_or_default())?;
        store.open_table(table)?;
        let index = match store.index(table) {
            Ok(index) => index,
            Err(_) => return Ok(()),
        };
        let content = value.map_or(Content::Tombstone, Content::Value);
        self.session().state.borrow_mut().write(index, table, key, content, None)
    }

    /// Adds `delta`, wrapping, to the little-endian `i64` under `key` and returns the sum. An absent
    /// key counts as 0.
    ///
    /// # Errors
    /// [`Rejected::WrongValue`] where the value is not 8 bytes long; and as for
    /// [`put`](Transaction::put).
    pub fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        let sum = shoal_types::transaction::sum(table, key, self.get(table, key)?, delta)?;
        self.put(table, key, &sum.to_le_bytes())?;
        Ok(sum)
    }

    fn check_write(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<&Index> {
        let store = &self.session().store;
        let index = store.index(table)?;
        check_key(table, key)?;
        check_value(table, key, value)?;
        let more = key.len() + value.len();
        if !store.has_room(more) {
            self.session().state.borrow_mut().make_room(store, more)?;
        }
        Ok(index)
    }
}

/// The result of a read.
struct FoundRecord {
    /// Null where there is none.
    version: *mut Version,
    /// Where there is no record either: the place in the node set of the leaf without it.
    gap: Option<u32>,
}

impl Sets {
    /// Reads `key`: the transaction's own version, or the newest there is, which it remembers. Where it `is_new` there is
    /// probably none.
    #[inline]
    fn read(
        &mut self,
        memory: &mut Memory,
        index: &Index,
        table: TableId,
        key: &[u8],
        is_new: bool,
    ) -> FoundRecord {
        let hash = self.hash_keys.hash(table, key);
        if let Some(place) = self.writes.find(hash, table, key) {
            return FoundRecord { version: self.writes.entries[place].version.as_ptr(), gap: None };
        }
        loop {
            match self.find(memory, index, hash, table, key, is_new) {
                Found::Record(record) => {
                    if let Some(version) = self.read_record(record) {
                        return FoundRecord { version, gap: None };
                    }
                    self.recent.forget();
                }
                Found::Absent(leaf) => {
                    let gap = Some(self.note_leaf(table, leaf));
                    return FoundRecord { version: ptr::null_mut(), gap };
                }
            }
        }
    }

    /// Reads a record's newest version and remembers it. `None` asks to look the key up again.
    #[inline]
    pub(super) fn read_record(&mut self, record: NonNull<Record>) -> Option<*mut Version> {
        // SAFETY: found under this guard.
        let guarded = unsafe { record.as_ref() };
        let mut word = guarded.word();
        for _ in 0..READ_SPINS {
            if !word.is_locked() {
                break;
            }
            spin_loop();
            word = guarded.word();
        }
        if word.is_dead() {
            spin_loop();
            return None;
        }
        self.reads.push(Read { record, version: word.version() });
        Some(word.version())
    }

    /// Has the transaction neither read nor written anything, so that its guard keeps nothing?
    fn is_untouched(&self) -> bool {
        self.reads.is_empty()
            && self.nodes.is_empty()
            && self.writes.is_empty()
            && self.recent.is_empty()
            && !self.lent
    }

    /// Checks that there is room for another read.
    #[inline]
    pub(super) fn check_reads(&mut self) -> Result<()> {
        if self.reads.len().max(self.nodes.len()) >= TRANSACTION_READS_MAX {
            Err(Rejected::TransactionReads { max: TRANSACTION_READS_MAX })?;
        }
        if self.reads.capacity() - self.reads.len() < READS_AHEAD || !self.nodes.has_room() {
            self.grow_reads()?;
        }
        Ok(())
    }

    /// Remembers a leaf for its gaps. Returns its place in the node set.
    pub(super) fn note_leaf(&mut self, table: TableId, leaf: LeafVersion) -> u32 {
        self.nodes.note(LeafRead { table, leaf })
    }
}

impl SessionState {
    /// Frees memory until the store has room for so much `more`.
    ///
    /// # Errors
    /// [`Rejected::DiskFull`] where that is not for lack of memory. [`Rejected::MemoryFull`] where it has none; the transactions
    /// that begin next free what this one could not.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, store: &Store, more: usize) -> Result<()> {
        store.check_logs()?;
        let has_room = || store.has_room(more);
        self.memory.heap.fold();
        if self.sets.is_untouched() {
            // Without the guard more becomes ripe, and there is nothing yet that it has to keep.
            self.memory.unpin();
            self.memory.relieve(&has_room);
            self.memory.pin();
        } else {
            self.memory.relieve(&has_room);
        }
        if !has_room() {
            store.eras.fall_short();
            let (bytes, max) = (store.arena.bytes(), store.options.memory_bytes_max);
            Err(Rejected::MemoryFull { bytes, max })?;
        }
        Ok(())
    }

    /// Adds a write, or replaces the one that the transaction made of the same key before. `gap` is
    /// the place in the node set of the leaf where the key was just found absent, if it was.
    fn write(
        &mut self,
        index: &Index,
        table: TableId,
        key: &[u8],
        content: Content<'_>,
        gap: Option<u32>,
    ) -> Result<()> {
        let SessionState { memory, sets, .. } = self;
        let value_bytes = if let Content::Value(value) = content { value.len() } else { 0 };
        let bytes = key.len() + value_bytes + WRITE_BYTES;
        if sets.writes.bytes + bytes > TRANSACTION_BYTES_MAX {
            let (bytes, max) = (sets.writes.bytes + bytes, TRANSACTION_BYTES_MAX);
            Err(Rejected::TransactionBytes { bytes, max })?;
        }
        let hash = sets.hash_keys.hash(table, key);
        let own = sets.writes.find(hash, table, key);
        if own.is_none() && sets.writes.entries.len() == TRANSACTION_WRITES_MAX {
            Err(Rejected::TransactionWrites { max: TRANSACTION_WRITES_MAX })?;
        }
        sets.writes.bytes += bytes;
        if let Some(place) = own {
            let version = Version::allocate(&mut memory.heap, content);
            let old = std::mem::replace(&mut sets.writes.entries[place].version, version);
            sets.replaced.push(old);
            return Ok(());
        }
        let found = match gap {
            Some(_) => None,
            None => match sets.find(memory, index, hash, table, key, false) {
                Found::Record(record) => Some(record),
                Found::Absent(_) => None,
            },
        };
        // The record first, and its first version next to it: they will be read one after the other.
        let record = found.unwrap_or_else(|| Record::allocate(&mut memory.heap, table, key));
        let version = Version::allocate(&mut memory.heap, content);
        let (kept, level, linked) = (ptr::null_mut(), 0, found.is_some());
        let listed = sets.writes.bytes_listed();
        sets.writes.push(Write { hash, table, record, version, kept, level, linked, gap });
        if sets.writes.bytes_listed() != listed {
            sets.count_lists();
        }
        Ok(())
    }
}
