//! A transaction that commits, as its coordinator keeps it: what it holds, how far it has come, and where it is decided.

use super::message::DecisionHome;
use shoal_engine::execution::coordinated_transactions::{CommitState, CoordinatedTransactions};
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_engine::execution::worker_context::{BodyEnd, WorkerContext};
use shoal_store::Locked;
use shoal_types::{Clock, ShardId, Time};
use std::rc::Rc;

/// The transactions of this worker that wait for something.
#[derive(Default)]
pub(super) struct Coordinator {
    pub(super) transactions: CoordinatedTransactions<CommitProgress>,
    /// No record has been on its way for too long before this.
    pub(super) durable_due: Option<Time>,
}

impl Coordinator {
    /// Is the transaction with this number under way here, without a durable decision?
    pub(super) fn knows(&self, sequence: u64) -> bool {
        self.transactions.remote_branches(sequence).is_some()
    }

    /// How many transactions wait for something.
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }
}

/// A transaction whose body is done.
pub(super) struct CommitProgress {
    pub(super) remote_branches: Rc<RemoteBranches>,
    pub(super) ending: BodyEnd,
    pub(super) phase: CommitPhase,
    pub(super) plan: CommitPlan,
    /// Where the decision will be, if that is on a shard of this node: its place, and under which leadership.
    pub(super) home: Option<(usize, DecisionHome)>,
    /// Since when it validates, or the decision is on its way.
    pub(super) phase_since: Time,
    /// Its branches on own shards, by their place among the node's replicas.
    pub(super) own: Vec<(usize, OwnBranch)>,
    /// How many shards it writes, and the clocks that they have drawn.
    pub(super) writers: usize,
    pub(super) drawn: Vec<(ShardId, Clock)>,
    /// Answers that are still to come in this phase.
    pub(super) waiting: usize,
    /// Prepare records of own shards that are not durable yet.
    pub(super) undurable: usize,
    /// The client has been answered.
    pub(super) reported: bool,
    /// Its decision took too long: participants receive it like those with a new leader, and the coordinator sends them nothing else.
    pub(super) handed_over: bool,
}

impl CommitProgress {
    /// The shards of other nodes that it writes.
    pub(super) fn written_elsewhere(&self) -> Vec<ShardId> {
        let remotes = self.remote_branches.remotes();
        let written = remotes.iter().filter(|it| self.ending == BodyEnd::Commit && it.writes);
        written.map(|remote| remote.shard).collect()
    }

    /// When it has waited too long for a record of this node: longer where it is large.
    pub(super) fn durable_due(&self, worker_context: &WorkerContext) -> Time {
        let extra = worker_context.extra_wait(self.remote_branches.keys());
        self.phase_since + worker_context.limits.shard_wait_max + extra
    }
}

impl CommitState for CommitProgress {
    fn remote_branches(&self) -> &Rc<RemoteBranches> {
        &self.remote_branches
    }

    /// Can the participant of `shard` have decided it, so that its answer is all that is missing? One that has only read has
    /// done nothing.
    fn may_be_committed(&self, shard: ShardId) -> bool {
        let is_decided_there = match self.phase {
            CommitPhase::Delegated => true,
            CommitPhase::Deciding => {
                matches!(self.plan, CommitPlan::Other(by) | CommitPlan::LastAgent(by) if by == shard)
            }
            CommitPhase::Draining
            | CommitPhase::LockingOwn
            | CommitPhase::Locking
            | CommitPhase::ValidatingOwn
            | CommitPhase::Validating => false,
        };
        is_decided_there
            && self.ending == BodyEnd::Commit
            && self.remote_branches.with_remote(shard, |remote| remote.writes)
    }
}

pub(super) enum OwnBranch {
    /// It has not all of its locks.
    Reading(StagedCertification),
    Locked {
        locked: Locked<PooledSession>,
        clock: Clock,
        prepared: bool,
        /// The place of the next read to be checked with all locks held.
        validates: Option<usize>,
    },
}

impl OwnBranch {
    /// Is it to be locked, or was it?
    pub(super) fn writes(&self) -> bool {
        match self {
            OwnBranch::Reading(staged) => !staged.is_read_only(),
            OwnBranch::Locked { .. } => true,
        }
    }
}

/// Which shards it writes, and so where it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitPlan {
    /// None: once it is validated it is over.
    ReadOnly,
    /// One of this node's, by its place among the node's replicas.
    Own(usize),
    /// One of another node's.
    Other(ShardId),
    /// Several shards wrote: they prepare, and the decision follows, on a shard of this node.
    TwoPhase,
    /// Several shards wrote, and this node serves none: they prepare, but for this one, which decides last.
    LastAgent(ShardId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitPhase {
    /// Reads are under way that no task waits for any more.
    Draining,
    /// The one participant does everything.
    Delegated,
    /// It takes own locks in slices.
    LockingOwn,
    Locking,
    /// It validates own reads in slices.
    ValidatingOwn,
    /// Validating, and preparing.
    Validating,
    /// The commit record is on its way: here, at the only shard that is written, or at the last agent.
    Deciding,
}
