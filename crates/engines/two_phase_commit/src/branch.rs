//! A branch of a transaction that another node coordinates, as its participant keeps it.

use super::message::{BranchHeader, DecisionHome, TwoPhaseCommitReply};
use shoal_engine::execution::Limits;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_engine::execution::worker_context::{StoreBranch, recovering};
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, ShardId, Time};
use std::time::Duration;

/// What an open branch holds. The request `asked` is answered when a record is durable.
pub(super) enum TwoPhaseCommitBranch {
    /// It executes.
    Open {
        branch: StoreBranch,
        /// When its coordinator asked last for something.
        since: Time,
    },
    /// It holds its locks, has validated, and waits for the others to.
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
    /// It is locked or validated in slices, and holds no clock.
    Slicing(SlicedBranch),
    /// It holds its locks and is in the stream.
    Prepared {
        locked: Locked<PooledSession>,
        clock: Clock,
        /// Where the decision will be.
        home: DecisionHome,
        /// When it was prepared.
        since: Time,
        /// Its record is durable.
        durable: bool,
        /// What it read was checked with all locks held.
        valid: bool,
        /// The place of the next read that is checked so.
        validates: usize,
        asked: Option<ReplyTarget>,
    },
    /// Its commit record is in the stream.
    Committing { locked: Locked<PooledSession>, clock: Clock, asked: ReplyTarget },
    /// It is installed; that it is, is in the stream.
    Ended {
        asked: ReplyTarget,
        /// Where the decision is.
        home: ShardId,
    },
}

/// Who waits for an answer, and to what.
pub(super) type ReplyTarget = (NodeId, BranchHeader);

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
    /// Its locks, and a clock.
    Lock,
    /// The same, and its prepare record.
    Prepare(DecisionHome),
    /// To be valid; then it is over.
    Validate,
    /// Its end: it is the whole transaction.
    Commit {
        /// What it wrote is installed.
        install: bool,
    },
}

/// A coordinator that is at work asks something of a branch that executes before so long: no transaction of a client is open
/// for longer, nor waits longer for another shard.
fn executes_max(limits: &Limits) -> Duration {
    limits.session_open_max + limits.shard_wait_max
}

/// A coordinator that is at work asks something of a branch that is locked before so long: it only waits for what was read on
/// other shards to be validated. With the time until such branches are looked at again, locks are held for twice the longest
/// wait at most where the coordinator sends nothing any more.
fn locked_max(limits: &Limits) -> Duration {
    limits.shard_wait_max * 2 - looked_at_every(limits)
}

/// Most branches are over long before they expire: they are looked at again after so long, and not one by one.
pub(super) fn looked_at_every(limits: &Limits) -> Duration {
    limits.shard_wait_max / 8
}

impl TwoPhaseCommitBranch {
    /// When it is undone, unless its coordinator asks for something before.
    pub(super) fn expires_at(&self, limits: &Limits) -> Option<Time> {
        match self {
            TwoPhaseCommitBranch::Open { since, .. } => Some(*since + executes_max(limits)),
            TwoPhaseCommitBranch::Locked { since, .. } => Some(*since + locked_max(limits)),
            TwoPhaseCommitBranch::Slicing(_)
            | TwoPhaseCommitBranch::Prepared { .. }
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
