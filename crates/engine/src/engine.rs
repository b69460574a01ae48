//! What an engine is: one worker's part of a commit protocol, driven by events.
//!
//! ```text
//!   clients ── requests ──►┌────────┐── replies ──►
//!   other workers ────────►│ engine │── messages ─►
//!   streams ── durable ───►└────────┘── entries ──► streams
//! ```
//! Each worker of a node has an engine of its own; they share what the engine's `MakoShared` holds, all of
//! it atomic. The streams stand beside the engine, in `node`: an engine proposes entries to the stream
//! that its worker leads for a shard, is told when they are durable, and is given what the streams
//! that it follows have decided.

use crate::execution::LocalDatabase;
use crate::metrics::{CommitStage, Counters, EngineCounters, ShardMetric};
use crate::planted_bugs::Plantable;
use crate::slow::Slow;
use bytes::Bytes;
use shoal_cluster::manager::{Configuration, EpochEnd, HeardEpochs};
use shoal_cluster::topology::Topology;
use shoal_store::Store;
use shoal_types::procedure::Procedures;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, EventTimes, NodeId, ShardId, Time, WorkerId};
use std::fmt;
use std::sync::Arc;

pub use crate::events::{EngineEffect, EngineEffects, EngineEvent, StepOutput};
pub use crate::execution::tasks::Task;
pub use shoal_types::WorkerPlace;

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

/// One worker's part of a commit protocol.
pub trait Engine: Sized {
    /// What it says to other workers, of other nodes and of its own. May be lost, repeated, reordered or late.
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

    /// Whether each death and each return of a node has to begin an epoch, also of nodes that lead nothing.
    const MEMBERSHIP_EPOCHS: bool = false;

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

    /// What it counts beside what all engines count.
    type Counters: Counters;

    /// The stages of a commit, from when a transaction's body is done until it is told; one after the other. The last one is
    /// the time in which what it wrote is replicated.
    const STAGES: &'static [CommitStage];

    /// What it tells of each shard: see [`shard_values`](Engine::shard_values).
    const SHARD_METRICS: &'static [ShardMetric];

    /// What it has counted.
    fn counters(&self) -> EngineCounters<Self::Counters>;

    /// What this worker knows of a shard of the cluster: a number for each of
    /// [`SHARD_METRICS`](Engine::SHARD_METRICS), `None` where it cannot say.
    fn shard_values(&self, shard: ShardId) -> Vec<Option<u64>>;

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
}
