//! Prepared branches without a coordinator, as the leader of their shard keeps them (rule P7).
//!
//! ```text
//!   waiting ─────► writing ─────► locking ─────► locked ─────► installed or dropped
//!     its turn       write set      locks         once the decision is known
//! ```

use super::branch_writes::{BranchPlace, BranchWrites};
use super::in_doubt_keys::InDoubtKeys;
use super::message::DecisionHome;
use super::prepared_replay::PreparedBranch;
use shoal_engine::execution::session_pool::{PooledSession, SessionPool};
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_store::{Change, Locked, Locking, Transaction, VersionRef};
use shoal_types::{Aborted, Clock, Conflict, Epoch, Error, KeyExcerpt, Rejected, Result, Time};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A prepared branch whose outcome is not known here.
pub(super) struct InDoubt {
    clock: Clock,
    home: DecisionHome,
    /// What it writes, where a former leader has prepared it.
    writes: BranchWrites,
    /// What it holds of its locks.
    locks: InDoubtLocks,
    /// The decision, once it is known.
    committed: Option<bool>,
    /// When it inquires next.
    inquire_at: Time,
}

/// A branch that was in doubt, and is to be resolved.
pub(super) struct DecidedBranch {
    pub(super) transaction: TransactionId,
    pub(super) clock: Clock,
    pub(super) home: DecisionHome,
    /// What it writes, where a former leader has prepared it.
    pub(super) writes: BranchWrites,
    pub(super) locked: Locked<PooledSession>,
    pub(super) is_committed: bool,
}

/// How far a prepared branch is locked: one that a former leader has prepared is locked when its turn comes, in slices.
enum InDoubtLocks {
    /// The turn is to come; it has come on the keys before this place.
    Waiting(BranchPlace),
    /// The writes before this place are in its write set.
    Writing(Transaction<PooledSession>, BranchPlace),
    /// The branch has some of its locks.
    Locking(Locking<PooledSession>),
    /// The branch has all of its locks.
    Locked(Locked<PooledSession>),
}

impl InDoubt {
    /// The clock that was drawn for it.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Where it is decided.
    pub(super) fn home(&self) -> DecisionHome {
        self.home
    }

    /// Is its decision known?
    pub(super) fn is_decided(&self) -> bool {
        self.committed.is_some()
    }

    /// Does it hold all of its locks?
    pub(super) fn is_locked(&self) -> bool {
        matches!(self.locks, InDoubtLocks::Locked(_))
    }

    /// A branch that this leader has prepared itself.
    pub(super) fn left(locked: Locked<PooledSession>, clock: Clock, home: DecisionHome) -> InDoubt {
        let (writes, inquire_at) = (BranchWrites::default(), Time::ZERO);
        let locks = InDoubtLocks::Locked(locked);
        InDoubt { clock, home, writes, locks, committed: None, inquire_at }
    }

    /// A branch that a former leader has prepared.
    pub(super) fn recovered(branch: &PreparedBranch) -> InDoubt {
        let PreparedBranch { clock, home, ref writes, is_installed } = *branch;
        let writes = if is_installed { BranchWrites::default() } else { writes.clone() };
        let inquire_at = Time::ZERO;
        let locks = InDoubtLocks::Waiting(BranchPlace::default());
        InDoubt { clock, home, writes, locks, committed: None, inquire_at }
    }

    /// Goes on with its locks, by `left` keys at most.
    ///
    /// # Errors
    /// Those of sessions, writes and locks. Then it holds no lock, and begins again when it is tried next.
    fn lock_some(&mut self, turns: &LockTurns<'_>, left: &mut usize) -> Result<()> {
        let waiting = InDoubtLocks::Waiting(BranchPlace::default());
        let mut locks = std::mem::replace(&mut self.locks, waiting);
        while *left > 0 {
            locks = match locks {
                InDoubtLocks::Waiting(place) => match self.follow_turn(turns, place, left)? {
                    waiting @ InDoubtLocks::Waiting(_) => {
                        self.locks = waiting;
                        return Ok(());
                    }
                    writing => writing,
                },
                InDoubtLocks::Writing(writing, place) => self.write_some(writing, place, left)?,
                InDoubtLocks::Locking(locking) => lock_more(locking, left)?,
                locked @ InDoubtLocks::Locked(_) => {
                    self.locks = locked;
                    return Ok(());
                }
            };
        }
        self.locks = locks;
        Ok(())
    }

