//! The transaction clock of a node: real time, by which transactions are ordered (Tiga, technical report, §3.1).
//!
//! It follows the system's clock by *slewing*: an *offset* between the two is taken away by going a little faster or
//! slower than the local clock, as `adjtime` does (RFC 5905, §12). So it never goes back, also where the
//! system's clock does. Only an offset ahead that is longer than [`STEP_AHEAD_MIN`] is taken in one step, as NTP steps from the same
//! threshold on (RFC 5905, STEPT); an offset back, however long, is slewed.
//!
//! ```text
//!  shown │              ,-·        each line: one reading of the system's clock
//!        │          ,-·´           ─ goes at most SLEW_PPM_MAX faster or slower
//!        │      ,·´
//!        │    ╷       a step ahead
//!        │ ,-·´
//!        └────────────────────► the local clock, which is never set
//! ```
//! Where the system knows by how much its clock may be wrong, each time has an *error bound*, as TrueTime's have (Spanner,
//! OSDI'12, §3): the bound of the last reading, the offset that is left, and what the local clock may have drifted since.
//!
//! This is a pure core: what the clocks show is handed in.
//!
//! Invariants: of two times that are read, the later one is never less. Without a step, the clock gains and loses at most
//! [`SLEW_PPM_MAX`]. The bound contains the truth if that of the last reading does, and the local clock drifts by
//! [`DRIFT_PPM_MAX`] at most.

use crate::time::Time;
use std::time::Duration;

/// How much faster or slower than the local clock this one goes while it slews, in millionths: what `adjtime` takes, and the
/// greatest frequency that NTP sets (RFC 5905, MAXFREQ). More follows sooner, and distorts spans more.
pub const SLEW_PPM_MAX: u64 = 500;

/// By how much the local clock may drift against real time, in millionths of what it has counted. The kernel lets the
/// error bound of its own clock grow as fast.
pub const DRIFT_PPM_MAX: u64 = 500;

/// An offset ahead of more than this is a step.
pub const STEP_AHEAD_MIN: Duration = Duration::from_millis(128);

/// What the system's clock showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemReading {
    /// When it was read, on the local clock.
    pub at: Time,
    /// What it showed: nanoseconds since 1970.
    pub time: Time,
    /// By how much that may be wrong, either way; `None` where the system does not know.
    pub error_bound: Option<Duration>,
}

/// A time of the transaction clock, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionTime {
    /// The time shown; it never goes back on one node.
    pub time: Time,
    /// Real time is at most so far from it, either way; `None`: nothing is known of that.
    pub error_bound: Option<Duration>,
}

impl TransactionTime {
    /// The earliest and the latest that it may be: TrueTime's interval.
    #[must_use]
    pub fn interval(self) -> Option<(Time, Time)> {
        let error_bound = self.error_bound?;
        let earliest = Time(self.time.0.saturating_sub(nanos(error_bound)));
        Some((earliest, self.time + error_bound))
    }
}

/// The times of an event, on the transaction clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTimes {
    /// When the event is taken.
    pub now: TransactionTime,
    /// When the frame arrived that brought it, which may have waited since; `now`, where there was none.
    pub arrived: TransactionTime,
}

/// What the clock shows from one reading of the system's clock to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    /// Where it begins, on the local clock.
    from: Time,
    /// The time shown at `from`.
    shown: Time,
    /// What is to be gained, or lost, by slewing from there on, in nanoseconds.
    offset: i64,
    /// The reading that it follows.
    reading: SystemReading,
}

/// A transaction clock. See the module for what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionClock {
    current: Segment,
    /// For times before the current segment, at which frames arrived.
    former: Segment,
    /// The latest local time at which the clock was read: what it showed until then stands.
    read_until: Time,
}

impl TransactionClock {
    /// A clock that shows what the system's clock showed.
    #[must_use]
    pub fn new(reading: SystemReading) -> TransactionClock {
        let segment = Segment { from: reading.at, shown: reading.time, offset: 0, reading };
        TransactionClock { current: segment, former: segment, read_until: reading.at }
    }

    /// Takes note of what the system's clock showed, and follows it from now on.
    ///
    /// # Panics
    /// If it was read before the last one.
    pub fn observe(&mut self, reading: SystemReading) {
        let last = self.current.reading.at;
        assert!(reading.at >= last, "a reading of {}, after one of {last}", reading.at);
        let from = reading.at.max(self.read_until);
        let shown = self.current.shown(from);
        let system = reading.time + (from - reading.at);
        let ahead = system - shown;
        let (shown, offset) = if ahead > STEP_AHEAD_MIN {
            (system, 0)
        } else {
            // Of the two, one is nothing. No clock is centuries behind.
            let behind = i64::try_from((shown - system).as_nanos()).unwrap_or(i64::MAX);
            (shown, ahead.as_nanos() as i64 - behind)
        };
        self.former = self.current;
        self.current = Segment { from, shown, offset, reading };
        self.assert_invariants();
    }

