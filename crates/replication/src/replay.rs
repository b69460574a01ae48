//! How a follower applies a transaction's writes, in any order transactions reach it (Thomas's
//! rule: on one key, the greatest epoch and clock wins).
//!
//! Each worker replays the stream of its number, beside the others and without a word to them. A
//! tombstone has to stay until nothing older can arrive, or that would come back to process.

use crate::applied_write::AppliedWrite;
use crate::replay_floor::ReplayFloor;
use crate::replica::ShardReplica;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::{PlantedBug, PlantedBugs};
use shoal_store::ReplayedWrite;
use shoal_types::{Aborted, Epoch, Error, StampRef};
use std::rc::Rc;

/// Another worker of this node holds a lock for as long as it takes to replay a transaction, which is shorter than so many
/// tries; or for much longer, if it does not know yet that the node leads no more. The caller then tries again later.
const TRIES: u32 = 16;

/// Applies writes one by one, those above the floor, or all of them where there is none. Of writes of one key the newest
/// should come first: the others are not even copied then. Returns the place of the first that is to be tried again later,
/// since another worker holds a lock and does not release it, or all sessions of the store are in use; `None` where all
/// are done.
///
/// # Panics
/// Where the store takes no more: a follower that cannot follow must not pretend to.
#[must_use]
pub fn replay<'w>(
    replica: &ShardReplica,
    floor: Option<&ReplayFloor>,
    sessions: &Rc<SessionPool>,
    writes: impl Iterator<Item = ReplayedWrite<'w>> + Clone,
    faults: PlantedBugs,
    mut observe: Option<&mut Vec<impl From<AppliedWrite>>>,
) -> Option<usize> {
    let epoch = writes.clone().next()?.stamp.epoch;
    let floor = floor.filter(|it| !it.is_empty() && !faults.has(PlantedBug::ReplayBelowFloor));
    let is_new = |write: &ReplayedWrite<'_>| {
        !floor.is_some_and(|it| it.has(write.table, write.key, write.stamp.clock))
    };
    let mut session = match sessions.take() {
        Ok(session) => session,
        // Transactions of this node have them, which end.
        Err(Error::Aborted(Aborted::Overloaded { .. })) => return Some(0),
        Err(error) => panic!("{} cannot be followed: {error}", replica.shard),
    };
    let last_wins = faults.has(PlantedBug::ReplayInArrivalOrder);
    let mut done = 0;
    for _ in 0..TRIES {
        let removable = removable(replica, epoch, faults);
        let report = |write: &ReplayedWrite<'_>, won| {
            // A row of a dropped table is not applied, and gives way to nothing.
            if let Some(observations) = &mut observe
                && (won || !replica.store.is_dropped(write.table))
            {
                let (stamp, key) = (write.stamp.to_stamp(), write.key.to_vec());
                let (shard, table) = (replica.shard, write.table);
                observations.push(AppliedWrite { shard, stamp, table, key, won }.into());
            }
        };
        let rest = writes.clone().filter(is_new).skip(done);
        let stopped = session.replay(rest, last_wins, removable, report);
        match stopped {
            Ok(None) => return None,
            Ok(Some(place)) => done += place,
            Err(error) => panic!("{} cannot be followed: {error}", replica.shard),
        }
        std::hint::spin_loop();
    }
    let mut places = writes.enumerate().filter(|(_, write)| is_new(write)).skip(done);
    places.next().map(|(place, _)| place)
}

/// May a tombstone leave the index, while writes of `epoch` are applied?
fn removable(
    replica: &ShardReplica,
    epoch: Epoch,
    faults: PlantedBugs,
) -> impl Fn(StampRef<'_>) -> bool {
    let complete = replica.removable();
    let everywhere = faults.has(PlantedBug::DropUnreachedTombstones);
    move |tombstone| tombstone.epoch == epoch && (tombstone.clock <= complete || everywhere)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::execution::Limits;
    use shoal_types::{Clock, NodeId, Stamp, TableId};

    #[test]
    fn without_a_session_it_is_tried_again_later() {
        let topology = Topology::symmetric(1, 1, 1, 0, 1)
            .with_tables([("t", Partitioning::Hash { prefix_bytes: 0 })])
            .expect("a valid topology");
        let limits = Limits { sessions_max: 1, ..Limits::default() };
        let replica = &ShardReplica::all(&topology, NodeId(0), Epoch(1), &limits)[0];
        let stamp = Stamp::local(Epoch(1), Clock(1));
        let replay = || {
            let sessions = SessionPool::new(replica.store.clone(), usize::MAX);
            let (key, value) = (&b"key"[..], Some(&b"value"[..]));
            let write = ReplayedWrite { table: TableId(0), key, value, stamp: stamp.as_ref() };
            let (writes, observe) = (std::iter::once(write), None::<&mut Vec<AppliedWrite>>);
            super::replay(replica, None, &sessions, writes, PlantedBugs::default(), observe)
        };
        let own = SessionPool::new(replica.store.clone(), usize::MAX);
        let session = own.take().expect("there is one");
        assert_eq!(replay(), Some(0), "it is in use");
        drop((session, own));
        assert_eq!(replay(), None);
    }
}
