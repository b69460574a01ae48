//! What workers of the same number on different nodes say to each other.
//!
//! Requests and their replies belong to one leadership of a participant and one process of a coordinator. The next three
//! are what recovery needs (rules P8 and P9): they name leaderships, and are true whenever they come. The last two bring a
//! replica what its stream has no more.

use bytes::Bytes;
use shoal_engine::client::Relay;
pub use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::{RuntimeMessage, answers_fit};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch, Error, Result, ShardId, TableId};

/// A message between two workers. Each may be lost, repeated, reordered or late.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum TwoPhaseCommitMessage {
    /// Coordinator to participant. Repeated until it is answered; acted on once, see
    /// `execution/participant_table.rs`.
    #[coded(tag = 0)]
    Request {
        /// Which request of which branch.
        header: BranchHeader,
        /// What to do.
        request: TwoPhaseCommitRequest,
    },
    /// Participant to coordinator, as often as the request arrives.
    #[coded(tag = 1)]
    Reply {
        /// Whose branch.
        transaction: TransactionId,
        /// The shard of the branch.
        #[coded(short)]
        shard: ShardId,
        /// Which request it answers.
        #[coded(short)]
        step: u32,
        /// The answer.
        reply: TwoPhaseCommitReply,
    },
    /// Between the node that a client asked and the one that serves it.
    #[coded(tag = 2)]
    Relay(Relay),
    /// Participant to the leader of the home shard: what became of a transaction that is prepared here? Repeated until
    /// there is a `Decision`. Nothing is answered while the transaction is undecided.
    #[coded(tag = 3)]
    Inquiry {
        /// The prepared transaction.
        transaction: TransactionId,
        /// Where it is coordinated.
        home: DecisionHome,
        /// The participant that asks.
        participant: Participant,
    },
    /// The leader of the home shard to a participant: the answer to an inquiry, or the decision, repeated until it is acknowledged.
    #[coded(tag = 4)]
    Decision {
        /// The transaction that is decided.
        transaction: TransactionId,
        /// Where it was coordinated, as far as the participant has to name that again.
        #[coded(short)]
        home: ShardId,
        /// The participant that is meant.
        participant: Participant,
        /// Whether it is committed.
        committed: bool,
    },
    /// Participant to the leader of the home shard: the outcome of a committed transaction is durable here. It is never
    /// asked for again.
    #[coded(tag = 5)]
    Acknowledgement {
        /// The committed transaction.
        transaction: TransactionId,
        /// Where its decision is.
        #[coded(short)]
        home: ShardId,
        /// The participant.
        #[coded(short)]
        shard: ShardId,
    },
    /// A part of a copy of a shard, to a replica that lacks what its stream has no more: see `steps/snapshot.rs`.
    #[coded(tag = 6)]
    Chunk(SnapshotChunk),
    /// The answer: how far the copy has come.
    #[coded(tag = 7)]
    ChunkTaken {
        /// The shard that is copied.
        #[coded(short)]
        shard: ShardId,
        /// Which copy.
        copy: u64,
        /// Everything before this place, a table and a key, has been taken; `None`: everything.
        reached: Option<(TableId, Bytes)>,
    },
}

/// A chunk of a copy of a shard.
pub type SnapshotChunk = shoal_replication::snapshot_chunk::SnapshotChunk<ChunkContents>;

/// What a chunk has of its range.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ChunkContents {
    /// All rows in between, in order.
    pub rows: Vec<SnapshotRow>,
    /// Behind the last row: writes of transactions that have no outcome at the sender, in order.
    pub writes: Vec<SnapshotWrite>,
}

/// A write of a transaction that has no outcome in the entries for which a snapshot stands.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct SnapshotWrite {
    /// Whose it is.
    pub transaction: TransactionId,
    /// What is to be installed if it commits.
    pub write: StreamWrite,
}

impl SnapshotWrite {
    /// The bytes of its key and its value.
    pub(super) fn bytes(&self) -> usize {
        self.write.key.len() + self.write.change.borrowed().content().len()
    }
}

/// A row of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct SnapshotRow {
    /// The table of the row.
    #[coded(short)]
    pub table: TableId,
    /// The clock of its version.
    #[coded(short)]
    pub clock: Clock,
    /// The key of the row.
    pub key: Bytes,
    /// The value; `None` for a tombstone beyond the cut.
    pub value: Option<Bytes>,
}

/// The shard in whose stream the decision on a transaction will be, and the leadership under which it is coordinated there:
/// only that leadership can append the decision (rule P8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct DecisionHome {
    /// The home shard.
    #[coded(short)]
    pub shard: ShardId,
    /// The epoch in which the leadership began.
    #[coded(short)]
    pub leadership: Epoch,
}

/// A shard that a transaction writes, and the leadership of it that is spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct Participant {
    /// The shard that is written.
    #[coded(short)]
    pub shard: ShardId,
    /// The epoch in which the leadership began.
    #[coded(short)]
    pub leadership: Epoch,
}

impl TwoPhaseCommitMessage {
    /// Does it only say or ask what is so, whichever node holds a lease? Everything else is for a leader to act on.
    pub(super) fn is_fact(&self) -> bool {
        match self {
            TwoPhaseCommitMessage::Inquiry { .. }
            | TwoPhaseCommitMessage::Decision { .. }
            | TwoPhaseCommitMessage::Acknowledgement { .. }
            | TwoPhaseCommitMessage::Chunk(_)
            | TwoPhaseCommitMessage::ChunkTaken { .. } => true,
            TwoPhaseCommitMessage::Request { .. }
            | TwoPhaseCommitMessage::Reply { .. }
            | TwoPhaseCommitMessage::Relay(_) => false,
        }
    }
}

