//! The rules of the design that can be switched off, and where the lack of each is found.

use crate::protocol::{FoundBy, Switch};
use FoundBy::{Exhaustive, Nothing, RandomWalks};

/// A rule that can be switched off; its number is its place in [`SWITCHES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    AllAcks,
    OwnerWaits,
    WaitForReads,
    WaitForPending,
    VoidStaleRequests,
    AckApplied,
    AllFollowers,
    SlotsInOrder,
    ReadValidated,
    ReplyValidated,
    CheckAfterReads,
    Lease,
    OwnReads,
    Epochs,
    DropOnReturn,
    Barrier,
    ReplayBarrier,
    ReplayApplied,
    ForgetUnapplied,
    ValidateOwn,
    DriveValidated,
    ReplacedRecord,
    StickyAck,
    OtsEpoch,
    CopyPending,
    AnswerAfterCopy,
    DropArbiter,
    Since,
    WaitBeforeRead,
    GranuleClock,
    DiscardOldAcks,
}

/// By the number of the rule.
pub(super) static SWITCHES: &[Switch] = &[
    switch("all-acks", "Z1", "a requester owns after the first ACK", "contention", Exhaustive),
    switch(
        "owner-waits",
        "Z4",
        "the owner answers NACK while slots are pending, and arbiters replay only after a failure: as printed",
        "move-pending",
        Exhaustive,
    ),
    switch(
        "wait-for-reads",
        "Z4",
        "the owner waits for slots that wrote the granule only",
        "move-read",
        Exhaustive,
    ),
    switch(
        "wait-for-pending",
        "Z4",
        "the owner acknowledges while slots are pending",
        "move-pending",
        Exhaustive,
    ),
    switch(
        "void-stale-requests",
        "Z5",
        "a repeated REQ is driven again",
        "repeated-request",
        Exhaustive,
    ),
    switch(
        "ack-applied",
        "Z6",
        "a follower acknowledges an R-INV that it has only received",
        "partial-pipeline",
        Exhaustive,
    ),
    switch("all-followers", "Z6", "the first R-ACK validates", "commit", Exhaustive),
    switch(
        "slots-in-order",
        "Z6",
        "a follower applies slots in any order",
        "partial-pipeline-crash",
        Exhaustive,
    ),
    switch("read-validated", "Z7", "the owner shows its pending rows", "commit", Exhaustive),
    switch(
        "reply-validated",
        "Z7",
        "a write is answered at its local commit",
        "commit",
        Exhaustive,
    ),
    switch(
        "check-after-reads",
        "Z8",
        "a read-only transaction checks each row as it reads it",
        "two-readers",
        Exhaustive,
    ),
    switch("lease", "Z8", "a node without a lease serves reads", "suspicion", Exhaustive),
    switch(
        "own-reads",
        "Z9",
        "a write transaction reads at reader level",
        "write-skew",
        Exhaustive,
    ),
    switch(
        "epochs",
        "Z10",
        "messages of earlier epochs are heard",
        "suspicion-return",
        RandomWalks(20_000),
    ),
    switch(
        "drop-on-return",
        "Z10",
        "a node that returns keeps what it knew",
        "suspicion-return",
        RandomWalks(20_000),
    ),
    switch(
        "barrier",
        "Z11",
        "granules without an owner move before all nodes have replayed",
        "ownerless",
        Exhaustive,
    ),
    switch(
        "replay-barrier",
        "Z11",
        "a replayed move whose replaced owner is dead completes before the barrier (E8)",
        "ownerless-move",
        Exhaustive,
    ),
    switch(
        "replay-applied",
        "Z12",
        "a follower replays R-INVs that it has only received",
        "random",
        Nothing,
    ),
    switch(
        "forget-unapplied",
        "Z12",
        "R-INVs that were not applied outlive their epoch",
        "partial-pipeline-crash",
        Exhaustive,
    ),
    switch("validate-own", "Z15", "an R-VAL validates what the row holds", "commit", Exhaustive),
    switch(
        "drive-validated",
        "Z16",
        "a driver drives from a pending record (E3)",
        "contention",
        Exhaustive,
    ),
    switch(
        "replaced-record",
        "Z16",
        "an INV does not tell the record that it replaces (E4)",
        "random",
        Nothing,
    ),
    switch(
        "sticky-ack",
        "Z17",
        "a repeated INV takes the owner's acknowledgement back",
        "repeated-inv",
        Exhaustive,
    ),
    switch("o-ts-epoch", "Z17", "o_ts has no epoch (E6)", "random", Nothing),
    switch(
        "copy-pending",
        "Z18",
        "a directory node copies validated records only (E5)",
        "directory-return",
        RandomWalks(20_000),
    ),
    switch(
        "answer-after-copy",
        "Z18",
        "a directory node answers before it has copied",
        "directory-return",
        RandomWalks(20_000),
    ),
    switch(
        "drop-arbiter",
        "Z14",
        "a dropped reader is no arbiter of its drop (E7)",
        "drop",
        Exhaustive,
    ),
    switch(
        "since",
        "Z10",
        "a node that was out and is back counts as never away (E8)",
        "suspicion-return",
        RandomWalks(20_000),
    ),
    switch(
        "wait-before-read",
        "Z19",
        "pending rows are read, and waited for in the check (E1)",
        "two-readers",
        Exhaustive,
    ),
    switch(
        "granule-clock",
        "Z15",
        "a version's clock follows the row's instead of the granule's (E9)",
        "tombstone",
        Exhaustive,
    ),
    switch(
        "discard-old-acks",
        "Z10",
        "a requester counts ACKs of earlier epochs",
        "random",
        RandomWalks(20_000),
    ),
];

const fn switch(
    name: &'static str,
    rule: &'static str,
    without: &'static str,
    scenario: &'static str,
    found_by: FoundBy,
) -> Switch {
    Switch { name, rule, without, scenario, found_by }
}

/// The rules that hold in a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    /// A bit for each that does not.
    off: u64,
}

impl Rules {
    /// All rules, except those that these switches turn off.
    pub(super) fn without(switches: &[&'static Switch]) -> Rules {
        let place = |switch: &Switch| SWITCHES.iter().position(|other| other == switch);
        let off = switches.iter().filter_map(|switch| place(switch));
        Rules { off: off.fold(0, |off, place| off | 1 << place) }
    }

    pub(super) fn keeps(self, rule: Rule) -> bool {
        self.off & (1 << rule as u64) == 0
    }
}
