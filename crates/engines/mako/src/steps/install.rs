//! A certified transaction's writes go into the store and the stream: at once, or in slices (see
//! [`installing`](crate::installing)).

use crate::installing::Installing;
use crate::leader_shard;
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Epoch, Stamp, StampRef};

impl Mako {
    /// Installs a branch of a certified transaction, or begins to.
    pub(crate) fn install_branch(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        stamp: &Stamp,
        effects: &mut MakoEffects,
    ) {
        self.counters.stamps += 1;
        self.counters.stamp_entries += 1 + stamp.as_ref().remote.len() as u64;
        let installing = Installing { transaction, locked, stamp: stamp.clone(), next: 0 };
        // A short one has nothing to wait for.
        if let Some(rest) = self.install_part(at, installing, effects) {
            if self.options().faults.has(MakoPlantedBug::SafeClockPastParts) {
                self.leader_shards[at].lead.end_in_flight(stamp.clock);
            } else {
                self.leader_shards[at].lead.resolve(stamp.clock);
            }
            self.leader_shards[at].install_later(rest);
        }
        self.note_floor(at, stamp, effects);
    }

    /// Goes on with what is installed in slices on the shard at this place: by one part.
    pub(crate) fn install_more(&mut self, at: usize, effects: &mut MakoEffects) {
        let Some(installing) = self.leader_shards[at].next_installing() else { return };
        if let Some(rest) = self.install_part(at, installing, effects) {
            self.leader_shards[at].install_next(rest);
        }
    }

    /// Appends the next part, and installs its versions. Gives back what is left, unless that was the last.
    fn install_part(
        &mut self,
        at: usize,
        mut installing: Installing,
        effects: &mut MakoEffects,
    ) -> Option<Installing> {
        let options = &self.shared.setup.options;
        let Installing { transaction, locked, stamp, next } = &mut installing;
        let (transaction, shard, clock) =
            (*transaction, self.leader_shards[at].lead.shard, stamp.clock);
        let (from, writes) = (*next, locked.size().writes);
        let watermarks = self.watermarks.borrow();
        *next = self.leader_shards[at].append_part(
            self.runtime.worker_context.now.get(),
            locked,
            stamp,
            from,
            &watermarks,
            options,
        );
        if let Some(observations) = &mut effects.observations {
            let part = from..*next;
            observations.extend(leader_shard::installed(transaction, shard, stamp, locked, part));
        }
        self.runtime.worker_context.worked(*next - from);
        let committed = |old: StampRef<'_>| watermarks.covers(shard, old);
        let queue = self.leader_shards[at].overwritten();
        locked.install_and_queue(*next, stamp.as_ref(), committed, queue);
        if *next < writes {
            return Some(installing);
        }
        drop(installing);
        if from == 0 || !options.faults.has(MakoPlantedBug::SafeClockPastParts) {
            self.leader_shards[at].lead.end_in_flight(clock);
        }
        drop(watermarks);
        effects.observe(|| MakoObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: true,
        });
        None
    }

    /// Gives up what is installed in slices and belongs to an epoch that is `over` on the shard. The parts that are in the
    /// stream are above what the epoch's end says of it, and so they are lost on every replica.
    pub(crate) fn drop_installing(
        &mut self,
        at: usize,
        over: impl Fn(Epoch) -> bool,
        effects: &mut MakoEffects,
    ) {
        let dropped = self.leader_shards[at].drop_installing(|it| over(it.stamp.epoch));
        for it in dropped {
            let Installing { transaction, locked, stamp, .. } = it;
            let (shard, clock) = (self.leader_shards[at].lead.shard, stamp.clock);
            drop(locked);
            if !self.options().faults.has(MakoPlantedBug::SafeClockPastParts) {
                self.leader_shards[at].lead.end_in_flight(clock);
            }
            let installed = false;
            effects.observe(|| MakoObservation::Resolved { transaction, shard, clock, installed });
        }
    }
}
