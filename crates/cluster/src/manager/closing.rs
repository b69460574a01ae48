//! The ends of epochs, shard by shard. The rule of final ends: per (epoch, shard) the first end that is accepted is final. When an
//! epoch has those of all shards, they are final for the epoch. Epochs end in any order; none waits for another.
//!
//! ```text
//!             e   e+1   e+2   e+3 (open)
//!   shard 0   ∞    ∞     ∞
//!   shard 1   17   …   [out since e+2]     e+2 is settled, e+1 is not
//! ```
//! A shard that lacks the end of an epoch that has been closed for two leases is *out* in a new epoch. In
//! that epoch, and until it is in again, it draws no clock, so its end is known. Only the age of the closed
//! epoch counts: where epochs follow each other quickly, every shard always lacks some end. It is in again,
//! by another new epoch, when it has reported how all closed epochs ended: by then its leader has prepared at
//! a majority, and its former ends are durable. Where its majority is lost for good, an operator accepts
//! that, and `accept_loss.rs` determines how these epochs end.

use super::command::LeadershipClaim;
use super::epoch_end::{EpochEnd, FinalEnds};
use super::state_machine::{Applied, ShardState, StateMachine};
use shoal_types::{Epoch, ShardId, Time};

impl StateMachine {
    /// A leader reports how an epoch ended on its shard. Returns false if another node leads the shard, or
    /// the shard has ended the epoch otherwise.
    pub(super) fn on_report(
        &mut self,
        claim: LeadershipClaim,
        epoch: Epoch,
        end: &EpochEnd,
        effects: &mut Vec<Applied>,
    ) -> bool {
        self.overwrite_final(claim.shard, epoch, end, effects);
        if self.claimed(&claim).is_none() || epoch >= self.epoch {
            return false;
        }
        effects.push(Applied::Reported { claim, epoch });
        match self.closing.get(&epoch).map(|ends| &ends[claim.shard.0 as usize]) {
            Some(Some(before)) => before == end,
            Some(None) => {
                self.accept_end(claim.shard, epoch, end, effects);
                true
            }
            None => true, // A repeat that was overtaken by the end.
        }
    }

    /// Records the end of a closed epoch on a shard that had none: it is final.
    ///
    /// # Panics
    /// If it had one.
    pub(super) fn accept_end(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        end: &EpochEnd,
        effects: &mut Vec<Applied>,
    ) {
        let ends = self.closing.get_mut(&epoch).expect("it is closed, and not settled");
        let before = ends[shard.0 as usize].replace(end.clone());
        assert_eq!(before, None, "final ends: {epoch} ends twice on {shard}");
        self.unpublished_ends = true;
        effects.push(Applied::Ended { shard, epoch, end: end.clone() });
        self.settle(epoch, effects);
    }

    /// A leader, or a coordinator, reports a blocked transaction in the open epoch, which is to be closed. While an earlier
    /// epoch is not settled, at most one epoch in a lease is closed for this: so frequent wrong reports cost
    /// no more than that.
    pub(super) fn on_close(
        &mut self,
        now: Time,
        claim: LeadershipClaim,
        epoch: Epoch,
        effects: &mut Vec<Applied>,
    ) -> bool {
        if !self.is_process(&claim) || epoch != self.epoch || !self.may_begin_epoch(now) {
            return false;
        }
        let chosen = self.promote_replicas();
        self.raise_epoch(&chosen, effects);
        true
    }

    /// Whether an epoch may begin for a reason that can wait: all former ones are settled, or the open one is
    /// as old as a lease.
    pub(super) fn may_begin_epoch(&self, now: Time) -> bool {
        let lease = self.options.lease_at_manager();
        self.closing.is_empty() || self.began.is_some_and(|began| began + lease <= now)
    }

    /// Closes the open epoch. The ends of the shards that are out are known.
    pub(super) fn close_epoch(&mut self) {
        let out = |shard: &ShardState| shard.assignment.out.map(|_| EpochEnd::Whole);
        self.closing.insert(self.epoch, self.shards.iter().map(out).collect());
    }

    /// Records the times of newly closed epochs, and drops those of settled ones.
    pub(super) fn note_closed(&mut self, now: Time) {
        self.closed_at.retain(|epoch, _| self.closing.contains_key(epoch));
        for epoch in self.closing.keys() {
            self.closed_at.entry(*epoch).or_insert(now);
        }
    }

