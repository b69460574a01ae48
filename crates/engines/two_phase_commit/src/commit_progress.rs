//! A transaction that commits, as its coordinator keeps it: what it holds, how far it has come, and where it is decided.

use super::message::DecisionHome;
use shoal_engine::execution::coordinated_transactions::{CommitState, CoordinatedTransactions};
use shoal_engine::execution::due_queue::DueQueue;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::request_retransmission::BranchKey;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_engine::execution::worker_context::{BodyEnd, WorkerContext};
use shoal_store::Locked;
use shoal_types::{Clock, Error, ShardId, Time};
use std::rc::Rc;

/// The transactions of this worker that wait for something.
///
/// Invariant: one that waits for a record of this node is queued for when it has waited too long, or before.
#[derive(Default)]
pub(super) struct Coordinator {
    transactions: CoordinatedTransactions<CommitProgress>,
    /// The transactions that wait for records, by their numbers.
    records_due: DueQueue<u64>,
}

impl Coordinator {
    /// Adds a transaction whose body has sent a request to another node.
    pub(super) fn execute(&mut self, remote_branches: &Rc<RemoteBranches>) {
        self.transactions.execute(remote_branches);
    }

    /// Adds a transaction whose commit waits, or moves it to that state.
    pub(super) fn keep(&mut self, it: CommitProgress) {
        it.assert_invariants();
        self.transactions.keep(it);
    }

    /// Removes a transaction that waits for nothing any more.
    pub(super) fn remove(&mut self, sequence: u64) {
        self.transactions.remove(sequence);
    }

    /// The branches of a transaction.
    pub(super) fn remote_branches(&self, sequence: u64) -> Option<&Rc<RemoteBranches>> {
        self.transactions.remote_branches(sequence)
    }

    /// Removes a transaction whose body has ended.
    pub(super) fn take_commit(&mut self, sequence: u64) -> Option<CommitProgress> {
        self.transactions.take_commit(sequence)
    }

    /// The same, if this holds of it.
    pub(super) fn take_commit_if(
        &mut self,
        sequence: u64,
        goes: impl FnOnce(&CommitProgress) -> bool,
    ) -> Option<CommitProgress> {
        self.transactions.take_commit_if(sequence, goes)
    }

    /// Removes all transactions whose bodies have ended and of which this holds.
    pub(super) fn take_commits(
        &mut self,
        goes: impl Fn(&CommitProgress) -> bool,
    ) -> Vec<CommitProgress> {
        self.transactions.take_commits(goes)
    }

    /// The participant of a shard is gone: running bodies with a branch there fail.
    pub(super) fn lose_executing(&self, shard: ShardId, error: &Error) {
        self.transactions.lose_executing(shard, error);
    }

    /// A participant does not answer: see [`CoordinatedTransactions::give_up_on`].
    pub(super) fn give_up_on(&mut self, branch: BranchKey) -> Option<(CommitProgress, Error)> {
        self.transactions.give_up_on(branch)
    }

    /// A transaction waits for a record of this node, or will at once.
    pub(super) fn expect_record(&mut self, it: &CommitProgress, worker_context: &WorkerContext) {
        let (due, sequence) = (it.record_due(worker_context), it.remote_branches.id.sequence);
        let Coordinator { transactions, records_due } = self;
        let waits = |other: &u64| waits_for_record(transactions, worker_context, *other);
        records_due.shrink(transactions.len(), waits);
        records_due.push(due, sequence);
    }

    /// Removes the next transaction that has waited too long for a record of this node.
    pub(super) fn take_overdue(
        &mut self,
        now: Time,
        worker_context: &WorkerContext,
    ) -> Option<CommitProgress> {
        let Coordinator { transactions, records_due } = self;
        let waits = |sequence: &u64| waits_for_record(transactions, worker_context, *sequence);
        let sequence = records_due.take_due(now, waits)?;
        self.take_commit(sequence)
    }

