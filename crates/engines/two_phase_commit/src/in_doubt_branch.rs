//! A prepared branch without a coordinator, as the leader of its shard keeps it (rule P7).

use super::branch_writes::{BranchPlace, BranchWrites};
use super::message::DecisionHome;
use super::prepared_replay::PreparedBranch;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_store::{Locked, Locking, Transaction};
use shoal_types::{Clock, Time};

/// A prepared branch whose outcome is not known here.
pub(super) struct InDoubt {
    pub(super) clock: Clock,
    pub(super) home: DecisionHome,
    /// What it writes, where a former leader has prepared it.
    pub(super) writes: BranchWrites,
    /// What it holds of its locks.
    pub(super) locks: InDoubtLocks,
    /// The decision, once it is known.
    pub(super) committed: Option<bool>,
    /// When to ask next.
    pub(super) ask_at: Time,
}

/// How far a prepared branch is locked: one that a former leader has prepared is locked when its turn comes, in slices.
pub(super) enum InDoubtLocks {
    /// Its turn is to come. It has come on the keys before this place.
    Waiting(BranchPlace),
    /// The writes before this place are in its write set.
    Writing(Transaction<PooledSession>, BranchPlace),
    /// It has some of its locks.
    Locking(Locking<PooledSession>),
    /// It has all of them.
    Locked(Locked<PooledSession>),
}

impl InDoubt {
    /// Does it hold all of its locks?
    pub(super) fn is_locked(&self) -> bool {
        matches!(self.locks, InDoubtLocks::Locked(_))
    }

    /// A branch that this leader has prepared itself.
    pub(super) fn left(locked: Locked<PooledSession>, clock: Clock, home: DecisionHome) -> InDoubt {
        let (writes, ask_at) = (BranchWrites::default(), Time::ZERO);
        let locks = InDoubtLocks::Locked(locked);
        InDoubt { clock, home, writes, locks, committed: None, ask_at }
    }

    /// A branch that a former leader has prepared.
    pub(super) fn recovered(branch: &PreparedBranch) -> InDoubt {
        let PreparedBranch { clock, home, ref writes, is_installed } = *branch;
        let writes = if is_installed { BranchWrites::default() } else { writes.clone() };
        let ask_at = Time::ZERO;
        let locks = InDoubtLocks::Waiting(BranchPlace::default());
        InDoubt { clock, home, writes, locks, committed: None, ask_at }
    }
}
