//! What an engine is: one worker's part of a commit protocol, driven by events.
//!
//! ```text
//!   clients ── requests ──►┌────────┐── replies ──►
//!   same worker elsewhere ►│ engine │── messages ─►
//!   streams ── durable ───►└────────┘── entries ──► streams
//! ```
//! Each worker of a node has an engine of its own; they share what the engine's `MakoShared` holds, all of
//! it atomic. The streams stand beside the engine, in `node`: an engine proposes entries to the stream
//! that its worker leads for a shard, is told when they are durable, and is given what the streams
//! that it follows have decided.

use crate::client::{ClientId, ClientReply, ClientRequest};
use crate::execution::LocalDatabase;
use crate::planted_bugs::Plantable;
use crate::procedure::Procedures;
use crate::slow::Slow;
use bytes::Bytes;
use shoal_cluster::manager::{
    Configuration, EpochEnd, FinalEnds, HeardEpochs, Incarnation, Knowledge,
};
use shoal_cluster::topology::Topology;
use shoal_store::Store;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Clock, Epoch, EventTimes, NodeId, ShardId, Time, WorkerId};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::AddAssign;
use std::pin::Pin;
use std::sync::Arc;

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerPlace {
    /// The node.
    pub node: NodeId,
    /// Which of its workers.
    pub worker: WorkerId,
}

impl fmt::Display for WorkerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.worker)
    }
}

/// What all nodes of a cluster are told alike.
#[derive(Debug, Clone)]
pub struct Setup<O> {
    /// Nodes, shards, tables.
    pub topology: Arc<Topology>,
    /// What clients can call by name.
    pub procedures: Arc<Procedures>,
    /// How streams pace themselves.
    pub streams: shoal_log::StreamOptions,
    /// The engine's configuration.
    pub options: O,
}

/// Something that runs on a worker beside the transactions of clients: a loader, a workload. It gets
/// at the data through [`LocalDatabase`], and is polled by the engine.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One worker's part of a commit protocol.
pub trait Engine: Sized {
    /// What it says to the same worker of other nodes. May be lost, repeated, reordered or late.
    type Message: Clone + fmt::Debug + Coded;

    /// Its configuration; the default does the right thing.
    type Options: Clone + fmt::Debug + Default;

    /// What the workers of one node share: its stores and some atomics.
    type Shared: Send + Sync;

    /// What it lets a checker see.
    type Observation: Clone + fmt::Debug + 'static;

    /// Bugs that can be planted in it, beside those of what all engines share.
    type PlantedBug: Plantable;

    /// What the workers of `node` will share. Here the options are checked.
    ///
    /// # Panics
    /// If an option is out of its range: says which, and what it may be.
    fn share(setup: &Setup<Self::Options>, node: NodeId) -> Arc<Self::Shared>;

    /// The node's copy of a shard, if it has a replica.
    fn store(shared: &Self::Shared, shard: ShardId) -> Option<&Arc<Store>>;

    /// A worker, which draws all its chance from `seed`.
    fn new(worker: WorkerId, shared: Arc<Self::Shared>, seed: u64) -> Self;

    /// Takes one event. The same state and the same event make the same effects.
    fn step(
        &mut self,
        now: Time,
        event: EngineEvent<Self::Message>,
        effects: &mut EngineEffects<Self::Message, Self::Observation>,
    );

    /// Whether it orders transactions by real time, and so is [told](Engine::tell_times) the times of events.
    const USES_TRANSACTION_CLOCK: bool = false;

    /// The times of the event that is taken next, on the node's transaction clock. Said before each step of an engine that
    /// [uses](Engine::USES_TRANSACTION_CLOCK) it, and to no other.
    fn tell_times(&mut self, times: EventTimes) {
        let _ = times;
    }

    /// The database as code on this worker sees it.
    fn local(&self) -> LocalDatabase;

    /// Takes a task to run; the next step polls it first.
    fn spawn(&mut self, task: Task);

    /// Until when this node holds its lease, on its clock (rule M7). Said before each step.
    fn renew(&mut self, lease_end: Time);

    /// How many transactions are under way here, in any state: none, once all is quiet.
    fn pending(&self) -> usize;

    /// What transactions hold open here: sessions, branches with their locks, requests, and waits. Unlike
    /// [`pending`](Engine::pending) without what waits to be decided, applied or copied; also while a shard is lost it
    /// comes to nothing (rule M11).
    fn held(&self) -> usize {
        self.pending()
    }

