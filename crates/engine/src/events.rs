//! The events and effects of an engine's step.

use crate::client::{ReplyToClient, RequestFromClient};
use bytes::Bytes;
use shoal_cluster::manager::{Configuration, EpochEnd, FinalEnds, Incarnation, ManagerRequest};
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time, WorkerId, WorkerPlace};
use std::sync::Arc;

/// An event that an engine handles.
#[derive(Debug, Clone)]
pub enum EngineEvent<M> {
    /// A message from another worker, of another node or of this one.
    Received {
        /// The sender.
        from: WorkerPlace,
        /// The content.
        message: M,
    },
    /// A request of a client.
    Client(RequestFromClient),
    /// The configuration has changed. Each worker receives this event, with the current configuration as its first event.
    Configured {
        /// The new configuration.
        configuration: Arc<Configuration>,
        /// The process of this node that the configuration was sent to.
        incarnation: Incarnation,
    },
    /// This worker's stream of the shard has been prepared, and this worker leads it. The next entry has the index `length`,
    /// or follows those that were proposed under the ballot before.
    Leading {
        /// The shard of the stream.
        shard: ShardId,
        /// The ballot of the appointment.
        ballot: Ballot,
        /// The length of the stream. Entries that this worker did not propose arrive as [`EngineEvent::Decided`].
        length: u64,
    },
    /// Another node leads this worker's stream of the shard: proposed entries that are not decided may be lost. Entries that
    /// are decided from now on arrive as [`EngineEvent::Decided`].
    Deposed {
        /// The shard of the stream.
        shard: ShardId,
        /// The higher ballot.
        by: Ballot,
    },
    /// This worker's stream of the shard has promised the ballot of another node. Precedes everything that is decided under
    /// that ballot. A process that begins with what a former one has stored receives it at its start, for engines that
    /// receive [`EngineEvent::Accepted`].
    Promised {
        /// The shard of the stream.
        shard: ShardId,
        /// The promised ballot.
        ballot: Ballot,
    },
    /// This worker's stream of the shard, which another node leads, has accepted more entries under the promised ballot: the
    /// first `length` entries of that leader are stored here and persisted, as this node may acknowledge to the leader. For
    /// engines that [ask for it](crate::engine::Engine::RECEIVES_ACCEPTED), once per step and stream. Follows
    /// [`EngineEvent::Promised`] of the ballot, and precedes [`EngineEvent::Decided`] of entries that are decided in the same
    /// step. A process that begins with what a former one has stored receives it at its start. Under one ballot `length` only
    /// grows. When the ballot changes, all undecided entries of former events are void; those that the new leader has adopted
    /// come again. Replicas that do not vote receive it as well, and so do voters that the configuration lists as empty: whether
    /// an acceptance counts towards a majority, the configuration says.
    Accepted {
        /// The shard of the stream.
        shard: ShardId,
        /// The ballot under which the entries are accepted.
        ballot: Ballot,
        /// The number of accepted entries.
        length: u64,
        /// The last of them: those that this worker has not received yet, as accepted under this ballot, as decided or as part
        /// of a snapshot.
        entries: Vec<Bytes>,
    },
    /// The stream that this worker leads has `length` decided entries.
    Durable {
        /// The shard of the stream.
        shard: ShardId,
        /// The number of decided entries.
        length: u64,
    },
    /// The stream has decided an entry that this worker did not propose. Events are in the order of entries.
    Decided {
        /// The shard of the stream.
        shard: ShardId,
        /// The place in the stream.
        index: u64,
        /// The decided entry.
        entry: Bytes,
    },
    /// An epoch is settled. One worker of the node receives this event, or several do, not always in the order of epochs.
    Settled {
        /// The end of the epoch on each shard.
        ends: FinalEnds,
    },
    /// A replica lacks entries of this worker's stream of the shard that were truncated. Answered by
    /// [`EngineEffect::Snapshot`], at any later time.
    SnapshotWanted {
        /// The shard of the stream.
        shard: ShardId,
        /// The replica that lacks them.
        to: NodeId,
    },
    /// This worker's stream of the shard begins behind a snapshot, of a peer or of a checkpoint, to which the engine has
    /// [agreed](crate::engine::Engine::may_restore).
    Restored {
        /// The shard of the stream.
        shard: ShardId,
        /// The snapshot.
        state: Bytes,
    },
    /// A checkpoint of this node is to have what this worker's stream of the shard stands for. Answered by
    /// [`EngineEffect::CheckpointPart`]s and, when all are given, by [`EngineEffect::CheckpointHead`]. Asked again, it begins
    /// anew; it ends without an answer where the node has no replica of the shard any more.
    CheckpointWanted {
        /// The shard of the stream.
        shard: ShardId,
    },
    /// The parts of a checkpoint that were given are written: more may follow.
    CheckpointWritten {
        /// The shard of the stream.
        shard: ShardId,
    },
    /// A part of this node's last checkpoint, in the order in which they were given. Such events come before all others, and
    /// then [`EngineEvent::Restored`] with the head.
    CheckpointRead {
        /// The shard of the stream.
        shard: ShardId,
        /// The part, as the engine gave it.
        part: Bytes,
    },
    /// So many more of the engine's [records](EngineEffect::Record) of the shard are durable, and with them all that this worker's
    /// stream of the shard had recorded before them.
    Recorded {
        /// The shard of the records.
        shard: ShardId,
        /// How many.
        records: u64,
    },
    /// The engine's records of the shard that former processes of this node have written, from the last
    /// [first one](EngineEffect::Record) on. For engines that [have records](crate::engine::Engine::RECORDS): each stream of a
    /// cluster with logs on disk brings one such event when it begins, behind what it has from former processes; nothing is to be
    /// recorded before. Records [of the node](crate::engine::OF_NODE) come once, when its first worker starts.
    RecordsRead {
        /// The shard of the records.
        shard: ShardId,
        /// The records, in their order.
        records: Vec<Bytes>,
    },
    /// The timer fired. Spurious events are legal; the engine checks its deadlines.
    Timer,
    /// Another worker of this node has changed the shared state, or a task was spawned.
    Nudged,
}

