//! Copies of clients' requests that arrive very late: while much later requests are served, and at the end,
//! when every client has its answers. Steps of interactive transactions are sent over one connection, which
//! neither repeats nor outlives anything; they are copied all the same, since a client may send them again,
//! and a node guarantees that a copy runs nothing.
//!
//! The effect of a copy depends on what has happened since the original, and not on the time: so no time has
//! to pass.

use super::{Simulation, SimulationEvent};
use crate::observed::Simulated;
use shoal_engine::client::RequestFromClient;
use shoal_types::{Random, Time};

/// A request that a client sent to a worker, which is given by its number among all.
pub(super) type Copied = (u32, RequestFromClient);

/// The time between two late copies at the end.
const LATE_GAP_NS: usize = 10_000;

/// The most copies that are held back at once.
const HELD_MAX: usize = 256;

/// Copies of requests that are held back.
#[derive(Debug)]
pub(super) struct LateCopies {
    /// Percentage of requests that are copied.
    pub(super) percent: u32,
    held: Vec<Copied>,
    random: Random,
}

impl LateCopies {
    pub(super) fn new(random: Random) -> LateCopies {
        LateCopies { percent: 0, held: Vec::new(), random }
    }

    /// A request is sent: it may be copied, and a held copy of an earlier one may be delivered now.
    pub(super) fn pass(&mut self, request: Copied) -> Option<Copied> {
        if self.percent == 0 || !self.random.chance(self.percent.into(), 100) {
            return None;
        }
        let comes = self.held.len() >= HELD_MAX || self.random.chance(1, 4);
        let at = self.random.below(self.held.len().max(1) as u64) as usize;
        // Chosen before the request is held, so that its own copy is not the one.
        let late = (comes && !self.held.is_empty()).then(|| self.held.swap_remove(at));
        self.held.push(request);
        late
    }

    /// Removes all held copies, in no particular order.
    pub(super) fn take_all(&mut self) -> Vec<Copied> {
        let mut all = std::mem::take(&mut self.held);
        self.random.shuffle(&mut all);
        all
    }
}

impl<E: Simulated> Simulation<E> {
    /// From now on this percentage of requests of clients outside is copied, and the copies are delivered
    /// late.
    pub fn copy_late(&mut self, percent: u32) {
        self.late.percent = percent;
    }

    /// Delivers all late copies of requests, one after the other.
    pub fn deliver_late(&mut self) {
        let all = self.late.take_all();
        for (at, late) in (self.now.0 + 1..).step_by(LATE_GAP_NS).zip(all) {
            self.deliver_copy(Time(at), late);
        }
    }

    /// Delivers a late copy at `at`, as if over a connection to the node's current process.
    pub(super) fn deliver_copy(&mut self, at: Time, (simulated_worker, request): Copied) {
        let node = self.cluster.simulated_workers[simulated_worker as usize].place.node;
        let instance = self.cluster.instances[node.0 as usize];
        self.queue.push(at, SimulationEvent::Request { simulated_worker, instance, request });
    }
}
