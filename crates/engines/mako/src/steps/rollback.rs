//! Removes versions that were rolled back from the stores: see [`rollback_collections`](crate::rollback_collections).

use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_types::{Clock, Epoch, StampRef, Time, VectorWatermark};
use std::cell::RefCell;

/// Records that a step looks at.
const RECORDS_MAX: usize = 256;

impl Mako {
    /// An epoch has ended: its versions that were rolled back have to be removed.
    pub(crate) fn begin_sweeps(&mut self, last: &VectorWatermark, effects: &mut MakoEffects) {
        for at in 0..self.leader_shards.len() {
            // A leader that was deposed and has not learned of it goes on to install: behind the pass.
            self.drop_installing(at, |epoch| epoch == last.epoch(), effects);
            if !last.is_whole() {
                self.begin_sweep(at);
            }
        }
    }

    /// A shard has ended an epoch that is not settled: its versions that are rolled back by now have to be removed from the
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
        let gone = RefCell::new(Vec::new());
        let committed = |stamp: StampRef<'_>| {
            let goes = may_go(stamp, before, watermarks.covers(shard, stamp), faults);
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

/// May a tombstone go that came to light, where all workers have replayed up to `reached` (M6) and that is `covered` by the
/// watermark (M9)?
fn may_go(
    stamp: StampRef<'_>,
    reached: Clock,
    covered: bool,
    faults: PlantedBugs<MakoPlantedBug>,
) -> bool {
    let is_last = stamp.clock <= reached || faults.has(MakoPlantedBug::CollectUnreached);
    is_last && (covered || faults.has(MakoPlantedBug::CollectUncommitted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::{Options, RollBack, Session, Store};
    use shoal_types::{Stamp, TableId};
    use std::sync::Arc;

    const KEY: &[u8] = b"key";

    struct Passes {
        table: TableId,
        session: Session,
        faults: PlantedBugs<MakoPlantedBug>,
    }

    impl Passes {
        /// A store with a value at clock 3, a tombstone at clock 8 above it, and a value that is rolled back at clock 12.
        fn new(faults: PlantedBugs<MakoPlantedBug>) -> Passes {
            let store = Arc::new(Store::new(Options::default()));
            let table = store.table("t").expect("the first table");
            let session = store.session().expect("the first session");
            let mut passes = Passes { table, session, faults };
            for (clock, value) in [(3, Some("old")), (8, None), (12, Some("rolled back"))] {
                passes.replay(clock, value, false);
            }
            passes
        }

        /// Installs a version, or replays one that may be older than what is there.
        fn replay(&mut self, clock: u64, value: Option<&str>, is_late: bool) {
            let transaction = self.session.begin();
            let written = transaction.replicate(self.table, KEY, value.map(str::as_bytes));
            written.expect("there is room");
            let (locked, stamp) = (transaction.lock(), Stamp::local(Epoch(1), Clock(clock)));
            let locked = locked.expect("no rival");
            match is_late {
                true => locked.replay(
                    stamp.as_ref(),
                    |newest| newest.clock < Clock(clock),
                    |_| false,
                    |_, _, _| {},
                ),
                false => locked.install(stamp.as_ref(), |stamp| stamp.clock <= Clock(3)),
            }
        }

        /// A whole pass that rolls back what is beyond a clock.
        fn pass(&mut self, rejected: u64, reached: u64, covered: u64) {
            let faults = self.faults;
            let done = self.session.roll_back(
                &RollBack::default(),
                RECORDS_MAX,
                |stamp| stamp.clock > Clock(rejected),
                |stamp| may_go(stamp, Clock(reached), stamp.clock <= Clock(covered), faults),
            );
            assert!(done.discarded == 1 && done.next.is_none(), "{done:?}");
        }

        fn value(&mut self) -> Option<Vec<u8>> {
            let transaction = self.session.begin();
            transaction.get(self.table, KEY).expect("no rival").map(|value| value.to_vec())
        }
    }

    /// Another worker has still to replay a write that is older than the tombstone.
    fn an_older_write_comes(faults: PlantedBugs<MakoPlantedBug>) {
        let mut passes = Passes::new(faults);
        passes.pass(8, 5, 8);
        passes.replay(7, Some("older"), true);
        assert_eq!(passes.value(), None, "what was deleted came back");
    }

    /// The tombstone itself is rolled back later.
    fn the_tombstone_is_rolled_back(faults: PlantedBugs<MakoPlantedBug>) {
        let mut passes = Passes::new(faults);
        passes.pass(8, 20, 3);
        assert_eq!(passes.value(), None);
        passes.pass(3, 20, 3);
        assert_eq!(passes.value(), Some(b"old".to_vec()), "what was not deleted is gone");
    }

    #[test]
    fn a_tombstone_stays_until_it_is_reached_and_committed() {
        an_older_write_comes(PlantedBugs::NONE);
        the_tombstone_is_rolled_back(PlantedBugs::NONE);
    }

    #[test]
    #[should_panic(expected = "what was deleted came back")]
    fn a_tombstone_that_goes_before_it_is_reached_is_seen() {
        an_older_write_comes(PlantedBugs::only(MakoPlantedBug::CollectUnreached));
    }

    #[test]
    #[should_panic(expected = "discarded")]
    fn a_tombstone_that_goes_before_it_is_committed_is_seen() {
        the_tombstone_is_rolled_back(PlantedBugs::only(MakoPlantedBug::CollectUncommitted));
    }
}
