//! What was rolled back leaves the stores: in the background here, and whenever it is met (design
//! §5, "Failure").
//!
//! Each worker of a node makes its own pass over a shard that the node has led, once the shard has ended an
//! epoch that lost something: by then it installs nothing of that any more, and the last worker's pass
//! finds all that any of them had installed. It makes another whenever a further shard has ended that epoch: no pass waits
//! until the epoch is settled, which never happens while a shard is lost (rule M12). A replica that took a copy makes
//! passes, too: it rolls back like any other (rule M10).

use super::{Mako, MakoEffects};
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::replication::replica::ShardReplica;
use shoal_store::RollBack;
use shoal_types::{Clock, StampRef, Time, VectorWatermark};
use std::cell::RefCell;
use std::time::Duration;

/// Records that a step looks at.
const RECORDS_MAX: usize = 256;

/// The pause before the next part.
const PAUSE: Duration = Duration::from_micros(200);

/// The pause before the next part where locks were in the way.
pub(super) const LOCKED_PAUSE: Duration = Duration::from_millis(2);

/// A pass over a store.
pub(super) struct RollbackCollection {
    /// The place of the shard.
    at: usize,
    cursor: RollBack,
    due: Time,
    /// More is to be swept since it began: another follows.
    again: bool,
}

impl Mako {
    /// An epoch has ended like this: what it lost is to be swept out.
    pub(super) fn begin_sweeps(&mut self, last: &VectorWatermark, effects: &mut MakoEffects) {
        for at in 0..self.leader_shards.len() {
            // What a leader that was deposed unheard goes on to install would come behind the pass.
            self.drop_installing(at, |epoch| epoch == last.epoch(), effects);
            if !last.is_whole() {
                self.begin_sweep(at);
            }
        }
    }

    /// A shard has ended the epoch at this place, which is not settled: what is lost of it by now is to be swept out of the
    /// shards that have ended it themselves.
    pub(super) fn begin_sweeps_of_live(&mut self, live: usize, effects: &mut MakoEffects) {
        if self.options().faults.has(MakoPlantedBug::SweepSettled) {
            return;
        }
        let epoch = self.live[live].epoch();
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
        let had_uncommitted = led.ever_led || !replica.floor().is_empty();
        let led_only = self.options().faults.has(MakoPlantedBug::SweepLedOnly);
        let is_swept = if led_only { led.serves() } else { had_uncommitted };
        let under_way = self.collections.iter_mut().find(|collection| collection.at == at);
        match under_way {
            // One that begins anew whenever something ends may never come to its own end.
            Some(collection) => collection.again = is_swept,
            None if is_swept => {
                let (cursor, due) = (RollBack::default(), self.runtime.worker_context.now.get());
                self.collections.push(RollbackCollection { at, cursor, due, again: false });
            }
            None => {}
        }
    }

    /// Goes on with passes, for a while.
    ///
    /// # Panics
    /// If a tombstone goes before all workers have replayed what is older (M6).
    pub(super) fn collection(&mut self, now: Time, effects: &mut MakoEffects) {
        // The one that has waited longest: each shard has its turn.
        let due = self.collections.iter_mut().filter(|collection| collection.due <= now);
        let Some(collection) = due.min_by_key(|collection| collection.due) else { return };
        let own = &self.runtime.worker_context.own[collection.at];
        let Ok(mut session) = own.sessions.take() else {
            collection.due = now + LOCKED_PAUSE;
            return;
        };
        let (shard, watermarks) = (own.shard, self.watermarks.borrow());
        let rejected = |stamp: StampRef<'_>| watermarks.rejects(shard, stamp);
        // Where the node leads no more, older writes may still be on their way to a tombstone's key.
        let reached = || self.shared.replica(shard).map_or(Clock::ZERO, ShardReplica::reached);
        let (before, faults) = (reached(), self.shared.setup.options.faults);
        let is_last = |clock| clock <= before || faults.has(MakoPlantedBug::SweepUnreached);
        let gone = RefCell::new(Vec::new());
        let committed = |stamp: StampRef<'_>| {
            let covered = watermarks.covers(shard, stamp);
            let goes =
                is_last(stamp.clock) && (covered || faults.has(MakoPlantedBug::SweepUncommitted));
            if goes {
                gone.borrow_mut().push(stamp.to_stamp());
            }
            goes
        };
        let done = session.roll_back(&collection.cursor, RECORDS_MAX, rejected, committed);
        self.runtime.counters.discarded += done.discarded as u64;
        for stamp in gone.into_inner() {
            let (clock, reached) = (stamp.clock, reached());
            assert!(
                clock <= reached,
                "M6: a tombstone of {shard} at {clock} goes, and its streams are replayed up to {reached}"
            );
            effects.observe(|| MakoObservation::Swept { shard, stamp });
        }
        match done.next {
            Some(next) => {
                collection.cursor = next;
                collection.due = now + if done.over { LOCKED_PAUSE } else { PAUSE };
            }
            None if collection.again => {
                (collection.cursor, collection.again) = (RollBack::default(), false);
                collection.due = now + PAUSE;
            }
            None => {
                let at = collection.at;
                self.collections.retain(|collection| collection.at != at);
            }
        }
    }

    /// When to go on.
    pub(super) fn next_sweep(&self) -> Option<Time> {
        self.collections.iter().map(|collection| collection.due).min()
    }
}
