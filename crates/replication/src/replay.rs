//! How a follower applies a transaction's writes, in any order transactions reach it (Thomas's
//! rule: on one key, the greatest epoch and clock wins).
//!
//! Each worker replays the stream of its number, beside the others and without a word to them. A
//! tombstone has to stay until nothing older can arrive, or that would come back to process.

use crate::applied_write::AppliedWrite;
use crate::replay_floor::ReplayFloor;
use crate::replica::ShardReplica;
use shoal_engine::execution::session_pool::{PooledSession, SessionPool};
use shoal_engine::{PlantedBug, PlantedBugs};
use shoal_store::{Change, ReplayRule, Replayed, ReplayedWrite};
use shoal_types::{Aborted, Epoch, Error, StampRef};
use std::rc::Rc;

/// Another worker of this node holds a lock for as long as it takes to replay a transaction, which is shorter than so many
/// tries; or for much longer, if it does not know yet that the node leads no more. The caller then tries again later.
const TRIES: u32 = 16;

/// What of some writes is not applied.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Unapplied<'w> {
    /// The first of those that were not looked at: another worker holds a lock and does not release it, or all sessions of the
    /// store are in use.
    pub from: Option<usize>,
    /// Deltas before that place whose bases have not come, with their places, in ascending order: the bases are in the streams
    /// of other workers.
    pub waiting: Vec<(usize, ReplayedWrite<'w>)>,
    /// Deltas before that place whose bases are not here, and are of those that a copy has brought, or what came in their place. They
    /// are done, unless the copy has brought the base elsewhere than in the store.
    pub replaced: Vec<(usize, ReplayedWrite<'w>)>,
}

impl<'w> Unapplied<'w> {
    /// Whether all of the writes are applied.
    pub fn is_empty(&self) -> bool {
        self.from.is_none() && self.waiting.is_empty()
    }

    /// A delta that was replaced waits for its base after all.
    pub fn wait(&mut self, place: usize, write: ReplayedWrite<'w>) {
        let at = self.waiting.partition_point(|(other, _)| *other < place);
        self.waiting.insert(at, (place, write));
    }

    /// How many of so many writes are applied before the first that is not.
    pub fn applied(&self, writes: usize) -> usize {
        let first = self.waiting.first().map(|(place, _)| *place);
        first.into_iter().chain(self.from).min().unwrap_or(writes)
    }
}

/// Applies writes one by one, those above the floor, or all of them where there is none. Of writes of one key the newest
/// should come first: the others are not even copied then. What is returned is to be tried again later.
///
/// A delta waits for its base. Where the floor has the base, it does not: what is there is newer, or was deleted later
/// and left the index.
///
/// # Panics
/// Where the store takes no more: a follower that cannot follow must not pretend to.
pub fn replay<'w>(
    replica: &ShardReplica,
    floor: Option<&ReplayFloor>,
    sessions: &Rc<SessionPool>,
    writes: impl Iterator<Item = ReplayedWrite<'w>> + Clone,
    faults: PlantedBugs,
    observe: Option<&mut Vec<impl From<AppliedWrite>>>,
) -> Unapplied<'w> {
    let mut unapplied = Unapplied::default();
    let Some(ReplayedWrite { stamp: StampRef { epoch, .. }, .. }) = writes.clone().next() else {
        return unapplied;
    };
    let floor = floor.filter(|it| !it.is_empty() && !faults.has(PlantedBug::ReplayBelowFloor));
    let session = match sessions.take() {
        Ok(session) => session,
        // Transactions of this node have them, which end.
        Err(Error::Aborted(Aborted::Overloaded { .. })) => {
            return Unapplied { from: Some(0), ..unapplied };
        }
        Err(error) => panic!("{} cannot be followed: {error}", replica.shard),
    };
    let mut pass = ReplayPass { replica, floor, session, faults, epoch, observe };
    unapplied.from = pass.apply(writes.enumerate(), &mut unapplied);
    // One may be the base of another that is newer, and was looked at before.
    while !unapplied.waiting.is_empty() {
        let before = std::mem::take(&mut unapplied.waiting);
        let stopped = pass.apply(before.iter().rev().copied(), &mut unapplied);
        let rest = stopped.map(|at| before.iter().rev().skip_while(move |(place, _)| *place != at));
        unapplied.waiting.extend(rest.into_iter().flatten());
        unapplied.waiting.sort_unstable_by_key(|(place, _)| *place);
        if stopped.is_some() || unapplied.waiting.len() == before.len() {
            break;
        }
    }
    unapplied
}

