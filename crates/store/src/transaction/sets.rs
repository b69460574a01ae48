//! The sets of a transaction: what it has read and what it will write.

use super::hash::HashKeys;
use super::nodes::NodeSet;
use super::writes::WriteSet;
use crate::index::LEAF_MAX;
use crate::lookup_cache::LookupCache;
use crate::memory::Arena;
use crate::record::Record;
use crate::store::Store;
use crate::version::Version;
#[cfg(all(test, not(feature = "model")))]
use shoal_types::limits::TRANSACTION_READS_MAX;
use shoal_types::{Rejected, Result};
use std::ptr::NonNull;
use std::sync::Arc;

/// The read, write and node sets of a transaction.
pub(crate) struct Sets {
    pub(super) hash_keys: Arc<HashKeys>,
    /// The store's.
    pub(super) cache: Arc<LookupCache>,
    /// The store's, which counts what the lists here take.
    arena: Arc<Arena>,
    memory_bytes_max: usize,
    /// The part of that which is counted in the arena.
    pub(super) listed_bytes: usize,
    pub(super) reads: Vec<Read>,
    pub(super) nodes: NodeSet,
    pub(super) writes: WriteSet,
    /// A leaf was split on the way of a new key, so the gaps noted in the write set do not hold.
    pub(super) gaps_stale: bool,
    pub(super) recent: Recent,
    /// Addresses of the records to lock, with their places in the write set. Ascending within each slice of locks.
    pub(super) order: Vec<(usize, u32)>,
    /// The number of entries of `order` that are locked.
    pub(super) locked: usize,
    /// Where in `order` the last slice of locks begins: it is in the order of the addresses, and all before are locked.
    pub(super) run: usize,
    /// The writes before this place are published, or rolled back.
    pub(super) ended: usize,
    /// Versions that the transaction wrote and then overwrote; slices may still borrow them.
    pub(super) replaced: Vec<NonNull<Version>>,
    /// A buffer for the bound of a prefix's range.
    pub(super) bound: Vec<u8>,
    /// Whether versions were lent that are in no set of this transaction.
    pub(super) lent: bool,
    /// How many tables of the store were dropped before it began.
    pub(super) drops: u32,
}

impl Sets {
    /// Empty ones, for a session of `store`.
    pub(crate) fn new(store: &Store) -> Sets {
        Sets {
            hash_keys: Arc::clone(&store.hash_keys),
            cache: Arc::clone(&store.lookup_cache),
            arena: Arc::clone(&store.arena),
            memory_bytes_max: store.options.memory_bytes_max,
            listed_bytes: 0,
            reads: Vec::new(),
            nodes: NodeSet::default(),
            writes: WriteSet::default(),
            gaps_stale: false,
            recent: Recent::default(),
            order: Vec::new(),
            locked: 0,
            run: 0,
            ended: 0,
            replaced: Vec::new(),
            bound: Vec::new(),
            lent: false,
            drops: 0,
        }
    }
}

impl Sets {
    /// Adds what the lists have room for to the memory in use, if it has changed.
    pub(super) fn count_lists(&mut self) {
        let bytes = self.reads.capacity() * size_of::<Read>()
            + self.order.capacity() * size_of::<(usize, u32)>()
            + self.replaced.capacity() * size_of::<NonNull<Version>>()
            + self.nodes.bytes_listed()
            + self.writes.bytes_listed()
            + self.recent.bytes_listed();
        if bytes != self.listed_bytes {
            self.arena.count(bytes as i64 - self.listed_bytes as i64);
            self.listed_bytes = bytes;
        }
    }

    /// Makes it look as if as many rows were read as may be.
    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn fill_reads(&mut self) {
        let read = Read { record: NonNull::dangling(), version: std::ptr::null_mut() };
        self.reads.resize(TRANSACTION_READS_MAX, read);
    }

    /// Makes room for more reads.
    #[cold]
    pub(super) fn grow_reads(&mut self) -> Result<()> {
        let more = self.reads.capacity() * size_of::<Read>() + self.nodes.bytes_listed();
        let (bytes, max) = (self.arena.bytes(), self.memory_bytes_max);
        // A store that is full can be read still, or nothing could be found to be deleted.
        let free = (max / 2).max(LISTED_FREE_MIN);
        if self.listed_bytes + more > free && bytes.saturating_add(more) > max {
            Err(Rejected::MemoryFull { bytes, max })?;
        }
        self.reads.reserve(READS_AHEAD);
        self.nodes.reserve();
        self.count_lists();
        Ok(())
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        self.arena.count(-(self.listed_bytes as i64));
    }
}

/// What a transaction's lists may take where the store is full: half of what the store may hold, and no
/// less than this.
const LISTED_FREE_MIN: usize = 64 << 10;

/// For so many reads there is room whenever one begins: what a scan reads from a leaf.
pub(super) const READS_AHEAD: usize = 64;

const _: () = assert!(LEAF_MAX <= READS_AHEAD);

/// A read: the version that the record had; null if it had none.
#[derive(Clone, Copy)]
pub(super) struct Read {
    pub(super) record: NonNull<Record>,
    pub(super) version: *mut Version,
}

/// What lookups found lately, by the hash of the key: a write usually follows the read of its key. Where two have the same
/// slot the later one stays.
pub(super) struct Recent {
    /// An entry is in use where its transaction is the present one.
    entries: Box<[RecentEntry]>,
    transaction: u32,
    /// Entries of this transaction, counting those that were replaced.
    noted: u32,
}

#[derive(Clone, Copy)]
struct RecentEntry {
    hash: u64,
    record: NonNull<Record>,
    transaction: u32,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { entries: Self::empty(Self::SLOTS), transaction: 1, noted: 0 }
    }
}

impl Recent {
    /// Enough for a small transaction.
    const SLOTS: usize = 64;
    /// For one that has found more. Then it stays that large.
    pub(super) const SLOTS_MAX: usize = 512;

    fn empty(slots: usize) -> Box<[RecentEntry]> {
        let unused = RecentEntry { hash: 0, record: NonNull::dangling(), transaction: 0 };
        vec![unused; slots].into()
    }

    /// Of the upper half: see `hash.rs`.
    #[inline]
    fn slot(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.entries.len() - 1)
    }

    #[inline]
    pub(super) fn note(&mut self, hash: u64, record: NonNull<Record>) {
        self.noted += 1;
        if self.noted as usize == Self::SLOTS {
            self.grow();
        }
        let slot = self.slot(hash);
        self.entries[slot] = RecentEntry { hash, record, transaction: self.transaction };
    }

    #[cold]
    fn grow(&mut self) {
        if self.entries.len() < Self::SLOTS_MAX {
            let smaller = std::mem::replace(&mut self.entries, Self::empty(Self::SLOTS_MAX));
            for entry in smaller.iter().filter(|entry| entry.transaction == self.transaction) {
                let slot = self.slot(entry.hash);
                self.entries[slot] = *entry;
            }
        }
    }

    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<NonNull<Record>> {
        let entry = &self.entries[self.slot(hash)];
        (entry.hash == hash && entry.transaction == self.transaction).then_some(entry.record)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.noted == 0
    }

    pub(super) fn forget(&mut self) {
        self.noted = 0;
        self.transaction = self.transaction.wrapping_add(1);
        if self.transaction == 0 {
            *self = Recent::default();
        }
    }

    /// The memory of its entries.
    pub(super) fn bytes_listed(&self) -> usize {
        // The first are part of a session, like the session itself.
        size_of_val(&*self.entries) - Self::SLOTS * size_of::<RecentEntry>()
    }
}
