//! The end of a transaction: lock, draw the clock, validate, install; or roll back.

use super::sets::{Read, Sets};
use super::writes::Write;
use super::{Size, Transaction};
use crate::change::{Change, Delta, DeltaUse, diff};
use crate::discard::{chain, unlink};
use crate::faults::{StoreBug, StoreBugs};
use crate::guarded::Guarded;
use crate::index::{Insertion, LeafChange};
use crate::reclaim::{Memory, Retired};
use crate::record::{LockError, Record};
use crate::session::{Session, SessionState};
use crate::store::Store;
use crate::trim::TrimQueue;
use crate::version::{Version, VersionRef};
use crate::work::{self, Work};
use shoal_types::{Aborted, Clock, Conflict, Result, StampRef, TableId};
use std::ops::DerefMut;
use std::ptr::{self, NonNull};

/// The lists of a smaller transaction are counted as they grow while it executes, and not again.
const LISTS_COUNTED_FROM: usize = 64;

/// How many versions of a chain an installation looks at where it does not walk it.
const GLANCE: usize = 4;

/// How many keys that earlier transactions left empty a commit looks at.
const SWEEP_MORE: usize = 4;

/// A transaction that holds the locks of everything it will write. What it reads is still to be
/// validated. Dropping it releases the locks and rolls back.
pub struct Locked<S: DerefMut<Target = Session>> {
    transaction: Transaction<S>,
}

/// What a transaction that holds its locks makes of a row.
#[derive(Debug, Clone, Copy)]
pub struct LockedWrite<'a> {
    /// The table of the row.
    pub table: TableId,
    /// The key that is written.
    pub key: &'a [u8],
    /// The value; `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The newest version, which it will overwrite, committed or not. After the installation that is its own.
    pub overwritten: Option<VersionRef<'a>>,
}

impl LockedWrite<'_> {
    /// What a log needs of it: a delta, with its patch in `patch`, where `is_base` holds for the version that it will
    /// overwrite.
    pub fn change<'p>(
        &'p self,
        deltas: DeltaUse,
        is_base: impl FnOnce(StampRef<'_>) -> bool,
        patch: &'p mut Vec<u8>,
    ) -> Change<&'p [u8]> {
        if let (Some(new), Some(VersionRef { value: Some(old), stamp })) =
            (self.value, self.overwritten)
            && let Some(most) = deltas.patch_bytes_max(new.len())
            && diff(old, new, most, patch)
            && is_base(stamp)
        {
            let (base, length) = ((stamp.epoch, stamp.clock), new.len() as u32);
            return Change::Delta(Delta { base, length, patch });
        }
        Change::of(self.value)
    }
}

/// A transaction that takes its locks in slices, and executes no more. Dropping it releases those that it holds and
/// rolls back.
///
/// The order of the locks is that of the slices, and by address within each. Two such transactions may meet in
/// different orders; then one of them finds a lock held and gives up, as ever.
pub struct Locking<S: DerefMut<Target = Session>> {
    transaction: Transaction<S>,
    is_over: bool,
}

impl<S: DerefMut<Target = Session>> Locking<S> {
    /// Takes the locks of the next `most` keys of the write set. Says whether it holds all by now.
    ///
    /// # Errors
    /// As for [`Transaction::lock`]. Then it can only be dropped.
    pub fn lock_some(&mut self, most: usize) -> Result<bool> {
        let Session { store, state, .. } = self.transaction.session_mut();
        self.is_over = state.get_mut().lock(store, most)?;
        Ok(self.is_over)
    }

    /// The transaction, which holds all its locks.
    ///
    /// # Panics
    /// If it does not hold them.
    pub fn locked(self) -> Locked<S> {
        assert!(self.is_over, "a transaction goes on before it holds all its locks");
        Locked { transaction: self.transaction }
    }
}

impl<S: DerefMut<Target = Session>> Transaction<S> {
    /// Takes the lock of every key in the write set, in one order for all transactions, waiting only
    /// a moment for each.
    ///
    /// # Errors
    /// [`Conflict::Locked`] where another transaction kept a lock; [`Conflict::TableDropped`] where a table was dropped since
    /// it began of which it has read or written something.
    pub fn lock(mut self) -> Result<Locked<S>> {
        let Session { store, state, .. } = self.session_mut();
        state.get_mut().lock(store, usize::MAX)?;
        Ok(Locked { transaction: self })
    }

