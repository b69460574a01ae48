//! Replays pieces on a node's copy of a shard, as many as fit into a step.

use super::piece::Piece;
use super::shared::MakoShared;
use super::undecided_versions::order;
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_replication::codec::{StreamWrite, WriteRef};
use shoal_replication::replay::replay;
use shoal_replication::replay_budget::{ReplayBudget, bytes_of, bytes_of_encoded};
use shoal_store::ReplayedWrite;
use shoal_types::{ShardId, Stamp};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Replays covered pieces on a node's copy of a shard, as many as fit into the step, and says which are done. All of their
/// rows are looked up together, and the newest come first, so that a row that several of them write is written once.
pub(super) fn replays<'a>(
    shared: &'a MakoShared,
    shard: ShardId,
    budget: &'a ReplayBudget,
    observations: &'a mut Option<Vec<MakoObservation>>,
) -> impl FnMut(&Rc<SessionPool>, &VecDeque<Piece>) -> Range<usize> + 'a {
    let replica = shared.replica(shard).expect("held");
    let (undecided, options) = (shared.undecided(shard), &shared.setup.options);
    let faults = options.limits.faults;
    move |sessions, covered| {
        let fits = |piece: &&Piece| budget.take(bytes_of_encoded(&piece.writes));
        let until = covered.iter().take_while(fits).count();
        let floor = &*replica.floor();
        let pieces = covered.range(..until).rev();
        let writes = pieces.clone().flat_map(|piece| {
            let stamp = piece.stamp.as_ref();
            let write =
                move |WriteRef { table, key, value }| ReplayedWrite { table, key, value, stamp };
            piece.writes.iter().map(write)
        });
        let stopped = replay(replica, Some(floor), sessions, writes, faults, observations.as_mut());
        let from = stopped.map_or(0, |place| {
            // The piece with that place, or what is behind it, is done again.
            let mut left = place;
            let is_done = |piece: &&Piece| match left.checked_sub(piece.writes.len()) {
                Some(less) => {
                    left = less;
                    true
                }
                None => false,
            };
            until - pieces.take_while(is_done).count()
        });
        if !options.faults.has(MakoPlantedBug::InstallUndecidedAbove) {
            undecided.supersede(|| {
                covered.range(from..until).flat_map(|piece| {
                    let stamp = piece.stamp.as_ref();
                    // What a copy has brought was not applied here: if it was undecided then, it is in the table (seed 13771).
                    let is_new =
                        move |write: &StreamWrite| !floor.has(write.table, &write.key, stamp.clock);
                    piece
                        .writes
                        .shared()
                        .filter(is_new)
                        .map(move |write| (order(stamp), write.table, write.key))
                })
            });
        }
        from..until
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
        let StreamWrite { table, key, value } = write;
        let (table, value, stamp) = (*table, value.as_deref(), stamp.as_ref());
        let replayed = std::iter::once(ReplayedWrite { table, key, value, stamp });
        budget.take(bytes_of(std::slice::from_ref(write)))
            && replay(replica, None, sessions, replayed, faults, observations.as_mut()).is_none()
    }
}
