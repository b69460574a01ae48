//! How much a follower replays in one step: a lease must not run out behind it, and nothing else wait.

use super::piece::Piece;
use crate::execution::sessions::Sessions;
use crate::faults::Faults;
use crate::observation::Observation;
use crate::replication::replay::replay;
use crate::replication::replica::Replica;
use std::cell::Cell;
use std::rc::Rc;
use types::Time;

/// Bytes that one step replays by default, and one piece. More per step costs fewer steps.
pub(super) const REPLAY_BYTES_MAX: usize = 1 << 20;

/// What a write costs beside its bytes.
const WRITE_BYTES: usize = 64;

/// What may still be replayed in the step that is under way.
///
/// Invariant: a step replays no more than it is allowed, and one piece.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The step.
    at: Cell<Time>,
    left: Cell<usize>,
    /// Something was left for a later step.
    is_short: Cell<bool>,
    /// What all steps have replayed.
    total: Cell<u64>,
}

impl Budget {
    /// A step begins at this time, or goes on.
    pub(super) fn begin(&self, now: Time, bytes: usize) {
        if self.at.replace(now) != now {
            self.left.set(bytes);
            self.is_short.set(false);
        }
    }

    /// Was something left for a later step?
    pub(super) fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// How many bytes all steps have replayed.
    pub(super) fn total(&self) -> u64 {
        self.total.get()
    }

    /// May so much be replayed in this step?
    fn take(&self, bytes: usize) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.total.set(self.total.get() + bytes as u64);
        }
        self.left.set(left.saturating_sub(bytes));
        self.is_short.set(self.is_short.get() || left == 0);
        left > 0
    }
}

/// Replays pieces on a node's copy of a shard, as many as fit into the step.
pub(super) fn replays<'a>(
    replica: &'a Replica,
    faults: Faults,
    budget: &'a Budget,
    observations: &'a mut Option<Vec<Observation>>,
) -> impl FnMut(&Rc<Sessions>, &Piece) -> bool + 'a {
    move |sessions, piece| {
        let Piece { stamp, writes } = piece;
        let value = |value: &bytes::Bytes| value.len();
        let bytes = writes
            .iter()
            .map(|write| WRITE_BYTES + write.key.len() + write.value.as_ref().map_or(0, value));
        budget.take(bytes.sum())
            && replay(replica, sessions, stamp, writes, faults, observations.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_replays_what_it_may_and_one_piece() {
        let budget = Budget::default();
        budget.begin(Time(1), 100);
        assert!(budget.take(60) && budget.take(60), "the second begins within the bound");
        assert!(!budget.is_short());
        assert!(!budget.take(1) && budget.is_short());
        budget.begin(Time(1), 100);
        assert!(!budget.take(1), "the same step goes on");
        budget.begin(Time(2), 100);
        assert!(!budget.is_short() && budget.take(1000) && !budget.take(1));
    }
}