    /// Begins to take the locks in slices.
    pub fn locking(self) -> Locking<S> {
        Locking { transaction: self, is_over: false }
    }

    /// Checks that everything read is still so.
    ///
    /// # Errors
    /// The [`Conflict`] that proves the contrary.
    pub fn validate(&self) -> Result<()> {
        self.validate_some(0, usize::MAX).map(drop)
    }

    /// Checks the next `most` of what was read, from this place on. Returns the place of the next, or `None` where
    /// all is checked. A transaction takes effect before the first of these checks: what is still so at any of them
    /// was so then.
    ///
    /// # Errors
    /// The [`Conflict`] that proves the contrary.
    pub fn validate_some(&self, from: usize, most: usize) -> Result<Option<usize>> {
        let store = &self.session().store;
        let sets = &self.session().state.borrow().sets;
        sets.check_tables(store).map_err(Aborted::from)?;
        Ok(sets.validate(store.options.faults, from, most).map_err(Aborted::from)?)
    }
}

impl<S: DerefMut<Target = Session>> Locked<S> {
    /// Draws this transaction's clock on the store's shard (rule M2: under the locks).
    pub fn draw_clock(&self) -> Clock {
        self.transaction.session().store.draw_clock()
    }

    /// Checks that everything read is still so.
    ///
    /// # Errors
    /// The [`Conflict`] that proves the contrary.
    pub fn validate(&self) -> Result<()> {
        self.transaction.validate()
    }

    /// See [`Transaction::validate_some`].
    ///
    /// # Errors
    /// The [`Conflict`] that proves the contrary.
    pub fn validate_some(&self, from: usize, most: usize) -> Result<Option<usize>> {
        self.transaction.validate_some(from, most)
    }

    /// How many records and leaves it has read, and how many keys it will write.
    pub fn size(&self) -> Size {
        self.transaction.size()
    }

