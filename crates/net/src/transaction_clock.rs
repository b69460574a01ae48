//! The transaction clock of a node, which all its workers read: the core of `types` with the system's clocks.

use crate::clock::SystemClock;
use crate::system_time;
use shoal_types::Time;
use shoal_types::transaction_clock::{EventTimes, SystemReading, TransactionClock};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// By how many nanoseconds the clock of a node is ahead of the system's, or behind it if that is negative: for tests and
/// experiments, as nodes on one machine have one clock. Error bounds know nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockError(pub i64);

/// The interval between two readings of the system's clock, if anything happens at all. The kernel's error
/// bound grows by 125 µs in that time, at 500 ppm, and so does ours.
const OBSERVE_EVERY: Duration = Duration::from_millis(250);

/// Reads the system's clock.
type ReadSystem = Box<dyn FnMut(&SystemClock) -> SystemReading + Send>;

/// A node's transaction clock. Clones are the same clock: no worker reads less than another has read before.
#[derive(Clone)]
pub struct NodeTransactionClock(Arc<Mutex<FollowedClock>>);

struct FollowedClock {
    /// The clock of the node's loops, whose times the transaction clock is asked for.
    local: SystemClock,
    read_system: ReadSystem,
    transaction: TransactionClock,
    observed: Time,
}

impl NodeTransactionClock {
    /// The clock of a node whose loops go by `local`. It is off by `error`.
    pub fn new(local: SystemClock, error: ClockError) -> NodeTransactionClock {
        let read_system = move |local: &SystemClock| {
            let reading = system_time::read(local);
            let time = Time(reading.time.0.saturating_add_signed(error.0));
            SystemReading { time, ..reading }
        };
        NodeTransactionClock::of(local, Box::new(read_system))
    }

    fn of(local: SystemClock, mut read_system: ReadSystem) -> NodeTransactionClock {
        let reading = read_system(&local);
        let transaction = TransactionClock::new(reading);
        let observed = reading.at;
        let followed = FollowedClock { local, read_system, transaction, observed };
        NodeTransactionClock(Arc::new(Mutex::new(followed)))
    }

    /// The times of an event that is taken at `now`, and whose frame arrived at `arrived`, by the clock of the loops.
    pub fn times(&self, now: Time, arrived: Time) -> EventTimes {
        // The clock is consistent after a panic: as it was before or after a reading.
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let FollowedClock { local, read_system, transaction, observed } = &mut *followed;
        if now - *observed >= OBSERVE_EVERY {
            let reading = read_system(local);
            transaction.observe(reading);
            *observed = reading.at;
        }
        let arrived = transaction.shown_at(arrived.min(now));
        EventTimes { now: transaction.read(now), arrived }
    }
}

impl fmt::Debug for NodeTransactionClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeTransactionClock").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A system whose clock is set back by a second, whenever it is read.
    fn set_back() -> (NodeTransactionClock, SystemClock) {
        let local = SystemClock::new();
        let mut reads = 0;
        let read_system = move |local: &SystemClock| {
            let at = local.now();
            reads += 1;
            let time = Time(at.0 - reads * 1_000_000_000);
            SystemReading { at, time, error_bound: Some(MS) }
        };
        (NodeTransactionClock::of(local, Box::new(read_system)), local)
    }

    #[test]
    fn a_node_has_one_clock_which_never_goes_back_while_the_system_does() {
        let (clock, local) = set_back();
        let (mut now, mut last) = (local.now(), Time::ZERO);
        for turn in 0..100_u32 {
            // In the future, so that it is due to be observed; no thread has to wait for that.
            now = now + turn * MS;
            let reader = clock.clone();
            let times = std::thread::spawn(move || reader.times(now, now)).join().expect("read");
            assert!(times.now.time >= last, "turn {turn}: {last} {:?}", times.now);
            assert_eq!(times.arrived, times.now);
            last = times.now.time;
        }
        let error_bound = clock.times(now, now).now.error_bound.expect("the system says one");
        assert!(error_bound > 1000 * MS, "{error_bound:?} although the system is seconds behind");
    }

    #[test]
    fn a_clock_can_be_off() {
        let local = SystemClock::new();
        let day = 86_400_000_000_000;
        let clocks =
            [-day, 0, day].map(|error| NodeTransactionClock::new(local, ClockError(error)));
        let now = local.now();
        let [behind, exact, ahead] = clocks.map(|clock| clock.times(now, now).now.time);
        let hours = |from: Time, to: Time| (to - from).as_secs_f64() / 3600.0;
        assert!((hours(behind, exact) - 24.0).abs() < 1.0, "{behind} {exact}");
        assert!((hours(exact, ahead) - 24.0).abs() < 1.0, "{exact} {ahead}");
    }

    #[test]
    fn a_frame_arrived_before_it_is_taken() {
        let (clock, local) = set_back();
        let arrived = local.now();
        let now = arrived + 3 * MS;
        let times = clock.times(now, arrived);
        assert_eq!(times.now.time - times.arrived.time, 3 * MS);
        assert_eq!(
            clock.times(arrived, now).arrived.time,
            times.arrived.time,
            "no frame comes from the future"
        );
    }
}
