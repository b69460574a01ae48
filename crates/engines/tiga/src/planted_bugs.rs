//! Bugs that can be planted in the protocol: each disarms one rule.

use shoal_engine::planted_bugs::Plantable;

/// Each disarms the rule in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TigaPlantedBug {
    /// Transactions are accepted below conflicting ones that are released (T1).
    AcceptLate,
    /// Transactions are accepted below what has read what they write (T1).
    IgnoreReadTimestamps,
    /// A leader releases once all have proposed (T2).
    ReleaseBeforeReady,
    /// A `Ready` sets no conflict tables (T2).
    ReadyWithoutPromise,
    /// What a leader has executed before the timestamp was raised is released (T3).
    KeepRevoked,
    /// Votes count that differ from the leader's (T4).
    CountMismatch,
    /// A simple majority of votes commits (T4).
    SimpleQuorum,
    /// Digests cover no predecessors (T4).
    DigestWithoutHistory,
    /// A follower votes over transactions of several shards that are not synced (T5).
    VoteOverUnagreed,
    /// The vote of a leader without followers commits (T5).
    CommitByOneVote,
    /// A leader calls stable what only it has (T6).
    MaximumSyncPoint,
    /// Voters forget what they voted for (T7).
    ForgetTentative,
    /// A recovery keeps only what has a greater timestamp than all that is in the log (T7).
    KeepByTimestamp,
    /// A new leader imports nothing (T8).
    ForgetImports,
    /// A `Ready` counts, under any ballots (T20).
    ReadyOfOldBallot,
    /// A procedure writes what it has not declared, on one shard and without locks (T13).
    TouchUndeclared,
    /// Votes under different ballots are joined across shards (T16).
    MixBallots,
    /// A leader asks others before its start record is decided (T17).
    AskBeforeRecord,
    /// A leader says that it does not take a transaction, and writes that into no log (T21).
    RefuseBeforeRecord,
    /// A recovery drops what its coordinator, or a later process of that node, has said to be over (T7).
    DropWhatIsOver,
    /// A leader that another has replaced says what is decided on its shard (T20).
    SettleByFormerLeader,
    /// A digest does not cover the writers of what the transaction writes without reading it (T4).
    BlindWriteWithoutHistory,
    /// A digest does not cover those that have read what the transaction writes (T4).
    DigestWithoutReaders,
    /// Voters vote before they have accepted a final record (T17).
    VoteBeforeFinal,
    /// What is certified may rest on rows that are not decided (T18).
    ExportUnstable,
    /// Tentative entries stay behind synced ones that conflict (T19).
    KeepBehindSynced,
    /// A recovery keeps all that was voted for in front of what it imports (T23).
    KeepInFront,
    /// A call takes effect although the row of its session says that it has an outcome (T10).
    DuplicateExecutes,
    /// A leader releases as soon as its own clock is past a timestamp, where the clocks are to agree (T12).
    SmallEpsilon,
    /// Timestamps far ahead are accepted (T14).
    TrustFarClock,
    /// A seal covers what still waits (T15).
    SealOpen,
    /// Reads are shown that are not decided, or that a recovery's transactions may have overwritten (T11).
    ReadUnstable,
    /// Reads miss what this leader has said that it is ready for, and another participant may have released (T11).
    ReadOverReady,
    /// A snapshot has rows as they were when their parts were taken (T22).
    SnapshotWithoutChanges,
    /// A snapshot has no records (T22).
    SnapshotWithoutRecords,
    /// Votes and lists are sent that are not durable (T24).
    SendUnrecorded,
    /// A process begins without the votes of the one before (T24).
    ForgetRecords,
    /// A checkpoint begins, and no votes are recorded again (T24).
    CheckpointWithoutVotes,
}

impl Plantable for TigaPlantedBug {
    fn number(self) -> u32 {
        self as u32
    }
}
