//! What a worker does in slices, a slice a step.

use super::branch_writes::BranchWrites;
use super::leader_log::RecordWaiter;
use super::message::BranchHeader;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, Time};

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
