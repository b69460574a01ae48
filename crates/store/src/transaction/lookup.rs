//! Lookups: how a transaction finds the record of a key, one by one or many together.
//!
//! It looks at what it found lately ([`Recent`](super::sets::Recent)), then in the store's lookup cache
//! (`lookup_cache.rs`), and then in the index, from where the cache is filled.

use super::sets::Sets;
use crate::guarded::Guarded;
use crate::index::{Index, LEAF_MAX, Leaf, LeafVersion, Lookup};
use crate::lookahead::{TOGETHER, find_together};
use crate::memory::prefetch;
use crate::reclaim::{Memory, Retired};
use crate::record::Record;
use crate::store::Store;
use shoal_types::TableId;
use std::ptr::NonNull;

/// How much of a version is fetched: most values are shorter, and what follows comes in order.
const PREFETCH_VERSION_BYTES: usize = 256;

/// The result of a lookup.
pub(super) enum Found {
    /// The record of the key, which may be a placeholder or have a tombstone.
    Record(NonNull<Record>),
    /// No record; the leaf where it would be.
    Absent(LeafVersion),
}

impl Sets {
    /// Finds the record of a key, or the leaf where it is missing. A key that `is_new`, as the caller says, is not looked up
    /// in the lookup cache, which does not have those.
    #[inline]
    pub(super) fn find(
        &mut self,
        memory: &mut Memory,
        index: &Index,
        hash: u64,
        table: TableId,
        key: &[u8],
        is_new: bool,
    ) -> Found {
        if let Some(record) = self.recent.find(hash) {
            // SAFETY: found under this guard.
            if unsafe { record.as_ref().table() == table && Record::key(record) == key } {
                return Found::Record(record);
            }
        }
        // SAFETY: pinned while the transaction runs.
        if !is_new && let Some(record) = unsafe { self.cache.find(hash, table, key) } {
            self.recent.note(hash, record);
            return Found::Record(record);
        }
        self.find_in_index(memory, index, hash, table, key)
    }

    /// Looks a key up in the index, and brings it into the lookup cache.
    #[inline(never)]
    fn find_in_index(
        &mut self,
        memory: &mut Memory,
        index: &Index,
        hash: u64,
        table: TableId,
        key: &[u8],
    ) -> Found {
        // SAFETY: pinned while the transaction runs.
        if let Some(record) = unsafe { self.cache.find_older(hash, table, key) } {
            // SAFETY: as above.
            if let Some(replaced) = unsafe { self.cache.copy_some() } {
                memory.retire(Retired::CacheTable(replaced));
            }
            self.recent.note(hash, record);
            return Found::Record(record);
        }
        // SAFETY: as above.
        match unsafe { index.get(key) } {
            Lookup::Found(record, leaf) => {
                self.recent.note(hash, record);
                // SAFETY: as above; it was just found in the index, as were the leaf's others.
                unsafe {
                    self.cache_record(memory, hash, record, true);
                    self.cache_neighbours(memory, record, Guarded::new(leaf));
                }
                Found::Record(record)
            }
            Lookup::Absent(leaf) => Found::Absent(leaf),
        }
    }

    /// Brings a record into the lookup cache, in place of another where it has to and may.
    ///
    /// # Safety
    /// Pinned; the record was found in the index under this guard.
    unsafe fn cache_record(
        &self,
        memory: &mut Memory,
        hash: u64,
        record: NonNull<Record>,
        evict: bool,
    ) {
        // SAFETY: the caller's promise.
        let replaced = unsafe { self.cache.add(hash, record, evict, &mut memory.heap) };
        if let Some(table) = replaced {
            memory.retire(Retired::CacheTable(table));
        }
    }

