//! Bugs that can be planted in the protocol: each disarms one rule.

use shoal_engine::planted_bugs::Plantable;

/// Each disarms the rule in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeusPlantedBug {
    /// A requester owns after the first acknowledgement (Z1).
    OwnBeforeAllAcks,
    /// An arbiter acknowledges a lesser timestamp after a greater one (Z1).
    LesserWins,
    /// An arbiter takes a record for validated as soon as it acknowledges it (Z2).
    ArbitersApplyFirst,
    /// A replay leaves a reader out of the record (Z3).
    ReplayChangesRecord,
    /// An owner acknowledges a move while slots are pending (Z4).
    GrantWhilePending,
    /// An owner waits for slots that wrote the granule only (Z4).
    GrantAfterWrites,
    /// A repeated request is driven again (Z5).
    StaleRequestMoves,
    /// The first acknowledgement validates a slot (Z6).
    FirstAckValidates,
    /// A follower acknowledges what it has only received (Z6).
    AckUnapplied,
    /// A follower applies slots in any order (Z6).
    SkipSlot,
    /// A transaction gets a slot in another pipeline than the pending slots that it depends on (Z6).
    SplitDependent,
    /// Readers are shown pending rows (Z7).
    ReadPending,
    /// An owner shows its own pending rows (Z7).
    OwnerReadsOwn,
    /// A transaction that only reads is answered before what its node had committed locally is validated (Z7).
    AnswerBeforeReads,
    /// A transaction is reported at its local commit (Z7).
    ReplyAtLocalCommit,
    /// A read-only transaction checks each row as it reads it, and not all of them at the end (Z8).
    CheckWhileReading,
    /// A node without a lease shows rows (Z8).
    ReadWithoutLease,
    /// A transaction that writes reads at reader level (Z9).
    WriteAsReader,
    /// A transaction that writes finds rows absent, or scans, at reader level (Z9).
    AbsenceUnowned,
    /// Messages of earlier epochs are received (Z10).
    HearOldEpoch,
    /// A node that was out keeps what it had (Z10).
    KeepAfterRemoval,
    /// Granules without an owner move before all nodes have replayed (Z11).
    MoveBeforeReplayed,
    /// A follower replays nothing of dead coordinators (Z12).
    ReplayNothing,
    /// A follower replays slots of dead coordinators that it has only received (Z12).
    ReplayUnapplied,
    /// What was received and not applied outlives its epoch (Z12).
    KeepReceived,
    /// An owner holds a granule for any transaction of its own, for as long as that waits for others (Z14).
    WaitWhileHolding,
    /// The last readers of a granule may leave (Z14).
    DropLastReader,
    /// A validation makes rows valid that have a newer version (Z15).
    ValidateNewer,
    /// A version's clock does not follow the granule's (Z15).
    ClockWithoutGranule,
    /// A driver drives while a record is pending (Z16).
    DriveOnPending,
    /// An arbiter does not learn from an `Inv` which record that replaces (Z16).
    NoReplacedRecord,
    /// Timestamps of records are without the epoch in which they were driven (Z17).
    TimestampWithoutEpoch,
    /// A repeated `Inv` takes an acknowledgement back (Z17).
    Unacknowledge,
    /// A directory node answers before it has copied the directory (Z18).
    AnswerBeforeCopy,
    /// A node that is added to a directory copies nothing (Z18).
    AddedWithoutCopy,
    /// A directory node copies validated records only (Z18).
    CopyWithoutPending,
    /// A directory that is rebuilt takes a move for validated that its owner has not acknowledged (Z4).
    CountUnacknowledged,
    /// A directory that was rebuilt creates what it does not know (Z21).
    CreateWhatWasLost,
    /// A dropped reader serves until the drop is complete (Z14).
    ServeWhileDropped,
    /// A requester is content with the first part of the rows (Z2).
    ApplyFirstPart,
    /// Absent rows and scans are not checked (Z19).
    StructureUnchecked,
    /// What a step leaves to be sent leaves before the record of the step is durable (Z22).
    SendUnrecorded,
    /// A node forgets in a restart what its pending slots have read (Z4).
    ForgetTouched,
    /// A node counts its requests anew after a restart (Z5).
    CountRequestsAnew,
    /// A node makes changes again that its checkpoint has, without those behind them (Z22).
    RepeatBeforeCheckpoint,
    /// A node acts by what its disks have before the manager has admitted it (Z22).
    ActUnadmitted,
}

impl Plantable for ZeusPlantedBug {
    fn number(self) -> u32 {
        self as u32
    }
}
