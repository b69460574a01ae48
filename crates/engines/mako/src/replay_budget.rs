//! How much a follower replays in one step: a lease must not run out behind it, and nothing else wait.

use super::piece::Piece;
use super::shared::MakoShared;
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::replication::codec::StreamWrite;
use shoal_engine::replication::replay::{replay, replay_above};
use shoal_types::{ShardId, Stamp, Time};
use std::cell::Cell;
use std::rc::Rc;

/// What a write costs beside its bytes.
const WRITE_BYTES: usize = 64;

/// What may still be replayed in the step that is under way.
///
/// Invariant: a step replays no more than it is allowed, and one piece.
#[derive(Debug, Default)]
pub(super) struct ReplayBudget {
    /// The step.
    at: Cell<Time>,
    left: Cell<usize>,
    /// Something was left for a later step.
    is_short: Cell<bool>,
    /// What all steps have replayed.
    total: Cell<u64>,
}

impl ReplayBudget {
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
    shared: &'a MakoShared,
    shard: ShardId,
    budget: &'a ReplayBudget,
    observations: &'a mut Option<Vec<MakoObservation>>,
) -> impl FnMut(&Rc<SessionPool>, &Piece) -> bool + 'a {
    let replica = shared.replica(shard).expect("held");
    let (undecided, options) = (shared.undecided(shard), &shared.setup.options);
    let faults = options.limits.faults;
    move |sessions, piece| {
        let Piece { stamp, writes } = piece;
        let is_done = budget.take(bytes(writes))
            && replay(replica, sessions, stamp, writes, faults, observations.as_mut());
        if is_done && !options.faults.has(MakoPlantedBug::InstallUndecidedAbove) {
            // What a copy has brought was not applied here: if it was undecided then, it is in the table (seed 13771).
            let floor = replica.floor();
            let is_new = |write: &&StreamWrite| !floor.has(write.table, &write.key, stamp.clock);
            let applied = writes.iter().filter(is_new);
            undecided.supersede(stamp, applied.map(|write| (write.table, &write.key)));
        }
        is_done
    }
}

/// The same for versions that were undecided, and are committed. What a copy has brought does not matter: its sender did not know. No
/// copy may be taken meanwhile.
pub(super) fn replays_kept<'a>(
    shared: &'a MakoShared,
    shard: ShardId,
    budget: &'a ReplayBudget,
    observations: &'a mut Option<Vec<MakoObservation>>,
) -> impl FnMut(&Rc<SessionPool>, &Stamp, &StreamWrite) -> bool + 'a {
    let replica = shared.replica(shard).expect("held");
    let faults = shared.setup.options.limits.faults;
    move |sessions, stamp, write| {
        let writes = std::slice::from_ref(write);
        budget.take(bytes(writes))
            && replay_above(replica, None, sessions, stamp, writes, faults, observations.as_mut())
    }
}

/// What writes cost.
fn bytes(writes: &[StreamWrite]) -> usize {
    let value = |write: &StreamWrite| write.value.as_ref().map_or(0, |value| value.len());
    writes.iter().map(|write| WRITE_BYTES + write.key.len() + value(write)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_replays_what_it_may_and_one_piece() {
        let budget = ReplayBudget::default();
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