impl RuntimeMessage for TwoPhaseCommitMessage {
    type Request = TwoPhaseCommitRequest;

    fn request(header: BranchHeader, request: TwoPhaseCommitRequest) -> TwoPhaseCommitMessage {
        TwoPhaseCommitMessage::Request { header, request }
    }

    fn relay(relay: Relay) -> TwoPhaseCommitMessage {
        TwoPhaseCommitMessage::Relay(relay)
    }
}

/// What a coordinator asks of a participant.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum TwoPhaseCommitRequest {
    /// Run these operations, in their order. Legal until the branch is locked.
    #[coded(tag = 0)]
    Execute {
        /// What to do.
        #[coded(short)]
        operations: Vec<Operation>,
    },
    /// Run these writes, lock the write set, draw a clock and check what was read. No other shard is written, so these are
    /// all locks there are; or this one decides last (`steps/last_agent.rs`). Legal until the branch is locked.
    #[coded(tag = 1)]
    Lock {
        /// What is still to be written.
        #[coded(short)]
        operations: Vec<Operation>,
    },
    /// Run these writes, lock the write set, draw a clock and append the prepare record; unless what was read
    /// has changed already. Legal until the branch is locked.
    #[coded(tag = 2)]
    Prepare {
        /// What is still to be written.
        #[coded(short)]
        operations: Vec<Operation>,
        /// In whose stream the decision will be.
        home: DecisionHome,
    },
    /// Check that what was read is still so. Legal once all locks of the transaction are held. Ends
    /// the branch, unless it is locked or prepared; if it is prepared, it is answered once the prepare record is durable.
    #[coded(tag = 3)]
    Validate,
    /// Append the commit record and install. Legal of a branch that is the whole transaction, and does
    /// all there is to do, or of one that `Lock` has locked; the others are validated by then. Answered
    /// once the record is durable. Ends the branch.
    #[coded(tag = 4)]
    OnePhase {
        /// What is still to be written.
        #[coded(short)]
        operations: Vec<Operation>,
        /// Whether to write, or only to prove what was read.
        install: bool,
    },
    /// The decision is durable: install. Legal of a branch that is prepared and validated. Ends the
    /// branch; answered once that is durable, since until then the decision must not be forgotten.
    #[coded(tag = 5)]
    Commit,
    /// The transaction is given up. Ends the branch, unless it is committed.
    #[coded(tag = 6)]
    Abort,
    /// Append the decision, with what the branch has locked, and install. Legal of a branch that `Lock` has locked and
    /// `Validate` found valid, once all participants are prepared and valid. Answered once the decision is durable. Ends the
    /// branch.
    #[coded(tag = 7)]
    DecideLast {
        /// The other shards that are written.
        #[coded(short)]
        participants: Vec<ShardId>,
    },
}

/// What a participant answers.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum TwoPhaseCommitReply {
    /// To `Execute`.
    #[coded(tag = 0)]
    Executed {
        /// Of the operations that have one, in their order.
        #[coded(short)]
        answers: Vec<Result<OperationResult>>,
    },
    /// To `Lock` and `Prepare`.
    #[coded(tag = 1)]
    Locked {
        /// The clock that was drawn.
        #[coded(short)]
        clock: Clock,
    },
    /// To `Validate`: everything is as it was, and what was prepared is durable.
    #[coded(tag = 2)]
    Validated,
    /// To `OnePhase` and `DecideLast`: it is committed.
    #[coded(tag = 3)]
    Committed {
        /// The clock of what was written, if anything was.
        #[coded(short)]
        clock: Option<Clock>,
    },
    /// To `Commit` and `Abort`: the branch is over.
    #[coded(tag = 4)]
    Resolved,
    /// To anything else: it cannot be. The branch is over.
    #[coded(tag = 5)]
    Refused {
        /// The reason why the request is refused.
        error: Error,
    },
}

/// Is this a reply to the request in this message?
pub(super) fn answers(message: &TwoPhaseCommitMessage, reply: &TwoPhaseCommitReply) -> bool {
    let TwoPhaseCommitMessage::Request { request, .. } = message else { return false };
    match (request, reply) {
        (
            TwoPhaseCommitRequest::Execute { operations },
            TwoPhaseCommitReply::Executed { answers },
        ) => answers_fit(operations, answers),
        (
            TwoPhaseCommitRequest::Lock { .. } | TwoPhaseCommitRequest::Prepare { .. },
            TwoPhaseCommitReply::Locked { .. },
        )
        | (TwoPhaseCommitRequest::Validate, TwoPhaseCommitReply::Validated)
        | (
            TwoPhaseCommitRequest::OnePhase { .. } | TwoPhaseCommitRequest::DecideLast { .. },
            TwoPhaseCommitReply::Committed { .. },
        ) => true,
        (TwoPhaseCommitRequest::Commit | TwoPhaseCommitRequest::Abort, reply) => {
            *reply == TwoPhaseCommitReply::Resolved
        }
        (_, TwoPhaseCommitReply::Refused { .. }) => true,
        _ => false,
    }
}