    /// What it has counted.
    fn counters(&self) -> EngineCounters;

    /// So many entries of this worker's stream of `shard` are in the store for good: they may be cut, since
    /// a replica that lacks them gets a snapshot. `None` for an engine that gives none, of which nothing may be cut that
    /// a replica could ask for.
    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        let _ = shard;
        None
    }

    /// Can this worker's stream of `shard` begin behind this snapshot, which `from` says to stand for `length`
    /// entries? What goes with it may not have come.
    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        let _ = (shard, from, length, state);
        false
    }

    /// What this worker knows of the epochs that a shard has not ended, as far as it was told: how far the shard is durable
    /// in each, and where the node has a copy, how far this worker's stream has all of it.
    fn lacking(&self, shard: ShardId) -> Vec<(Epoch, EpochEnd, Option<EpochEnd>)> {
        let _ = shard;
        Vec::new()
    }

    /// A shard of which this node knows more than the configuration says there is, since the loss of its majority was
    /// accepted while the node was away. Such a node must not go on with what it has in memory.
    fn exceeds(&self, configuration: &Configuration) -> Option<ShardId> {
        let _ = configuration;
        None
    }

    /// What this node has heard of the epochs after `settled`: from any node, stream or configuration.
    fn heard_epochs(&self, settled: Epoch) -> HeardEpochs {
        let _ = settled;
        HeardEpochs::default()
    }

    /// The transactions that took longer than [`Limits::slow_after`](crate::execution::Limits::slow_after) since
    /// this was asked last. Some of many.
    fn take_slow(&mut self) -> Vec<Slow> {
        Vec::new()
    }

    /// How many things each table of this worker holds, by the name of the table: all that more transactions, clients,
    /// restarts of nodes or epochs could make grow. What bounds each is in docs/recovery.md.
    fn sizes(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// An entry of a stream of `shard` in words, for traces: `[what it holds, …] safe=CLOCK`, with nothing between the
    /// brackets for a heartbeat.
    fn describe_entry(shard: ShardId, entry: &Bytes) -> String {
        let _ = shard;
        format!("[{} bytes]", entry.len())
    }

    /// How far each shard of the cluster is, as far as this worker knows; in their order. Nothing, for one
    /// that cannot say.
    fn progress(&self) -> Vec<ShardProgress> {
        Vec::new()
    }
}

/// What happens to an engine.
#[derive(Debug, Clone)]
pub enum EngineEvent<M> {
    /// A message from the same worker of another node.
    Received {
        /// Its sender.
        from: NodeId,
        /// What it says.
        message: M,
    },
    /// A client asks for something.
    Client {
        /// Who; the reply goes there.
        from: ClientId,
        /// What the client asks for.
        request: ClientRequest,
    },
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
    /// [agreed](Engine::may_restore).
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
    /// Send this to the same worker of another node.
    Send {
        /// The receiver.
        to: NodeId,
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
    /// Report the end of a closed epoch on a shard that this node leads. Said once, by one worker.
    Report {
        /// The shard.
        shard: ShardId,
        /// Which epoch.
        epoch: Epoch,
        /// How it ended there, in the engine's own form.
        end: EpochEnd,
    },
    /// Tell the manager what this node knows of a shard whose majority is lost. Said once for each such loss, by one
    /// worker; from then on nothing changes that.
    Known {
        /// The shard.
        shard: ShardId,
        /// The epoch that began with the loss.
        begun: Epoch,
        /// What is known of the epochs before.
        knowledge: Knowledge,
    },
    /// Tell the manager how far the survivors of such a shard hold epochs: this node leads them, and has had decided what
    /// they hold. Said once for each appointment, by one worker.
    Held {
        /// The shard.
        shard: ShardId,
        /// All of these epochs up to there.
        held: BTreeMap<Epoch, EpochEnd>,
    },
    /// Ask the manager to close the open epoch: on a shard that this node leads something hangs whose
    /// coordinator is silent. Said once by each worker; nothing comes of it if it may wait.
    Close {
        /// The shard.
        shard: ShardId,
        /// Which epoch.
        epoch: Epoch,
    },
    /// Answer a client.
    Reply {
        /// Who asked.
        to: ClientId,
        /// The answer.
        reply: ClientReply,
    },
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
        EngineEffect::Report { shard, epoch, end: EpochEnd::Whole }
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

/// How far a shard is, as a worker knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardProgress {
    /// Its watermark in the epoch that is open. `None` where the engine has none.
    pub watermark: Option<Clock>,
    /// How far this node's copy is, if it has one: what of it is durable where the node leads, what it has
    /// applied where it follows. `None` where the engine does not keep that.
    pub reached: Option<Clock>,
}

/// What a worker has counted since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Transactions that this worker coordinated and certified, read-only ones included.
    pub certified: u64,
    /// Those of them whose outcome was told.
    pub committed: u64,
    /// Those of them that wrote.
    pub wrote: u64,
    /// Those of them that wrote more than one shard.
    pub cross_shard: u64,
    /// Those of them that were rolled back, since a shard failed.
    pub rolled_back: u64,
    /// Versions that were dropped, since what had written them was rolled back.
    pub discarded: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Transactions that took longer than
    /// [`Limits::slow_after`](crate::execution::Limits::slow_after), with any outcome.
    pub slow: u64,
    /// Requests to other workers that were sent again since no answer came.
    pub resent: u64,
    /// Messages that made no sense here, or none any more, and were dropped.
    pub dropped: u64,
    /// Operations on records: read, written, scanned, replayed.
    pub operations: u64,
    /// Stamps that were kept with versions here, one for each shard that a transaction wrote.
    pub stamps: u64,
    /// The entries of those stamps, the shard's own included, all added up.
    pub stamp_entries: u64,
    /// Keys that were locked, installed or rolled back here for transactions, and of reads that were validated one in
    /// sixteen.
    pub step_keys: u64,
    /// The most of them in one step.
    pub step_keys_most: u64,
    /// Batches appended to streams, heartbeats included.
    pub batches: u64,
    /// Bytes of those batches.
    pub batch_bytes: u64,
    /// Bytes of writes that were replayed where this node follows.
    pub replayed_bytes: u64,
    /// Where the time of transactions went.
    pub stages: StageTimes,
}

