//! Rollback: the versions of a closed epoch that its final vector watermark does not cover are removed from their
//! chains, at any place, and the rest is visible as if they had never existed (rule M9).
//!
//! ```text
//! before   record ─ v4 e2 ─ v3 e1 rejected ─ v2 e1 ─ v1 e1 rejected
//! after    record ─ v4 e2 ────────────────── v2 e1
//! ```
//! Such a version is dropped when it is met, by a reader ([`Transaction::discard_read`]) or a writer
//! ([`Locked::discard`]), and by a pass over the whole store ([`Session::roll_back`]).
//!
//! Phantoms: no leaf changes when a version goes, and none has to. A transaction that saw the key, or saw it
//! absent because of a tombstone, has the record and the rejected version in its read set; the word
//! leads elsewhere now, and the version's address is not used again under that reader's guard. A
//! record that is left without a version leaves the index as any other does, and that changes the
//! leaf's version, which validates scans.
//!
//! Invariant: only the holder of the record's lock changes a chain; what it unlinks, it retires.
//!
//! [`Transaction::discard_read`]: crate::Transaction::discard_read
//! [`Locked::discard`]: crate::Locked::discard

use crate::guarded::Guarded;
use crate::index::Lookup;
use crate::reclaim::Retired;
use crate::record::{LockError, Record};
use crate::session::{Pinned, Session, SessionState};
use crate::store::Store;
use crate::version::Version;
use crate::walk::{WalkPlace, walk};
use shoal_types::{Aborted, Conflict, Result, StampRef, TableId};
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};

#[cfg(all(test, not(feature = "model")))]
mod tests;

/// The position of a pass over a store: see [`Session::roll_back`]. The default is the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RollBack {
    place: WalkPlace,
    /// The first key that was skipped since its record was locked.
    held: Option<WalkPlace>,
}

/// The result of one call of [`Session::roll_back`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the pass may not be over"]
pub struct RolledBack {
    /// The number of versions that were dropped.
    pub discarded: usize,
    /// Where to go on: behind what was looked at, or, at the end of the store, from the first key
    /// again whose lock was in the way. `None` where nothing is left.
    pub next: Option<RollBack>,
    /// The end of the store was reached: where there is a `next` all the same, it waits for locks,
    /// and there is no hurry.
    pub over: bool,
}

/// Another transaction holds the record's lock.
pub(crate) struct HeldLocks;

