//! The blocks of a worker's checkpoint, the steps in which it is taken, and how far one is that is under way.

use crate::records::StreamKey;
use bytes::Bytes;
use shoal_log::{LogLength, StreamHead};
use shoal_types::wire::Coded;
use shoal_types::{ShardId, Time};
use std::collections::{BTreeMap, VecDeque};

/// A step of a checkpoint, which the owner of the disk carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointStep {
    /// Begin a checkpoint. The log on disk is needed from the next record on.
    Begin {
        /// Its number among those of this process. Answers name it: one that was forgotten may have been durable by then.
        number: u64,
    },
    /// Append this block, and report it with [`WorkerEvent::CheckpointWritten`](crate::WorkerEvent::CheckpointWritten). It is encoded
    /// where it is written: the head of a stream may have many entries, and the worker has other work.
    Block(CheckpointBlock),
    /// Make the checkpoint durable, behind all records that were asked for, and report that with
    /// [`WorkerEvent::Checkpointed`](crate::WorkerEvent::Checkpointed).
    End,
    /// Forget the checkpoint: another one begins instead.
    Abandon,
}

/// What a worker's checkpoint consists of, in this order: heads, then of each shard its parts and its snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum CheckpointBlock {
    /// What the storage of a stream held when the checkpoint began.
    #[coded(tag = 0)]
    Head {
        /// The shard of the stream.
        #[coded(short)]
        shard: ShardId,
        /// The state of the storage.
        head: StreamHead,
    },
    /// A part of a shard.
    #[coded(tag = 1)]
    Part {
        /// Of which shard it is.
        #[coded(short)]
        shard: ShardId,
        /// The part, in the form of the engine.
        part: Bytes,
    },
    /// The parts of a shard, which are complete, stand for the first entries of the worker's stream.
    #[coded(tag = 2)]
    Snapshot {
        /// Whose parts are complete.
        #[coded(short)]
        shard: ShardId,
        /// The number of entries.
        #[coded(short)]
        length: LogLength,
        /// What the engine keeps beside the parts.
        state: Bytes,
    },
}

/// The checkpoints of a worker.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    pub(super) under_way: Option<CheckpointUnderWay>,
    /// Another one is to begin.
    pub(super) is_wanted: bool,
    /// How many have begun.
    pub(super) begun: u64,
    /// None begins before: the last one was given up.
    pub(super) not_before: Time,
    /// The engine is to be asked for the next shard of the one that is under way; or it ends, if there is none.
    pub(super) is_next_due: bool,
}

/// A checkpoint that has begun.
#[derive(Debug)]
pub(super) struct CheckpointUnderWay {
    /// Its number among those of this process.
    pub(super) number: u64,
    /// For how many entries of each stream its parts stand at least.
    pub(super) lengths: BTreeMap<StreamKey, LogLength>,
    /// The shards whose parts are not complete; those of the first are being taken.
    pub(super) shards: VecDeque<ShardId>,
}

impl CheckpointUnderWay {
    pub(super) fn has(&self, shard: ShardId) -> bool {
        self.lengths.keys().any(|(of, _)| *of == shard)
    }
}