/// An effect that an engine requests.
#[derive(Debug, Clone)]
pub enum EngineEffect<M> {
    /// Send this to another worker, of another node or of this one.
    Send {
        /// The receiver; never the sender itself.
        to: WorkerPlace,
        /// The content.
        message: M,
    },
    /// Append this to the stream that this worker leads for the shard.
    Propose {
        /// The shard of the stream.
        shard: ShardId,
        /// What to append.
        entry: Bytes,
    },
    /// Send a replica a snapshot of this worker's stream of the shard, which stands for the first `length` entries.
    Snapshot {
        /// The shard of the stream.
        shard: ShardId,
        /// The replica that lacks them.
        to: NodeId,
        /// The number of entries that the snapshot stands for.
        length: u64,
        /// The snapshot.
        state: Bytes,
    },
    /// Write this part of the shard into the checkpoint that is being taken. [`EngineEvent::CheckpointWritten`] says when it is
    /// written.
    CheckpointPart {
        /// The shard of the stream.
        shard: ShardId,
        /// The part, in the form of the engine.
        part: Bytes,
    },
    /// The checkpoint has all parts of the shard. They stand, with this state, for the first `length` entries of this worker's
    /// stream.
    CheckpointHead {
        /// The shard of the stream.
        shard: ShardId,
        /// The number of entries for which the parts stand.
        length: u64,
        /// What [`EngineEvent::Restored`] brings when the checkpoint is read.
        state: Bytes,
    },
    /// Write this record of the engine into the log on disk, behind what this worker's stream of the shard has recorded, and behind
    /// the entries that the engine has proposed, unless those are dropped. Each is answered by [`EngineEvent::Recorded`], in their
    /// order. Only for clusters with logs on disk.
    ///
    /// A checkpoint has none of them: the engine writes those that it still needs when it receives
    /// [`EngineEvent::CheckpointWanted`].
    Record {
        /// The shard of the record.
        shard: ShardId,
        /// The record, in the form of the engine; an empty one is not read again.
        record: Bytes,
        /// Those before it are not needed any more.
        is_first: bool,
    },
    /// Send this to the manager.
    Manager(ManagerRequest),
    /// Answer a client.
    Reply(ReplyToClient),
    /// Send [`EngineEvent::Timer`] at this time at the latest. Each step for such an event sets the time again: earlier times
    /// no longer count then.
    Timer {
        /// The time of the event.
        at: Time,
    },
    /// A replica of a shard that this worker leads may [have caught up](crate::Engine::has_caught_up) with what the engine keeps
    /// beside the stream.
    CaughtUp {
        /// The shard of the replica.
        shard: ShardId,
    },
    /// Send another worker of this node [`EngineEvent::Nudged`], since the shared state has changed. Several may become one.
    Nudge {
        /// The worker that receives the event.
        worker: WorkerId,
    },
}

impl<M> EngineEffect<M> {
    /// The report of a shard on which every transaction of the epoch was resolved.
    pub fn ended_whole(shard: ShardId, epoch: Epoch) -> EngineEffect<M> {
        EngineEffect::Manager(ManagerRequest::Report { shard, epoch, end: EpochEnd::Whole })
    }
}

/// The output of a step of an engine with messages `M` and observations `O`.
pub type EngineEffects<M, O> = StepOutput<EngineEffect<M>, O>;

/// The output of a step: its effects, in order, and its observations, if there is an observer.
#[derive(Debug, Clone)]
pub struct StepOutput<E, O> {
    /// The effects, in the order in which they have to be executed.
    pub effects: Vec<E>,
    /// The observations for checkers. `None` without an observer.
    pub observations: Option<Vec<O>>,
}

impl<E, O> StepOutput<E, O> {
    /// An empty output without an observer.
    pub fn new() -> StepOutput<E, O> {
        StepOutput { effects: Vec::new(), observations: None }
    }

    /// An empty output with an observer.
    pub fn observed() -> StepOutput<E, O> {
        StepOutput { effects: Vec::new(), observations: Some(Vec::new()) }
    }

    /// Adds an observation, which is computed only if there is an observer.
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
