//! How a follower applies a transaction's writes, in any order transactions reach it (Thomas's
//! rule: on one key, the greatest epoch and clock wins).
//!
//! Each worker replays the stream of its number, beside the others and without a word to them. A
//! tombstone has to stay until nothing older can arrive, or that would come back to process.

use crate::applied_write::AppliedWrite;
use crate::codec::StreamWrite;
use crate::replay_floor::ReplayFloor;
use crate::replica::ShardReplica;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::{PlantedBug, PlantedBugs};
use shoal_store::{Locked, ReplayedWrite, Session};
use shoal_types::{Aborted, Conflict, Epoch, Error, Result, ShardId, Stamp, StampRef};
use std::ops::DerefMut;
use std::rc::Rc;

/// Another worker of this node holds a lock for as long as it takes to replay a transaction, which is shorter than so many
/// tries; or for much longer, if it does not know yet that the node leads no more. The caller then tries again later.
const TRIES: u32 = 16;

/// Applies the writes under a stamp, as the shard keeps it. False if another worker holds a lock and does
/// not release it, or all sessions of the store are in use: then nothing was done, and it is to be tried again later.
///
/// # Panics
/// Where the store takes no more: a follower that cannot follow must not pretend to.
#[must_use]
pub fn replay(
    replica: &ShardReplica,
    sessions: &Rc<SessionPool>,
    stamp: &Stamp,
    writes: &[StreamWrite],
    faults: PlantedBugs,
    mut observe: Option<&mut Vec<impl From<AppliedWrite>>>,
) -> bool {
    let floor = replica.floor();
    let is_new = |write: &&StreamWrite| {
        faults.has(PlantedBug::ReplayBelowFloor) || !floor.has(write.table, &write.key, stamp.clock)
    };
    for _ in 0..TRIES {
        let writes = writes.iter().filter(is_new);
        let Err(error) =
            try_replay(replica, sessions, stamp, writes, faults, observe.as_deref_mut())
        else {
            return true;
        };
        match error {
            // Of a table that was dropped meanwhile the next attempt writes nothing.
            Error::Aborted(Aborted::Conflict(
                Conflict::Locked { .. } | Conflict::TableDropped { .. },
            )) => std::hint::spin_loop(),
            // Transactions of this node have them, which end.
            Error::Aborted(Aborted::Overloaded { .. }) => return false,
            other => panic!("{} cannot be followed: {other}", replica.shard),
        }
    }
    false
}

/// Applies writes one by one, those above the floor, or all of them where there is none. Of writes of one key the newest
/// should come first: the others are not even copied then. Returns the place of the first that is to be tried again later,
/// since another worker holds a lock and does not release it, or all sessions of the store are in use; `None` where all
/// are done.
///
/// # Panics
/// Where the store takes no more: a follower that cannot follow must not pretend to.
#[must_use]
pub fn replay_each<'w>(
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
            if let Some(observations) = &mut observe {
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

fn try_replay<'w>(
    replica: &ShardReplica,
    sessions: &Rc<SessionPool>,
    stamp: &Stamp,
    writes: impl Iterator<Item = &'w StreamWrite>,
    faults: PlantedBugs,
    observe: Option<&mut Vec<impl From<AppliedWrite>>>,
) -> Result<()> {
    let transaction = shoal_store::Transaction::on(sessions.take()?);
    for write in writes {
        transaction.replicate(write.table, &write.key, write.value.as_deref())?;
    }
    let removable = removable(replica, stamp.epoch, faults);
    let last_wins = faults.has(PlantedBug::ReplayInArrivalOrder);
    publish(replica.shard, transaction.lock()?, stamp, last_wins, removable, observe);
    Ok(())
}

/// Publishes those of the writes that are newer than what is there; all, where the last wins. Of the tombstones that
/// come to light go those that are removable.
pub fn publish<S: DerefMut<Target = Session>>(
    shard: ShardId,
    locked: Locked<S>,
    stamp: &Stamp,
    last_wins: bool,
    removable: impl Fn(StampRef<'_>) -> bool,
    mut observe: Option<&mut Vec<impl From<AppliedWrite>>>,
) {
    let order = (stamp.epoch, stamp.clock);
    locked.replay(
        stamp.as_ref(),
        |newest| (newest.epoch, newest.clock) < order || last_wins,
        removable,
        |table, key, won| {
            if let Some(observations) = &mut observe {
                let (stamp, key) = (stamp.clone(), key.to_vec());
                observations.push(AppliedWrite { shard, stamp, table, key, won }.into());
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::execution::Limits;
    use shoal_types::{Clock, Epoch, NodeId, TableId};

    #[test]
    fn without_a_session_it_is_tried_again_later() {
        let topology = Topology::symmetric(1, 1, 1, 0, 1)
            .with_tables([("t", Partitioning::Hash { prefix_bytes: 0 })])
            .expect("a valid topology");
        let limits = Limits { sessions_max: 1, ..Limits::default() };
        let replica = &ShardReplica::all(&topology, NodeId(0), Epoch(1), &limits)[0];
        let (key, value) = (Bytes::from("key"), Some(Bytes::from("value")));
        let writes = [StreamWrite { table: TableId(0), key, value }];
        let replay = || {
            let (sessions, stamp) = (
                SessionPool::new(replica.store.clone(), usize::MAX),
                Stamp::local(Epoch(1), Clock(1)),
            );
            let observations = None::<&mut Vec<AppliedWrite>>;
            replay(replica, &sessions, &stamp, &writes, PlantedBugs::default(), observations)
        };
        let own = SessionPool::new(replica.store.clone(), usize::MAX);
        let session = own.take().expect("there is one");
        assert!(!replay(), "it is in use");
        drop((session, own));
        assert!(replay());
    }
}
