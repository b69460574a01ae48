//! Time as the protocol cores see it: an argument, never something they read.

use crate::wire::{Coded, Short};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on one node's clock, in nanoseconds since some beginning. Clocks of different nodes
/// differ, by skew and by drift; only differences on one clock mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
#[repr(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The point from which a clock counts.
    pub const ZERO: Time = Time(0);

    /// Later than anything that happens.
    pub const MAX: Time = Time(u64::MAX);
}

impl Add<Duration> for Time {
    type Output = Time;

    /// The time that much later; [`Time::MAX`] where there is nothing so late.
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// How much later this is; nothing, where it is earlier.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} ms", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_never_wrap() {
        assert_eq!(Time(5) + Duration::from_micros(1), Time(1005));
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time(5) - Time(9), Duration::ZERO);
        assert_eq!(Time(1_500_000).to_string(), "1.500000 ms");
    }
}
