//! Copies of clients' requests that are held back.

use shoal_engine::client::RequestFromClient;
use shoal_types::Random;

/// A request that a client sent to a worker, which is given by its number among all.
pub(super) type Copied = (u32, RequestFromClient);

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