/// Where the time went of the transactions that a worker has coordinated, that wrote and whose outcome was told; and
/// of what all transactions left in streams that it leads. Nanoseconds in its own time, all added up, which wrap around
/// after days under load: a stage within one step takes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Those transactions.
    pub writers: u64,
    /// They waited to be let in.
    pub entering_ns: u64,
    /// They made attempts that met conflicts, and paused.
    pub retrying_ns: u64,
    /// They ran, for the last time; of interactive ones, their clients' time between steps as well.
    pub executing_ns: u64,
    /// They took their locks. Where one participant did all the rest, this is all of it.
    pub locking_ns: u64,
    /// What they had read was validated; and prepared, in an engine that prepares.
    pub validating_ns: u64,
    /// They were certified, and waited until they could be told. That is for their pieces to be durable, and then for
    /// what they depend on.
    pub awaiting_ns: u64,
    /// Pieces of transactions in streams that this worker leads, and that are decided: one for each shard a
    /// transaction writes, or for each record of it.
    pub pieces: u64,
    /// They gathered in a batch.
    pub batching_ns: u64,
    /// Their batch was in the stream, and not decided.
    pub replicating_ns: u64,
}

impl StageTimes {
    /// Each number with its name.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("writers", self.writers),
            ("entering_ns", self.entering_ns),
            ("retrying_ns", self.retrying_ns),
            ("executing_ns", self.executing_ns),
            ("locking_ns", self.locking_ns),
            ("validating_ns", self.validating_ns),
            ("awaiting_ns", self.awaiting_ns),
            ("pieces", self.pieces),
            ("batching_ns", self.batching_ns),
            ("replicating_ns", self.replicating_ns),
        ]
    }
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, more: StageTimes) {
        self.writers = self.writers.wrapping_add(more.writers);
        self.entering_ns = self.entering_ns.wrapping_add(more.entering_ns);
        self.retrying_ns = self.retrying_ns.wrapping_add(more.retrying_ns);
        self.executing_ns = self.executing_ns.wrapping_add(more.executing_ns);
        self.locking_ns = self.locking_ns.wrapping_add(more.locking_ns);
        self.validating_ns = self.validating_ns.wrapping_add(more.validating_ns);
        self.awaiting_ns = self.awaiting_ns.wrapping_add(more.awaiting_ns);
        self.pieces = self.pieces.wrapping_add(more.pieces);
        self.batching_ns = self.batching_ns.wrapping_add(more.batching_ns);
        self.replicating_ns = self.replicating_ns.wrapping_add(more.replicating_ns);
    }
}
