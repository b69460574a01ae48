//! Bugs that can be planted in `two_phase_commit`: each disarms one rule.

use shoal_engine::planted_bugs::Plantable;

/// A bug of this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoPhaseCommitPlantedBug {
    /// A participant says yes to every validation (serializability).
    SkipRemoteValidation,
    /// Install and answer as soon as all is valid, before the decision is durable (P4).
    AcknowledgeAtCertification,
    /// A shard validates with its own lock, before all other locks are held (P1).
    ValidateBeforeLocks,
    /// A leader goes on without a lease (P6).
    ActWithoutLease,
    /// A new leader serves its shard while what is prepared and not decided there is not locked (P7).
    ServeWithoutRecoveredLocks,
    /// A new leader serves its shard, and calls transactions aborted, before an entry of its own is durable (P7, P8).
    ServeUnsealed,
    /// A participant that asks is answered that a transaction is aborted, though a decision can still appear (P8).
    PresumeAbortEarly,
    /// A participant that asks is answered that a transaction is aborted which its last agent can still decide (P8).
    PresumeAbortUnended,
    /// A coordinator whose last agent does not answer any more calls the transaction aborted (P8).
    AbortWhileDeciding,
    /// A coordinator whose last agent does not answer sends it nothing more: its locks stay for long (M11).
    LeaveLastAgent,
    /// A decision is forgotten before all participants have its outcome durable (P9).
    EndUnacknowledged,
    /// The base of a delta may be a version whose outcome is not durable, and may be decided again behind the delta (P5).
    PatchUndurable,
    /// A replica that takes a copy keeps what was deleted where the copy is from (P10).
    CopyKeepsDeleted,
    /// A snapshot stands for entries whose commits are not in the sender's store (P10).
    CopyUnreached,
    /// A copy is without tombstones, also beyond its cut (P10).
    CopyWithoutTombstones,
    /// All parts of a copy have the cut of the last, also those of which its sender has more by half a copy (P10).
    CopyWithOneCut,
    /// A leader removes tombstones as soon as they are installed (P10).
    ForgetTombstonesAtOnce,
    /// Tombstones are removed that a copy which is being sent has still to include (P10).
    ForgetTombstonesWhileCopied,
    /// A snapshot is without what is prepared (P10).
    SnapshotWithoutPrepared,
    /// Of the writes of transactions without an outcome a snapshot has the first part only (P10).
    SnapshotWithoutLaterWrites,
}

impl Plantable for TwoPhaseCommitPlantedBug {
    fn number(self) -> u32 {
        self as u32
    }
}
