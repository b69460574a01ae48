//! Copies of clients' requests that arrive very late: while much later requests are served, and at the end,
//! when every client has its answers. Steps of interactive transactions are sent over one connection, which
//! neither repeats nor outlives anything; they are copied all the same, since a client may send them again,
//! and a node guarantees that a copy runs nothing.
//!
//! The effect of a copy depends on what has happened since the original, and not on the time: so no time has
//! to pass.

use super::late_copies::Copied;
use super::{Simulation, SimulationEvent};
use crate::observed::Simulated;
use shoal_types::Time;

/// The time between two late copies at the end.
const LATE_GAP_NS: usize = 10_000;

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
