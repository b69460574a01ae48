//! A branch of a transaction that another node coordinates, as its participant keeps it.

use super::message::{BranchHeader, DecisionHome, TwoPhaseCommitReply};
use super::options::TwoPhaseCommitOptions;
use shoal_engine::execution::session_pool::{PooledSession, StoreBranch};
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_engine::execution::worker_context::recovering;
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, ShardId, Time};
use std::time::Duration;

/// What an open branch holds. The request of `target` is answered when a record is durable.
pub(super) enum TwoPhaseCommitBranch {
    /// The branch executes.
    Open {
        branch: StoreBranch,
        /// When its coordinator asked last for something.
        since: Time,
    },
    /// The branch holds its locks, has validated, and waits for the others to.
    Locked {
        locked: Locked<PooledSession>,
        clock: Clock,
        /// When it was locked, or validated after that.
        since: Time,
        /// What it read was checked with the locks of all shards held.
        valid: bool,
        /// The place of the next read that is checked so.
        validates: usize,
    },
    /// The branch is locked or validated in slices, and holds no clock.
    Slicing(SlicedBranch),
    /// The branch holds its locks and is in the stream.
    Prepared {
        locked: Locked<PooledSession>,
        clock: Clock,
        /// Where the decision will be.
        home: DecisionHome,
        /// When it asks for the decision next, though its coordinator seems to be there.
        inquire_at: Time,
        /// The record is durable.
        durable: bool,
        /// What it read was checked with all locks held.
        valid: bool,
        /// The place of the next read that is checked so.
        validates: usize,
        target: Option<ReplyTarget>,
    },
    /// The commit record of the branch is in the stream.
    Committing { locked: Locked<PooledSession>, clock: Clock, target: ReplyTarget },
    /// The branch is installed, and the record of that is in the stream.
    Ended {
        target: ReplyTarget,
        /// Where the decision is.
        home: ShardId,
    },
}

/// Which node waits for the reply to a request, and to which.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyTarget {
    pub(super) to: NodeId,
    pub(super) header: BranchHeader,
}

/// What becomes of a branch, and what is said now. `None`: that comes later.
pub(super) type BranchOutcome = (Option<TwoPhaseCommitBranch>, Option<TwoPhaseCommitReply>);

/// A branch that is locked or validated in slices.
pub(super) struct SlicedBranch {
    pub(super) staged: StagedCertification,
    pub(super) goal: BranchGoal,
}

/// What a branch that has executed is to come to.
#[derive(Debug, Clone, Copy)]
pub(super) enum BranchGoal {
    /// The locks, and a clock.
    Lock,
    /// The same, and its prepare record.
    Prepare(DecisionHome),
    /// To be valid; then it is over.
    Validate,
    /// The commit of the whole transaction.
    Commit {
        /// What it wrote is installed.
        install: bool,
    },
}

/// How long a branch waits for its coordinator to ask something of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BranchTimeouts {
    executes_max: Duration,
    locked_max: Duration,
    inquire_after: Duration,
}

impl BranchTimeouts {
    pub(super) fn new(options: &TwoPhaseCommitOptions) -> BranchTimeouts {
        let limits = &options.limits;
        BranchTimeouts {
            // No transaction of a client is open for longer, nor waits longer for another shard.
            executes_max: limits.session_open_max + limits.shard_wait_max,
            // It only waits for what was read on other shards to be validated.
            locked_max: limits.shard_wait_max * 2,
            inquire_after: options.inquire_after,
        }
    }

    /// When a branch is undone that executes, and whose coordinator asked last at this time.
    pub(super) fn executes(&self, since: Time) -> Time {
        since + self.executes_max
    }

    /// The same of one that was locked, or validated, at this time.
    pub(super) fn locked(&self, since: Time) -> Time {
        since + self.locked_max
    }

    /// When a branch that was prepared at this time asks for its decision first.
    pub(super) fn prepared(&self, since: Time) -> Time {
        since + self.inquire_after
    }
}

impl TwoPhaseCommitBranch {
    /// When it is undone, unless its coordinator asks for something before; or when it asks for the decision, if it is
    /// prepared.
    pub(super) fn due_at(&self, timeouts: BranchTimeouts) -> Option<Time> {
        match self {
            TwoPhaseCommitBranch::Open { since, .. } => Some(timeouts.executes(*since)),
            TwoPhaseCommitBranch::Locked { since, .. } => Some(timeouts.locked(*since)),
            TwoPhaseCommitBranch::Prepared { inquire_at, .. } => Some(*inquire_at),
            TwoPhaseCommitBranch::Slicing(_)
            | TwoPhaseCommitBranch::Committing { .. }
            | TwoPhaseCommitBranch::Ended { .. } => None,
        }
    }
}

/// The reply to what is still asked of a branch that ended without a request: its shard has another leader, or its
/// coordinator was taken for gone.
pub(super) fn ended(shard: ShardId) -> TwoPhaseCommitReply {
    TwoPhaseCommitReply::Refused { error: recovering(shard) }
}
