//! Sessions: a place in the store for one transaction at a time.

use crate::index::Lookup;
use crate::reclaim::{Memory, Retired};
use crate::record::{LockError, Record};
use crate::store::Store;
use crate::transaction::{Sets, Transaction};
use crate::version::Version;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use types::{Aborted, Conflict, Rejected, Result, StampRef, TableId};

/// One user's place in a [`Store`]: it can be kept and used again, and it moves between threads
/// together with the transaction that runs on it.
pub struct Session {
    /// Stands before the store, and so goes before it: a store that goes with its last session
    /// still has to free what the session was about to.
    pub(crate) state: RefCell<State>,
    /// Unlike every other session's of this process.
    pub(crate) id: u64,
    pub(crate) store: Arc<Store>,
}

/// What a session owns. Used by one transaction at a time.
pub(crate) struct State {
    pub(crate) memory: Memory,
    pub(crate) sets: Sets,
    /// Keys whose record may have become empty and should leave the index.
    pub(crate) removals: Removals,
}

/// Keys that may have to leave the index, the newest at the back.
pub(crate) type Removals = VecDeque<(TableId, Box<[u8]>)>;

// SAFETY: the pointers in a state lead to memory of the store, which the state's guard or its own
// privacy keeps, on whatever thread; nothing in it belongs to a thread.
unsafe impl Send for State {}

