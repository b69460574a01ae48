//! What a worker does in slices, a slice a step.

use super::branch_writes::BranchWrites;
use super::leader_log::RecordWaiter;
use super::message::BranchHeader;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, Time};
use std::collections::VecDeque;

/// What goes on in another step.
#[derive(Debug, Clone, Copy)]
pub(super) enum PausedCommit {
    /// The transaction of this worker with this sequence.
    Own(u64),
    /// A branch of another node's, which waits for the answer to this request.
    Branch(NodeId, BranchHeader),
}

/// A committed transaction on a shard that this node leads, some of whose writes may be installed.
pub(super) struct Installing {
    /// The place of the shard.
    pub(super) at: usize,
    pub(super) transaction: TransactionId,
    pub(super) locked: Locked<PooledSession>,
    pub(super) clock: Clock,
    /// What waits for its outcome to be durable, if it was prepared.
    pub(super) outcome: Option<RecordWaiter>,
    /// The writes before are installed.
    pub(super) next: usize,
    /// What a former leader has prepared of it, if it was in doubt: then only what is newer than what is there is installed.
    pub(super) in_doubt: Option<BranchWrites>,
}

/// All of it, in the order in which it goes on.
///
/// Invariant: what is installed is on a shard that this node leads.
#[derive(Default)]
pub(super) struct SlicedWork {
    /// What is locked or validated.
    paused: VecDeque<PausedCommit>,
    /// What is committed, and has writes that are not installed.
    installing: VecDeque<Installing>,
}

impl SlicedWork {
    /// The rest of this is for another step, after what was paused before.
    pub(super) fn pause(&mut self, paused: PausedCommit) {
        self.paused.push_back(paused);
    }

    /// Takes out what goes on first.
    pub(super) fn next_paused(&mut self) -> Option<PausedCommit> {
        self.paused.pop_front()
    }

    /// Is something locked or validated in slices?
    pub(super) fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// The rest of this is installed in later steps, after what was committed before.
    pub(super) fn install_later(&mut self, rest: Installing) {
        self.installing.push_back(rest);
    }

    /// Takes out what is installed first.
    pub(super) fn next_installing(&mut self) -> Option<Installing> {
        self.installing.pop_front()
    }

    /// The rest of this is installed first.
    pub(super) fn install_next(&mut self, rest: Installing) {
        self.installing.push_front(rest);
    }

    /// Takes out what is installed on the shard at this place.
    pub(super) fn take_installing(&mut self, at: usize) -> VecDeque<Installing> {
        let (taken, others) =
            std::mem::take(&mut self.installing).into_iter().partition(|it| it.at == at);
        self.installing = others;
        taken
    }

    /// Is something installed in slices?
    pub(super) fn is_installing(&self) -> bool {
        !self.installing.is_empty()
    }

    /// The number of transactions and branches that go on in another step.
    pub(super) fn len(&self) -> usize {
        self.paused.len() + self.installing.len()
    }

    /// Asserts the invariant above; `leads` says of which places the node leads the shard.
    pub(super) fn assert_invariants(&self, leads: impl Fn(usize) -> bool) {
        for it in &self.installing {
            assert!(
                leads(it.at),
                "P4: {} is committed, and half installed on a shard that is not led",
                it.transaction
            );
        }
    }
}

/// How many keys of branches in doubt the step that is under way may still handle, on all shards together. Events of one
/// time are one step.
#[derive(Debug, Default)]
pub(super) struct KeyBudget {
    step: Option<Time>,
    pub(super) left: usize,
}

impl KeyBudget {
    /// A step begins at this time, or goes on.
    pub(super) fn begin(&mut self, now: Time, most: usize) {
        if self.step.replace(now) != Some(now) {
            self.left = most;
        }
    }
}
