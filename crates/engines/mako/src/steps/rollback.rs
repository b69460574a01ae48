//! What was rolled back leaves the stores: see [`rollback_collections`](crate::rollback_collections).

use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_types::{Clock, Epoch, StampRef, Time, VectorWatermark};
use std::cell::RefCell;

/// Records that a step looks at.
const RECORDS_MAX: usize = 256;

impl Mako {
    /// An epoch has ended like this: what it lost is to be swept out.
    pub(crate) fn begin_sweeps(&mut self, last: &VectorWatermark, effects: &mut MakoEffects) {
        for at in 0..self.leader_shards.len() {
            // What a leader that was deposed and has not learned it goes on to install would come behind the pass.
            self.drop_installing(at, |epoch| epoch == last.epoch(), effects);
            if !last.is_whole() {
                self.begin_sweep(at);
            }
        }
    }

    /// A shard has ended an epoch that is not settled: what is lost of it by now is to be swept out of the
    /// shards that have ended it themselves.
    pub(crate) fn begin_sweeps_of_live(&mut self, epoch: Epoch, effects: &mut MakoEffects) {
        if self.options().faults.has(MakoPlantedBug::CollectSettled) {
            return;
        }
        for at in 0..self.leader_shards.len() {
            let loses = {
                let watermarks = self.watermarks.borrow();
                let is_over = watermarks.end_of(epoch, self.leader_shards[at].lead.shard).is_some();
                let mut ended = watermarks.ended_in(epoch);
                is_over && ended.any(|other| watermarks.of(epoch, other) < Clock::MAX)
            };
            if loses {
                self.drop_installing(at, |other| other == epoch, effects);
                self.begin_sweep(at);
            }
        }
    }

    /// Begins a pass over the shard at this place, if the node's store may have what was never committed.
    fn begin_sweep(&mut self, at: usize) {
        let led = &self.leader_shards[at];
        let replica = self.shared.replica(led.lead.shard).expect("held");
        let had_uncommitted = led.ever_led() || !replica.floor().is_empty();
        let led_only = self.options().faults.has(MakoPlantedBug::CollectLedOnly);
        let is_swept = if led_only { led.serves() } else { had_uncommitted };
        self.collections.begin(at, is_swept, self.runtime.worker_context.now.get());
    }

    /// Goes on with passes, for a while.
    ///
    /// # Panics
    /// If a tombstone goes before all workers have replayed what is older (M6).
    pub(crate) fn collection(&mut self, now: Time, effects: &mut MakoEffects) {
        let Some(pass) = self.collections.next(now) else { return };
        let own = &self.runtime.worker_context.own[pass.at];
        let Ok(mut session) = own.sessions.take() else {
            pass.put_off(now);
            return;
        };
        let (shard, watermarks) = (own.shard, self.watermarks.borrow());
        let rejected = |stamp: StampRef<'_>| watermarks.rejects(shard, stamp);
        // Where the node leads no more, older writes may still be on their way to a tombstone's key.
        let reached =
            || self.shared.replica(shard).map_or(Clock::ZERO, |replica| replica.reached());
        let (before, faults) = (reached(), self.shared.setup.options.faults);
        let is_last = |clock| clock <= before || faults.has(MakoPlantedBug::CollectUnreached);
        let gone = RefCell::new(Vec::new());
        let committed = |stamp: StampRef<'_>| {
            let covered = watermarks.covers(shard, stamp);
            let goes =
                is_last(stamp.clock) && (covered || faults.has(MakoPlantedBug::CollectUncommitted));
            if goes {
                gone.borrow_mut().push(stamp.to_stamp());
            }
            goes
        };
        let done = session.roll_back(&pass.cursor, RECORDS_MAX, rejected, committed);
        self.counters.discarded += done.discarded as u64;
        for stamp in gone.into_inner() {
            let (clock, reached) = (stamp.clock, reached());
            assert!(
                clock <= reached,
                "M6: a tombstone of {shard} at {clock} goes, and its streams are replayed up to {reached}"
            );
            effects.observe(|| MakoObservation::Swept { shard, stamp });
        }
        let at = pass.at;
        self.collections.advance(at, done.next, done.over, now);
    }
}