impl Session {
    /// Drops the versions of `key` whose stamp `rejected` picks out: a closed epoch's uncovered
    /// ones. What is left becomes visible as if they had never been. Returns the number of dropped versions.
    ///
    /// # Errors
    /// [`Conflict::Locked`] if there is such a version and a transaction holds the key; to be repeated later.
    pub fn discard(
        &mut self,
        table: TableId,
        key: &[u8],
        rejected: impl Fn(StampRef<'_>) -> bool,
    ) -> Result<usize> {
        let index = self.store.index(table)?;
        let state = &mut *Pinned::take(self.state.get_mut());
        // SAFETY: pinned; so for the record below.
        let Lookup::Found(record, _) = (unsafe { index.get(key) }) else { return Ok(0) };
        let removals_before = state.removals.len();
        let discarded = state.discard(record, &rejected).map_err(|HeldLocks| {
            // SAFETY: pinned.
            Aborted::from(Conflict::Locked { table, key: unsafe { Record::excerpt(record) } })
        })?;
        let emptied = state.removals.len() - removals_before;
        // A record without a version can go; of what is left, it is not known here what is committed.
        state.sweep(&self.store, emptied, &|_| false);
        Ok(discarded)
    }

    /// One step of a pass over all tables that drops every version whose stamp `rejected` picks out,
    /// wherever it stands in its chain: looks at `most` records behind `from`, in the order of their
    /// keys. `committed` returns true for the tombstones below them that may leave the index.
    ///
    /// A record with such a version that is locked is left, and the pass comes back to it:
    /// when [`RolledBack::next`] is `None`, nothing is left behind. Between the steps it holds
    /// nothing.
    ///
    /// REQUIRES: from the beginning of the pass on, no transaction installs what `rejected` picks out: its
    /// epoch is settled, and keys that come in meanwhile are not looked at.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn roll_back(
        &mut self,
        from: &RollBack,
        most: usize,
        rejected: impl Fn(StampRef<'_>) -> bool,
        committed: impl Fn(StampRef<'_>) -> bool,
    ) -> RolledBack {
        assert!(most > 0, "a step of no records gets nowhere");
        let state = &mut *Pinned::take(self.state.get_mut());
        let removals_before = state.removals.len();
        let done = state.roll_back_some(&self.store, from, most, &rejected);
        let emptied = state.removals.len() - removals_before;
        state.sweep(&self.store, emptied, &committed);
        done
    }
}

impl SessionState {
    /// One step of [`Session::roll_back`].
    ///
    /// REQUIRES: pinned.
    fn roll_back_some(
        &mut self,
        store: &Store,
        from: &RollBack,
        most: usize,
        rejected: &dyn Fn(StampRef<'_>) -> bool,
    ) -> RolledBack {
        let (mut held, mut discarded) = (from.held.clone(), 0);
        // SAFETY: pinned; so for the place below.
        let next = unsafe {
            walk(store, &from.place, most, |table, record| {
                match self.discard(record, rejected) {
                    Ok(gone) => discarded += gone,
                    Err(HeldLocks) => {
                        held.get_or_insert_with(|| WalkPlace::before(table, record));
                    }
                }
                ControlFlow::Continue(())
            })
        };
        let over = next.is_none();
        let next = match next {
            Some(place) => Some(RollBack { place, held }),
            None => held.map(|place| RollBack { place, held: None }),
        };
        RolledBack { discarded, next, over }
    }

    /// Drops the versions of a record that `rejected` picks out. Returns how many.
    ///
    /// REQUIRES: pinned.
    pub(crate) fn discard(
        &mut self,
        record: NonNull<Record>,
        rejected: &dyn Fn(StampRef<'_>) -> bool,
    ) -> Result<usize, HeldLocks> {
        // SAFETY: pinned; so for the versions and the key below.
        let guarded = unsafe { record.as_ref() };
        // Most records have none, and are not disturbed.
        // SAFETY: as above.
        let is_rejected =
            |version: NonNull<Version>| rejected(unsafe { Guarded::new(version) }.stamp_ref());
        if !chain(guarded.word().version()).any(is_rejected) {
            return Ok(0);
        }
        let newest = match guarded.lock() {
            Ok(newest) => newest,
            // It leaves the index, with all it has.
            Err(LockError::Dead) => return Ok(0),
            Err(LockError::Held) => return Err(HeldLocks),
        };
        // Gives the lock back as it was, should `rejected` panic.
        let mut unlock = Unlock { record: guarded, newest };
        let (newest, gone) = unlink(newest, rejected);
        unlock.newest = newest;
        drop(unlock);
        let discarded = gone.len();
        gone.into_iter().for_each(|version| self.memory.retire(Retired::Version(version)));
        // SAFETY: as above.
        if unsafe { newest.as_ref() }.is_none_or(Version::is_tombstone) {
            // The operation that would have taken the key out of the index may have found it in use.
            // SAFETY: as above.
            unsafe { self.removals.push_back(record, &mut self.memory.heap) };
        }
        Ok(discarded)
    }
}

/// Takes the versions that `rejected` picks out of a chain. Returns its newest version now, and what
/// it took out, which is the caller's to retire.
///
/// REQUIRES: under the guard; the caller holds the record's lock.
pub(crate) fn unlink(
    newest: *mut Version,
    rejected: &dyn Fn(StampRef<'_>) -> bool,
) -> (*mut Version, Vec<NonNull<Version>>) {
    // Foreign, hence asked before anything changes: a panic leaves the chain whole.
    let (gone, kept): (Vec<_>, Vec<_>) = chain(newest)
        // SAFETY: kept by the guard; so for all below.
        .partition(|version| rejected(unsafe { Guarded::new(*version) }.stamp_ref()));
    if !gone.is_empty() {
        let older = kept.iter().skip(1).map(|version| version.as_ptr());
        for (version, prev) in kept.iter().zip(older.chain([ptr::null_mut()])) {
            // SAFETY: as above.
            unsafe { version.as_ref() }.set_prev(prev);
        }
    }
    (kept.first().map_or(ptr::null_mut(), |newest| newest.as_ptr()), gone)
}

/// The versions of a chain, from the newest.
///
/// REQUIRES: under the guard, for as long as they are used.
pub(crate) fn chain(newest: *mut Version) -> impl Iterator<Item = NonNull<Version>> {
    std::iter::successors(NonNull::new(newest), |version| {
        // SAFETY: the guard keeps it, and what can be reached from it, even once it is unlinked.
        NonNull::new(unsafe { version.as_ref() }.prev())
    })
}

/// A locked record, which gets this version as its newest when the lock goes.
pub(crate) struct Unlock<'g> {
    pub(crate) record: &'g Record,
    pub(crate) newest: *mut Version,
}

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.record.unlock(self.newest);
    }
}
