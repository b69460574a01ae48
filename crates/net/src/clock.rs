//! The real clock, as the cores see it.
//!
//! A time is nanoseconds since 1970 by the clock on the wall when this clock was made, and by the
//! monotonic clock from then on. So it never goes back, times of nodes differ by no more than their wall
//! clocks did, and one can be shown to people.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use types::Time;

/// Reads the time. A copy reads the same.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    /// What the time was then.
    origin: Time,
}

#[expect(clippy::disallowed_methods, reason = "clocks are read here")]
impl Clock {
    /// A clock that is right now, if the one on the wall is.
    pub fn new() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), origin: Time::ZERO + wall }
    }

    /// The time. Never earlier than what was read before, on any thread.
    #[inline]
    pub fn now(&self) -> Time {
        self.origin + self.began.elapsed()
    }

    /// A time of this clock, for display.
    pub fn wall(&self, time: Time) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(time.0)
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_is_that_of_the_wall() {
        let clock = Clock::new();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second, "{first} was before {second}");
        assert!(first >= clock.origin);
        assert!(clock.wall(first) > UNIX_EPOCH + Duration::from_secs(1_600_000_000));
        assert_eq!(clock.wall(Time(5)), UNIX_EPOCH + Duration::from_nanos(5));
    }
}
