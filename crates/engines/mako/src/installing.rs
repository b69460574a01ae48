//! Installations in slices: a transaction's piece that is too long for one step (rule M3).
//!
//! ```text
//!   certified ─► part ─► part ─► … ─► last part ─► clock resolved
//!                one a step, an entry of the stream each; with each its versions are installed, its locks released
//! ```
//! However much a transaction writes, a step encodes no more of it than [`MakoOptions::part_bytes_max`] and
//! `part_writes_max` say, and one write: a lease must not run out behind it. Each **part** is a piece of its own with
//! the stamp of all. The transaction's clock is in flight until the last part is in the stream:
//! so the safe clock of each entry with an earlier part is below the stamp's, no watermark covers one part without the
//! others, and an end of the epoch in between rejects them all, here as on other replicas. Who reads or overwrites what is
//! installed of them depends on the clock (M1, M2), and is covered or rejected with them; what is not installed is
//! locked, so a transaction that meets some versions of before and some of after gives up.
//!
//! Parts go no further ahead of what is durable than [`PARTS_AHEAD_MAX`](shoal_engine::replication::codec::PARTS_AHEAD_MAX)
//! entries.

use super::leader_shard;
use super::{Mako, MakoEffects};
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Epoch, Stamp, StampRef};
use std::fmt;

/// A certified transaction on a shard that this node leads, some parts of which may be in the stream.
pub(super) struct Installing {
    transaction: TransactionId,
    locked: Locked<PooledSession>,
    stamp: Stamp,
    /// The writes before are in the stream.
    next: usize,
}

impl fmt::Debug for Installing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Installing { transaction, stamp, next, .. } = self;
        write!(f, "Installing({transaction}, {stamp:?}, from {next})")
    }
}

impl Mako {
    /// Installs a branch of a certified transaction, or begins to.
    pub(super) fn install_branch(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        stamp: &Stamp,
        effects: &mut MakoEffects,
    ) {
        self.runtime.counters.stamps += 1;
        self.runtime.counters.stamp_entries += 1 + stamp.as_ref().remote.len() as u64;
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
    pub(super) fn install_more(&mut self, at: usize, effects: &mut MakoEffects) {
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
        *next = self.leader_shards[at].append_part(
            self.runtime.worker_context.now.get(),
            locked,
            stamp,
            from,
            options,
        );
        if let Some(observations) = &mut effects.observations {
            let part = from..*next;
            observations.extend(leader_shard::installed(transaction, shard, stamp, locked, part));
        }
        self.runtime.worker_context.worked(*next - from);
        let watermarks = self.watermarks.borrow();
        let committed = |old: StampRef<'_>| watermarks.covers(shard, old);
        if *next < writes {
            locked.install_until(*next, stamp.as_ref(), committed);
            return Some(installing);
        }
        let Installing { locked, stamp, .. } = installing;
        locked.install(stamp.as_ref(), committed);
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
    pub(super) fn drop_installing(
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
