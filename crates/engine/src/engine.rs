//! What an engine is: one worker's part of a commit protocol, driven by events.
//!
//! ```text
//!   clients ── requests ──►┌────────┐── replies ──►
//!   other workers ────────►│ engine │── messages ─►
//!   streams ── durable ───►└────────┘── entries ──► streams
//! ```
//! Each worker of a node has an engine of its own; they share the engine's [`Shared`](Engine::Shared) state, all of
//! it atomic. The streams stand beside the engine, in `node`: an engine proposes entries to the stream
//! that its worker leads for a shard, receives events when they are durable, and receives what the
//! streams that it follows have decided.

use crate::client::ClientRouting;
use crate::execution::LocalDatabase;
use crate::metrics::{
    CommitStage, Counters, EngineCounters, NodeColumn, RuntimeCounters, ShardMetric,
};
use crate::planted_bugs::Plantable;
use crate::slow::Slow;
use bytes::Bytes;
use shoal_cluster::manager::{
    Configuration, EpochEnd, KnownEpochs, LeaderCandidates, ManagerOptions,
};
use shoal_cluster::topology::Topology;
use shoal_store::Store;
use shoal_types::procedure::Procedures;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, EventTimes, NodeId, ShardId, Time, WorkerId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use crate::events::{EngineEffect, EngineEffects, EngineEvent, StepOutput};
pub use crate::execution::tasks::Task;
pub use shoal_types::WorkerPlace;

/// The configuration of an engine that is the same on all nodes of a cluster.
#[derive(Debug, Clone)]
pub struct Setup<O> {
    /// Nodes, shards, tables.
    pub topology: Arc<Topology>,
    /// The procedures that clients can call by name.
    pub procedures: Arc<Procedures>,
    /// The options of streams.
    pub streams: shoal_log::StreamOptions,
    /// The engine's configuration.
    pub options: O,
}

/// The options of the manager, with what the engine `E` needs of it, on the nodes of this topology.
#[must_use]
pub fn manager_options<E: Engine>(
    topology: &Topology,
    mut options: ManagerOptions,
) -> ManagerOptions {
    options.membership_epochs = E::MEMBERSHIP_EPOCHS;
    options.keeps_memory = topology.durability().is_on_disk();
    options.leader_candidates = E::LEADER_CANDIDATES;
    options
}

/// What an engine's records in the log on disk belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineRecords {
    /// It has none.
    None,
    /// The streams of shards.
    OfStreams,
    /// The node: they are in the log of its first worker, under [`OF_NODE`].
    OfNode,
}

/// Stands in for the shard in records, and in parts of checkpoints, that belong to the node and to no stream.
pub const OF_NODE: ShardId = ShardId(u32::MAX);

/// One worker's part of a commit protocol.
pub trait Engine: Sized {
    /// The messages between workers, of the same node and of others. They may be lost, repeated, reordered or late.
    type Message: Clone + fmt::Debug + Coded;

    /// The engine's configuration.
    type Options: Clone + fmt::Debug + Default;

    /// The state that the workers of one node share: its stores and some atomics.
    type Shared: Send + Sync;

    /// The facts that the engine reports to checkers.
    type Observation: Clone + fmt::Debug + 'static;

    /// The bugs that can be planted in the engine, beside those of the shared runtime.
    type PlantedBug: Plantable;

    /// Adapts the waits in the options to a cluster where a message and its answer take at most this long. Engines that measure
    /// distances have nothing to adapt.
    fn fit_distance(options: &mut Self::Options, round_trip: Duration) {
        let _ = (options, round_trip);
    }

    /// Makes the state that the workers of `node` share, and checks the options.
    ///
    /// # Panics
    /// If an option is out of its range; the message names the option and the range.
    fn share(setup: &Setup<Self::Options>, node: NodeId) -> Arc<Self::Shared>;

    /// The node's place for a copy of a shard, if there is such a shard: empty where the node has no replica. An engine whose rows are in
    /// no store has an empty one under [`OF_NODE`], by which it learns whether logs on disk have room.
    fn store(shared: &Self::Shared, shard: ShardId) -> Option<&Arc<Store>>;

    /// Makes a worker, whose only source of randomness is `seed`.
    fn new(worker: WorkerId, shared: Arc<Self::Shared>, seed: u64) -> Self;

    /// Handles one event. The same state and the same event produce the same effects.
    fn step(
        &mut self,
        now: Time,
        event: EngineEvent<Self::Message>,
        effects: &mut EngineEffects<Self::Message, Self::Observation>,
    );

    /// Whether each death and each return of a node has to begin an epoch, also of nodes that lead nothing.
    const MEMBERSHIP_EPOCHS: bool = false;

    /// How clients choose the node that coordinates a transaction.
    const CLIENT_ROUTING: ClientRouting = ClientRouting::Leaders;

    /// Which replicas of a shard may lead it. A topology that has a learner lead where only voters may is refused when a node
    /// starts.
    const LEADER_CANDIDATES: LeaderCandidates = LeaderCandidates::LearnersFirst;

