//! Copies of clients' calls that come very late: while other requests are served that were made long after, and at the end,
//! when every client has had its answers.
//!
//! How late a copy is does not matter to what it does, but what has happened meanwhile: so no time has to pass.

use engines::client::{ClientId, Request};
use types::Random;

/// A request that a client sent to a worker, by its place among all.
pub(super) type Copied = (u32, ClientId, Request);

/// So many are held back at once, at most.
const HELD_MAX: usize = 256;

/// See the module.
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

    /// A request is sent. If it is a call, perhaps a copy of it is held back, and perhaps one that was comes now.
    pub(super) fn pass(&mut self, request: Copied) -> Option<Copied> {
        // Steps of an interactive transaction come over one connection, which neither repeats nor outlives anything.
        let is_copied = matches!(request.2, Request::Call { .. } | Request::OpenCalls { .. });
        if self.percent == 0 || !is_copied || !self.random.chance(self.percent.into(), 100) {
            return None;
        }
        self.held.push(request);
        let comes = self.held.len() > HELD_MAX || self.random.chance(1, 4);
        let at = self.random.below(self.held.len() as u64) as usize;
        comes.then(|| self.held.swap_remove(at))
    }

    /// All that are held back, in any order.
    pub(super) fn take_all(&mut self) -> Vec<Copied> {
        let mut all = std::mem::take(&mut self.held);
        self.random.shuffle(&mut all);
        all
    }
}
