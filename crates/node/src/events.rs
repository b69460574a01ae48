//! The events and effects of a worker's step.

use crate::checkpoint_state::CheckpointStep;
use bytes::Bytes;
use shoal_cluster::manager::{Generation, Incarnation, ToManager, ToNode};
use shoal_engine::client::{ReplyToClient, RequestFromClient};
use shoal_engine::engine::StepOutput;
use shoal_types::wire::Coded;
use shoal_types::{ShardId, Time, WorkerId, WorkerPlace};
use shoal_wal::Record;

/// A message between workers.
#[derive(Debug, Clone, Coded)]
pub enum WorkerMessage<M> {
    /// From engine to engine.
    #[coded(tag = 0)]
    Engine {
        /// The generation of managers that the sender follows.
        #[coded(short)]
        generation: Generation,
        /// The content.
        message: M,
    },
    /// Between the replicas of a worker's stream of a shard, which belong to workers of the same number.
    #[coded(tag = 1)]
    Stream {
        /// The shard of the stream.
        #[coded(short)]
        shard: ShardId,
        /// The incarnation of the sender.
        #[coded(short)]
        incarnation: Incarnation,
        /// The content.
        message: shoal_log::StreamMessage,
    },
}

/// An event that a worker handles.
#[derive(Debug, Clone)]
pub enum WorkerEvent<M> {
    /// The node has just started: the first event, once.
    Start,
    /// A message from another worker, of another node or of this one.
    Received {
        /// The sender.
        from: WorkerPlace,
        /// The content.
        message: WorkerMessage<M>,
    },
    /// A request of a client.
    Client(RequestFromClient),
    /// A message of the configuration manager, for the worker that hosts the manager client.
    FromManager {
        /// What the manager sends.
        message: ToNode,
    },
    /// More changes of each of the worker's streams are durable, if storages are
    /// [late](shoal_log::MemoryStorage::late).
    Persisted {
        /// The number of changes.
        changes: usize,
    },
    /// Of the records that the worker has asked to write, in their order, so many more are durable.
    Recorded {
        /// The number of records.
        records: u64,
    },
    /// A part of the worker's last checkpoint, as [`CheckpointBlock::Part`](crate::CheckpointBlock::Part) has it. All parts come in their order, before
    /// [`WorkerEvent::Start`].
    CheckpointRead {
        /// The shard of the stream.
        shard: ShardId,
        /// The part, in the form of the engine.
        part: Bytes,
    },
    /// Take a checkpoint, or another one when that which is under way is done: the log has grown.
    Checkpoint,
    /// The last block of a checkpoint is written.
    CheckpointWritten {
        /// Its number, from [`CheckpointStep::Begin`].
        number: u64,
    },
    /// The checkpoint that was ended is durable under its name, with all records that were asked for before its end; or it
    /// was given up, for want of room.
    Checkpointed {
        /// Its number, from [`CheckpointStep::Begin`].
        number: u64,
        /// Whether it is durable.
        is_durable: bool,
    },
    /// The timer fired. Spurious events are legal.
    Timer,
    /// Another worker of this node has changed the shared state, or a task was spawned.
    Nudged,
}

/// An effect that a worker requests.
#[derive(Debug, Clone)]
pub enum WorkerEffect<M> {
    /// Send this to another worker, of another node or of this one.
    Send {
        /// The receiver; never the worker itself.
        to: WorkerPlace,
        /// The content.
        message: WorkerMessage<M>,
    },
    /// Answer a client.
    Reply(ReplyToClient),
    /// Send this to every replica of the configuration manager, or to the leader if it is known. It may get lost.
    Tell {
        /// What the node sends.
        message: ToManager,
    },
    /// Write these records into the worker's log on disk, behind those before. [`WorkerEvent::Recorded`] says when they are
    /// durable; nothing waits for that but what the streams acknowledge.
    Write {
        /// What the log gets, in this order.
        records: Vec<Record>,
    },
    /// Go on with a checkpoint.
    Checkpoint(CheckpointStep),
    /// This process of the node is over, and should end: another one is admitted, or it [knows](crate::Worker::exceeds) more of
    /// a shard than what is left of that, or it was [away](shoal_cluster::manager::ManagerClient::is_behind) for too long.
    Superseded,
    /// Come back with [`WorkerEvent::Timer`] at this time at the latest. The driver keeps one timer for each
    /// worker, the earliest; later ones are dropped, and set again after it has fired.
    Timer {
        /// The time of the event.
        at: Time,
    },
    /// Send another worker of this node [`WorkerEvent::Nudged`]. Several may become one.
    Nudge {
        /// The worker that receives the event.
        worker: WorkerId,
    },
}

/// The output of a step of a worker, whose engine has messages `M` and observations `O`.
pub type WorkerEffects<M, O> = StepOutput<WorkerEffect<M>, O>;
