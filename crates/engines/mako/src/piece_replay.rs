//! Replays pieces on a node's copy of a shard, as many as fit into a step.

use super::piece::Piece;
use super::shared::MakoShared;
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay::{replay, replay_above};
use shoal_replication::replay_budget::{ReplayBudget, bytes_of};
use shoal_types::{ShardId, Stamp};
use std::rc::Rc;

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
        let is_done = budget.take(bytes_of(writes))
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
        budget.take(bytes_of(writes))
            && replay_above(replica, None, sessions, stamp, writes, faults, observations.as_mut())
    }
}
