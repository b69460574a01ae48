//! Transactions: optimistic concurrency control (Silo, SOSP'13 §4).
//!
//! ```text
//! execute   get, scan, put …      read set: record and the version it had
//!                                 node set: leaf and its version, for gaps and ranges
//!                                 write set: private versions, nobody sees them
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
//! somebody's commit); validation then fails, and whatever it computed is discarded. So a body must
//! not act outside of the database on what it read before it is told of the commit.
//!
//! Read in this order: `writes.rs`, this file, `execute.rs`, `scan.rs`, `commit.rs`.

mod commit;
mod execute;
mod scan;
mod writes;

#[cfg(all(test, not(feature = "model")))]
mod tests;

pub use commit::Locked;
pub use execute::VersionRef;
#[cfg(feature = "bare")]
pub(crate) use scan::prefetch_rows;

use crate::index::LeafVersion;
use crate::record::Record;
use crate::session::Session;
use crate::version::Version;
use std::ops::DerefMut;
use std::ptr::NonNull;
use types::{Result, StampRef, TableId};
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

/// What a transaction has read and will write.
#[derive(Default)]
pub(crate) struct Sets {
    reads: Vec<Read>,
    nodes: Vec<LeafRead>,
    writes: WriteSet,
    /// A leaf was split on the way of a new key, so the gaps noted in the write set do not hold.
    gaps_stale: bool,
    recent: Recent,
    /// Addresses of the records to lock, with their places in the write set. Ascending.
    order: Vec<(usize, u32)>,
    /// How many of `order` are locked.
    locked: usize,
    /// Versions that the transaction wrote and then overwrote; slices may still borrow them.
    replaced: Vec<NonNull<Version>>,
    /// Where a scan builds the end of a prefix's range.
    bound: Vec<u8>,
    /// Versions were lent that no set here knows of.
    lent: bool,
}

/// One read: the version the record had. Null where it had none.
#[derive(Clone, Copy)]
struct Read {
    record: NonNull<Record>,
    version: *mut Version,
}

/// One gap or range: the leaf it is in, as it was.
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

    #[inline]
    fn note(&mut self, hash: u64, record: NonNull<Record>) {
        let slot = hash as usize % Self::SLOTS;
        self.records[slot] = (hash, record);
        self.used |= 1 << slot;
    }

    #[inline]
    fn find(&self, hash: u64) -> Option<NonNull<Record>> {
        let slot = hash as usize % Self::SLOTS;
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
        let state = session.state.get_mut();
        state.end_forgotten();
        state.memory.pin();
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

    /// Locks, validates and installs, all on this store. An error means that nothing happened.
    ///
    /// # Errors
    /// [`Aborted::Conflict`](types::Aborted::Conflict) where another transaction got in the way.
    pub fn commit(self) -> Result<()> {
        if self.is_read_only() {
            return self.validate();
        }
        let epoch = self.session().store.options.epoch;
        let locked = self.lock()?;
        let clock = locked.draw_clock();
        locked.validate()?;
        let stamp = StampRef { epoch, clock, remote: &[] };
        // A store of its own has nobody to wait for: certified is committed.
        locked.install(stamp, |_| true);
        Ok(())
    }

    /// Rolls back: nothing it did takes effect. Dropping does the same.
    pub fn rollback(self) {}

    /// Shows the versions read so far, but for the first `from`, for the stamp of this transaction
    /// (rule M1): values and tombstones. Returns how many there are by now.
    pub fn versions_read(&self, from: usize, mut visit: impl FnMut(VersionRef<'_>)) -> usize {
        let mut at = from;
        loop {
            // Not borrowed while `visit` runs: it is foreign.
            let read = self.session().state.borrow().sets.reads.get(at).map(|read| read.version);
            let Some(version) = read else { return at };
            at += 1;
            // SAFETY: what a transaction read is kept by its guard.
            if let Some(version) = unsafe { version.as_ref() } {
                visit(VersionRef { value: version.value(), stamp: version.stamp_ref() });
            }
        }
    }

    /// Drops those of the versions read so far whose stamp `rejected` picks out, a closed epoch's
    /// uncovered ones, and whatever else it picks out of the same keys. Returns how many went. This
    /// transaction then fails its validation: what it read never was. A key that somebody has locked
    /// stays as it is, for whoever meets it next.
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
            let version = unsafe { version.as_ref() };
            if version.is_some_and(|version| rejected(version.stamp_ref())) {
                discarded += state.discard(record, &rejected).unwrap_or(0);
            }
        }
        let emptied = state.removals.len() - removals_before;
        // Whether a tombstone that was uncovered is committed, nobody says here.
        state.sweep(store, emptied, &|_| false);
        discarded
    }

    /// How many leaves the node set has.
    #[cfg(all(test, not(feature = "model")))]
    fn leaves_noted(&self) -> usize {
        self.session().state.borrow().sets.nodes.len()
    }

    /// Is there anything to install?
    pub fn is_read_only(&self) -> bool {
        self.session().state.borrow().sets.writes.is_empty()
    }
}

impl<S: DerefMut<Target = Session>> Drop for Transaction<S> {
    fn drop(&mut self) {
        let Session { store, state, .. } = self.session_mut();
        let state = state.get_mut();
        let emptied = state.roll_back();
        // Placeholders go; whether a tombstone is committed, a later sweep will know.
        state.sweep(store, emptied, &|_| false);
        state.memory.unpin();
    }
}
