//! Copies of clients' requests that come very late: while other requests are served that were made long after, and at
//! the end, when every client has had its answers. Steps of interactive transactions come over one connection, which
//! neither repeats nor outlives anything; they are copied all the same, since a client asks for them again, and its
//! node promises that a copy runs nothing.
//!
//! How late a copy is does not matter to what it does, but what has happened meanwhile: so no time has to pass.

use super::{Simulation, SimulationEvent};
use crate::observed::Simulated;
use shoal_engine::client::RequestFromClient;
use shoal_types::{Random, Time};

/// A request that a client sent to a worker, by its place among all.
pub(super) type Copied = (u32, RequestFromClient);

/// Late copies of requests come so far apart at the end.
const LATE_GAP_NS: usize = 10_000;

/// So many are held back at once, at most.
const HELD_MAX: usize = 256;

/// Copies of requests that are held back.
#[derive(Debug)]
pub(super) struct LateCopies {
    /// Of a hundred requests, so many are copied.
    pub(super) percent: u32,
    held: Vec<Copied>,
    random: Random,
}

impl LateCopies {
    pub(super) fn new(random: Random) -> LateCopies {
        LateCopies { percent: 0, held: Vec::new(), random }
    }

    /// A request is sent: perhaps a copy of it is held back, and perhaps one that was comes now.
    pub(super) fn pass(&mut self, request: Copied) -> Option<Copied> {
        if self.percent == 0 || !self.random.chance(self.percent.into(), 100) {
            return None;
        }
        let comes = self.held.len() >= HELD_MAX || self.random.chance(1, 4);
        let at = self.random.below(self.held.len().max(1) as u64) as usize;
        // It comes before the request that is sent, so that is not the one.
        let late = (comes && !self.held.is_empty()).then(|| self.held.swap_remove(at));
        self.held.push(request);
        late
    }

    /// All that are held back, in any order.
    pub(super) fn take_all(&mut self) -> Vec<Copied> {
        let mut all = std::mem::take(&mut self.held);
        self.random.shuffle(&mut all);
        all
    }
}

impl<E: Simulated> Simulation<E> {
    /// From now on, of a hundred requests of clients outside so many are copied, and the copies come late, by any time.
    pub fn copy_late(&mut self, percent: u32) {
        self.late.percent = percent;
    }

    /// All late copies of requests come now, one after the other.
    pub fn deliver_late(&mut self) {
        let all = self.late.take_all();
        for (at, late) in (self.now.0 + 1..).step_by(LATE_GAP_NS).zip(all) {
            self.deliver_copy(Time(at), late);
        }
    }

    /// A late copy comes then, as if over a connection to the node's process of today.
    pub(super) fn deliver_copy(&mut self, at: Time, (simulated_worker, request): Copied) {
        let node = self.cluster.simulated_workers[simulated_worker as usize].place.node;
        let instance = self.cluster.instances[node.0 as usize];
        self.queue.push(at, SimulationEvent::Request { simulated_worker, instance, request });
    }
}