    /// Publishes the writes before the place `until` that are not yet, as [`install`](Locked::install) does, and
    /// releases their locks. All of them get the same stamp. The transaction is certified: dropping it later undoes
    /// only what is not published.
    pub fn install_until(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        committed: impl Fn(StampRef<'_>) -> bool,
    ) {
        self.install_some(until, stamp, &committed, None);
    }

    /// The same, and adds the records to `queue` of which an overwritten version stays until this installation is committed:
    /// [`Session::trim`] frees it then.
    ///
    /// REQUIRES: `queue` is of installations on this store.
    pub fn install_and_queue(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        committed: impl Fn(StampRef<'_>) -> bool,
        queue: &mut TrimQueue,
    ) {
        self.install_some(until, stamp, &committed, Some(queue));
    }

    fn install_some(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        committed: &dyn Fn(StampRef<'_>) -> bool,
        queue: Option<&mut TrimQueue>,
    ) {
        let Session { store, state, .. } = self.transaction.session_mut();
        let state = state.get_mut();
        let emptied = state.install(until, stamp, committed, queue);
        // A few more than came in, so that what had to wait gets its turn.
        state.sweep(store, emptied + SWEEP_MORE, committed);
    }

    /// The same where all that is in the store is committed: of each key's chain only what is published stays. A tombstone
    /// stays as long as `removable` returns false for it.
    pub fn install_committed_until(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        removable: impl Fn(StampRef<'_>) -> bool,
    ) {
        let Session { store, state, .. } = self.transaction.session_mut();
        let state = state.get_mut();
        let emptied = state.install(until, stamp, &|_| true, None);
        state.sweep(store, emptied + SWEEP_MORE, &removable);
    }

    /// Publishes the writes under `stamp`, releases the locks, and frees what is not needed any more:
    /// of each key's chain stay the versions that `committed` does not hold for and the newest for
    /// which it does.
    pub fn install(mut self, stamp: StampRef<'_>, committed: impl Fn(StampRef<'_>) -> bool) {
        self.install_until(usize::MAX, stamp, committed);
    }

    /// Shows what it will install.
    pub fn writes(&self, mut visit: impl FnMut(LockedWrite<'_>)) {
        self.writes_from(0, |write| {
            visit(write);
            true
        });
    }

    /// Shows what it will install, from the write at this place on and until `visit` says that it has seen enough. Returns the
    /// place of the next. The order is always the same.
    pub fn writes_from(
        &self,
        from: usize,
        mut visit: impl FnMut(LockedWrite<'_>) -> bool,
    ) -> usize {
        let mut place = from;
        loop {
            // Not borrowed while `visit` runs: it is foreign.
            let write = {
                let state = self.transaction.session().state.borrow();
                state.sets.writes.entries.get(place).copied()
            };
            let Some(Write { table, record, version, .. }) = write else { return place };
            place += 1;
            // SAFETY: locked by this transaction, or private; the guard keeps what it will overwrite.
            let write = unsafe {
                let overwritten = Guarded::at(record.as_ref().word().version());
                let (key, value) = (Record::key(record), Guarded::new(version).value());
                LockedWrite { table, key, value, overwritten: overwritten.map(VersionRef::of) }
            };
            if !visit(write) {
                return place;
            }
        }
    }

    /// Drops, of the keys it is about to write, the versions whose stamp `rejected` picks out: a closed
    /// epoch's uncovered ones. Returns how many went. Validation fails if it read one of them.
    ///
    /// Before [`replay`](Locked::replay) that is needed wherever there may be such: one that is newer
    /// than the piece must not win over it, and one that hides a covered version that is newer than
    /// the piece must not let it win over that.
    pub fn discard(&mut self, rejected: impl Fn(StampRef<'_>) -> bool) -> usize {
        self.transaction.session_mut().state.get_mut().discard_locked(&rejected)
    }

    /// Publishes those of the writes that are newer than what is there, all of which is committed:
    /// how a follower replays what its leader did, in any order it learns of it (Thomas's rule:
    /// on one key the greatest epoch and clock wins). Reports for each key whether it won.
    ///
    /// A tombstone has to stay until nothing older can arrive, or that would come back to life;
    /// `removable` returns whether that is so for a stamp.
    pub fn replay(
        mut self,
        stamp: StampRef<'_>,
        wins: impl Fn(StampRef<'_>) -> bool,
        removable: impl Fn(StampRef<'_>) -> bool,
        report: impl FnMut(TableId, &[u8], bool),
    ) {
        self.replay_until(usize::MAX, stamp, wins, removable, report);
    }

    /// The same for the writes before the place `until` that are not published yet, whose locks it releases.
    pub fn replay_until(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        wins: impl Fn(StampRef<'_>) -> bool,
        removable: impl Fn(StampRef<'_>) -> bool,
        mut report: impl FnMut(TableId, &[u8], bool),
    ) {
        let Session { store, state, .. } = self.transaction.session_mut();
        let state = state.get_mut();
        let emptied = state.replay(until, stamp, &wins, &mut report);
        state.sweep(store, emptied + SWEEP_MORE, &removable);
    }
}

impl SessionState {
    /// Takes the locks of the next `most` writes. Says whether those are the last.
    fn lock(&mut self, store: &Store, most: usize) -> Result<bool> {
        let SessionState { memory, sets, .. } = self;
        let first = sets.order.len();
        let until = sets.writes.entries.len().min(first.saturating_add(most));
        sets.run = first;
        for place in first..until {
            let write = sets.writes.entries[place];
            if !write.linked {
                sets.link(store, memory, place);
            // SAFETY: in the write set, hence kept by the guard.
            } else if unsafe { write.record.as_ref() }.word().is_dead() {
                sets.replace_dead(store, memory, place);
            }
            // The address, not the record behind it, is what orders.
            let record = sets.writes.entries[place].record;
            sets.order.push((record.addr().get(), place as u32));
        }
        sets.order[first..].sort_unstable();
        let mut replaced_dead = false;
        while let Some((_, place)) = sets.order.get(sets.locked) {
            let place = *place as usize;
            let record = sets.writes.entries[place].record;
            // SAFETY: in the write set, hence kept by the guard.
            match unsafe { record.as_ref() }.lock() {
                Ok(_) => sets.locked += 1,
                Err(LockError::Held) => {
                    return Err(Aborted::from(locked(sets.first_held(record))).into());
                }
                Err(LockError::Dead) => {
                    sets.replace_dead(store, memory, place);
                    sets.order[sets.locked].0 = sets.writes.entries[place].record.addr().get();
                    replaced_dead = true;
                }
            }
        }
        if replaced_dead {
            sets.order[first..].sort_unstable();
        }
        if sets.order.len() > LISTS_COUNTED_FROM {
            sets.count_lists();
        }
        // Under the locks: where a table is dropped after this, the pass that frees it waits for them.
        sets.check_tables(store).map_err(Aborted::from)?;
        Ok(until == sets.writes.entries.len())
    }

    /// Publishes the writes before the place `until` that are not yet. Returns how many keys it left without a value.
    ///
    /// REQUIRES: all are locked.
    fn install(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        committed: &dyn Fn(StampRef<'_>) -> bool,
        mut queue: Option<&mut TrimQueue>,
    ) -> usize {
        let removals_before = self.removals.len();
        let until = until.min(self.sets.writes.entries.len());
        // What is not ours to trust is asked before anything is published: a panic there rolls back.
        let is_committed = committed(stamp);
        self.plan_cuts(until, stamp, is_committed, committed);
        for place in self.sets.ended..until {
            let write = self.sets.writes.entries[place];
            // SAFETY: the record is kept by the guard; the version is private.
            let (record, version) = unsafe {
                (write.record.as_ref(), Version::stamp(write.version, &mut self.memory.heap, stamp))
            };
            // SAFETY: just stamped.
            let new = unsafe { version.as_ref() };
            let old = record.word().version();
            if is_committed {
                record.unlock(version.as_ptr());
                self.retire_chain(old);
            } else {
                new.set_prev_at(old, write.level);
                let mut cut = ptr::null_mut();
                // SAFETY: kept by the guard.
                if let Some(kept) = unsafe { write.kept.as_ref() } {
                    cut = kept.prev();
                    kept.set_prev(ptr::null_mut());
                }
                if let Some(queue) = &mut queue
                    && !old.is_null()
                {
                    queue.push(write.record, stamp);
                }
                // Not before the chain is cut, or two could cut off the same.
                record.unlock(version.as_ptr());
                self.retire_chain(cut);
            }
            if new.is_tombstone() {
                // SAFETY: kept by the guard.
                unsafe { self.removals.push_back(write.record, &mut self.memory.heap) };
            }
        }
        self.sets.ended = until;
        if until == self.sets.writes.entries.len() {
            self.sets.forget_writes();
        }
        self.removals.len() - removals_before
    }

    /// Publishes those of the next writes, before the place `until`, that are newer than what is there. Returns how many
    /// keys may have been left without a value.
    ///
    /// REQUIRES: locked; everything in the store is committed.
    fn replay(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        wins: &dyn Fn(StampRef<'_>) -> bool,
        report: &mut dyn FnMut(TableId, &[u8], bool),
    ) -> usize {
        let removals_before = self.removals.len();
        // What is not ours to trust is asked before anything is published: a panic there rolls back.
        let mut newer = |write: &Write| {
            // SAFETY: the record is kept by the guard, and so is the version.
            let newest = unsafe { Guarded::at(write.record.as_ref().word().version()) };
            let won = newest.is_none_or(|newest| wins(newest.stamp_ref()));
            // SAFETY: kept by the guard.
            report(write.table, unsafe { Record::key(write.record) }, won);
            won
        };
        let (from, until) = (self.sets.ended, until.min(self.sets.writes.entries.len()));
        let won: Vec<bool> = self.sets.writes.entries[from..until].iter().map(&mut newer).collect();
        for (place, won) in (from..).zip(won) {
            let write = self.sets.writes.entries[place];
            // SAFETY: the record is kept by the guard.
            let record = unsafe { write.record.as_ref() };
            let old = record.word().version();
            if won {
                // SAFETY: private, and stamped here.
                let new = unsafe { Version::stamp(write.version, &mut self.memory.heap, stamp) };
                record.unlock(new.as_ptr());
                self.retire_chain(old);
            } else {
                record.unlock(old);
                // SAFETY: never published.
                unsafe { Version::free(write.version, &mut self.memory.heap) };
            }
            // SAFETY: kept by the guard.
            if unsafe { record.word().version().as_ref() }.is_none_or(Version::is_tombstone) {
                // SAFETY: as above.
                unsafe { self.removals.push_back(write.record, &mut self.memory.heap) };
            }
        }
        self.sets.ended = until;
        if until == self.sets.writes.entries.len() {
            self.sets.forget_writes();
        }
        self.removals.len() - removals_before
    }

    /// Drops what `rejected` picks out of the chains of the write set. Returns how many versions.
    ///
    /// REQUIRES: locked.
    fn discard_locked(&mut self, rejected: &dyn Fn(StampRef<'_>) -> bool) -> usize {
        let mut discarded = 0;
        for Write { record, .. } in &self.sets.writes.entries {
            // SAFETY: in the write set, hence kept by the guard, and locked by this transaction.
            let record = unsafe { record.as_ref() };
            let (newest, gone) = unlink(record.word().version(), rejected);
            record.replace(newest);
            discarded += gone.len();
            gone.into_iter().for_each(|version| self.memory.retire(Retired::Version(version)));
        }
        discarded
    }

    /// Checks M2 for every write, and finds the newest committed version of every chain: what is older
    /// will go.
    ///
    /// A chain whose versions wait long for their commit is not walked at every installation: the
    /// longer it was found to be, the more seldom it is walked again ([`seldom`]), and in between only
    /// its newest versions are looked at. So an installation costs a few versions on average, and what
    /// is committed may stay until as many versions have come in front of it as it took to find it.
    ///
    /// REQUIRES: locked.
    fn plan_cuts(
        &mut self,
        until: usize,
        stamp: StampRef<'_>,
        is_committed: bool,
        committed: &dyn Fn(StampRef<'_>) -> bool,
    ) {
        if is_committed && !cfg!(debug_assertions) {
            return;
        }
        let first = self.sets.ended;
        for write in &mut self.sets.writes.entries[first..until] {
            // SAFETY: the record is kept by the guard; so are the versions below.
            let newest = unsafe { write.record.as_ref() }.word().version();
            // SAFETY: as above.
            let Some(overwritten) = (unsafe { Guarded::at(newest) }) else { continue };
            let old = overwritten.stamp_ref();
            assert!(
                (old.epoch, old.clock) < (stamp.epoch, stamp.clock),
                "M2: {stamp:?} installed over {old:?}"
            );
            if !is_committed {
                let level = overwritten.level();
                let most = if is_due(level, stamp.clock) { usize::MAX } else { GLANCE };
                (write.kept, write.level) = plan_cut(newest, level, most, committed);
            }
        }
    }

    /// Rolls back the next `most` of the writes that are not published: releases their locks, and frees what is private.
    /// After the last it forgets everything; after an installation there is only the forgetting. Says whether that was
    /// the last. What it found without a value is in `removals`.
    pub(crate) fn roll_back(&mut self, most: usize) -> bool {
        let SessionState { memory, sets, removals } = self;
        let ended = sets.ended;
        // Of the last slice of locks some may be missing. Of slices before, all are held.
        for (_, place) in sets.order.get(sets.run..sets.locked).into_iter().flatten() {
            if *place as usize >= ended {
                // SAFETY: kept by the guard.
                let guarded = unsafe { sets.writes.entries[*place as usize].record.as_ref() };
                guarded.unlock(guarded.word().version());
            }
        }
        sets.locked = sets.run;
        let until = sets.writes.entries.len().min(ended.saturating_add(most));
        for place in ended..until {
            let write = sets.writes.entries[place];
            // SAFETY: kept by the guard; so for the version and the key below.
            let guarded = unsafe { write.record.as_ref() };
            if place < sets.run {
                guarded.unlock(guarded.word().version());
            }
            // One that was to be locked: in this order, since addresses must not decide what goes first.
            if place < sets.order.len() {
                let newest = guarded.word().version();
                // SAFETY: as above.
                if unsafe { newest.as_ref() }.is_none_or(Version::is_tombstone) {
                    // A placeholder of ours; or others met our lock and left the key to us to remove.
                    // SAFETY: as above.
                    unsafe { removals.push_back(write.record, &mut memory.heap) };
                }
            }
            // SAFETY: never published.
            unsafe {
                Version::free(write.version, &mut memory.heap);
                if !write.linked {
                    Record::free(write.record, &mut memory.heap);
                }
            }
        }
        sets.ended = until;
        let kept = sets.replaced.len().saturating_sub(most);
        for version in sets.replaced.drain(kept..) {
            // SAFETY: never published, and the transaction that lent it out has ended.
            unsafe { Version::free(version, &mut memory.heap) };
        }
        let is_over = until == sets.writes.entries.len() && kept == 0;
        if is_over {
            sets.forget();
        }
        is_over
    }
}

/// Looks for the newest committed version among the first `most` of a chain. Returns it, or null, and how
/// seldom the chain is to be walked from now on.
///
/// REQUIRES: under the guard.
fn plan_cut(
    newest: *mut Version,
    level: u8,
    most: usize,
    committed: &dyn Fn(StampRef<'_>) -> bool,
) -> (*mut Version, u8) {
    let mut passed = 0;
    for version in chain(newest).take(most) {
        work::count(Work::VersionVisited);
        // SAFETY: kept by the guard.
        if committed(unsafe { Guarded::new(version) }.stamp_ref()) {
            return (version.as_ptr(), seldom(passed));
        }
        passed += 1;
    }
    // The end of the chain was seen, or it was not looked for.
    (ptr::null_mut(), if passed < most { seldom(passed) } else { level })
}

/// The level of a chain in which `passed` versions stand before the first committed one: at level n it
/// is walked at one of 4ⁿ installations, which is never less than one in as many as there are versions.
fn seldom(passed: usize) -> u8 {
    let level = (passed / 2).checked_ilog2().unwrap_or(0) / 2;
    (level as u8).min(Version::LEVEL_MAX)
}

/// Does the installation at this clock walk chains of this level? One of 4ⁿ clocks does, whichever the
/// distance between a key's clocks is: multiples of the factor are spread evenly (Knuth, vol. 3, §6.4).
fn is_due(level: u8, clock: Clock) -> bool {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    clock.0.wrapping_mul(FACTOR).leading_zeros() >= 2 * u32::from(level)
}

fn locked(record: NonNull<Record>) -> Conflict {
    // SAFETY: kept by the guard.
    let (table, key) = unsafe { (record.as_ref().table(), Record::excerpt(record)) };
    Conflict::Locked { table, key }
}

impl Sets {
    /// Puts the private record of a write into the index, or takes the one that is there by now.
    fn link(&mut self, store: &Store, memory: &mut Memory, place: usize) {
        let Sets { nodes, writes, reads, gaps_stale, .. } = self;
        let faults = store.options.faults;
        let write = &mut writes.entries[place];
        let private = write.record;
        // SAFETY: private.
        let table = unsafe { private.as_ref() }.table();
        write.linked = true;
        // A transaction that finds the placeholder may fill it before it is locked here, and the leaf will not
        // show: where the gap was read, so is the placeholder.
        let mut read_placeholder = || {
            if !faults.has(StoreBug::PlaceholderUnread) {
                reads.push(Read { record: private, version: ptr::null_mut() });
            }
        };
        let index = store.tables.any(table).expect("the table of a write exists");
        let gap = write.gap.filter(|_| !*gaps_stale);
        if let Some(gap) = gap.and_then(|gap| nodes.get(gap as usize))
            // SAFETY: pinned; the record is private.
            && let Some(change) = unsafe { index.insert_at(private, gap.leaf) }
        {
            nodes.renew(table, &change, faults);
            return read_placeholder();
        }
        let mut noted = false;
        let mut changed = |change: LeafChange| {
            // The node set will know both halves, but not which of them a gap fell to.
            *gaps_stale |= change.split.is_some() && !faults.has(StoreBug::GapOutlivesSplit);
            noted = nodes.renew(table, &change, faults);
        };
        // SAFETY: pinned; the record is private.
        match unsafe { index.insert(private, memory, &mut changed) } {
            Insertion::Inserted if noted => read_placeholder(),
            Insertion::Inserted => {}
            Insertion::Exists(record) => {
                write.record = record;
                // SAFETY: it stayed private.
                unsafe { Record::free(private, &mut memory.heap) };
            }
        }
    }

    /// Replaces the record of a write, which has left the index since it was found.
    fn replace_dead(&mut self, store: &Store, memory: &mut Memory, place: usize) {
        let write = &mut self.writes.entries[place];
        // SAFETY: kept by the guard.
        let (table, key) = unsafe { (write.record.as_ref().table(), Record::key(write.record)) };
        write.record = Record::allocate(&mut memory.heap, table, key);
        write.linked = false;
        write.gap = None;
        self.link(store, memory, place);
    }

    /// Checks that no table was dropped since the transaction began of which it has read or written something.
    fn check_tables(&self, store: &Store) -> Result<(), Conflict> {
        if self.drops == store.tables.drops() {
            return Ok(());
        }
        // SAFETY: kept by the guard.
        let read = self.reads.iter().map(|read| unsafe { read.record.as_ref() }.table());
        let ranges = self.nodes.iter().map(|node| node.table);
        let written = self.writes.entries.iter().map(|write| write.table);
        match read.chain(ranges).chain(written).find(|table| store.is_dropped(*table)) {
            Some(table) => Err(Conflict::TableDropped { table }),
            None => Ok(()),
        }
    }

    /// Checks the next `most` of what was read, from this place on: first records, then leaves. Returns the place of
    /// the next.
    fn validate(
        &self,
        faults: StoreBugs,
        from: usize,
        most: usize,
    ) -> Result<Option<usize>, Conflict> {
        let (reads, until) = (self.reads.len(), from.saturating_add(most));
        for Read { record, version } in &self.reads[from.min(reads)..until.min(reads)] {
            // SAFETY: kept by the guard.
            let guarded = unsafe { record.as_ref() };
            let word = guarded.word();
            if word.is_locked() && !self.holds_lock(*record) && !faults.has(StoreBug::SkipLockCheck)
            {
                return Err(locked(*record));
            }
            let dead = word.is_dead() && !faults.has(StoreBug::DeadIsUnchanged);
            let same = word.version() == *version && !dead;
            if !same && !faults.has(StoreBug::SkipReadSet) {
                // SAFETY: kept by the guard.
                let key = unsafe { Record::excerpt(*record) };
                return Err(Conflict::ReadChanged { table: guarded.table(), key });
            }
        }
        let leaves = from.saturating_sub(reads)..until.saturating_sub(reads);
        for node in self.nodes.iter().take(leaves.end).skip(leaves.start) {
            // SAFETY: noted under this guard.
            if !unsafe { node.leaf.validate() } && !faults.has(StoreBug::SkipNodeSet) {
                return Err(Conflict::RangeChanged { table: node.table });
            }
        }
        Ok((until < reads + self.nodes.len()).then_some(until))
    }

    /// The record that a conflict is named after: the first, in the transaction's own order, that
    /// another transaction holds, or `found`, if none does any more. By address another one might be
    /// found first, and a run would not repeat.
    fn first_held(&self, found: NonNull<Record>) -> NonNull<Record> {
        let mut records = self.writes.entries.iter().map(|write| write.record);
        let held = records.find(|record| {
            // SAFETY: in the write set, hence kept by the guard.
            unsafe { record.as_ref() }.word().is_locked() && !self.holds_lock(*record)
        });
        held.unwrap_or(found)
    }

    fn holds_lock(&self, record: NonNull<Record>) -> bool {
        let last = self.order.get(self.run..self.locked).unwrap_or_default();
        let in_last = last.binary_search_by_key(&record.addr().get(), |(address, _)| *address);
        in_last.is_ok() || (self.run > 0 && self.holds_earlier(record))
    }

    /// Whether the record was locked with an earlier slice.
    #[cold]
    fn holds_earlier(&self, record: NonNull<Record>) -> bool {
        // SAFETY: kept by the guard.
        let (table, key) = unsafe { (record.as_ref().table(), Record::key(record)) };
        let place = self.writes.find(self.hash_keys.hash(table, key), table, key);
        place.is_some_and(|place| place < self.run && self.writes.entries[place].record == record)
    }

    /// Drops all writes: none is left to install or to release.
    fn forget_writes(&mut self) {
        (self.locked, self.run, self.ended) = (0, 0, 0);
        self.writes.clear();
        self.order.clear();
    }

    fn forget(&mut self) {
        /// The most entries for which a session at rest keeps room in each of its lists.
        const KEPT: usize = 1 << 10;
        self.reads.clear();
        self.reads.shrink_to(KEPT);
        self.nodes.clear(KEPT);
        self.order.clear();
        self.order.shrink_to(KEPT);
        self.writes.clear();
        self.replaced.shrink_to(KEPT);
        if self.listed_bytes > KEPT * size_of::<Read>() {
            self.count_lists();
        }
        self.recent.forget();
        (self.locked, self.run, self.ended) = (0, 0, 0);
        self.gaps_stale = false;
        self.lent = false;
    }
}
