//! The transactions that a worker coordinates and that have something to do with other nodes, and how far each is.

use shoal_engine::execution::coordinated_transactions::{CommitState, CoordinatedTransactions};
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::request_retransmission::BranchKey;
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_engine::execution::worker_context::BodyEnd;
use shoal_types::{Clock, ShardId, Time};
use std::rc::Rc;

/// The transactions of this worker that have something to do with other nodes.
pub(super) struct Coordinator {
    pub(super) transactions: CoordinatedTransactions<Certification>,
    /// None that holds locks has waited too long for a silent leader before this.
    silent_due: Time,
}

impl Default for Coordinator {
    fn default() -> Coordinator {
        let transactions = CoordinatedTransactions::default();
        Coordinator { transactions, silent_due: Time::MAX }
    }
}

impl Coordinator {
    /// A transaction waits for others while it holds locks: silent leaders are to be looked for then, if not before.
    pub(super) fn look_for_silence(&mut self, at: Time) {
        self.silent_due = self.silent_due.min(at);
    }

    /// Silent leaders were looked for, and are to be looked for again at `next`.
    pub(super) fn looked_for_silence(&mut self, next: Time) {
        self.silent_due = next;
    }

    /// When to look for silent leaders.
    pub(super) fn silence_due(&self) -> Option<Time> {
        (self.silent_due < Time::MAX).then_some(self.silent_due)
    }

    /// How many transactions there are.
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Does a transaction that waits for this shard hold locks on others, and clocks, meanwhile?
    pub(super) fn holds_besides(&self, (sequence, shard): BranchKey) -> bool {
        let Some(it) = self.transactions.commit(sequence) else { return false };
        let remotes = it.remote_branches.remotes();
        it.ending == BodyEnd::Commit
            && matches!(it.phase, CommitPhase::Locking | CommitPhase::Validating)
            && (it.own.iter().any(|(_, own)| !own.is_read_only())
                || remotes.iter().any(|remote| remote.writes && remote.shard != shard))
    }
}

/// A transaction whose body is done.
pub(super) struct Certification {
    pub(super) remote_branches: Rc<RemoteBranches>,
    pub(super) ending: BodyEnd,
    pub(super) phase: CommitPhase,
    /// The branches on own shards, by their place among the shards of the node.
    pub(super) own: Vec<(usize, StagedCertification)>,
    /// Clocks that participants on other nodes have drawn.
    pub(super) drawn: Vec<(ShardId, Clock)>,
    /// A participant that validated together with its lock.
    pub(super) validated: Option<ShardId>,
    /// Answers that are still to come in this phase.
    pub(super) waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitPhase {
    /// Reads are under way that no task waits for any more.
    Draining,
    /// The one participant does everything.
    Delegated,
    /// The transaction takes own locks in slices.
    LockingOwn,
    Locking,
    /// The transaction validates own reads in slices.
    ValidatingOwn,
    Validating,
}

impl CommitState for Certification {
    fn remote_branches(&self) -> &Rc<RemoteBranches> {
        &self.remote_branches
    }

    fn may_be_committed(&self, _: ShardId) -> bool {
        self.phase == CommitPhase::Delegated
    }
}
