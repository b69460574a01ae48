//! A trivial engine: tokens that hop from any worker to any other, and a timer that sends a new one where none has
//! arrived for a while.

use shoal_engine::engine::{Setup, Task};
use shoal_engine::metrics::{CommitStage, EngineCounters, RuntimeCounters, ShardMetric};
use shoal_engine::{Engine, EngineEffect, EngineEffects, EngineEvent, LocalDatabase, PlantedBug};
use shoal_sim::Violation;
use shoal_sim::checks::{Checks, EngineRules, Moment};
use shoal_sim::coverage::Coverage;
use shoal_sim::digest::Digest;
use shoal_sim::observed::{Observed, Simulated};
use shoal_sim::recovery::RecoveryFact;
use shoal_store::Store;
use shoal_types::wire::{Coded, Short};
use shoal_types::{EventTimes, NodeId, Random, ShardId, TableId, Time, WorkerId, WorkerPlace};
use std::sync::Arc;
use std::time::Duration;

/// Tokens that a worker sends at the start.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub tokens: u32,
    pub timer: Option<Duration>,
}

pub struct Shared {
    node: NodeId,
    nodes: u32,
    workers: u32,
    options: Options,
}

shoal_engine::counters! {
    /// What the engine counts.
    pub struct ToyCounters {
        /// Tokens that were taken.
        Counter hops,
    }
}

pub struct Toy {
    place: WorkerPlace,
    shared: Arc<Shared>,
    random: Random,
    started: bool,
    /// Whether a token has arrived since the timer fired.
    met: bool,
    /// When the timer fires next; every step has to set it again.
    wake_at: Option<Time>,
    /// The times of the last event on the transaction clock.
    times: Option<EventTimes>,
    counters: RuntimeCounters,
    own: ToyCounters,
}

#[derive(Debug, Clone, Coded, Short)]
pub struct Hop(pub u64);

/// The engine makes no observations.
#[derive(Debug, Clone)]
pub enum Nothing {}

impl Observed for Nothing {
    fn cover(&self, _coverage: &mut Coverage) {
        match *self {}
    }

    fn digest(&self, _digest: &mut Digest) {
        match *self {}
    }

    fn recovery(&self) -> Option<RecoveryFact> {
        match *self {}
    }

    fn entry(&self) -> Option<(ShardId, u64)> {
        match *self {}
    }

    fn installed_table(&self) -> Option<TableId> {
        None
    }

    fn copied(&self) -> Option<ShardId> {
        match *self {}
    }
}

/// There are no rules to judge.
#[derive(Debug, Default)]
pub struct NoRules;

impl EngineRules for NoRules {
    type Observation = Nothing;

    const SPECULATES: bool = false;
    const ORDER: &'static str = "order";
    const SAFE_CLOCK: &'static str = "safe clock";
    const DURABLE_FIRST: &'static str = "durable first";
    const LEASE: &'static str = "lease";

    fn judge(_: &mut Checks<NoRules>, _: Moment, seen: &Nothing) -> Result<(), Violation> {
        match *seen {}
    }
}

impl Simulated for Toy {
    type Rules = NoRules;
}

impl Toy {
    fn hop(&mut self, effects: &mut EngineEffects<Hop, Nothing>) {
        let (nodes, workers) = (self.shared.nodes, self.shared.workers);
        let own = self.place.node.0 * workers + self.place.worker.0;
        let other = self.random.below(u64::from(nodes * workers) - 1) as u32;
        let other = other + u32::from(other >= own);
        let to = WorkerPlace { node: NodeId(other / workers), worker: WorkerId(other % workers) };
        effects.effects.push(EngineEffect::Send { to, message: Hop(self.random.next_u64()) });
    }
}

impl Engine for Toy {
    type Message = Hop;
    type Options = Options;
    type Shared = Shared;
    type Observation = Nothing;
    type PlantedBug = PlantedBug;

