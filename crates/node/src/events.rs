//! What happens to a worker of a node, and what it wants done.

use shoal_cluster::manager::{Generation, Incarnation, ToManager, ToNode};
use shoal_engine::client::{ReplyToClient, RequestFromClient};
use shoal_engine::engine::StepOutput;
use shoal_types::wire::Coded;
use shoal_types::{ShardId, Time, WorkerId, WorkerPlace};

/// What workers say to each other.
#[derive(Debug, Clone, Coded)]
pub enum WorkerMessage<M> {
    /// From engine to engine.
    #[coded(tag = 0)]
    Engine {
        /// The generation of managers that the sender follows.
        #[coded(short)]
        generation: Generation,
        /// What it says.
        message: M,
    },
    /// Between the replicas of a worker's stream of a shard, which belong to workers of the same number.
    #[coded(tag = 1)]
    Stream {
        /// Whose stream.
        #[coded(short)]
        shard: ShardId,
        /// In which of its processes the sender says so.
        #[coded(short)]
        incarnation: Incarnation,
        /// What it says.
        message: shoal_log::StreamMessage,
    },
}

/// What happens to a worker.
#[derive(Debug, Clone)]
pub enum WorkerEvent<M> {
    /// The node has just started: the first event, once.
    Start,
    /// A message from another worker, of another node or of this one.
    Received {
        /// Its sender.
        from: WorkerPlace,
        /// What it says.
        message: WorkerMessage<M>,
    },
    /// A client asks for something.
    Client(RequestFromClient),
    /// The configuration manager says something to this node: for the worker that hosts its member.
    Told {
        /// The message.
        message: ToNode,
    },
    /// Each of the worker's streams may take so many more of its changes for durable: where storages are
    /// [late](shoal_log::MemoryStorage::late).
    Persisted {
        /// How many.
        changes: usize,
    },
    /// A time has come that was asked for, or has not.
    Timer,
    /// Another worker of this node asks to look at what they share, or a task was spawned.
    Nudged,
}

/// What a worker wants done.
#[derive(Debug, Clone)]
pub enum WorkerEffect<M> {
    /// Send this to another worker, of another node or of this one.
    Send {
        /// The receiver; never the worker itself.
        to: WorkerPlace,
        /// What to say.
        message: WorkerMessage<M>,
    },
    /// Answer a client.
    Reply(ReplyToClient),
    /// Say this to every replica of the configuration manager, or to the one that leads if that is known. It may get
    /// lost.
    Tell {
        /// The message.
        message: ToManager,
    },
    /// This process of the node is over, and should end: another one is admitted, or it [knows](crate::Worker::exceeds) more of
    /// a shard than what is left of that, or it was [away](shoal_cluster::manager::ManagerClient::is_behind) for too long.
    Superseded,
    /// Come back with [`WorkerEvent::Timer`] at this time at the latest. The driver keeps one timer for each
    /// worker, the earliest; those for later are forgotten, and asked for again when it has gone off.
    Timer {
        /// The time at which to come back.
        at: Time,
    },
    /// Give another worker of this node [`WorkerEvent::Nudged`]. Several may be made one.
    Nudge {
        /// The worker to be woken.
        worker: WorkerId,
    },
}

/// What a step of a worker leaves, whose engine's messages are `M` and whose observations `O`.
pub type WorkerEffects<M, O> = StepOutput<WorkerEffect<M>, O>;
