//! The branches of other nodes' transactions at this worker, and when it has to do something about one that its coordinator
//! does not go on with.
//!
//! A branch that is not prepared is undone when its coordinator has asked nothing for too long; one that is prepared asks for
//! the decision. Only branches that are due are visited.
//!
//! Invariant: each branch that will be due is queued for when that is, or before.

use super::branch::{BranchTimeouts, TwoPhaseCommitBranch, ended};
use super::message::{BranchHeader, TwoPhaseCommitReply};
use shoal_engine::execution::due_queue::DueQueue;
use shoal_engine::execution::participant_table::{ParticipantTable, RequestArrival};
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{ShardId, Time};

/// All of them. A reply that is still to come is `None`.
pub(super) struct Branches {
    table: ParticipantTable<TwoPhaseCommitBranch, Option<TwoPhaseCommitReply>>,
    timeouts: BranchTimeouts,
    due: DueQueue<(TransactionId, ShardId)>,
}

impl Branches {
    pub(super) fn new(timeouts: BranchTimeouts) -> Branches {
        Branches { table: ParticipantTable::default(), timeouts, due: DueQueue::default() }
    }

    /// How long branches wait.
    pub(super) fn timeouts(&self) -> BranchTimeouts {
        self.timeouts
    }

    /// Says what to do with a request: see [`ParticipantTable::arrive`].
    pub(super) fn arrive(
        &mut self,
        header: &BranchHeader,
        ends: bool,
    ) -> RequestArrival<Option<TwoPhaseCommitReply>> {
        self.table.arrive(header, ends)
    }

    /// What an open branch holds.
    pub(super) fn get(
        &self,
        transaction: TransactionId,
        shard: ShardId,
    ) -> Option<&TwoPhaseCommitBranch> {
        self.table.context(transaction, shard)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(
        &mut self,
        transaction: TransactionId,
        shard: ShardId,
    ) -> Option<&mut TwoPhaseCommitBranch> {
        self.table.context_mut(transaction, shard)
    }

    /// All open branches.
    pub(super) fn open(
        &self,
    ) -> impl Iterator<Item = (TransactionId, ShardId, &TwoPhaseCommitBranch)> {
        self.table.open()
    }

    /// Takes out what a branch holds, to act on a request.
    pub(super) fn take(&mut self, header: &BranchHeader) -> Option<TwoPhaseCommitBranch> {
        self.table.take(header)
    }

    /// A branch holds this after a request, or is over; this is the answer, if there is one already.
    pub(super) fn put(
        &mut self,
        header: &BranchHeader,
        context: Option<TwoPhaseCommitBranch>,
        reply: Option<TwoPhaseCommitReply>,
    ) {
        match context {
            Some(context) => self.table.keep(header, context, reply),
            None => self.table.close(header, reply),
        }
    }

    /// A branch comes to a state in which it is due at this time: it opens, is locked, or is prepared.
    pub(super) fn watch(&mut self, transaction: TransactionId, shard: ShardId, at: Time) {
        let Branches { table, timeouts, due } = self;
        due.shrink(table.len(), |branch| due_at(table, *timeouts, branch));
        due.push(at, (transaction, shard));
    }

    /// The next branch that is due. It is not due any more once it is ended, or asks again later.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(TransactionId, ShardId)> {
        let Branches { table, timeouts, due } = self;
        due.take_due(now, |branch| due_at(table, *timeouts, branch))
    }

    /// When the next branch is due.
    pub(super) fn next_due(&mut self) -> Option<Time> {
        let Branches { table, timeouts, due } = self;
        due.next_due(|branch| due_at(table, *timeouts, branch))
    }

    /// Ends a branch, if it is open: what is still asked of it is refused. Returns what it held.
    pub(super) fn end(
        &mut self,
        transaction: TransactionId,
        shard: ShardId,
    ) -> Option<TwoPhaseCommitBranch> {
        self.table.end_branch(transaction, shard, &Some(ended(shard)))
    }

    /// Ends all branches of a shard: what is still asked of them is refused. Returns what they held.
    pub(super) fn end_all(&mut self, shard: ShardId) -> Vec<(TransactionId, TwoPhaseCommitBranch)> {
        self.table.end(shard, &Some(ended(shard)), |_, _, _| true)
    }

    /// A transaction is over on a shard where it has no branch: see [`ParticipantTable::refuse`].
    pub(super) fn refuse(&mut self, transaction: TransactionId, shard: ShardId) {
        self.table.refuse(transaction, shard, &Some(ended(shard)));
    }

    /// How many coordinators are known, of how many branches that are over the last reply is kept, and how many times are
    /// kept at which one is to be looked at.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let [coordinators, over] = self.table.sizes();
        [coordinators, over, self.due.len()]
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

/// When something is to be done about a branch; `None` where that is over.
fn due_at(
    table: &ParticipantTable<TwoPhaseCommitBranch, Option<TwoPhaseCommitReply>>,
    timeouts: BranchTimeouts,
    (transaction, shard): &(TransactionId, ShardId),
) -> Option<Time> {
    table.context(*transaction, *shard)?.due_at(timeouts)
}