    /// Checks from this place on whether its turn has come, and takes a session when it has come on all keys.
    fn follow_turn(
        &self,
        turns: &LockTurns<'_>,
        mut place: BranchPlace,
        left: &mut usize,
    ) -> Result<InDoubtLocks> {
        let (keys, since) = (turns.keys, turns.leadership);
        if !keys.follow_turn(since, self.clock, &self.writes, &mut place, left) {
            return Ok(InDoubtLocks::Waiting(place));
        }
        let session = turns.sessions.take()?;
        Ok(InDoubtLocks::Writing(Transaction::on(session), BranchPlace::default()))
    }

    /// Adds its next writes, from this place on, to the write set.
    fn write_some(
        &self,
        writing: Transaction<PooledSession>,
        mut place: BranchPlace,
        left: &mut usize,
    ) -> Result<InDoubtLocks> {
        let Some(slice) = self.writes.next_from(&mut place, *left) else {
            return Ok(InDoubtLocks::Locking(writing.locking()));
        };
        for write in slice {
            replicate(&writing, write, self.clock)?;
        }
        *left -= slice.len();
        Ok(InDoubtLocks::Writing(writing, place))
    }
}

/// Adds a write to the write set. Its turn has come on its key: the base of a delta is there, or something newer than the
/// delta, which will give way then.
///
/// # Errors
/// Those of the write, and a conflict where another worker has still to apply the base.
fn replicate(
    writing: &Transaction<PooledSession>,
    write: &StreamWrite,
    clock: Clock,
) -> Result<()> {
    let StreamWrite { table, ref key, ref change } = *write;
    let delta = match change.borrowed() {
        Change::Delete => return writing.replicate(table, key, None),
        Change::Row(value) => return writing.replicate(table, key, Some(value)),
        Change::Delta(delta) => delta,
    };
    let newest = match writing.get_where(table, key, |_| true) {
        Err(Error::Rejected(Rejected::TableDropped { .. })) => return Ok(()),
        // No row of the table has come here before.
        Err(Error::Rejected(Rejected::UnknownTable { .. })) => None,
        newest => newest?,
    };
    match newest {
        // Also the version itself, which a copy may have brought from the leader that had installed it.
        Some(newest) if newest.stamp.clock >= clock => {
            writing.replicate(table, key, newest.value.map(<[u8]>::to_vec).as_deref())
        }
        Some(VersionRef { value: Some(base), stamp })
            if (stamp.epoch, stamp.clock) == delta.base =>
        {
            let mut row = base.to_vec();
            delta.apply(&mut row);
            writing.replicate(table, key, Some(&row))
        }
        _ => Err(Aborted::from(Conflict::Locked { table, key: KeyExcerpt::new(key) }).into()),
    }
}

/// Takes the next locks of a branch in doubt.
fn lock_more(mut locking: Locking<PooledSession>, left: &mut usize) -> Result<InDoubtLocks> {
    if !locking.lock_some(*left)? {
        *left = 0;
        return Ok(InDoubtLocks::Locking(locking));
    }
    let locked = locking.locked();
    *left -= locked.size().writes.min(*left);
    Ok(InDoubtLocks::Locked(locked))
}

/// What decides when a branch in doubt may take its locks, and where its session comes from.
pub(super) struct LockTurns<'a> {
    /// The keys that are in doubt on the shard.
    pub(super) keys: &'a InDoubtKeys,
    /// The leadership that takes the shard over.
    pub(super) leadership: Epoch,
    pub(super) sessions: &'a Rc<SessionPool>,
}

/// The branches in doubt of one shard, in one worker's stream, and which of them a step can do something about.
///
/// Invariant: a branch without all of its locks is in exactly one of `to_lock` and `waiting`; one that is locked, and whose
/// decision is known, is in `decided`, and no other is.
#[derive(Default)]
pub(super) struct InDoubtBranches {
    branches: BTreeMap<TransactionId, InDoubt>,
    /// Branches that are not locked, in the order in which that is tried.
    to_lock: VecDeque<TransactionId>,
    /// Branches that are not locked, and wait for keys of others to be resolved.
    waiting: Vec<TransactionId>,
    /// How many slices of keys had been resolved on the shard when those that wait were last to be tried.
    resolved: u64,
    /// The locks of some could not be taken when it was their turn: that is tried again soon.
    has_failed: bool,
    /// Branches that are locked and decided, in the order in which they are resolved.
    decided: VecDeque<TransactionId>,
}

