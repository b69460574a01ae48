//! Storages that lag behind memory: changes of a stream become durable some time later.

use super::{Simulation, SimulationEvent};
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_node::WorkerEvent;
use shoal_types::Time;

impl<E: Simulated> Simulation<E> {
    /// Plans when the changes of a worker's streams become durable, where storages lag.
    pub(super) fn await_persistence(&mut self, simulated_worker: usize) {
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        let Some(worker) = state.worker.as_ref().filter(|_| self.persistence_ns > 0) else {
            return;
        };
        let mut streams = self.topology.shard_ids();
        let pending = |shard| worker.stream(shard).is_some_and(|it| it.storage().pending() > 0);
        if !state.persists && streams.any(pending) {
            state.persists = true;
            let instance = self.cluster.instances[state.place.node.0 as usize];
            let at = Time(self.now.0 + 1 + self.random.below(self.persistence_ns));
            self.queue.push(
                at,
                SimulationEvent::Persisted { simulated_worker: simulated_worker as u32, instance },
            );
        }
    }

    /// Some or all pending changes of a worker's streams are durable.
    pub(super) fn persist(
        &mut self,
        simulated_worker: usize,
        instance: u32,
    ) -> Result<(), Violation> {
        let node = self.cluster.simulated_workers[simulated_worker].place.node;
        if self.cluster.instances[node.0 as usize] != instance || !self.cluster.is_up(node) {
            return Ok(());
        }
        self.cluster.simulated_workers[simulated_worker].persists = false;
        let all = self.random.chance(1, 2);
        let changes = if all { usize::MAX } else { 1 + self.random.below(4) as usize };
        self.reach(simulated_worker, WorkerEvent::Persisted { changes })
    }
}
