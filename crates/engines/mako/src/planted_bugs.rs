//! Bugs that can be planted in `mako`: each disarms one rule.

use shoal_engine::planted_bugs::Plantable;

/// A bug of this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MakoPlantedBug {
    /// A participant says yes to every validation (serializability).
    SkipRemoteValidation,
    /// Draw the clock before the locks are taken (M2).
    ClockBeforeLock,
    /// The clock of a transaction in parts is in flight no more once its first part is in the stream (M3).
    SafeClockPastParts,
    /// An epoch ends as a whole between the parts of a transaction (M9).
    EndBetweenParts,
    /// Answer as soon as a transaction is certified (M5).
    AcknowledgeAtCertification,
    /// A tombstone that was read adds nothing to the stamp (M1).
    IgnoreTombstoneStamp,
    /// Followers apply a piece as soon as it is in the stream (M6).
    ApplyAboveWatermark,
    /// A shard validates with its own lock, before all other locks are held (P1).
    ValidateBeforeLocks,
    /// Participants install with a stamp that leaves out the transaction's other shards (M1).
    InstallOwnClockOnly,
    /// What an open transaction read is shown before it is covered (M5).
    RevealAtOnce,
    /// What an epoch before wrote is read though it is not known to be durable (M8).
    ReadUnsettledEpoch,
    /// A worker ends an epoch while clocks of it are in flight (M9).
    EndEpochInFlight,
    /// Where something was left hanging, an epoch is said to have ended whole (M9).
    EndWholeWhileHanging,
    /// The end of an epoch is reported when it is appended, not when it is durable (M9).
    ReportBeforeDurable,
    /// A leader goes on without a lease (M7).
    ActWithoutLease,
    /// Versions are rolled back by their own clock, ignoring what else they depend on (M9).
    RollBackByClock,
    /// What a dead coordinator has locked stays locked (liveness).
    KeepDeadLocks,
    /// What hangs for a silent coordinator is given up while the epoch is open (M3).
    SilenceResolves,
    /// Streams are cut where the store may still change (M6).
    CutUnstable,
    /// A copy of a shard has what is not committed (M6).
    CopyUncommitted,
    /// A replica that takes a copy keeps rows that the copy has not (M6).
    CopyKeepsDeleted,
    /// A copy has what is as old as its cut, in an epoch that is not settled, whether it was decided or not (M10).
    CopyByClock,
    /// A replica that takes a copy does not take over what the sender knows to be durable, and so leaves rows out of
    /// the copies that it gives itself (M10).
    CopyWithoutWatermarks,
    /// A part of a copy says nothing of epochs that its rows are not of, and so nothing of what was deleted in them (M10).
    CopyWatermarksOfRows,
    /// A node that begins takes epochs whose FVW is kept no more for whole, and does not wait for what streams say (M9).
    TakeForgottenForWhole,
    /// Waits for other shards have no bound (M11).
    WaitForever,
    /// A copy leaves out what is undecided (M12).
    CopyWithoutUndecided,
    /// What is undecided is kept below newer versions that are committed, and a new leader puts it on top of them (M12).
    InstallUndecidedAbove,
    /// A leader whose stream decides nothing goes on to certify (M11).
    CertifyWhileStalled,
    /// A stream is cut behind entries that its own watermark covers, wherever the shard's other streams are (M6).
    CutCovered,
    /// A snapshot says nothing of epochs that lost something (M9).
    SnapshotWithoutFinals,
    /// A collection takes tombstones while older writes may still arrive (M6).
    CollectUnreached,
    /// A collection takes tombstones that are not committed (M9).
    CollectUncommitted,
    /// What a node installed as a leader is rolled back only while it leads (M9).
    CollectLedOnly,
    /// A transaction keeps its locks while it waits for a silent leader (M11).
    HoldForSilent,
    /// What a shard's end rejects is rolled back only once its epoch is settled (M12).
    CollectSettled,
    /// A one-shard transaction installs although its epoch closed before its clock was drawn (M8).
    InstallAfterClose,
    /// A participant locks and draws a clock for an epoch that closed meanwhile (M8).
    LockAfterClose,
    /// A coordinator draws clocks of its own shards in an epoch that closed meanwhile (M8).
    CertifyAfterClose,
    /// A stream counts as stable while pieces of it wait for locks of other workers (M6).
    StableWhileBlocked,
    /// A stream counts as stable by what its own worker covers, wherever the other workers are (M6).
    StableAlone,
    /// A copy claims all up to the greatest clock of one stream, wherever the other streams are (M6).
    CopyFromOneStream,
    /// A node goes on to learn about a shard after it has said what it knows of it (M9).
    LearnAfterLoss,
    /// A version that was read is compared with how far its shard is durable in another epoch than its own (M8).
    CompareClocksOfEpochs,
    /// Overwritten versions are freed before what overwrote them is covered (M10).
    TrimUncovered,
}

impl Plantable for MakoPlantedBug {
    fn number(self) -> u32 {
        self as u32
    }
}
