//! What was rolled back leaves the stores: in the background here, and whenever it is met (design
//! §5, "Failure").
//!
//! Each worker of a node makes its own pass over a shard that the node has led, once the shard has ended an
//! epoch that lost something: by then it installs nothing of that any more, and the last worker's pass
//! finds all that any of them had installed. It makes another whenever a further shard has ended that epoch: no pass waits
//! until the epoch is settled, which never happens while a shard is lost (rule M12). A replica that took a copy makes
//! passes, too: it rolls back like any other (rule M10).

use super::{Effects, Mako};
use crate::faults::Fault;
use crate::observation::Observation;
use crate::replication::replica::Replica;
use std::cell::RefCell;
use std::time::Duration;
use store::RollBack;
use types::{Clock, StampRef, Time, VectorWatermark};

/// Records that a step looks at.
const RECORDS_MAX: usize = 256;

/// After this the next part follows,
const PAUSE: Duration = Duration::from_micros(200);

/// and after this, where locks were in the way.
pub(super) const LOCKED_PAUSE: Duration = Duration::from_millis(2);

/// A pass over a store.
pub(super) struct Sweep {
    /// The place of the shard.
    at: usize,
    cursor: RollBack,
    due: Time,
    /// More is to be swept since it began: another follows.
    again: bool,
}

impl Mako {
    /// An epoch has ended like this: what it lost is to be swept out.
    pub(super) fn begin_sweeps(&mut self, last: &VectorWatermark, effects: &mut Effects) {
        for at in 0..self.led.len() {
            // What a leader that was deposed unheard goes on to install would come behind the pass.
            self.drop_installing(at, |epoch| epoch == last.epoch(), effects);
            if !last.is_whole() {
                self.begin_sweep(at);
            }
        }
    }

    /// A shard has ended the epoch at this place, which is not settled: what is lost of it by now is to be swept out of the
    /// shards that have ended it themselves.
    pub(super) fn begin_sweeps_of_live(&mut self, live: usize, effects: &mut Effects) {
        if self.options().faults.has(Fault::SweepSettled) {
            return;
        }
        let epoch = self.live[live].epoch();
        for at in 0..self.led.len() {
            let loses = {
                let watermarks = self.desk.hub.watermarks.borrow();
                let is_over = watermarks.end_of(epoch, self.led[at].lead.shard).is_some();
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
        let led = &self.led[at];
        let replica = self.shared.replica(led.lead.shard).expect("held");
        let had_uncommitted = led.ever_led || !replica.floor().is_empty();
        let led_only = self.options().faults.has(Fault::SweepLedOnly);
        let is_swept = if led_only { led.serves() } else { had_uncommitted };
        let under_way = self.sweeps.iter_mut().find(|sweep| sweep.at == at);
        match under_way {
            // One that begins anew whenever something ends may never come to its own end.
            Some(sweep) => sweep.again = is_swept,
            None if is_swept => {
                let (cursor, due) = (RollBack::default(), self.desk.hub.now.get());
                self.sweeps.push(Sweep { at, cursor, due, again: false });
            }
            None => {}
        }
    }

    /// Goes on with passes, for a while.
    ///
    /// # Panics
    /// If a tombstone goes before all workers have replayed what is older (M6).
    pub(super) fn sweep(&mut self, now: Time, effects: &mut Effects) {
        // The one that has waited longest: each shard has its turn.
        let due = self.sweeps.iter_mut().filter(|sweep| sweep.due <= now);
        let Some(sweep) = due.min_by_key(|sweep| sweep.due) else { return };
        let own = &self.desk.hub.own[sweep.at];
        let Ok(mut session) = own.sessions.take() else {
            sweep.due = now + LOCKED_PAUSE;
            return;
        };
        let (shard, watermarks) = (own.shard, self.desk.hub.watermarks.borrow());
        let rejected = |stamp: StampRef<'_>| watermarks.rejects(shard, stamp);
        // Where the node leads no more, older writes may still be on their way to a tombstone's key.
        let reached = || self.shared.replica(shard).map_or(Clock::ZERO, Replica::reached);
        let (before, faults) = (reached(), self.shared.setup.options.faults);
        let is_last = |clock| clock <= before || faults.has(Fault::SweepUnreached);
        let gone = RefCell::new(Vec::new());
        let committed = |stamp: StampRef<'_>| {
            let covered = watermarks.covers(shard, stamp);
            let goes = is_last(stamp.clock) && (covered || faults.has(Fault::SweepUncommitted));
            if goes {
                gone.borrow_mut().push(stamp.to_stamp());
            }
            goes
        };
        let done = session.roll_back(&sweep.cursor, RECORDS_MAX, rejected, committed);
        self.desk.counters.discarded += done.discarded as u64;
        for stamp in gone.into_inner() {
            let (clock, reached) = (stamp.clock, reached());
            assert!(
                clock <= reached,
                "M6: a tombstone of {shard} at {clock} goes, and its streams are replayed up to {reached}"
            );
            effects.observe(|| Observation::Swept { shard, stamp });
        }
        match done.next {
            Some(next) => {
                sweep.cursor = next;
                sweep.due = now + if done.over { LOCKED_PAUSE } else { PAUSE };
            }
            None if sweep.again => {
                (sweep.cursor, sweep.again) = (RollBack::default(), false);
                sweep.due = now + PAUSE;
            }
            None => {
                let at = sweep.at;
                self.sweeps.retain(|sweep| sweep.at != at);
            }
        }
    }

    /// When to go on.
    pub(super) fn next_sweep(&self) -> Option<Time> {
        self.sweeps.iter().map(|sweep| sweep.due).min()
    }
}