    /// The most workers that the engine runs on a node; `None` if there is no limit. A topology with more is refused when a
    /// node starts.
    const WORKERS_MAX: Option<u32> = None;

    /// Whether the engine receives [`EngineEvent::Accepted`]: what its node's streams have accepted as followers.
    const RECEIVES_ACCEPTED: bool = false;

    /// What the engine's [records](crate::engine::EngineEffect::Record) belong to, if it has any beside its streams.
    const RECORDS: EngineRecords = EngineRecords::None;

    /// Whether the engine orders transactions by real time, and so receives the [times](Engine::set_times) of events.
    const USES_TRANSACTION_CLOCK: bool = false;

    /// Sets the times of the next event, on the node's transaction clock. Called before each step of an engine that
    /// [uses](Engine::USES_TRANSACTION_CLOCK) that clock, and of no other.
    fn set_times(&mut self, times: EventTimes) {
        let _ = times;
    }

    /// The database, for code that runs on this worker.
    fn local(&self) -> LocalDatabase;

    /// Adds a task, which the next step polls first.
    fn spawn(&mut self, task: Task);

    /// Sets the end of this node's lease, on its clock (the lease rule). Called before each step.
    fn renew(&mut self, lease_end: Time);

    /// Whether this node may lead at present. While it may not, it sends no heartbeats: its lease ends, and others lead.
    fn may_lead(&self) -> bool {
        true
    }

    /// The number of transactions in progress on this worker, in any state.
    fn pending(&self) -> usize;

    /// The number of sessions, branches with their locks, requests and waits that transactions hold open. Unlike
    /// [`pending`](Engine::pending), it excludes what waits to be decided, applied or copied, and so becomes zero even while
    /// a shard is lost.
    fn held(&self) -> usize {
        self.pending()
    }

    /// The engine's own counters, beside those of all engines.
    type Counters: Counters;

    /// The stages of a commit, in their order, from the end of a transaction's body until its outcome is reported. The last
    /// stage is that in which its writes are replicated.
    const STAGES: &'static [CommitStage];

    /// The metrics of each shard, whose values are [`shard_values`](Engine::shard_values).
    const SHARD_METRICS: &'static [ShardMetric];

    /// The counters that a status shows for each node.
    const NODE_COLUMNS: &'static [NodeColumn] = &[];

    /// The values of all counters.
    fn counters(&self) -> EngineCounters<Self::Counters>;

    /// The values of the counters that every engine has, for one that asks often. An engine that has to sum up its own says
    /// them without.
    fn runtime_counters(&self) -> RuntimeCounters {
        self.counters().runtime
    }

    /// The values of [`SHARD_METRICS`](Engine::SHARD_METRICS) for a shard; `None` for one that this worker does not know.
    fn shard_values(&self, shard: ShardId) -> Vec<Option<u64>>;

    /// The number of entries of this worker's stream of `shard` that may be truncated: their writes are stable in the store,
    /// and a replica that lacks them gets a snapshot. `None` if the engine has no snapshots: then no entry may be truncated
    /// that a replica could request.
    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        let _ = shard;
        None
    }

    /// Whether a replica of a shard that this worker leads has what the engine keeps beside the stream. The manager does not count
    /// on a replica that has not, in place of another.
    fn has_caught_up(&self, shard: ShardId, replica: NodeId) -> bool {
        let _ = (shard, replica);
        true
    }

    /// Whether this worker's stream of `shard` can begin behind this snapshot of `from`, which stands for `length` entries.
    /// The copy of the shard that belongs to it may not have arrived yet.
    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        let _ = (shard, from, length, state);
        false
    }

    /// For each epoch whose end on a shard is not known here: how far the shard is known to be durable, and on a replica, how
    /// far this worker's stream is complete.
    fn lacking(&self, shard: ShardId) -> Vec<(Epoch, EpochEnd, Option<EpochEnd>)> {
        let _ = shard;
        Vec::new()
    }

    /// A shard of which this node has more than the configuration's ends include, since the loss of its majority was accepted
    /// while the node was cut off. Such a node must not continue with its memory.
    fn exceeds(&self, configuration: &Configuration) -> Option<ShardId> {
        let _ = configuration;
        None
    }

    /// What this node knows of the epochs after `settled`, from any node, stream or configuration.
    fn known_epochs(&self, settled: Epoch) -> KnownEpochs {
        let _ = settled;
        KnownEpochs::default()
    }

    /// Takes the transactions that took longer than [`Limits::slow_after`](crate::execution::Limits::slow_after) since the
    /// last call; a sample, if there were many.
    fn take_slow(&mut self) -> Vec<Slow> {
        Vec::new()
    }

    /// The size of each table of this worker that transactions, clients, restarts of nodes or epochs could make grow, by the
    /// table's name. docs/recovery.md has the bound of each.
    fn sizes(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// The text of an entry of a stream of `shard`, for traces: `[items, …] safe=CLOCK`, without items for a heartbeat.
    fn describe_entry(shard: ShardId, entry: &Bytes) -> String {
        let _ = shard;
        format!("[{} bytes]", entry.len())
    }
}