    /// Brings the records of a leaf into the lookup cache where those beside `record` are not there yet: looked up one by
    /// one, each would cost a descent. Where keys are looked up as they come in, those before are there.
    ///
    /// # Safety
    /// Pinned.
    unsafe fn cache_neighbours(
        &mut self,
        memory: &mut Memory,
        record: NonNull<Record>,
        leaf: Guarded<'_, Leaf>,
    ) {
        let count = leaf.header().count();
        let Some(at) = (0..count).find(|at| leaf.record(*at) == Some(record)) else { return };
        let hash_of = |record: NonNull<Record>| {
            // SAFETY: the caller's promise.
            let (table, key) = unsafe { (record.as_ref().table(), Record::key(record)) };
            self.hash_keys.hash(table, key)
        };
        let is_cached = |at: usize| {
            // SAFETY: the caller's promise.
            let has = |near| unsafe { self.cache.has(hash_of(near), near) };
            at >= count || leaf.record(at).is_none_or(has)
        };
        // SAFETY: the caller's promise.
        let has_room = unsafe { self.cache.has_room() };
        if !has_room || (at.checked_sub(1).is_none_or(is_cached) && is_cached(at + 1)) {
            return;
        }
        let others = || (0..count).filter(|other| *other != at).filter_map(|at| leaf.record(at));
        others().for_each(|other| prefetch(other.as_ptr(), size_of::<Record>() + 1));
        let mut found = [None; LEAF_MAX];
        for (found, other) in found.iter_mut().zip(others()) {
            let hash = hash_of(other);
            *found = Some((hash, other));
            // SAFETY: the caller's promise.
            unsafe { self.cache.prefetch(hash) };
        }
        for (hash, other) in found.into_iter().flatten() {
            // SAFETY: as above; it was found in the index.
            unsafe { self.cache_record(memory, hash, other, false) };
        }
    }

    /// Removes a record from the lookup cache that has left the index.
    ///
    /// # Safety
    /// Pinned; the record is dead.
    pub(crate) unsafe fn forget_record(&self, table: TableId, key: &[u8], record: NonNull<Record>) {
        // SAFETY: the caller's promise.
        unsafe { self.cache.remove(self.hash_keys.hash(table, key), record) };
    }

    /// See [`Transaction::prefetch`](super::Transaction::prefetch). In rounds, each of which asks for what the next one
    /// needs.
    pub(super) fn prefetch(
        &mut self,
        memory: &mut Memory,
        store: &Store,
        batch: &[(TableId, &[u8])],
    ) {
        let mut hashes = [0; TOGETHER];
        for (hash, (table, key)) in hashes.iter_mut().zip(batch) {
            *hash = self.hash_keys.hash(*table, key);
            // SAFETY: pinned while the transaction runs; so for all below.
            unsafe { self.cache.prefetch(*hash) };
        }
        let mut records = [None; TOGETHER];
        for (record, hash) in records.iter_mut().zip(&hashes[..batch.len()]) {
            // SAFETY: as above.
            *record = unsafe { self.cache.likely(*hash) };
        }
        let mut missing = false;
        for (record, (table, key)) in records.iter_mut().zip(batch) {
            // SAFETY: as above.
            *record = record.filter(|record| unsafe { Record::is_live(*record, *table, key) });
            missing |= record.is_none();
        }
        if missing {
            self.prefetch_in_index(memory, store, batch, &hashes, &mut records);
        }
        for (record, hash) in records.iter().zip(hashes) {
            let Some(record) = record else { continue };
            // SAFETY: as above.
            prefetch(unsafe { record.as_ref() }.word().version(), PREFETCH_VERSION_BYTES);
            self.recent.note(hash, *record);
        }
    }

    /// Finds those of a batch that the lookup cache does not have. The others of their leaves do not come into it: a caller
    /// that knows its keys asks for all that it will read.
    #[inline(never)]
    fn prefetch_in_index(
        &mut self,
        memory: &mut Memory,
        store: &Store,
        batch: &[(TableId, &[u8])],
        hashes: &[u64; TOGETHER],
        records: &mut [Option<NonNull<Record>>; TOGETHER],
    ) {
        let missing = batch.iter().zip(records.iter());
        let missing = missing.map(|(key, record)| record.is_none().then_some(*key));
        // SAFETY: pinned while the transaction runs; so for all below.
        let found = unsafe { find_together(store, missing, PREFETCH_VERSION_BYTES) };
        for ((found, record), hash) in found.into_iter().zip(records).zip(hashes) {
            let Some(found) = found else { continue };
            *record = Some(found);
            // SAFETY: as above; it was found in the index.
            unsafe { self.cache_record(memory, *hash, found, true) };
        }
    }
}
