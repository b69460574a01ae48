//! What happens to an engine and what it wants done: the events and effects of a step.

use crate::client::{ReplyToClient, RequestFromClient};
use bytes::Bytes;
use shoal_cluster::manager::{Configuration, EpochEnd, FinalEnds, Incarnation, ManagerRequest};
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time, WorkerId, WorkerPlace};
use std::sync::Arc;

/// What happens to an engine.
#[derive(Debug, Clone)]
pub enum EngineEvent<M> {
    /// A message from another worker, of another node or of this one.
    Received {
        /// Its sender.
        from: WorkerPlace,
        /// What it says.
        message: M,
    },
    /// A request of a client.
    Client(RequestFromClient),
    /// The configuration has changed. Each worker is told, and first of all of how it is when it begins.
    Configured {
        /// How it is.
        configuration: Arc<Configuration>,
        /// The process of this node that is meant.
        incarnation: Incarnation,
    },
    /// This worker's stream of the shard has been prepared: it leads now, and its next entry will have
    /// the index `length`, or comes after those it has proposed under the ballot before.
    Leading {
        /// The shard.
        shard: ShardId,
        /// The appointment.
        ballot: Ballot,
        /// Entries that the stream has. Those that this worker did not propose itself are told as
        /// [`EngineEvent::Decided`].
        length: u64,
    },
    /// This worker's stream of the shard is led by another: what was proposed here and is not decided may
    /// be lost or not. What is decided from now on is told as [`EngineEvent::Decided`].
    Deposed {
        /// The shard.
        shard: ShardId,
        /// The higher ballot.
        by: Ballot,
    },
    /// This worker's stream of the shard has promised the ballot of another node. Told before anything that is decided under
    /// that ballot.
    Promised {
        /// The shard.
        shard: ShardId,
        /// The ballot.
        ballot: Ballot,
    },
    /// The stream that this worker leads has that many decided entries.
    Durable {
        /// The shard.
        shard: ShardId,
        /// How many.
        length: u64,
    },
    /// The stream has decided an entry that this worker did not propose. They come in order.
    Decided {
        /// The shard.
        shard: ShardId,
        /// Its place in the stream.
        index: u64,
        /// What it says.
        entry: Bytes,
    },
    /// An epoch is settled. Told to one worker of the node, or more, and not always in order.
    Settled {
        /// How it ended on each shard.
        ends: FinalEnds,
    },
    /// A replica lacks entries of this worker's stream of the shard that were cut. To be answered by
    /// [`EngineEffect::Snapshot`], any time later.
    SnapshotWanted {
        /// The shard.
        shard: ShardId,
        /// Who lacks them.
        to: NodeId,
    },
    /// This worker's stream of the shard begins behind a snapshot, to which the engine has
    /// [agreed](crate::engine::Engine::may_restore).
    Restored {
        /// The shard.
        shard: ShardId,
        /// The snapshot.
        state: Bytes,
    },
    /// A time has come that was asked for, or has not: it is for the engine to look.
    Timer,
    /// Another worker of this node has changed something they share, or a task was spawned.
    Nudged,
}

/// What an engine wants done.
#[derive(Debug, Clone)]
pub enum EngineEffect<M> {
    /// Send this to another worker, of another node or of this one.
    Send {
        /// The receiver; never the sender itself.
        to: WorkerPlace,
        /// What to say.
        message: M,
    },
    /// Append this to the stream that this worker leads for the shard.
    Propose {
        /// The shard.
        shard: ShardId,
        /// What to append.
        entry: Bytes,
    },
    /// Give a replica a snapshot of this worker's stream of the shard: it stands for the first `length` entries.
    Snapshot {
        /// The shard.
        shard: ShardId,
        /// Who lacks them.
        to: NodeId,
        /// How many entries it stands for.
        length: u64,
        /// The snapshot.
        state: Bytes,
    },
    /// Send this to the manager.
    Manager(ManagerRequest),
    /// Answer a client.
    Reply(ReplyToClient),
    /// Come back at this time at the latest. Each step with [`EngineEvent::Timer`] says so anew: what an earlier
    /// one asked for is forgotten then.
    Timer {
        /// The time at which to come back.
        at: Time,
    },
    /// Have another worker of this node look at what they share. Several may be made one.
    Nudge {
        /// The worker to be woken.
        worker: WorkerId,
    },
}

impl<M> EngineEffect<M> {
    /// The report of a shard on which nothing was left hanging at the end of an epoch.
    pub fn ended_whole(shard: ShardId, epoch: Epoch) -> EngineEffect<M> {
        EngineEffect::Manager(ManagerRequest::Report { shard, epoch, end: EpochEnd::Whole })
    }
}

/// What a step of an engine leaves, whose messages are `M` and whose observations `O`.
pub type EngineEffects<M, O> = StepOutput<EngineEffect<M>, O>;

/// Where a step leaves its effects, in order, and, if they are watched, its observations.
#[derive(Debug, Clone)]
pub struct StepOutput<E, O> {
    /// To be done, in order.
    pub effects: Vec<E>,
    /// What a checker may want to know. `None` if it is not watched.
    pub observations: Option<Vec<O>>,
}

impl<E, O> StepOutput<E, O> {
    /// None yet, and it is not watched.
    pub fn new() -> StepOutput<E, O> {
        StepOutput { effects: Vec::new(), observations: None }
    }

    /// None yet, and it is watched.
    pub fn observed() -> StepOutput<E, O> {
        StepOutput { effects: Vec::new(), observations: Some(Vec::new()) }
    }

    /// Adds an observation, which is only made if they are watched.
    #[inline]
    pub fn observe(&mut self, observation: impl FnOnce() -> O) {
        if let Some(observations) = &mut self.observations {
            observations.push(observation());
        }
    }

    /// Adds an effect.
    pub fn push(&mut self, effect: E) {
        self.effects.push(effect);
    }
}

impl<E, O> Default for StepOutput<E, O> {
    fn default() -> StepOutput<E, O> {
        StepOutput::new()
    }
}
