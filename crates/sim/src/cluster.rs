//! The cluster under simulation: its workers, what they share, and what waits for each of them.

use crate::clock::NodeClock;
use engines::engine::Setup;
use engines::{Engine, Place};
use node::{Event, Worker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use types::{NodeId, ShardId, Time, WorkerId};

/// A worker and its place in time.
pub(crate) struct Seat<E: Engine> {
    pub worker: Worker<E>,
    pub place: Place,
    /// What reached it while it was busy.
    pub inbox: VecDeque<Event<E::Message>>,
    /// It takes no event before.
    pub busy_until: Time,
    /// What its steps have cost so far.
    pub worked: Duration,
    /// It will look into its inbox when it is free.
    pub will_look: bool,
    /// When its timer goes off, or when it did, if a busy worker has not taken it yet: there is one.
    pub timer_at: Time,
    /// A nudge is on its way.
    pub nudged: bool,
    /// Operations it had counted after its last step.
    pub operations: u64,
}

/// See the module.
pub(crate) struct Cluster<E: Engine> {
    pub seats: Vec<Seat<E>>,
    pub clocks: Vec<NodeClock>,
    /// How slow each node is, in hundredths of what it could be.
    pub slowdown_percent: Vec<u64>,
    pub workers: usize,
    shared: Vec<Arc<E::Shared>>,
}

impl<E: Engine> Cluster<E> {
    /// A cluster that is about to start.
    pub fn new(setup: &Setup<E::Options>, clocks: Vec<NodeClock>, seed: u64) -> Cluster<E> {
        let topology = &setup.topology;
        let nodes: Vec<NodeId> = topology.nodes().iter().map(|node| node.id).collect();
        assert_eq!(nodes.len(), clocks.len(), "every node has a clock");
        let shared: Vec<_> = nodes.iter().map(|node| E::share(setup, *node)).collect();
        let mut seats = Vec::new();
        for (node, shared) in nodes.iter().zip(&shared) {
            for worker in (0..topology.workers()).map(WorkerId) {
                let seed =
                    seed.wrapping_add(seats.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                seats.push(Seat {
                    worker: Worker::new(worker, *node, setup, Arc::clone(shared), seed),
                    place: Place { node: *node, worker },
                    inbox: VecDeque::new(),
                    busy_until: Time::ZERO,
                    worked: Duration::ZERO,
                    will_look: false,
                    timer_at: Time::MAX,
                    nudged: false,
                    operations: 0,
                });
            }
        }
        let slowdown_percent = vec![100; nodes.len()];
        Cluster { seats, clocks, slowdown_percent, workers: topology.workers() as usize, shared }
    }

    /// Which seat a worker has.
    #[inline]
    pub fn seat_of(&self, place: Place) -> usize {
        place.node.0 as usize * self.workers + place.worker.0 as usize
    }

    /// A node's copy of a shard.
    pub fn store(&self, node: NodeId, shard: ShardId) -> Option<Arc<Store>> {
        E::store(&self.shared[node.0 as usize], shard).cloned()
    }
}
