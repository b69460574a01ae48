//! Storages that lag behind memory: changes of a stream become durable some time later, or when the disk has their records.

use super::{Simulation, SimulationEvent};
use crate::disk::SimulatedDisk;
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_engine::engine::OF_NODE;
use shoal_node::{CheckpointStep, LogRoom, WorkerEvent};
use shoal_types::Time;
use shoal_wal::Record;

/// While one of so many checkpoints is written, its node ends.
const ENDS_ONE_IN: u64 = 8;

impl<E: Simulated> Simulation<E> {
    /// A worker receives what its disk has, and starts.
    pub(super) fn begin_worker(&mut self, simulated_worker: usize) -> Result<(), Violation> {
        let worker = &mut self.cluster.simulated_workers[simulated_worker];
        let mut events = std::mem::take(&mut worker.begins_with);
        self.work.restarts_from_checkpoints += u64::from(!events.is_empty());
        if let Some(disk) = &mut worker.disk {
            let counts = disk.take_counts();
            self.work.void_streams += counts.void_streams;
            self.work.torn_ends += counts.torn_ends;
            self.work.older_checkpoints += counts.older_checkpoints;
            self.work.ended_in_blocks += counts.ended_in_blocks;
            self.work.ended_in_finish += counts.ended_in_finish;
        }
        events.push(WorkerEvent::Start);
        events.into_iter().try_for_each(|event| self.reach(simulated_worker, event))
    }

    /// Goes on with a worker's checkpoint. At times its node ends while it is written.
    pub(super) fn checkpoint(&mut self, simulated_worker: usize, step: CheckpointStep) {
        if matches!(step, CheckpointStep::Begin { .. }) && self.random.below(ENDS_ONE_IN) == 0 {
            let node = self.cluster.simulated_workers[simulated_worker].place.node;
            let soon = self.random.below(2 * self.persistence_ns + 1);
            let at = Time(self.now.0 + soon);
            self.queue.push(at, SimulationEvent::Strike { node });
        }
        let disk = self.cluster.simulated_workers[simulated_worker].disk.as_mut();
        disk.expect("checkpoints are on a disk").checkpoint(step);
    }

    /// Writes what a worker's streams have recorded.
    pub(super) fn record(&mut self, simulated_worker: usize, records: Vec<Record>) {
        let disk = self.cluster.simulated_workers[simulated_worker].disk.as_mut();
        disk.expect("streams that are recorded are on a disk").write(records);
    }

    /// Plans when the changes of a worker's streams become durable, where storages lag.
    pub(super) fn await_persistence(&mut self, simulated_worker: usize) {
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        if let Some(disk) = &mut state.disk {
            let due = disk.due(self.now).filter(|_| !state.persists && state.worker.is_some());
            let Some(due) = due else { return };
            state.persists = true;
            let instance = self.cluster.instances[state.place.node.0 as usize];
            let simulated_worker = simulated_worker as u32;
            let event = SimulationEvent::Persisted { simulated_worker, instance };
            return self.queue.push(due.max(Time(self.now.0 + 1)), event);
        }
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

    /// Has the stores of a node refuse writes while the log of a worker has no room.
    fn follow_room(&mut self, simulated_worker: usize) {
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        let room = state.disk.as_mut().and_then(SimulatedDisk::take_room_change);
        let Some(room) = room else { return };
        self.work.full_disks += u64::from(room != LogRoom::Enough);
        let node = state.place.node;
        let places = self.topology.shard_ids().chain([OF_NODE]);
        let stores = places.filter_map(|it| self.cluster.store(node, it));
        stores.for_each(|store| match room {
            LogRoom::None { segment_bytes } => store.log_is_full(segment_bytes),
            LogRoom::Enough => store.log_has_room(),
        });
    }

    /// Some or all pending changes of a worker's streams are durable, or its disk has ended an operation.
    pub(super) fn persist(
        &mut self,
        simulated_worker: usize,
        instance: u32,
    ) -> Result<(), Violation> {
        let node = self.cluster.simulated_workers[simulated_worker].place.node;
        if self.cluster.instances[node.0 as usize] != instance || !self.cluster.is_up(node) {
            return Ok(());
        }
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        state.persists = false;
        if let Some(disk) = &mut state.disk {
            let events = disk.complete(self.now);
            let is_checkpoint = |event: &&WorkerEvent<E::Message>| {
                matches!(event, WorkerEvent::Checkpointed { is_durable: true, .. })
            };
            self.work.checkpoints += events.iter().filter(is_checkpoint).count() as u64;
            if disk.has_failed() {
                self.end_for_disk(node);
                return Ok(());
            }
            self.follow_room(simulated_worker);
            self.await_persistence(simulated_worker);
            return events.into_iter().try_for_each(|event| self.reach(simulated_worker, event));
        }
        let all = self.random.chance(1, 2);
        let changes = if all { usize::MAX } else { 1 + self.random.below(4) as usize };
        self.reach(simulated_worker, WorkerEvent::Persisted { changes })
    }
}
