//! Where the time of a transaction goes at its coordinator.
//!
//! ```text
//! asked   let in      begun        submitted   locked       certified          told
//!   ├entering┼─ retrying ─┼─ executing ─┼─ locking ─┼─ validating ─┼── awaiting ──┤
//!             (attempts that met a conflict)                          ├ batching ┼ replicating ┼ watermark ┤
//! ```
//! Where one participant does all the rest, its answer ends `locking`. What comes after `certified` is known of the
//! pieces that the transaction leaves in streams, in `../replication/transit.rs`.

use super::admission::AdmissionPermit;
use crate::counters::StageTimes;
use shoal_types::Time;
use std::cell::Cell;
use std::time::Duration;

/// When an attempt came how far, in its worker's time.
#[derive(Debug)]
pub struct StageMarks {
    begun: Time,
    submitted: Cell<Time>,
    locked: Cell<Option<Time>>,
    certified: Cell<Time>,
    wrote: Cell<bool>,
}

impl StageMarks {
    /// Of an attempt that begins.
    pub fn begin(now: Time) -> StageMarks {
        let (submitted, certified) = (Cell::new(now), Cell::new(now));
        StageMarks {
            begun: now,
            submitted,
            locked: Cell::new(None),
            certified,
            wrote: Cell::new(false),
        }
    }

    /// Its body is done.
    pub fn submit(&self, now: Time) {
        self.submitted.set(now);
    }

    /// All its locks are held.
    pub fn lock(&self, now: Time) {
        self.locked.set(Some(now));
    }

    /// It is certified, and wrote something or not.
    pub fn certify(&self, now: Time, wrote: bool) {
        self.certified.set(now);
        self.wrote.set(wrote);
    }

    /// It is told that it has committed: where its time went, if it wrote. Readers wait for others, or for nothing.
    pub fn tell(&self, permit: &AdmissionPermit, now: Time) -> Option<StageTimes> {
        let nanos = |span: Duration| span.as_nanos() as u64;
        let (submitted, certified) = (self.submitted.get(), self.certified.get());
        let locked = self.locked.get().unwrap_or(certified);
        self.wrote.get().then(|| StageTimes {
            writers: 1,
            entering_ns: nanos(permit.entered - permit.asked),
            retrying_ns: nanos(self.begun - permit.entered),
            executing_ns: nanos(submitted - self.begun),
            locking_ns: nanos(locked - submitted),
            validating_ns: nanos(certified - locked),
            awaiting_ns: nanos(now - certified),
            ..StageTimes::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_of_a_writer_belongs_to_one_stage() {
        let permit = AdmissionPermit::alone_since(Time(10), Time(12));
        let marks = StageMarks::begin(Time(15));
        marks.submit(Time(19));
        marks.lock(Time(24));
        marks.certify(Time(30), true);
        let stages = marks.tell(&permit, Time(37)).expect("it wrote");
        let StageTimes { entering_ns, retrying_ns, executing_ns, locking_ns, .. } = stages;
        assert_eq!([entering_ns, retrying_ns, executing_ns, locking_ns], [2, 3, 4, 5]);
        assert_eq!([stages.validating_ns, stages.awaiting_ns, stages.writers], [6, 7, 1]);
    }

    #[test]
    fn where_one_participant_did_all_of_it_nothing_is_left_to_validate() {
        let permit = AdmissionPermit::alone_since(Time(10), Time(10));
        let marks = StageMarks::begin(Time(10));
        marks.submit(Time(10));
        marks.certify(Time(30), true);
        let stages = marks.tell(&permit, Time(30)).expect("it wrote");
        assert_eq!([stages.locking_ns, stages.validating_ns, stages.awaiting_ns], [20, 0, 0]);
    }

    #[test]
    fn readers_do_not_count() {
        let permit = AdmissionPermit::alone_since(Time(10), Time(10));
        let marks = StageMarks::begin(Time(10));
        marks.certify(Time(30), false);
        assert_eq!(marks.tell(&permit, Time(40)), None);
    }
}