impl InDoubtBranches {
    /// Adds a branch whose decision is not known.
    pub(super) fn insert(&mut self, transaction: TransactionId, branch: InDoubt) {
        assert!(branch.committed.is_none(), "{transaction} is decided before it is in doubt");
        if !branch.is_locked() {
            self.to_lock.push_back(transaction);
        }
        let before = self.branches.insert(transaction, branch);
        assert!(before.is_none(), "{transaction} is in doubt twice on a shard");
    }

    pub(super) fn get(&self, transaction: TransactionId) -> Option<&InDoubt> {
        self.branches.get(&transaction)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TransactionId, &InDoubt)> {
        self.branches.iter().map(|(transaction, branch)| (*transaction, branch))
    }

    /// The clocks and the writes of all branches.
    pub(super) fn writes(&self) -> VecDeque<(Clock, BranchWrites)> {
        self.branches.values().map(|branch| (branch.clock, branch.writes.clone())).collect()
    }

    /// When a branch is to ask for its decision; `None` if that is known.
    pub(super) fn inquires_at(&self, transaction: TransactionId) -> Option<Time> {
        self.branches.get(&transaction).filter(|it| !it.is_decided()).map(|it| it.inquire_at)
    }

    /// A branch asks for its decision, and will again at this time. Returns where.
    ///
    /// # Panics
    /// If it is not in doubt.
    pub(super) fn inquire_again(&mut self, transaction: TransactionId, at: Time) -> DecisionHome {
        let branch = self.branches.get_mut(&transaction).expect("it is in doubt");
        branch.inquire_at = at;
        branch.home
    }

    pub(super) fn len(&self) -> usize {
        self.branches.len()
    }

    /// Whether all branches hold their locks.
    pub(super) fn are_locked(&self) -> bool {
        self.to_lock.is_empty() && self.waiting.is_empty()
    }

    /// Whether a branch without its locks is to be tried.
    pub(super) fn has_to_lock(&self) -> bool {
        !self.to_lock.is_empty()
    }

