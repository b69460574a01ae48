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
use shoal_store::RollBack;
use shoal_types::{Clock, Epoch, StampRef, Time, VectorWatermark};
use std::cell::RefCell;
use std::time::Duration;

/// Records that a step looks at.
const RECORDS_MAX: usize = 256;

/// The pause before the next part.
const PAUSE: Duration = Duration::from_micros(200);

/// The pause before the next part where locks were in the way.
pub(super) const LOCKED_PAUSE: Duration = Duration::from_millis(2);

/// A pass over a store.
struct RollbackCollection {
    /// The place of the shard.
    at: usize,
    cursor: RollBack,
    due: Time,
    /// More is to be swept since it began: another follows.
    again: bool,
}

/// The passes of a worker.
///
/// Invariant: there is at most one over each shard.
#[derive(Default)]
pub(super) struct RollbackCollections {
    passes: Vec<RollbackCollection>,
}

impl RollbackCollections {
    /// How many passes are under way.
    pub(super) fn len(&self) -> usize {
        self.passes.len()
    }

    /// When to go on with one.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.passes.iter().map(|pass| pass.due).min()
    }

    /// Begins a pass over the shard at this place, where that `is_swept`.
    fn begin(&mut self, at: usize, is_swept: bool, now: Time) {
        match self.passes.iter_mut().find(|pass| pass.at == at) {
            // One that begins anew whenever something ends may never come to its own end.
            Some(pass) => pass.again = is_swept,
            None if is_swept => {
                let cursor = RollBack::default();
                self.passes.push(RollbackCollection { at, cursor, due: now, again: false });
            }
            None => {}
        }
    }

    /// The one that is due and has waited longest: each shard has its turn.
    fn next(&mut self, now: Time) -> Option<&mut RollbackCollection> {
        let due = self.passes.iter_mut().filter(|pass| pass.due <= now);
        due.min_by_key(|pass| pass.due)
    }

    /// A pass over the shard at this place has come so far; `over` says that locks were in the way.
    fn advance(&mut self, at: usize, next: Option<RollBack>, over: bool, now: Time) {
        let pass = self.passes.iter_mut().find(|pass| pass.at == at).expect("it is under way");
        match next {
            Some(next) => {
                pass.cursor = next;
                pass.due = now + if over { LOCKED_PAUSE } else { PAUSE };
            }
            None if pass.again => {
                (pass.cursor, pass.again) = (RollBack::default(), false);
                pass.due = now + PAUSE;
            }
            None => self.passes.retain(|pass| pass.at != at),
        }
    }

    /// Asserts the invariant above.
    pub(super) fn assert_invariants(&self) {
        for (place, pass) in self.passes.iter().enumerate() {
            let is_twice = self.passes[..place].iter().any(|other| other.at == pass.at);
            assert!(!is_twice, "two passes are made over the shard at {}", pass.at);
        }
    }
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

    /// A shard has ended an epoch that is not settled: what is lost of it by now is to be swept out of the
    /// shards that have ended it themselves.
    pub(super) fn begin_sweeps_of_live(&mut self, epoch: Epoch, effects: &mut MakoEffects) {
        if self.options().faults.has(MakoPlantedBug::SweepSettled) {
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
        let led_only = self.options().faults.has(MakoPlantedBug::SweepLedOnly);
        let is_swept = if led_only { led.serves() } else { had_uncommitted };
        self.collections.begin(at, is_swept, self.runtime.worker_context.now.get());
    }

    /// Goes on with passes, for a while.
    ///
    /// # Panics
    /// If a tombstone goes before all workers have replayed what is older (M6).
    pub(super) fn collection(&mut self, now: Time, effects: &mut MakoEffects) {
        let Some(pass) = self.collections.next(now) else { return };
        let own = &self.runtime.worker_context.own[pass.at];
        let Ok(mut session) = own.sessions.take() else {
            pass.due = now + LOCKED_PAUSE;
            return;
        };
        let (shard, watermarks) = (own.shard, self.watermarks.borrow());
        let rejected = |stamp: StampRef<'_>| watermarks.rejects(shard, stamp);
        // Where the node leads no more, older writes may still be on their way to a tombstone's key.
        let reached =
            || self.shared.replica(shard).map_or(Clock::ZERO, |replica| replica.reached());
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
