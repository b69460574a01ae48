//! Sessions: a place in the store for one transaction at a time.

use crate::guarded::Guarded;
use crate::reclaim::{Memory, Retired};
use crate::removals::Removals;
use crate::store::Store;
use crate::transaction::Sets;
use crate::version::Version;
use shoal_types::limits::TRANSACTIONS_OPEN_MAX;
use shoal_types::{Rejected, Result, StampRef};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// One user's place in a [`Store`]: it can be kept and used again, and it moves between threads
/// together with the transaction that runs on it.
pub struct Session {
    /// Declared before the store, and so dropped before it: a store that is dropped with its last session still has
    /// to free the session's memory.
    pub(crate) state: RefCell<SessionState>,
    /// A number that no other session of this process has.
    pub(crate) id: u64,
    /// The most writes that a dropped transaction rolls back at once.
    pub(crate) slice: usize,
    pub(crate) store: Arc<Store>,
}

/// The buffers of a session, which one transaction uses at a time.
pub(crate) struct SessionState {
    pub(crate) memory: Memory,
    pub(crate) sets: Sets,
    /// Keys whose record may have become empty and should leave the index.
    pub(crate) removals: Removals,
}

// SAFETY: the pointers in a state lead to memory of the store, which the state's guard or its own
// privacy keeps, on any thread; nothing in it belongs to a thread.
unsafe impl Send for SessionState {}

/// A number that no session had before.
fn next_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl Store {
    /// A place for one transaction at a time.
    ///
    /// # Errors
    /// [`Rejected::TooManyTransactions`] where [`Options::transactions_max`](crate::Options::transactions_max) sessions exist;
    /// [`Rejected::TransactionsMax`] where that is more than there can be.
    pub fn session(self: &Arc<Self>) -> Result<Session> {
        Session::new(self)
    }
}

impl Session {
    fn new(store: &Arc<Store>) -> Result<Session> {
        let (asked, max) = (store.options.transactions_max, TRANSACTIONS_OPEN_MAX);
        if asked > max {
            Err(Rejected::TransactionsMax { asked, max })?;
        }
        let memory = Memory::new(&store.eras, &store.arena)
            .ok_or(Rejected::TooManyTransactions { max: store.eras.sessions_max() })?;
        let state = SessionState { memory, sets: Sets::new(store), removals: Removals::default() };
        Ok(Session {
            store: Arc::clone(store),
            state: RefCell::new(state),
            id: next_id(),
            slice: usize::MAX,
        })
    }

    /// From now on a transaction that is dropped rolls back no more than so many writes at once. The others keep their
    /// locks until [`end_some`](Session::end_some) has come to them; the caller has to go on until then.
    pub fn end_in_slices(&mut self, writes_max: usize) {
        self.slice = writes_max.max(1);
    }

    /// Whether the last transaction was dropped and is not completely rolled back.
    pub fn is_ending(&mut self) -> bool {
        self.state.get_mut().memory.is_pinned()
    }

    /// Rolls back more writes of the dropped transaction. Returns whether that was all.
    pub fn end_some(&mut self) -> bool {
        let Session { state, store, slice, .. } = self;
        let state = state.get_mut();
        !state.memory.is_pinned() || state.end(store, *slice)
    }

    /// The store that the session belongs to.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Tries again to take the keys out of the index that earlier transactions left empty but whose
    /// tombstones were not committed then. Transactions do this at their end; an idle session can.
    pub fn sweep(&mut self, committed: impl Fn(StampRef<'_>) -> bool) {
        let state = &mut *Pinned::take(self.state.get_mut());
        state.removals.append(&mut self.store.take_removals());
        state.sweep(&self.store, usize::MAX, &committed);
    }
}

impl SessionState {
    /// Ends a transaction that was forgotten on this session, with what it borrowed.
    pub(crate) fn end_forgotten(&mut self) {
        if self.memory.is_pinned() {
            self.roll_back(usize::MAX);
            self.memory.unpin();
        }
    }

    /// Rolls back at most `most` writes of a dropped transaction. Returns whether that was all.
    pub(crate) fn end(&mut self, store: &Store, most: usize) -> bool {
        let removals_before = self.removals.len();
        let is_over = self.roll_back(most);
        // Removes placeholders only; a later sweep removes tombstones that are committed by then.
        self.sweep(store, self.removals.len() - removals_before, &|_| false);
        if is_over {
            self.memory.unpin();
        }
        is_over
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
            let popped = self.removals.pop_back(&mut self.memory.heap);
            let Some((table, key)) = popped else { return };
            let mut pending = false;
            let index = store.tables.any(table).expect("a key of a table that exists");
            // SAFETY: pinned.
            let removed = unsafe {
                index.remove(&key, &mut self.memory, &mut |record| {
                    let word = record.as_ref().word();
                    if word.is_marked() {
                        pending = true;
                        return false;
                    }
                    let uncommitted = Guarded::at(word.version()).is_some_and(|newest| {
                        pending = newest.is_tombstone() && !committed(newest.stamp_ref());
                        pending || !newest.is_tombstone()
                    });
                    // A locked word is no version's address, so a lock stops the kill.
                    !uncommitted && !word.is_locked() && record.as_ref().kill(word.version())
                })
            };
            if let Some(record) = removed {
                // SAFETY: pinned; the record is dead and out of the index.
                unsafe { self.sets.forget_record(table, &key, record) };
                // SAFETY: as above.
                self.retire_chain(unsafe { record.as_ref() }.word().version());
                self.memory.retire(Retired::Record(record));
            } else if pending {
                self.removals.push_front(table, key, &mut self.memory.heap);
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

/// A pinned state: at rest again when this goes, on any path, also by a panic.
pub(crate) struct Pinned<'s>(&'s mut SessionState);

impl<'s> Pinned<'s> {
    pub(crate) fn take(state: &'s mut SessionState) -> Pinned<'s> {
        state.end_forgotten();
        state.memory.pin();
        Pinned(state)
    }
}

impl Deref for Pinned<'_> {
    type Target = SessionState;
    fn deref(&self) -> &SessionState {
        self.0
    }
}

impl DerefMut for Pinned<'_> {
    fn deref_mut(&mut self) -> &mut SessionState {
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
        self.state.get_mut().end_forgotten();
        let removals = std::mem::take(&mut self.state.get_mut().removals);
        if removals.len() > 0 {
            self.store.leave_removals(removals);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("store", &self.store).finish_non_exhaustive()
    }
}
