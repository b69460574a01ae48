//! What workers of the same number on different nodes say to each other.

pub use super::snapshot_chunk::{ChunkRow, SnapshotChunk, UndecidedRow};
use bytes::Bytes;
use shoal_engine::client::Relay;
pub use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::RuntimeMessage;
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Clock, Error, Result, ShardId, Stamp, TableId, VectorWatermark};

/// See the module. Each may be lost, repeated, reordered or late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MakoMessage {
    /// Coordinator to participant. Repeated until it is answered; acted on once, see
    /// `execution/participant_table.rs`.
    Request {
        /// Which request of which branch.
        header: BranchHeader,
        /// What to do.
        request: MakoRequest,
    },
    /// Participant to coordinator, as often as the request arrives.
    Reply {
        /// Whose branch.
        transaction: TransactionId,
        /// Where.
        shard: ShardId,
        /// Which request it answers.
        step: u32,
        /// The answer.
        reply: MakoReply,
    },
    /// Between the node that a client asked and the one that serves it.
    Relay(Relay),
    /// A leader to leaders of other shards and to the replicas of its own; a node that coordinates and leads
    /// nothing, to leaders, for the floor's sake. Watermarks only grow, so neither repetition nor order
    /// matters.
    Gossip {
        /// How far each shard is durable, as the sender knows.
        watermark: VectorWatermark,
        /// The shards that have ended this epoch, and come no further in it.
        ended: Vec<ShardId>,
        /// Stamps with this floor are about: every shard's clock has to pass it.
        floor: Clock,
    },
    /// Between replicas of a shard: a chunk of a copy for one that lacks what the streams have no more.
    Part(SnapshotChunk),
    /// The answer: everything before a place is here.
    PartTaken {
        /// The shard.
        shard: ShardId,
        /// Which copy.
        copy: u64,
        /// A table, and a key, where the next part begins. `None` when everything is.
        reached: Option<(TableId, Bytes)>,
    },
}

impl RuntimeMessage for MakoMessage {
    type Request = MakoRequest;

    fn request(header: BranchHeader, request: MakoRequest) -> MakoMessage {
        MakoMessage::Request { header, request }
    }

    fn relay(relay: Relay) -> MakoMessage {
        MakoMessage::Relay(relay)
    }
}

/// What a coordinator asks of a participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MakoRequest {
    /// Run these operations, in their order. Legal until the branch is locked.
    Execute {
        /// What to do.
        operations: Vec<Operation>,
    },
    /// Run these writes, lock the write set and draw a clock.
    Lock {
        /// What is still to be written.
        operations: Vec<Operation>,
        /// Validate as well: all other locks of the transaction are held.
        validate: bool,
    },
    /// Check that what was read is still so. Legal once all locks of the transaction are held.
    Validate {
        /// Nothing follows: the branch is over.
        last: bool,
    },
    /// Do all of it: the branch is the whole transaction.
    Commit {
        /// What is still to be written.
        operations: Vec<Operation>,
        /// Whether to write, or only to prove what was read.
        install: bool,
    },
    /// The transaction is certified: install the writes under this stamp. Ends the branch.
    Install {
        /// As the participant's shard keeps it.
        stamp: Stamp,
    },
    /// The transaction is given up. Ends the branch, in any state.
    Abort,
}

/// What a participant answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MakoReply {
    /// To `Execute`.
    Executed {
        /// Of the operations that have one, in their order.
        answers: Vec<Result<OperationResult>>,
        /// What they depend on, as the participant's shard keeps it.
        dependencies: Stamp,
    },
    /// To `Lock`.
    Locked {
        /// The clock that was drawn; it is in flight until the branch is over.
        clock: Clock,
        /// As in `Executed`, of the writes that had to look.
        dependencies: Stamp,
    },
    /// To `Validate`: everything is as it was.
    Validated,
    /// To `CommitProgress`: it is done, and this is the stamp, as the participant's shard keeps it.
    Certified {
        /// What has to be durable before anybody is told.
        stamp: Stamp,
    },
    /// To `Install` and `Abort`: the branch is over.
    Resolved,
    /// To anything else: it cannot be. The branch is over.
    Refused {
        /// Why.
        error: Error,
    },
}
