//! What the system's real-time clock shows, and by how much it may be wrong.
//!
//! On Linux the kernel knows a bound if a daemon (chrony, ntpd) keeps its clock: the *maximum error*, which the daemon sets
//! and the kernel lets grow by 500 ppm (RFC 5905, §11.2; `adjtimex(2)`). One call returns time and bound. A clock that is not
//! synchronized, and other systems, have no bound.

use crate::clock::SystemClock;
use shoal_types::Time;
use shoal_types::transaction_clock::SystemReading;
use std::time::Duration;

/// Reads the system's clock. It was read between two looks at `clock`, and the bound has room for that.
pub(crate) fn read(clock: &SystemClock) -> SystemReading {
    let before = clock.now();
    let (time, error_bound) = real_time();
    // Half of what passed, rounded up.
    let between = (clock.now() - before + Duration::from_nanos(1)) / 2;
    let error_bound = error_bound.map(|error_bound| error_bound.saturating_add(between));
    SystemReading { at: before + between, time, error_bound }
}

#[cfg(target_os = "linux")]
fn real_time() -> (Time, Option<Duration>) {
    adjtimex::read().unwrap_or_else(|| (wall(), None))
}

#[cfg(not(target_os = "linux"))]
fn real_time() -> (Time, Option<Duration>) {
    (wall(), None)
}

#[expect(clippy::disallowed_methods, reason = "clocks are read here")]
fn wall() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time::ZERO + since.unwrap_or_default()
}

/// The kernel's own account of its clock. The one system call of this crate that no safe interface offers.
#[cfg(target_os = "linux")]
mod adjtimex {
    use shoal_types::Time;
    use std::time::Duration;

    /// The time and its error bound, if it is synchronized; `None` where the kernel does not let us ask.
    pub(super) fn read() -> Option<(Time, Option<Duration>)> {
        // SAFETY: `timex` is a C struct of integers, for which all zeros are a value. `modes` is zero in it: nothing is set.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `timex`, and the pointer is to one that lives for the call and is ours alone.
        let state = unsafe { libc::adjtimex(&mut timex) };
        if state < 0 {
            return None;
        }
        let seconds = u64::try_from(timex.time.tv_sec).ok()?;
        // The field counts nanoseconds where the clock does.
        let part = u64::try_from(timex.time.tv_usec).ok()?;
        let part = if timex.status & libc::STA_NANO == 0 { part * 1000 } else { part };
        let time = Time::ZERO + Duration::from_secs(seconds) + Duration::from_nanos(part);
        let is_synchronized = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
        let error_bound = u64::try_from(timex.maxerror).ok().map(Duration::from_micros);
        Some((time, error_bound.filter(|_| is_synchronized)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_is_read_is_that_of_the_wall_at_that_moment() {
        let clock = SystemClock::new();
        let (before, wall_before) = (clock.now(), wall());
        let reading = read(&clock);
        let (after, wall_after) = (clock.now(), wall());
        assert!(before <= reading.at && reading.at <= after + Duration::from_nanos(1));
        // A kernel that counts microseconds cuts the rest.
        let micro = Duration::from_micros(1);
        assert!(wall_before <= reading.time + micro && reading.time <= wall_after + micro);
    }
}