    /// Whether the locks of a branch could not be taken when it was its turn.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether a branch is locked, and decided, and not resolved.
    pub(super) fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }

    /// So many slices of keys have been resolved on the shard: where that are more than before, the branches that wait are
    /// to be tried again, with those that have failed. Returns how many branches are to be tried.
    pub(super) fn retry_waiting(&mut self, resolved: u64) -> usize {
        self.has_failed = false;
        if std::mem::replace(&mut self.resolved, resolved) != resolved {
            self.to_lock.extend(self.waiting.drain(..));
        }
        self.to_lock.len()
    }

    /// Goes on with the locks of the next branch that is to be tried, by `left` keys at most, and counts one at least.
    /// Those that `skips` chooses are left for a later step.
    ///
    /// # Errors
    /// As for [`InDoubt::lock_some`]: it is tried again after the others.
    ///
    /// # Panics
    /// If none is to be tried.
    pub(super) fn lock_next(
        &mut self,
        turns: &LockTurns<'_>,
        skips: impl Fn(&InDoubt) -> bool,
        left: &mut usize,
    ) -> (TransactionId, Result<()>) {
        let transaction = self.to_lock.pop_front().expect("its caller has seen one");
        let branch = self.branches.get_mut(&transaction).expect("it is in doubt");
        if skips(branch) {
            self.to_lock.push_back(transaction);
            return (transaction, Ok(()));
        }
        let before = *left;
        let tried = branch.lock_some(turns, left);
        match (&tried, &branch.locks) {
            (Err(_), _) => {
                self.has_failed = true;
                self.to_lock.push_back(transaction);
            }
            (Ok(()), InDoubtLocks::Locked(_)) => {
                self.decided.extend(branch.committed.map(|_| transaction));
            }
            (Ok(()), InDoubtLocks::Waiting(_)) if *left > 0 => self.waiting.push(transaction),
            (Ok(()), _) => self.to_lock.push_front(transaction),
        }
        *left = (*left).min(before - 1);
        (transaction, tried)
    }

    /// Records the decision on a branch: it is resolved when it is locked and its turn among the decided comes.
    ///
    /// # Panics
    /// If it is not in doubt, or was decided otherwise (rule P8).
    pub(super) fn decide(&mut self, transaction: TransactionId, committed: bool) {
        let branch = self.branches.get_mut(&transaction).expect("its caller has seen it");
        match branch.committed.replace(committed) {
            Some(before) => {
                assert_eq!(before, committed, "P8: {transaction} was decided in two ways");
            }
            None => self.decided.extend(branch.is_locked().then_some(transaction)),
        }
    }

    /// Takes out the next branch that is locked and decided.
    pub(super) fn take_decided(&mut self) -> Option<DecidedBranch> {
        let transaction = self.decided.pop_front()?;
        let branch = self.branches.remove(&transaction).expect("it is in doubt");
        let InDoubt { clock, home, writes, locks, committed, .. } = branch;
        let (InDoubtLocks::Locked(locked), Some(is_committed)) = (locks, committed) else {
            panic!("P7: {transaction} is resolved before it is locked and decided")
        };
        Some(DecidedBranch { transaction, clock, home, writes, locked, is_committed })
    }

    /// Takes out all branches.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = InDoubt> {
        std::mem::take(self).branches.into_values()
    }

    /// Asserts the invariant above.
    pub(super) fn assert_invariants(&self) {
        let queued = |queue: &mut dyn Iterator<Item = &TransactionId>| -> Vec<TransactionId> {
            let mut queued: Vec<TransactionId> = queue.copied().collect();
            queued.sort_unstable();
            queued
        };
        let chosen = |holds: fn(&InDoubt) -> bool| {
            let chosen = self.branches.iter().filter(|(_, branch)| holds(branch));
            chosen.map(|(transaction, _)| *transaction).collect::<Vec<_>>()
        };
        let unlocked = chosen(|branch| !branch.is_locked());
        let to_lock = queued(&mut self.to_lock.iter().chain(&self.waiting));
        assert_eq!(unlocked, to_lock, "P7: these have no locks, and those are to be locked");
        let resolvable = chosen(|branch| branch.is_locked() && branch.is_decided());
        let decided = queued(&mut self.decided.iter());
        assert_eq!(resolvable, decided, "P7: these are decided, and those are to be resolved");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_store::{Delta, Options, Store};
    use shoal_types::{Stamp, TableId};
    use std::sync::Arc;

    const KEY: &[u8] = b"key";
    const CLOCK: Clock = Clock(9);

    /// A store with the base of a delta and, unless that is `None`, what another worker or a copy has brought since. What
    /// becomes of the delta.
    fn replicate_over(newer: Option<u64>, drops: bool) -> Result<Option<Vec<u8>>> {
        let store = Arc::new(Store::new(Options::default()));
        let table = store.table("t").expect("the first table");
        let mut session = store.session().expect("the first session");
        for clock in [5].into_iter().chain(newer) {
            let transaction = session.begin();
            transaction.replicate(table, KEY, Some(b"old")).expect("there is room");
            let stamp = Stamp::local(Epoch(1), Clock(clock));
            transaction.lock().expect("no rival").install(stamp.as_ref(), |_| true);
        }
        if drops {
            store.drop_table(table);
        }
        let sessions = SessionPool::new(store, usize::MAX);
        let writing = Transaction::on(sessions.take()?);
        replicate(&writing, &delta(table), CLOCK)?;
        match drops {
            true => Ok(None),
            false => Ok(writing.get(table, KEY)?.map(<[u8]>::to_vec)),
        }
    }

    /// A delta of the version at clock 5.
    fn delta(table: TableId) -> StreamWrite {
        let patch = Bytes::from_static(b"\0\0\x03\0new");
        let change = Change::Delta(Delta { base: (Epoch(1), Clock(5)), length: 3, patch });
        StreamWrite { table, key: Bytes::from_static(KEY), change }
    }

    #[test]
    fn a_delta_in_doubt_is_written_over_its_base_or_gives_way() {
        assert_eq!(replicate_over(None, false), Ok(Some(b"new".to_vec())));
        assert_eq!(replicate_over(Some(12), false), Ok(Some(b"old".to_vec())), "newer");
        // A copy has brought it from the leader that had installed it.
        assert_eq!(replicate_over(Some(CLOCK.0), false), Ok(Some(b"old".to_vec())), "itself");
        assert!(replicate_over(Some(7), false).is_err(), "what is older goes first");
        assert_eq!(replicate_over(None, true), Ok(None), "the table is dropped");
    }
}