    /// The first closed epoch of which a shard lacks the end.
    fn first_lacking(&self, at: usize) -> Option<Epoch> {
        self.closing.iter().find(|(_, ends)| ends[at].is_none()).map(|(epoch, _)| *epoch)
    }

    /// Whether this shard changes between out and in with the next epoch.
    fn turns(&self, at: usize, now: Time) -> bool {
        let (shard, losing) = (&self.shards[at], self.is_losing(at));
        match (shard.assignment.out, self.first_lacking(at)) {
            (None, _) if losing => true,
            (Some(_), _) if losing => false,
            (None, Some(first)) => {
                let patience = 2 * self.options.lease_at_manager();
                self.closed_at.get(&first).is_some_and(|since| *since + patience <= now)
            }
            // Another leader would have to prepare first.
            (Some(_), None) => shard.vacant.is_none(),
            (None, None) | (Some(_), Some(_)) => false,
        }
    }

    /// Whether an epoch should begin since a shard is to be out, or in again.
    pub(super) fn is_turn_due(&self, now: Time) -> bool {
        self.may_begin_epoch(now) && (0..self.shards.len()).any(|at| self.turns(at, now))
    }

    /// Begins an epoch if [`StateMachine::is_turn_due`].
    pub(super) fn turn_shards(&mut self, now: Time, effects: &mut Vec<Applied>) {
        if self.is_turn_due(now) {
            let chosen = self.promote_replicas();
            self.raise_epoch(&chosen, effects);
        }
    }

    /// An epoch begins: lists the shards that are out of it.
    pub(super) fn list_out(&mut self, effects: &mut Vec<Applied>) {
        let Some(now) = self.now else { return };
        for at in 0..self.shards.len() {
            if !self.turns(at, now) {
                continue;
            }
            let (id, epoch) = (ShardId(at as u32), self.epoch);
            let assignment = &mut self.shards[at].assignment;
            assignment.out = assignment.out.xor(Some(epoch));
            let since = assignment.out;
            effects.push(Applied::Out { shard: id, epoch, since });
            if since.is_some() && self.options.faults.out_ends_former {
                self.closing
                    .values_mut()
                    .for_each(|ends| _ = ends[at].get_or_insert(EpochEnd::Whole));
            }
        }
    }

    /// An epoch that has the ends of all shards is settled.
    pub(super) fn settle(&mut self, epoch: Epoch, effects: &mut Vec<Applied>) {
        let ends = self.closing.get(&epoch).filter(|ends| ends.iter().all(Option::is_some));
        let Some(ends) = ends else { return };
        let last = FinalEnds::new(epoch, ends.iter().flatten().cloned().collect());
        self.closing.remove(&epoch);
        let first = self.closing.keys().next().copied().unwrap_or(self.epoch);
        self.settled = Epoch(first.0 - 1);
        // All nodes take an epoch that is closed and in no list for one that ended whole.
        if !last.is_whole() {
            let revision = self.next_revision();
            let at = self.finals.partition_point(|(_, other)| other.epoch() < epoch);
            self.finals.insert(at, (revision, last.clone()));
        }
        self.changed = true;
        effects.push(Applied::Final(last));
    }

    /// Drops the oldest final ends where too many are kept, if all epochs up to them are settled, all live nodes
    /// have received them, and all shards have leaders, which write them into their streams on receipt. By
    /// then every stream with entries of such an epoch has its ends behind them. Nodes that are not alive need
    /// not have received it: one that returns without it ends its process.
    pub(super) fn forget_finals(&mut self) {
        let led = |shard: &ShardState| shard.vacant.is_none() && shard.assignment.out.is_none();
        if self.finals.len() <= self.options.finals_max || !self.shards.iter().all(led) {
            return;
        }
        let living = self.nodes.iter().filter(|node| node.alive);
        let known = living.map(|node| node.known).min().unwrap_or_default();
        while self.finals.len() > self.options.finals_max
            && let Some((revision, last)) = self.finals.first()
            && *revision <= known
            && last.epoch() <= self.settled
        {
            self.forgotten = last.epoch();
            self.finals.remove(0);
            self.changed = true;
        }
    }

    /// Changes final ends: only for a planted bug.
    fn overwrite_final(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        end: &EpochEnd,
        effects: &mut Vec<Applied>,
    ) {
        if !self.options.faults.late_report_overwrites {
            return;
        }
        let last = self.finals.iter_mut().find(|(_, last)| last.epoch() == epoch);
        if let Some((_, changed)) = last
            && changed.raise(shard, end)
        {
            effects.push(Applied::Final(changed.clone()));
            self.changed = true;
        }
    }
}
