//! Transactions: optimistic concurrency control (Silo, SOSP'13 §4).
//!
//! ```text
//! execute   get, scan, put …      read set: record and the version it had
//!                                 node set: leaf and its version, for gaps and ranges
//!                                 write set: private versions, not visible to others
//! lock      records of the write set, in the order of their addresses; new keys enter the index
//!           as locked placeholders first
//! clock     drawn under the locks (rule M2)
//! validate  every version read is still the newest and unlocked; every leaf noted is unchanged
//! install   versions are stamped and published, which releases the locks
//! ```
//! Strictly serializable: a transaction takes effect at the instant between its last lock and its
//! first validation, when all it wrote was locked and all it read was still so. A transaction that
//! writes nothing skips to validation and draws no clock.
//!
//! While it executes, a transaction may see a state that never was (one key before and another after
//! another's commit); validation then fails, and what it computed is discarded. So a body must
//! not act outside of the database on what it read before it is told of the commit.
//!
//! Read in this order: `writes.rs`, this file, `execute.rs`, `scan.rs`, `commit.rs`.

mod commit;
mod execute;
mod hash;
mod nodes;
mod scan;
mod writes;

#[cfg(all(test, not(feature = "model")))]
mod tests;

pub use commit::{Locked, Locking};
pub use execute::VersionRef;
#[cfg(feature = "bare")]
pub(crate) use scan::prefetch_rows;

pub(crate) use hash::HashKeys;

use crate::guarded::Guarded;
use crate::index::{LEAF_MAX, LeafVersion};
use crate::memory::Arena;
use crate::record::Record;
use crate::session::Session;
use crate::store::Store;
use crate::version::Version;
use nodes::NodeSet;
#[cfg(all(test, not(feature = "model")))]
use shoal_types::limits::TRANSACTION_READS_MAX;
use shoal_types::{Rejected, Result, StampRef, TableId};
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::sync::Arc;
use writes::WriteSet;

/// A transaction on a session `S`: `&mut Session`, or something that owns one.
///
/// Operations take `&self`; what they return borrows the transaction and stays valid until it ends.
/// A transaction that is dropped is rolled back: nothing it did takes effect.
///
/// Ending takes the transaction by value, so one that has ended cannot be used:
///
/// ```compile_fail
/// # use shoal_store::{Options, Store};
/// # let store = std::sync::Arc::new(Store::new(Options::default()));
/// # let mut session = store.session().unwrap();
/// let tx = session.begin();
/// tx.commit().unwrap();
/// tx.commit().unwrap(); // used after commit
/// ```
pub struct Transaction<S: DerefMut<Target = Session>> {
    session: S,
    /// The session's, at the beginning. A holder that leads to another one later would let reads go
    /// unguarded.
    session_id: u64,
}

/// The sizes of a transaction's sets, which determine the cost of its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Records and leaves that it has read: each is validated.
    pub reads: usize,
    /// Keys that it has written: each is locked and installed.
    pub writes: usize,
}

/// The read, write and node sets of a transaction.
pub(crate) struct Sets {
    hash_keys: Arc<HashKeys>,
    /// The store's, which counts what the lists here take.
    arena: Arc<Arena>,
    memory_bytes_max: usize,
    /// The part of that which is counted in the arena.
    listed_bytes: usize,
    reads: Vec<Read>,
    nodes: NodeSet,
    writes: WriteSet,
    /// A leaf was split on the way of a new key, so the gaps noted in the write set do not hold.
    gaps_stale: bool,
    recent: Recent,
    /// Addresses of the records to lock, with their places in the write set. Ascending within each slice of locks.
    order: Vec<(usize, u32)>,
    /// The number of entries of `order` that are locked.
    locked: usize,
    /// Where in `order` the last slice of locks begins: it is in the order of the addresses, and all before are locked.
    run: usize,
    /// The writes before this place are published, or rolled back.
    ended: usize,
    /// Versions that the transaction wrote and then overwrote; slices may still borrow them.
    replaced: Vec<NonNull<Version>>,
    /// A buffer for the bound of a prefix's range.
    bound: Vec<u8>,
    /// Whether versions were lent that are in no set of this transaction.
    lent: bool,
    /// How many tables of the store were dropped before it began.
    drops: u32,
}

