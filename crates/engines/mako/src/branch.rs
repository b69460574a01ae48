//! A branch of another node's transaction, as its participant keeps it.

use super::message::BranchHeader;
use shoal_engine::execution::session_pool::{PooledSession, StoreBranch};
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Clock, Epoch, NodeId, Stamp};

/// A transaction, and the epoch that was open when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct EpochTransaction {
    pub(super) transaction: TransactionId,
    pub(super) epoch: Epoch,
}

impl From<&BranchHeader> for EpochTransaction {
    fn from(header: &BranchHeader) -> EpochTransaction {
        EpochTransaction { transaction: header.transaction, epoch: header.epoch }
    }
}

/// What an open branch holds.
pub(super) enum MakoBranch {
    /// The branch executes.
    Open {
        /// What it has done so far.
        branch: StoreBranch,
        /// How many of its reads the coordinator knows.
        reads: usize,
        /// A planted bug draws it before the locks are taken.
        early: Option<Clock>,
    },
    /// The branch holds its locks, and the clock is in flight.
    Locked {
        /// What will be installed.
        locked: Locked<PooledSession>,
        /// What was drawn for it.
        clock: Clock,
    },
    /// The branch is locked or validated in slices.
    Slicing(SlicedBranch),
}

/// What goes on in another step.
#[derive(Debug, Clone, Copy)]
pub(super) enum PausedCertification {
    /// The transaction of this worker with this sequence.
    Own(u64),
    /// A branch of another node's, which waits for the answer to this request.
    Branch(NodeId, BranchHeader),
}

/// A branch that is locked or validated in slices.
pub(super) struct SlicedBranch {
    pub(super) staged: StagedCertification,
    /// What its reads depend on, as far as they are gathered.
    pub(super) dependencies: Stamp,
    /// How many of its reads the coordinator knows, if it only validates.
    pub(super) reads: usize,
    /// The clock that was drawn for it, if it held all its locks before.
    pub(super) clock: Option<Clock>,
    pub(super) asked: BranchGoal,
}

/// What a branch is to come to.
#[derive(Debug, Clone, Copy)]
pub(super) enum BranchGoal {
    /// The locks and a clock; and to be valid, where all other locks of the transaction are held.
    Lock {
        /// All other locks of the transaction are held.
        validate: bool,
    },
    /// To be valid.
    Validate {
        /// Then it is over.
        last: bool,
    },
    /// The commit of the whole transaction.
    Commit {
        /// What it wrote is installed.
        install: bool,
    },
}

impl SlicedBranch {
    /// What it holds.
    pub(super) fn into_parts(self) -> (StagedCertification, Option<Clock>) {
        (self.staged, self.clock)
    }

    /// Does it hold no clock, and not all of its locks?
    pub(super) fn is_open(&self) -> bool {
        self.clock.is_none()
    }
}