/// A number that no session had before.
fn next_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl Session {
    pub(crate) fn new(store: &Arc<Store>) -> Result<Session> {
        let memory = Memory::new(&store.eras, &store.arena)
            .ok_or(Rejected::TooManyTransactions { max: store.eras.sessions_max() })?;
        let state = State { memory, sets: Sets::default(), removals: Removals::new() };
        Ok(Session { store: Arc::clone(store), state: RefCell::new(state), id: next_id() })
    }

    /// The store it belongs to.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Transaction<&mut Session> {
        Transaction::on(self)
    }

    /// Drops the versions of `key` whose stamp `rejected` picks out: a closed epoch's uncovered
    /// ones. What is left becomes visible as if they had never been.
    ///
    /// # Errors
    /// [`Conflict::Locked`] where a transaction holds the key; ask again later.
    pub fn discard(
        &mut self,
        table: TableId,
        key: &[u8],
        rejected: impl Fn(StampRef<'_>) -> bool,
    ) -> Result<()> {
        let index = self.store.index(table)?;
        let state = self.state.get_mut();
        let state = &mut *Pinned::take(state);
        // SAFETY: pinned; so for the record below.
        let Lookup::Found(record) = (unsafe { index.get(key) }) else { return Ok(()) };
        state.discard(record, &rejected)?;
        // A record without a version can go; of what is left, nobody says here what is committed.
        state.sweep(&self.store, 1, &|_| false);
        Ok(())
    }

    /// Tries again to take the keys out of the index that earlier transactions left empty but whose
    /// tombstones were not committed then. Transactions do this at their end; an idle session can.
    pub fn sweep(&mut self, committed: impl Fn(StampRef<'_>) -> bool) {
        let state = &mut *Pinned::take(self.state.get_mut());
        state.removals.extend(self.store.take_removals());
        state.sweep(&self.store, usize::MAX, &committed);
    }
}

impl State {
    fn discard(
        &mut self,
        record: NonNull<Record>,
        rejected: &dyn Fn(StampRef<'_>) -> bool,
    ) -> Result<()> {
        // SAFETY: pinned, by the caller.
        let guarded = unsafe { record.as_ref() };
        let newest = match guarded.lock() {
            Ok(newest) => newest,
            Err(LockError::Dead) => return Ok(()),
            Err(LockError::Held) => {
                // SAFETY: pinned.
                let (table, key) = (guarded.table(), unsafe { Record::excerpt(record) });
                return Err(Aborted::from(Conflict::Locked { table, key }).into());
            }
        };
        // Gives the lock back as it was, should `rejected` panic.
        let mut unlock = Unlock { record: guarded, newest };
        let fates = chain(newest).map(|version| (version, rejected(version.stamp_ref())));
        let fates: Vec<_> = fates.collect();
        let mut kept_newest = None;
        let mut kept_last: Option<NonNull<Version>> = None;
        for (version, is_rejected) in fates {
            let at = NonNull::from(version);
            if is_rejected {
                self.memory.retire(Retired::Version(at));
                continue;
            }
            match kept_last.replace(at) {
                // SAFETY: kept by the guard.
                Some(newer) => unsafe { newer.as_ref() }.set_prev(at.as_ptr()),
                None => kept_newest = Some(at),
            }
        }
        if let Some(last) = kept_last {
            // SAFETY: as above.
            unsafe { last.as_ref() }.set_prev(std::ptr::null_mut());
        }
        unlock.newest = kept_newest.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        drop(unlock);
        // SAFETY: pinned.
        self.removals.push_back((guarded.table(), unsafe { Record::key(record) }.into()));
        Ok(())
    }

    /// Takes the keys in `removals` out of the index whose newest version is a committed tombstone
    /// or that have none; keeps those whose tombstone is not committed yet. Looks at `most` keys,
    /// the newest first.
    ///
    /// REQUIRES: pinned.
    pub(crate) fn sweep(
        &mut self,
        store: &Store,
        most: usize,
        committed: &dyn Fn(StampRef<'_>) -> bool,
    ) {
        for _ in 0..self.removals.len().min(most) {
            let Some((table, key)) = self.removals.pop_back() else { return };
            let mut pending = false;
            let index = store.index(table).expect("a key of a table that exists");
            // SAFETY: pinned.
            let removed = unsafe {
                index.remove(&key, &mut self.memory, &mut |record| {
                    let word = record.as_ref().word();
                    let uncommitted = word.version().as_ref().is_some_and(|newest| {
                        pending = newest.value().is_none() && !committed(newest.stamp_ref());
                        pending || newest.value().is_some()
                    });
                    // A locked word is no version's address, so a lock stops the kill.
                    !uncommitted && !word.is_locked() && record.as_ref().kill(word.version())
                })
            };
            if let Some(record) = removed {
                // SAFETY: pinned; the record is dead and out of the index.
                self.retire_chain(unsafe { record.as_ref() }.word().version());
                self.memory.retire(Retired::Record(record));
            } else if pending {
                self.removals.push_front((table, key));
            }
        }
    }

    /// Retires a version and all that are older.
    ///
    /// REQUIRES: pinned; no new reader can reach them.
    pub(crate) fn retire_chain(&mut self, newest: *mut Version) {
        let mut next = newest;
        while let Some(version) = NonNull::new(next) {
            // SAFETY: under this guard nothing of the chain is freed yet.
            next = unsafe { version.as_ref() }.prev();
            self.memory.retire(Retired::Version(version));
        }
    }
}

/// The versions of a chain, from the newest.
fn chain<'g>(newest: *mut Version) -> impl Iterator<Item = &'g Version> {
    // SAFETY: the caller holds the guard and the record's lock, so nothing of the chain goes.
    let version = |version: *mut Version| unsafe { version.as_ref() };
    std::iter::successors(version(newest), move |at| version(at.prev()))
}

/// A locked record, which gets this version as its newest when the lock goes.
struct Unlock<'g> {
    record: &'g Record,
    newest: *mut Version,
}

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.record.unlock(self.newest);
    }
}

/// A pinned state: at rest again when this goes, whatever happens meanwhile.
struct Pinned<'s>(&'s mut State);

impl<'s> Pinned<'s> {
    fn take(state: &'s mut State) -> Pinned<'s> {
        state.memory.pin();
        Pinned(state)
    }
}

impl Deref for Pinned<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0
    }
}

impl DerefMut for Pinned<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.memory.unpin();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let removals = std::mem::take(&mut self.state.get_mut().removals);
        if !removals.is_empty() {
            self.store.leave_removals(removals);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("store", &self.store).finish_non_exhaustive()
    }
}