/// Writes are applied to a replica.
struct ReplayPass<'p, O> {
    replica: &'p ShardReplica,
    floor: Option<&'p ReplayFloor>,
    session: PooledSession,
    faults: PlantedBugs,
    epoch: Epoch,
    observe: Option<&'p mut Vec<O>>,
}

impl<O: From<AppliedWrite>> ReplayPass<'_, O> {
    /// Applies writes, and adds those that wait for their bases, and those whose bases were replaced. Returns the place of the
    /// first that was not looked at.
    fn apply<'w>(
        &mut self,
        writes: impl Iterator<Item = (usize, ReplayedWrite<'w>)> + Clone,
        unapplied: &mut Unapplied<'w>,
    ) -> Option<usize> {
        let ReplayPass { replica, floor, session, faults, epoch, observe } = self;
        let has = |write: &ReplayedWrite<'_>, clock| {
            floor.is_some_and(|floor| floor.has(write.table, write.key, clock))
        };
        let writes = writes.filter(|(_, write)| !has(write, write.stamp.clock));
        let removable = removable(replica, *epoch, *faults);
        // Of the writes above the floor, with their numbers among those, and whether they have to wait.
        let mut without_base = Vec::new();
        let mut done = 0;
        let mut is_stopped = true;
        for _ in 0..TRIES {
            let mut seen = done;
            let report = |write: &ReplayedWrite<'w>, replayed| {
                let number = seen;
                seen += 1;
                if let (Replayed::Waits, Change::Delta(delta)) = (replayed, &write.change) {
                    // What a copy has brought in place of its base is newer, or left no trace.
                    without_base.push((number, *write, !has(write, delta.base.1)));
                    return;
                }
                // A row of a dropped table is not applied, and gives way to nothing.
                if let Some(observations) = observe
                    && (replayed == Replayed::Won || !replica.store.is_dropped(write.table))
                {
                    let (stamp, key) = (write.stamp.to_stamp(), write.key.to_vec());
                    let (shard, table, won) =
                        (replica.shard, write.table, replayed == Replayed::Won);
                    observations.push(AppliedWrite { shard, stamp, table, key, won }.into());
                }
            };
            let rest = writes.clone().skip(done).map(|(_, write)| write);
            match session.replay(rest, rule(*faults), &removable, report) {
                Ok(None) => {
                    is_stopped = false;
                    break;
                }
                Ok(Some(stopped)) => done += stopped,
                Err(error) => panic!("{} cannot be followed: {error}", replica.shard),
            }
            std::hint::spin_loop();
        }
        if without_base.is_empty() && !is_stopped {
            return None;
        }
        // Not looked for before: mostly nothing waits.
        let mut places = writes.map(|(place, _)| place).enumerate();
        let mut place = |number| places.find(|(at, _)| *at == number).map(|(_, place)| place);
        for (number, write, waits) in without_base {
            let list = if waits { &mut unapplied.waiting } else { &mut unapplied.replaced };
            list.push((place(number).expect("it is one of them"), write));
        }
        is_stopped.then(|| place(done)).flatten()
    }
}

/// Which versions give way.
fn rule(faults: PlantedBugs) -> ReplayRule {
    let planted = [
        (PlantedBug::ReplayInArrivalOrder, ReplayRule::LastWins),
        (PlantedBug::PatchAnyBase, ReplayRule::AnyBase),
        (PlantedBug::PatchNewer, ReplayRule::NewerBase),
    ];
    let planted = planted.into_iter().find(|(bug, _)| faults.has(*bug));
    planted.map_or(ReplayRule::NewestWins, |(_, rule)| rule)
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
            let (key, change) = (&b"key"[..], Change::Row(&b"value"[..]));
            let write = ReplayedWrite { table: TableId(0), key, change, stamp: stamp.as_ref() };
            let (writes, observe) = (std::iter::once(write), None::<&mut Vec<AppliedWrite>>);
            super::replay(replica, None, &sessions, writes, PlantedBugs::default(), observe)
        };
        let own = SessionPool::new(replica.store.clone(), usize::MAX);
        let session = own.take().expect("there is one");
        assert_eq!(replay().from, Some(0), "it is in use");
        drop((session, own));
        assert!(replay().is_empty());
    }
}
