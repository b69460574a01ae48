//! A node's clock: the true time, skewed and drifting.
//!
//! ```text
//! local = skew + true + true · drift / 2³²
//! ```
//! Whole numbers only, so that every machine computes the same.

use types::Time;

/// One node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClock {
    /// What it shows at the true beginning.
    skew_ns: u64,
    /// How much faster than the true time it goes, in 2⁻³² parts.
    drift: i64,
}

impl NodeClock {
    /// The true time.
    pub const TRUE: NodeClock = NodeClock { skew_ns: 0, drift: 0 };

    /// The greatest drift, either way: one part in a thousand.
    pub const DRIFT_PPM_MAX: i64 = 1000;

    /// A clock that shows `skew_ns` at the beginning and gains `drift_ppm` microseconds a second.
    ///
    /// # Panics
    /// If it drifts by more than [`NodeClock::DRIFT_PPM_MAX`].
    pub fn new(skew_ns: u64, drift_ppm: i64) -> NodeClock {
        assert!(drift_ppm.abs() <= Self::DRIFT_PPM_MAX, "a clock that drifts by {drift_ppm} ppm");
        NodeClock { skew_ns, drift: (drift_ppm << 32) / 1_000_000 }
    }

    /// What it shows at the true time `now`.
    #[inline]
    pub fn local(self, now: Time) -> Time {
        let gained = (i128::from(now.0) * i128::from(self.drift)) >> 32;
        // Below 2⁶⁴ for the next five centuries; a drift never takes all of the time away.
        Time((i128::from(self.skew_ns) + i128::from(now.0) + gained) as u64)
    }

    /// The first true time at which it shows `local` or more; [`Time::MAX`] where that never comes.
    pub fn when(self, local: Time) -> Time {
        let Some(elapsed) = local.0.checked_sub(self.skew_ns) else { return Time::ZERO };
        if elapsed > u64::MAX / 4 {
            return Time::MAX;
        }
        let gained = (i128::from(elapsed) * i128::from(self.drift)) >> 32;
        // A little early: the drift of the drift is missing, and two for what was rounded.
        let mut at = Time(((i128::from(elapsed) - gained) as u64).saturating_sub(2));
        while self.local(at) < local {
            let missing = (local - self.local(at)).as_nanos() as u64;
            // Less by more than the greatest drift, so as not to step past the first instant.
            at.0 += (missing - missing / 512).saturating_sub(1).max(1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Random;

    #[test]
    fn a_timer_goes_off_at_the_first_instant_that_shows_its_time() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let drift = random.range_inclusive(0, 2000) as i64 - 1000;
            let clock = NodeClock::new(random.below(1_000_000_000), drift);
            let bits = random.range_inclusive(10, 50);
            let local = Time(random.below(1 << bits));
            let at = clock.when(local);
            assert!(clock.local(at) >= local, "{clock:?} at {at} is not yet {local}");
            assert!(at.0 == 0 || clock.local(Time(at.0 - 1)) < local, "{clock:?} {local} {at}");
        }
    }

    #[test]
    fn what_never_comes_never_comes() {
        assert_eq!(NodeClock::new(5, 10).when(Time::MAX), Time::MAX);
        assert_eq!(NodeClock::new(5, 10).when(Time(3)), Time::ZERO);
        assert_eq!(NodeClock::TRUE.when(Time(77)), Time(77));
    }
}