    /// The time at `now`, on the local clock; at the last time it was read, where that is later.
    pub fn read(&mut self, now: Time) -> TransactionTime {
        self.read_until = self.read_until.max(now);
        self.current.read(self.read_until.max(self.current.from))
    }

    /// What was shown at `at`, a moment ago. Before the segment that ended last, it is what was shown at its beginning.
    #[must_use]
    pub fn shown_at(&self, at: Time) -> TransactionTime {
        match at >= self.current.from {
            true => self.current.read(at),
            false => self.former.read(at.max(self.former.from)),
        }
    }

    fn assert_invariants(&self) {
        let TransactionClock { current, former, read_until } = self;
        assert!(current.from >= *read_until, "what was read is changed: {self:?}");
        assert!(current.shown >= former.shown(current.from), "time goes back: {self:?}");
    }
}

impl Segment {
    /// What is shown at this local time, which is not before the segment.
    fn shown(&self, at: Time) -> Time {
        let passed = at.0.saturating_sub(self.from.0);
        let slewed = part(passed, SLEW_PPM_MAX).min(self.offset.unsigned_abs());
        let shown = self.shown.0.saturating_add(passed);
        Time(if self.offset < 0 { shown - slewed } else { shown.saturating_add(slewed) })
    }

    fn read(&self, at: Time) -> TransactionTime {
        let time = self.shown(at);
        let error_bound = self.reading.error_bound.map(|error_bound| {
            let counted = at.max(self.reading.at) - at.min(self.reading.at);
            let system = match at >= self.reading.at {
                true => self.reading.time + counted,
                false => Time(self.reading.time.0.saturating_sub(nanos(counted))),
            };
            let left = time.max(system) - time.min(system);
            let drift = Duration::from_nanos(part(nanos(counted), DRIFT_PPM_MAX) + 1);
            error_bound.saturating_add(left).saturating_add(drift)
        });
        TransactionTime { time, error_bound }
    }
}

