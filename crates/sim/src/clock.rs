//! A clock: the true time, with skew and drift. Its rate may change, and it may jump ahead; it never goes
//! back.
//!
//! ```text
//! local = shown + passed + passed · drift / 2³²,    passed since the last change
//! ```
//! Whole numbers only, so that every machine computes the same.

use shoal_types::Time;

/// The clock of a node or of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClock {
    /// The true time of its last change.
    since: Time,
    /// What it showed at that time, in nanoseconds.
    shown_ns: u64,
    /// How much faster than the true time it goes, in 2⁻³² parts.
    drift: i64,
}

impl NodeClock {
    /// A clock that shows the true time.
    pub const TRUE: NodeClock = NodeClock { since: Time::ZERO, shown_ns: 0, drift: 0 };

    /// The greatest drift, either way, of a clock within its bound: one part in a thousand.
    pub const DRIFT_PPM_MAX: i64 = 1000;

    /// The greatest drift of any clock, either way.
    pub const BROKEN_PPM_MAX: i64 = 900_000;

    /// A clock that shows `skew_ns` at the beginning and gains `drift_ppm` microseconds a second.
    ///
    /// # Panics
    /// If it drifts by more than [`NodeClock::BROKEN_PPM_MAX`].
    pub fn new(skew_ns: u64, drift_ppm: i64) -> NodeClock {
        let drift = Self::drift(drift_ppm);
        NodeClock { since: Time::ZERO, shown_ns: skew_ns, drift }
    }

    /// The clock of a process that begins at `now`: it may show any time.
    pub fn anew(now: Time, shown_ns: u64, drift_ppm: i64) -> NodeClock {
        NodeClock { since: now, shown_ns, drift: Self::drift(drift_ppm) }
    }

    fn drift(drift_ppm: i64) -> i64 {
        assert!(drift_ppm.abs() <= Self::BROKEN_PPM_MAX, "a clock that drifts by {drift_ppm} ppm");
        (drift_ppm << 32) / 1_000_000
    }

    /// Changes the clock's drift at `now`.
    pub fn turn(&mut self, now: Time, drift_ppm: i64) {
        *self = NodeClock::anew(now, self.local(now).0, drift_ppm);
    }

    /// Lets the clock jump ahead at `now`.
    pub fn jump(&mut self, now: Time, ahead_ns: u64) {
        (self.shown_ns, self.since) = (self.local(now).0 + ahead_ns, now);
    }

    /// What the clock shows at the true time `now`, which is not before its last change.
    #[inline]
    pub fn local(self, now: Time) -> Time {
        let passed = now.0.saturating_sub(self.since.0);
        let gained = (i128::from(passed) * i128::from(self.drift)) >> 32;
        // Below 2⁶⁴ for the next five centuries; a drift never cancels the passed time.
        Time((i128::from(self.shown_ns) + i128::from(passed) + gained) as u64)
    }

    /// The first true time at which the clock shows `local` or more; [`Time::MAX`] if it never does.
    pub fn when(self, local: Time) -> Time {
        let Some(ahead) = local.0.checked_sub(self.shown_ns) else { return self.since };
        if ahead > u64::MAX / 16 {
            return Time::MAX;
        }
        // passed · (2³² + drift) / 2³² ≥ ahead
        let pace = (1_i128 << 32) + i128::from(self.drift);
        let passed = ((i128::from(ahead) << 32) + pace - 1) / pace;
        Time(self.since.0.saturating_add(passed as u64))
    }
}