    /// When the next one has.
    pub(super) fn next_overdue(&mut self, worker_context: &WorkerContext) -> Option<Time> {
        let Coordinator { transactions, records_due } = self;
        records_due.next_due(|sequence| waits_for_record(transactions, worker_context, *sequence))
    }

    /// Is the transaction with this number under way here, without a durable decision?
    pub(super) fn knows(&self, sequence: u64) -> bool {
        self.transactions.remote_branches(sequence).is_some()
    }

    /// How many transactions wait for something, and how many times are kept at which one has waited for too long.
    pub(super) fn sizes(&self) -> [usize; 2] {
        [self.transactions.len(), self.records_due.len()]
    }
}

/// When a transaction has waited too long for a record of this node, if it waits for one.
fn waits_for_record(
    transactions: &CoordinatedTransactions<CommitProgress>,
    worker_context: &WorkerContext,
    sequence: u64,
) -> Option<Time> {
    let it = transactions.commit(sequence).filter(|it| it.waits_for_record())?;
    Some(it.record_due(worker_context))
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
    /// The branches on own shards, by their place among the node's replicas.
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
    /// The decision took too long: participants receive it like those with a new leader, and the coordinator sends them nothing else.
    pub(super) handed_over: bool,
}

impl CommitProgress {
    /// The shards of other nodes that it writes.
    pub(super) fn written_elsewhere(&self) -> Vec<ShardId> {
        let remotes = self.remote_branches.remotes();
        let written = remotes.iter().filter(|it| self.ending == BodyEnd::Commit && it.writes);
        written.map(|remote| remote.shard).collect()
    }

    /// Does it wait for a record of this node, and its client for it?
    fn waits_for_record(&self) -> bool {
        match self.phase {
            CommitPhase::Deciding => self.home.is_some() && !self.reported,
            CommitPhase::Validating => self.undurable > 0,
            CommitPhase::Draining
            | CommitPhase::Delegated
            | CommitPhase::LockingOwn
            | CommitPhase::Locking
            | CommitPhase::ValidatingOwn => false,
        }
    }

    /// When it has waited too long for a record of this node: longer where it is large.
    fn record_due(&self, worker_context: &WorkerContext) -> Time {
        let extra = worker_context.extra_wait(self.remote_branches.keys());
        self.phase_since + worker_context.limits.shard_wait_max + extra
    }

    /// What holds of each while it waits: it is validated with all locks held (P1), and decided with nothing missing (P3).
    fn assert_invariants(&self) {
        let id = self.remote_branches.id;
        let (drawn, writers) = (self.drawn.len(), self.writers);
        let (is_locked, is_whole) = (drawn == writers, self.waiting == 0 && self.undurable == 0);
        match self.phase {
            CommitPhase::Draining | CommitPhase::Delegated => {
                assert_eq!(drawn, 0, "P1: {id} has drawn clocks before it locks");
            }
            CommitPhase::LockingOwn | CommitPhase::Locking => {
                assert!(drawn <= writers, "P1: {id} has locked more shards than it writes");
            }
            CommitPhase::ValidatingOwn => {
                assert!(is_locked, "P1: {id} is validated before all is locked");
            }
            CommitPhase::Validating => {
                assert!(is_locked, "P1: {id} is validated before all is locked");
                assert!(!is_whole, "P3: {id} lacks nothing, and is not decided");
            }
            CommitPhase::Deciding => {
                assert!(is_locked && is_whole, "P3: {id} is decided with something missing");
            }
        }
        assert!(self.reported || !self.handed_over, "P4: {id} is handed over, and not answered");
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
    /// The branch does not have all of its locks.
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
    /// The transaction takes own locks in slices.
    LockingOwn,
    Locking,
    /// The transaction validates own reads in slices.
    ValidatingOwn,
    /// Validating, and preparing.
    Validating,
    /// The commit record is on its way: here, at the only shard that is written, or at the last agent.
    Deciding,
}