impl Sets {
    /// Empty ones, for a session of `store`.
    pub(crate) fn new(store: &Store) -> Sets {
        Sets {
            hash_keys: Arc::clone(&store.hash_keys),
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
    fn count_lists(&mut self) {
        let bytes = self.reads.capacity() * size_of::<Read>()
            + self.order.capacity() * size_of::<(usize, u32)>()
            + self.replaced.capacity() * size_of::<NonNull<Version>>()
            + self.nodes.bytes_listed()
            + self.writes.bytes_listed();
        if bytes != self.listed_bytes {
            self.arena.count(bytes as i64 - self.listed_bytes as i64);
            self.listed_bytes = bytes;
        }
    }

    /// Makes it look as if as many rows were read as may be.
    #[cfg(all(test, not(feature = "model")))]
    fn fill_reads(&mut self) {
        let read = Read { record: NonNull::dangling(), version: std::ptr::null_mut() };
        self.reads.resize(TRANSACTION_READS_MAX, read);
    }

    /// Makes room for more reads.
    #[cold]
    fn grow_reads(&mut self) -> Result<()> {
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
const READS_AHEAD: usize = 64;

const _: () = assert!(LEAF_MAX <= READS_AHEAD);

/// A read: the version that the record had; null if it had none.
#[derive(Clone, Copy)]
struct Read {
    record: NonNull<Record>,
    version: *mut Version,
}

/// A gap or a range that was read: its leaf, and the leaf's version.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LeafRead {
    table: TableId,
    leaf: LeafVersion,
}

/// What lookups found lately, by the hash of the key: a write usually follows the read of its key.
struct Recent {
    records: [(u64, NonNull<Record>); Recent::SLOTS],
    /// A bit for each slot that is in use.
    used: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { records: [(0, NonNull::dangling()); Self::SLOTS], used: 0 }
    }
}

impl Recent {
    const SLOTS: usize = 64;

    /// Of the upper half: see `hash.rs`.
    #[inline]
    fn slot(hash: u64) -> usize {
        (hash >> 40) as usize % Self::SLOTS
    }

    #[inline]
    fn note(&mut self, hash: u64, record: NonNull<Record>) {
        let slot = Self::slot(hash);
        self.records[slot] = (hash, record);
        self.used |= 1 << slot;
    }

    #[inline]
    fn find(&self, hash: u64) -> Option<NonNull<Record>> {
        let slot = Self::slot(hash);
        let (noted, record) = self.records[slot];
        (self.used & 1 << slot != 0 && noted == hash).then_some(record)
    }

    fn forget(&mut self) {
        self.used = 0;
    }
}

impl<S: DerefMut<Target = Session>> Transaction<S> {
    /// Begins a transaction on a session that is at rest.
    pub fn on(mut session: S) -> Transaction<S> {
        let session_id = session.id;
        let Session { store, state, .. } = &mut *session;
        let state = state.get_mut();
        state.end_forgotten();
        state.memory.pin();
        state.sets.drops = store.tables.drops();
        Transaction { session, session_id }
    }

    /// The session.
    ///
    /// # Panics
    /// If the holder leads to another one than at the beginning.
    #[inline]
    fn session(&self) -> &Session {
        let session = &*self.session;
        assert_eq!(session.id, self.session_id, "a transaction changed its session");
        session
    }

    #[inline]
    fn session_mut(&mut self) -> &mut Session {
        let session = &mut *self.session;
        assert_eq!(session.id, self.session_id, "a transaction changed its session");
        session
    }

    /// The table of this name; creates it if there is none, whether or not the transaction commits.
    ///
    /// # Errors
    /// [`Rejected::TableName`](shoal_types::Rejected::TableName),
    /// [`Rejected::TooManyTables`](shoal_types::Rejected::TooManyTables).
    pub fn table(&self, name: &str) -> Result<TableId> {
        self.session().store().table(name)
    }

    /// Locks, validates and installs, all on this store. An error means that nothing happened.
    ///
    /// # Errors
    /// [`Aborted::Conflict`](shoal_types::Aborted::Conflict) where another transaction got in the way.
    pub fn commit(self) -> Result<()> {
        if self.is_read_only() {
            return self.validate();
        }
        let epoch = self.session().store.options.epoch;
        let locked = self.lock()?;
        let clock = locked.draw_clock();
        locked.validate()?;
        let stamp = StampRef { epoch, clock, remote: &[] };
        // A store of its own has no other to wait for: certified is committed.
        locked.install(stamp, |_| true);
        Ok(())
    }

    /// Rolls back: nothing it did takes effect. Dropping does the same.
    pub fn rollback(self) {}

    /// Shows the versions read so far, but for the first `from`, for the stamp of this transaction
    /// (rule M1): values and tombstones; no more than `most`. Returns the place of the next.
    pub fn versions_read(
        &self,
        from: usize,
        most: usize,
        mut visit: impl FnMut(VersionRef<'_>),
    ) -> usize {
        let (mut at, until) = (from, from.saturating_add(most));
        loop {
            if at == until {
                return at;
            }
            // Not borrowed while `visit` runs: it is foreign.
            let read = self.session().state.borrow().sets.reads.get(at).map(|read| read.version);
            let Some(version) = read else { return at };
            at += 1;
            // SAFETY: what a transaction read is kept by its guard.
            if let Some(version) = unsafe { Guarded::at(version) } {
                visit(VersionRef { value: version.value(), stamp: version.stamp_ref() });
            }
        }
    }

    /// Drops those of the versions read so far whose stamp `rejected` picks out, a closed epoch's
    /// uncovered ones, and all that it picks out of the same keys. Returns how many went. This
    /// transaction then fails its validation: what it read never was. A key that is locked
    /// stays as it is, for the transaction that meets it next.
    ///
    /// # Panics
    /// If `rejected` uses this transaction.
    pub fn discard_read(&self, rejected: impl Fn(StampRef<'_>) -> bool) -> usize {
        let Session { store, state, .. } = self.session();
        let state = &mut *state.borrow_mut();
        let removals_before = state.removals.len();
        let mut discarded = 0;
        for at in 0..state.sets.reads.len() {
            let Read { record, version } = state.sets.reads[at];
            // SAFETY: what a transaction read is kept by its guard.
            let version = unsafe { Guarded::at(version) };
            if version.is_some_and(|version| rejected(version.stamp_ref())) {
                discarded += state.discard(record, &rejected).unwrap_or(0);
            }
        }
        let emptied = state.removals.len() - removals_before;
        // Whether a tombstone that was uncovered is committed, is not known here.
        state.sweep(store, emptied, &|_| false);
        discarded
    }

    /// The number of leaves in the node set.
    #[cfg(all(test, not(feature = "model")))]
    fn leaves_noted(&self) -> usize {
        self.session().state.borrow().sets.nodes.len()
    }

    /// How many records and leaves it has read, and how many keys it has written.
    pub fn size(&self) -> Size {
        let sets = &self.session().state.borrow().sets;
        Size { reads: sets.reads.len() + sets.nodes.len(), writes: sets.writes.entries.len() }
    }

    /// Whether there is nothing to install.
    pub fn is_read_only(&self) -> bool {
        self.session().state.borrow().sets.writes.is_empty()
    }
}

impl<S: DerefMut<Target = Session>> Drop for Transaction<S> {
    fn drop(&mut self) {
        let Session { store, state, slice, .. } = self.session_mut();
        state.get_mut().end(store, *slice);
    }
}
