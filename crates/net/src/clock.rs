//! The real clock, as the cores see it.
//!
//! A time is nanoseconds since 1970 by the wall clock when this clock was made, and by a monotonic clock from then on.
//! So it never goes back, times of nodes differ by no more than their wall clocks did, and a time can be shown to
//! people.
//!
//! The monotonic clock must not stand still while the machine is suspended: leases are counted by it (rule M7), and a
//! node that was suspended past the end of its lease would go on as a leader. On Linux it is `CLOCK_BOOTTIME`; what the
//! standard library reads there, `CLOCK_MONOTONIC`, stands still.

use shoal_types::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads the time. A copy reads the same.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    began: Duration,
    /// The time at that moment.
    origin: Time,
}

#[expect(clippy::disallowed_methods, reason = "clocks are read here")]
impl SystemClock {
    /// A clock that is correct now if the wall clock is.
    pub fn new() -> SystemClock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { began: boot_time(), origin: Time::ZERO + wall }
    }

    /// The time. Never earlier than what was read before, on any thread.
    #[inline]
    pub fn now(&self) -> Time {
        self.origin + boot_time().saturating_sub(self.began)
    }

    /// A time of this clock, for display.
    pub fn wall(&self, time: Time) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(time.0)
    }
}

/// The time since the machine was started, that for which it was suspended included. Read without a system call.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).expect("a machine was started in the past");
    let nanoseconds = u32::try_from(now.tv_nsec).expect("less than a second");
    Duration::new(seconds, nanoseconds)
}

/// The time since it was first read. Elsewhere the standard library has to do. It promises a clock that never goes
/// back, and not that it goes on while the machine is suspended: on systems where it does not, a machine that runs a
/// node must not be suspended.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::disallowed_methods, reason = "clocks are read here")]
fn boot_time() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_is_that_of_the_wall() {
        let clock = SystemClock::new();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second, "{first} was before {second}");
        assert!(first >= clock.origin);
        assert!(clock.wall(first) > UNIX_EPOCH + Duration::from_secs(1_600_000_000));
        assert_eq!(clock.wall(Time(5)), UNIX_EPOCH + Duration::from_nanos(5));
    }

    /// Whether it is the clock that goes on in a suspended machine can be seen on one that was suspended, and on one
    /// whose clocks have offsets, as in a time namespace.
    #[test]
    #[cfg(target_os = "linux")]
    fn it_is_the_time_since_the_machine_was_started() {
        let read = || rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanoseconds = |at: rustix::time::Timespec| {
            i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec)
        };
        let (before, now, after) = (nanoseconds(read()), boot_time(), nanoseconds(read()));
        let now = i128::try_from(now.as_nanos()).expect("a short time");
        assert!(before <= now && now <= after, "{now} is not from {before} to {after}");
    }
}