/// So many millionths of a span, in nanoseconds, rounded down.
fn part(nanos: u64, ppm: u64) -> u64 {
    (u128::from(nanos) * u128::from(ppm) / 1_000_000) as u64
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn reading(at: u64, time: u64, error_bound: Option<u64>) -> SystemReading {
        let error_bound = error_bound.map(Duration::from_nanos);
        SystemReading { at: Time(at), time: Time(time), error_bound }
    }

    fn shown(clock: &mut TransactionClock, now: u64) -> u64 {
        clock.read(Time(now)).time.0
    }

    #[test]
    fn an_offset_is_slewed_and_a_long_one_ahead_is_a_step() {
        let mut clock = TransactionClock::new(reading(0, 1000 * S, None));
        assert_eq!(shown(&mut clock, S), 1001 * S);
        // The system's clock is set back by a millisecond, which takes two seconds.
        clock.observe(reading(S, 1001 * S - MS, None));
        assert_eq!(shown(&mut clock, 2 * S), 1002 * S - MS / 2);
        assert_eq!(shown(&mut clock, 3 * S), 1003 * S - MS);
        assert_eq!(shown(&mut clock, 9 * S), 1009 * S - MS);
        // Ahead by as much as no step takes, and by a nanosecond more.
        let most = STEP_AHEAD_MIN.as_nanos() as u64;
        clock.observe(reading(9 * S, 1009 * S - MS + most, None));
        assert_eq!(shown(&mut clock, 10 * S), 1010 * S - MS / 2);
        clock.observe(reading(10 * S, 1010 * S - MS / 2 + most + 1, None));
        assert_eq!(shown(&mut clock, 10 * S), 1010 * S - MS / 2 + most + 1);
        // Back by many minutes: it goes on, slowly.
        clock.observe(reading(10 * S, 10 * S, None));
        assert_eq!(shown(&mut clock, 11 * S), 1011 * S - MS + most + 1);
    }

    #[test]
    fn a_time_that_was_read_stands_although_the_system_was_read_before() {
        let mut clock = TransactionClock::new(reading(0, 1000 * S, None));
        assert_eq!(shown(&mut clock, 100), 1000 * S + 100);
        clock.observe(reading(50, 1000 * S + 40, None));
        assert_eq!(shown(&mut clock, 100), 1000 * S + 100);
        assert_eq!(shown(&mut clock, 99), 1000 * S + 100, "it was read later than that");
        assert_eq!(clock.shown_at(Time(30)).time.0, 1000 * S + 30, "when a frame arrived");
    }

    #[test]
    fn a_bound_grows_with_what_is_left_of_the_offset_and_with_drift() {
        let mut clock = TransactionClock::new(reading(0, 1000 * S, Some(5 * MS)));
        let at = |clock: &mut TransactionClock, now| clock.read(Time(now)).error_bound;
        assert_eq!(at(&mut clock, 0), Some(Duration::from_nanos(5 * MS + 1)));
        assert_eq!(at(&mut clock, S), Some(Duration::from_nanos(5 * MS + MS / 2 + 1)));
        clock.observe(reading(S, 1001 * S - 10 * MS, Some(MS)));
        assert_eq!(at(&mut clock, S), Some(Duration::from_nanos(11 * MS + 1)));
        let after = clock.read(Time(3 * S));
        assert_eq!(after.error_bound, Some(Duration::from_nanos(MS + 9 * MS + MS + 1)));
        let (earliest, latest) = after.interval().expect("a bound");
        assert_eq!(latest - earliest, 2 * after.error_bound.expect("a bound"));
        clock.observe(reading(3 * S, 1003 * S, None));
        assert_eq!(clock.read(Time(4 * S)).interval(), None, "the system does not know any more");
    }

    proptest! {
        /// With any changes of the system's clock.
        #[test]
        fn it_never_goes_back_and_without_steps_its_rate_is_bounded(
            steps in vec((0..2 * S, -300 * MS as i64..300 * MS as i64, 0..3_u8), 1..60),
        ) {
            let (mut now, mut system) = (10 * S, 5000 * S);
            let mut clock = TransactionClock::new(reading(now, system, None));
            let mut last = (now, shown(&mut clock, now));
            for (pause, jump, kind) in steps {
                now += pause;
                system += pause;
                let mut may_step = false;
                if kind == 0 {
                    system = system.saturating_add_signed(jump);
                    let ahead = system.saturating_sub(clock.shown_at(Time(now)).time.0);
                    may_step = ahead > STEP_AHEAD_MIN.as_nanos() as u64;
                    clock.observe(reading(now, system, None));
                }
                let time = shown(&mut clock, now);
                prop_assert!(time >= last.1, "{last:?} {now} {time}");
                let (passed, gained) = (now - last.0, time - last.1);
                let slew = part(passed, SLEW_PPM_MAX) + 1;
                prop_assert!(gained + slew >= passed, "too slow: {gained} in {passed}");
                prop_assert!(may_step || gained <= passed + slew, "too fast: {gained} in {passed}");
                last = (now, time);
            }
        }

        #[test]
        fn it_converges_to_a_clock_that_is_left_alone(
            offset in -400 * MS as i64..400 * MS as i64,
            every in S / 2..2 * S,
        ) {
            let mut clock = TransactionClock::new(reading(0, 1000 * S, None));
            let system = |now: u64| (1000 * S + now).saturating_add_signed(offset);
            // 400 ms at 500 ppm, and one pause more.
            let (mut now, end) = (0, 800 * S + 2 * every);
            while now < end {
                now += every;
                clock.observe(reading(now, system(now), None));
            }
            prop_assert_eq!(shown(&mut clock, now), system(now));
        }

        /// Readings are wrong by no more than they say, and the local clock drifts within its bound.
        #[test]
        fn the_bound_contains_the_truth_if_those_of_the_readings_do(
            steps in vec(
                (0..5 * S, -(DRIFT_PPM_MAX as i64)..=DRIFT_PPM_MAX as i64, 0..200 * MS, -1.0..=1.0_f64, any::<bool>()),
                1..40,
            ),
        ) {
            let (mut now, mut truth) = (10 * S, 5000 * S);
            let mut clock = TransactionClock::new(reading(now, truth, Some(0)));
            for (pause, drift_ppm, bound, wrong, is_read) in steps {
                now += pause;
                let drift = part(pause, drift_ppm.unsigned_abs()) as i64 * drift_ppm.signum();
                truth = (truth + pause).saturating_add_signed(drift);
                if is_read {
                    let system = truth.saturating_add_signed((bound as f64 * wrong) as i64);
                    clock.observe(reading(now, system, Some(bound)));
                }
                let (earliest, latest) = clock.read(Time(now)).interval().expect("a bound");
                prop_assert!(earliest.0 <= truth && truth <= latest.0, "{earliest} {truth} {latest}");
            }
        }
    }
}
