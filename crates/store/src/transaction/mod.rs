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
//! not act outside of the database on what it read before it learns of the commit.
//!
//! Read in this order: `writes.rs`, `nodes.rs`, `sets.rs`, this file, `lookup.rs`, `execute.rs`, `scan.rs`, `commit.rs`.

mod commit;
mod execute;
mod hash;
mod lookup;
mod nodes;
mod scan;
mod sets;
mod writes;

#[cfg(all(test, not(feature = "model")))]
mod tests;

pub use commit::{Locked, LockedWrite, Locking};
#[cfg(feature = "bare")]
pub(crate) use scan::prefetch_rows;

pub(crate) use hash::HashKeys;
pub(crate) use sets::Sets;

use crate::guarded::Guarded;
use crate::session::Session;
use crate::version::VersionRef;
use sets::Read;
use shoal_types::{Result, StampRef, TableId};
use std::ops::DerefMut;

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

impl Session {
    /// A transaction reads and writes through its session; a session has one at a time.
    pub fn begin(&mut self) -> Transaction<&mut Session> {
        Transaction::on(self)
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

    /// What the transaction was begun on: it owns the session, or leads to it.
    #[inline]
    pub fn holder(&self) -> &S {
        &self.session
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
        /// Taken out together.
        const CHUNK: usize = 16;
        let (mut at, until) = (from, from.saturating_add(most));
        let mut chunk = [std::ptr::null_mut(); CHUNK];
        loop {
            // Not borrowed while `visit` runs: it is foreign.
            let taken = {
                let reads = &self.session().state.borrow().sets.reads;
                let reads = reads.get(at..until.min(reads.len())).unwrap_or_default();
                let places = chunk.iter_mut().zip(reads);
                places.map(|(place, read)| *place = read.version).count()
            };
            if taken == 0 {
                return at;
            }
            at += taken;
            for version in &chunk[..taken] {
                // SAFETY: what a transaction read is kept by its guard.
                if let Some(version) = unsafe { Guarded::at(*version) } {
                    visit(VersionRef::of(version));
                }
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
