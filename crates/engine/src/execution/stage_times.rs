//! Where the time of a transaction goes at its coordinator.
//!
//! ```text
//! asked   let in      begun        submitted                                    answered
//!   ├entering┼─ retrying ─┼─ executing ─┼── the engine's stages, one after another ──┤
//!             (attempts that met a conflict)          (in the last one: batching, replicating)
//! ```
//! A stage that a transaction does not pass takes no time: the one before it lasts until the next end that was marked.
//! How long what it leaves in streams takes there is in `replication/src/transit.rs`.
//!
//! A step has one time, and much of a transaction is done within one step. So the host of a worker may give it a clock for
//! this purpose alone ([`LocalDatabase::time_stages`](super::LocalDatabase::time_stages)): then one of `TIMED_EVERY`
//! transactions is timed by it, and the others are left out of these sums. Nothing else depends on that clock.

use super::admission::AdmissionTimes;
use crate::metrics::COMMIT_STAGES_MAX;
use shoal_types::Time;
use std::cell::Cell;
use std::time::Duration;

/// One of so many transactions is timed, where that takes readings of a clock.
pub(super) const TIMED_EVERY: u64 = 16;

/// When an attempt came how far, in its worker's time.
#[derive(Debug, Clone)]
pub struct StageMarks {
    /// The attempt counts in the sums of its worker.
    pub(super) is_timed: bool,
    begun: Time,
    submitted: Cell<Time>,
    /// The ends of the engine's stages, as far as they were marked.
    ended: [Cell<Option<Time>>; COMMIT_STAGES_MAX],
    wrote: Cell<bool>,
}

/// Where the time went of a transaction that wrote. Nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// While the transaction waited to be let in.
    pub entering_ns: u64,
    /// While attempts met conflicts, and in the pauses after them.
    pub retrying_ns: u64,
    /// While the body ran for the last time.
    pub executing_ns: u64,
    /// While the transaction was in each of the engine's stages.
    pub commit_ns: [u64; COMMIT_STAGES_MAX],
}

impl StageMarks {
    /// Of an attempt that begins. One that is not timed counts nowhere.
    pub fn begin(now: Time, is_timed: bool) -> StageMarks {
        StageMarks {
            is_timed,
            begun: now,
            submitted: Cell::new(now),
            ended: Default::default(),
            wrote: Cell::new(false),
        }
    }

    /// The body of the transaction is done.
    pub fn submit(&self, now: Time) {
        self.submitted.set(now);
    }

    /// The transaction is through the engine's stage of this number. The last stage ends with the answer.
    pub fn end_stage(&self, stage: usize, now: Time) {
        self.ended[stage].set(Some(now));
    }

    /// The transaction will commit, and has written something.
    pub fn write(&self) {
        self.wrote.set(true);
    }

    /// The client is answered that the transaction has committed. Returns where its time went, if it is timed and wrote:
    /// readers wait for others, or for nothing.
    pub(crate) fn answer(&self, admitted: AdmissionTimes, now: Time) -> Option<StageTimes> {
        if !self.is_timed || !self.wrote.get() {
            return None;
        }
        let nanos = |span: Duration| span.as_nanos() as u64;
        let mut commit_ns = [0; COMMIT_STAGES_MAX];
        let mut end = now;
        for stage in (0..COMMIT_STAGES_MAX).rev() {
            let before = stage.checked_sub(1).map(|before| self.ended[before].get());
            let begun = before.map_or(self.submitted.get(), |before| before.unwrap_or(end));
            commit_ns[stage] = nanos(end - begun);
            end = begun;
        }
        Some(StageTimes {
            entering_ns: nanos(admitted.entered - admitted.asked),
            retrying_ns: nanos(self.begun - admitted.entered),
            executing_ns: nanos(self.submitted.get() - self.begun),
            commit_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_of_a_writer_belongs_to_one_stage() {
        let admitted = AdmissionTimes { asked: Time(10), entered: Time(12) };
        let marks = StageMarks::begin(Time(15), true);
        marks.submit(Time(19));
        marks.end_stage(0, Time(24));
        marks.end_stage(1, Time(30));
        marks.write();
        let stages = marks.answer(admitted, Time(37)).expect("it wrote");
        let StageTimes { entering_ns, retrying_ns, executing_ns, commit_ns } = stages;
        assert_eq!([entering_ns, retrying_ns, executing_ns], [2, 3, 4]);
        assert_eq!(commit_ns, [5, 6, 7, 0]);
    }

    #[test]
    fn a_stage_that_is_not_marked_takes_no_time() {
        let admitted = AdmissionTimes { asked: Time(10), entered: Time(10) };
        let marks = StageMarks::begin(Time(10), true);
        marks.end_stage(1, Time(30));
        marks.write();
        let stages = marks.answer(admitted, Time(30)).expect("it wrote");
        assert_eq!(stages.commit_ns, [20, 0, 0, 0]);
    }

    #[test]
    fn what_is_not_timed_does_not_count() {
        let admitted = AdmissionTimes { asked: Time(10), entered: Time(10) };
        let marks = StageMarks::begin(Time(10), false);
        marks.write();
        assert_eq!(marks.answer(admitted, Time(40)), None);
    }

    #[test]
    fn readers_do_not_count() {
        let admitted = AdmissionTimes { asked: Time(10), entered: Time(10) };
        let marks = StageMarks::begin(Time(10), true);
        marks.end_stage(0, Time(30));
        assert_eq!(marks.answer(admitted, Time(40)), None);
    }
}
