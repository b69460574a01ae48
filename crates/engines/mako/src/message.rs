//! What workers of the same number on different nodes say to each other.

pub use super::snapshot_chunk::{ChunkContents, ChunkRow, SnapshotChunk, UndecidedRow};
use bytes::Bytes;
use shoal_engine::client::Relay;
pub use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::RuntimeMessage;
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::transaction_id::TransactionId;
use shoal_types::wire::Coded;
use shoal_types::{Clock, Error, Result, ShardId, Stamp, TableId, VectorWatermark};

/// What workers of different nodes say to each other. Each may be lost, repeated, reordered or late.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum MakoMessage {
    /// Coordinator to participant. Repeated until it is answered; acted on once, see
    /// `execution/participant_table.rs`.
    #[coded(tag = 0)]
    Request {
        /// Which request of which branch.
        header: BranchHeader,
        /// What to do.
        request: MakoRequest,
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
        reply: MakoReply,
    },
    /// Between the node that a client asked and the one that serves it.
    #[coded(tag = 2)]
    Relay(Relay),
    /// A leader to leaders of other shards and to the replicas of its own; a node that coordinates and leads
    /// nothing, to leaders, for the floor's sake. Watermarks only grow, so neither repetition nor order
    /// matters.
    #[coded(tag = 3)]
    Gossip {
        /// How far each shard is durable, as the sender knows.
        watermark: VectorWatermark,
        /// The shards that have ended this epoch, and come no further in it.
        #[coded(short)]
        ended: Vec<ShardId>,
        /// Stamps with this floor are about: every shard's clock has to pass it.
        #[coded(short)]
        floor: Clock,
    },
    /// Between replicas of a shard: a chunk of a copy for one that lacks what the streams have no more.
    #[coded(tag = 4)]
    Chunk(SnapshotChunk),
    /// The answer: everything before a place is here.
    #[coded(tag = 5)]
    ChunkTaken {
        /// The shard that is copied.
        #[coded(short)]
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
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum MakoRequest {
    /// Run these operations, in their order. Legal until the branch is locked.
    #[coded(tag = 0)]
    Execute {
        /// What to do.
        #[coded(short)]
        operations: Vec<Operation>,
    },
    /// Run these writes, lock the write set and draw a clock.
    #[coded(tag = 1)]
    Lock {
        /// What is still to be written.
        #[coded(short)]
        operations: Vec<Operation>,
        /// Validate as well: all other locks of the transaction are held.
        validate: bool,
    },
    /// Check that what was read is still so. Legal once all locks of the transaction are held.
    #[coded(tag = 2)]
    Validate {
        /// Nothing follows: the branch is over.
        last: bool,
    },
    /// Do all of it: the branch is the whole transaction.
    #[coded(tag = 3)]
    Commit {
        /// What is still to be written.
        #[coded(short)]
        operations: Vec<Operation>,
        /// Whether to write, or only to prove what was read.
        install: bool,
    },
    /// The transaction is certified: install the writes under this stamp. Ends the branch.
    #[coded(tag = 4)]
    Install {
        /// As the participant's shard keeps it.
        stamp: Stamp,
    },
    /// The transaction is given up. Ends the branch, in any state.
    #[coded(tag = 5)]
    Abort,
}

/// What a participant answers.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum MakoReply {
    /// To `Execute`.
    #[coded(tag = 0)]
    Executed {
        /// Of the operations that have one, in their order.
        #[coded(short)]
        answers: Vec<Result<OperationResult>>,
        /// What they depend on, as the participant's shard keeps it.
        dependencies: Stamp,
    },
    /// To `Lock`.
    #[coded(tag = 1)]
    Locked {
        /// The clock that was drawn; it is in flight until the branch is over.
        #[coded(short)]
        clock: Clock,
        /// As in `Executed`, of the writes that had to look.
        dependencies: Stamp,
    },
    /// To `Validate`: everything is as it was.
    #[coded(tag = 2)]
    Validated,
    /// To `CommitProgress`: it is done, and this is the stamp, as the participant's shard keeps it.
    #[coded(tag = 3)]
    Certified {
        /// What has to be durable before a client is answered.
        stamp: Stamp,
    },
    /// To `Install` and `Abort`: the branch is over.
    #[coded(tag = 4)]
    Resolved,
    /// To anything else: it cannot be. The branch is over.
    #[coded(tag = 5)]
    Refused {
        /// The error that was met.
        error: Error,
    },
}

impl MakoMessage {
    /// Does it only say what is so, and ask nothing of a leader?
    pub(super) fn is_fact(&self) -> bool {
        match self {
            MakoMessage::Gossip { .. } | MakoMessage::Chunk(_) | MakoMessage::ChunkTaken { .. } => {
                true
            }
            MakoMessage::Request { .. } | MakoMessage::Reply { .. } | MakoMessage::Relay(_) => {
                false
            }
        }
    }
}
