//! The transactions that wait until the watermark covers what they reveal (rule M5), epoch by epoch, and no longer than a
//! transaction may wait for other shards (rule M11).
//!
//! Invariants:
//!
//! - Each epoch that is not settled has its waits, oldest first; a settled one has none.
//! - No wait is over before [`CommitWaits::next_due`]: what is looked up then is found to be over, or gives a later time.

use super::durability_wait::DurabilityWait;
use crate::watermarks::Watermarks;
use shoal_engine::execution::attempt::Attempt;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::slot::ResultSlot;
use shoal_types::{Epoch, Result, ShardId, Stamp, Time, VectorWatermark};
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

/// A transaction that waits for the watermark.
pub(super) struct CommitWaiter {
    pub(super) attempt: WaitingAttempt,
    /// Since when; later by as much as it may wait longer than others.
    pub(super) since: Time,
    /// Where it waits to show its client what it has read; `None` once it is certified.
    pub(super) reveals: Option<Rc<ResultSlot<Result<()>>>>,
}

/// The attempt of a transaction that waits.
pub(super) enum WaitingAttempt {
    /// It has touched one own shard, and nothing else is known of it.
    Alone(Attempt),
    /// It may have other branches.
    Shared(Rc<RemoteBranches>),
}

impl WaitingAttempt {
    /// The number of keys that it writes, if they may be more than a step installs.
    pub(super) fn keys(&self) -> usize {
        match self {
            WaitingAttempt::Alone(_) => 0,
            WaitingAttempt::Shared(remote_branches) => remote_branches.keys(),
        }
    }
}

impl Deref for WaitingAttempt {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        match self {
            WaitingAttempt::Alone(attempt) => attempt,
            WaitingAttempt::Shared(remote_branches) => remote_branches,
        }
    }
}

/// All transactions of a worker that wait for the watermark.
pub(super) struct CommitWaits {
    shards: usize,
    /// Of each epoch that is not settled, oldest first.
    epochs: Vec<(Epoch, DurabilityWait<CommitWaiter>)>,
    /// None has waited for too long before.
    due: Time,
}

impl CommitWaits {
    /// None, in a configuration of so many shards whose first epoch is this one.
    pub(super) fn new(first: Epoch, shards: usize) -> CommitWaits {
        let epochs = vec![(first, DurabilityWait::new(shards))];
        CommitWaits { shards, epochs, due: Time::MAX }
    }

    /// An epoch has opened.
    pub(super) fn open(&mut self, epoch: Epoch) {
        self.epochs.push((epoch, DurabilityWait::new(self.shards)));
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.epochs.iter().map(|(_, waits)| waits.len()).sum()
    }

    /// Has a transaction wait for `stamp`, kept by `own`, until that time at the latest; gives it back if it need not wait.
    pub(super) fn push(
        &mut self,
        watermark: &VectorWatermark,
        own: ShardId,
        stamp: Stamp,
        waiter: CommitWaiter,
        until: Time,
    ) -> Option<(Stamp, CommitWaiter)> {
        let waits = self.get_mut(stamp.epoch).expect("it is not settled");
        let covered = waits.push(watermark, own, stamp, waiter);
        if covered.is_none() {
            self.due = self.due.min(until);
        }
        covered
    }

    /// Takes out what the watermark of an epoch covers.
    pub(super) fn advance(
        &mut self,
        watermark: &VectorWatermark,
        done: impl FnMut(ShardId, Stamp, CommitWaiter),
    ) {
        self.get_mut(watermark.epoch()).expect("it is not settled").advance(watermark, done);
    }

    /// Takes out what waits of an epoch that is not settled.
    pub(super) fn take_all(&mut self, epoch: Epoch) -> Vec<(ShardId, Stamp, CommitWaiter)> {
        self.get_mut(epoch).into_iter().flat_map(DurabilityWait::take_all).collect()
    }

    /// An epoch is settled. Takes out what waits of it.
    pub(super) fn settle(&mut self, epoch: Epoch) -> Vec<(ShardId, Stamp, CommitWaiter)> {
        let waiting = self.take_all(epoch);
        self.epochs.retain(|(other, _)| *other != epoch);
        waiting
    }

    /// Takes out what has waited for so long, each with a shard that it waits for.
    pub(super) fn expire(
        &mut self,
        now: Time,
        wait_max: Duration,
        watermarks: &Watermarks,
    ) -> Vec<(ShardId, CommitWaiter)> {
        let mut expired = Vec::new();
        self.due = Time::MAX;
        for (epoch, waits) in &mut self.epochs {
            let watermark = watermarks.live(*epoch).expect("it is not settled");
            let is_over = |waiter: &CommitWaiter| waiter.since + wait_max <= now;
            expired.extend(waits.take_if(watermark, is_over));
            let next = waits.iter().map(|waiter| waiter.since + wait_max).min();
            self.due = self.due.min(next.unwrap_or(Time::MAX));
        }
        expired
    }

    /// When the next wait may be over.
    pub(super) fn next_due(&self) -> Option<Time> {
        (self.due < Time::MAX).then_some(self.due)
    }

    fn get_mut(&mut self, epoch: Epoch) -> Option<&mut DurabilityWait<CommitWaiter>> {
        // Mostly it is the open one.
        let waits = self.epochs.iter_mut().rev();
        waits.map(|(other, waits)| (*other, waits)).find(|it| it.0 == epoch).map(|(_, it)| it)
    }

    /// Asserts the invariants above, where these epochs are not settled.
    pub(super) fn assert_invariants(&self, live: impl Iterator<Item = Epoch>) {
        let own = self.epochs.iter().map(|(epoch, _)| *epoch);
        assert!(
            own.eq(live),
            "M5: there are waits of other epochs than those that are not settled"
        );
        assert!(
            self.due < Time::MAX || self.epochs.iter().all(|(_, waits)| waits.len() == 0),
            "M11: a transaction waits, and is never looked at"
        );
    }
}
