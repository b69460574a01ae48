//! Outcomes and reads that wait for the watermark are revealed once it covers them (rule M5).

use crate::commit_waits::CommitWaiter;
use crate::observation::MakoObservation;
use crate::{Mako, MakoEffects};
use shoal_types::{ShardId, Stamp};

impl Mako {
    /// Has `waiter` answered as soon as the watermark covers `stamp`, kept by `own`.
    pub(crate) fn await_cover(
        &mut self,
        own: ShardId,
        stamp: Stamp,
        waiter: CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        if self.rejects(own, stamp.as_ref()) {
            return self.tell_rolled_back(&stamp, &waiter, effects);
        }
        if self.epochs.get(stamp.epoch).is_none() {
            return self.tell(own, stamp, &waiter, effects);
        }
        let until = waiter.since + self.runtime.worker_context.limits.shard_wait_max;
        let done = {
            let watermarks = self.watermarks.borrow();
            let watermark = watermarks.live(stamp.epoch).expect("it is not settled");
            self.waits.push(watermark, own, stamp, waiter, until)
        };
        if let Some((stamp, waiter)) = done {
            self.tell(own, stamp, &waiter, effects);
        }
    }

    /// The watermark covers `stamp`: what waited may be revealed (rule M5).
    pub(crate) fn tell(
        &mut self,
        own: ShardId,
        stamp: Stamp,
        waiter: &CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        assert!(
            self.watermarks.borrow().covers(own, stamp.as_ref()),
            "M5: {} would reveal {stamp:?}",
            waiter.attempt.id
        );
        self.reveal(own, stamp, waiter, effects);
    }

    pub(crate) fn reveal(
        &mut self,
        own: ShardId,
        stamp: Stamp,
        waiter: &CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        let transaction = waiter.attempt.id;
        effects.observe(|| MakoObservation::Acknowledged { transaction, own, stamp });
        match &waiter.reveals {
            None => self.runtime.commit(&waiter.attempt),
            Some(slot) => slot.fill(Ok(())),
        }
    }
}