    fn share(setup: &Setup<Options>, node: NodeId) -> Arc<Shared> {
        let nodes = setup.topology.nodes().len() as u32;
        let workers = setup.topology.workers();
        Arc::new(Shared { node, nodes, workers, options: setup.options.clone() })
    }

    fn store(_shared: &Shared, _shard: ShardId) -> Option<&Arc<Store>> {
        None
    }

    fn new(worker: WorkerId, shared: Arc<Shared>, seed: u64) -> Toy {
        Toy {
            place: WorkerPlace { node: shared.node, worker },
            shared,
            random: Random::new(seed),
            started: false,
            met: true,
            wake_at: None,
            times: None,
            counters: RuntimeCounters::default(),
            own: ToyCounters::default(),
        }
    }

    const USES_TRANSACTION_CLOCK: bool = true;

    fn set_times(&mut self, times: EventTimes) {
        if let Some(before) = self.times.replace(times) {
            assert!(before.now.time <= times.now.time, "{before:?} {times:?}");
        }
        assert!(times.arrived.time <= times.now.time, "{times:?}");
        // The frame waited in the inbox of a busy worker. This engine has no other conflicts to count.
        self.counters.conflicts += u64::from(times.arrived.time < times.now.time);
    }

    fn step(
        &mut self,
        now: Time,
        event: EngineEvent<Hop>,
        effects: &mut EngineEffects<Hop, Nothing>,
    ) {
        if !std::mem::replace(&mut self.started, true) {
            for _ in 0..self.shared.options.tokens {
                self.hop(effects);
            }
            self.wake_at = self.shared.options.timer.map(|timer| now + timer);
        }
        match event {
            EngineEvent::Received { from, .. } => {
                assert_ne!(from, self.place, "it sends nothing to itself");
                self.counters.operations += 1;
                // Hops within a node, and between workers of different numbers on two nodes: neither are there any writes.
                self.counters.wrote += u64::from(from.node == self.place.node);
                let is_passed = from.node != self.place.node && from.worker != self.place.worker;
                self.counters.cross_shard += u64::from(is_passed);
                self.own.hops += 1;
                self.met = true;
                self.hop(effects);
            }
            EngineEvent::Timer => {
                self.counters.committed += 1;
                if !std::mem::replace(&mut self.met, false) && self.shared.options.tokens > 0 {
                    self.hop(effects);
                }
                self.wake_at = self.shared.options.timer.map(|timer| now + timer);
            }
            EngineEvent::Client(_)
            | EngineEvent::Leading { .. }
            | EngineEvent::Durable { .. }
            | EngineEvent::Decided { .. }
            | EngineEvent::Configured { .. }
            | EngineEvent::Deposed { .. }
            | EngineEvent::Promised { .. }
            | EngineEvent::Accepted { .. }
            | EngineEvent::Settled { .. }
            | EngineEvent::SnapshotWanted { .. }
            | EngineEvent::Restored { .. }
            | EngineEvent::CheckpointWanted { .. }
            | EngineEvent::CheckpointWritten { .. }
            | EngineEvent::CheckpointRead { .. }
            | EngineEvent::Recorded { .. }
            | EngineEvent::RecordsRead { .. }
            | EngineEvent::Nudged => {}
        }
        if let Some(at) = self.wake_at {
            effects.effects.push(EngineEffect::Timer { at });
        }
    }

    fn local(&self) -> LocalDatabase {
        panic!("this engine has no data")
    }

    fn spawn(&mut self, _task: Task) {
        panic!("this engine runs no tasks")
    }

    fn renew(&mut self, _lease_end: Time) {}

    fn pending(&self) -> usize {
        0
    }

    type Counters = ToyCounters;

    const STAGES: &'static [CommitStage] = &[];
    const SHARD_METRICS: &'static [ShardMetric] = &[];

    fn counters(&self) -> EngineCounters<ToyCounters> {
        EngineCounters { runtime: self.counters, own: self.own, ..EngineCounters::default() }
    }

    fn shard_values(&self, _shard: ShardId) -> Vec<Option<u64>> {
        Vec::new()
    }
}
