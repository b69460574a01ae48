//! How far a log is durable.

use shoal_types::Clock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// How far a log is durable, and what waits for more.
#[derive(Debug, Default)]
pub(super) struct DurableClock {
    clock: AtomicU64,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    by_clock: BTreeMap<(Clock, u64), Waker>,
    next: u64,
    /// Nothing more becomes durable.
    is_over: bool,
}

impl DurableClock {
    pub(super) fn new(clock: Clock) -> DurableClock {
        DurableClock { clock: AtomicU64::new(clock.0), waits: Mutex::default() }
    }

    /// All up to this clock are durable.
    #[inline]
    pub(super) fn get(&self) -> Clock {
        Clock(self.clock.load(Ordering::Acquire))
    }

    /// All up to `clock` are durable: wakes those that waited for them.
    pub(super) fn advance(&self, clock: Clock) {
        self.clock.fetch_max(clock.0, Ordering::AcqRel);
        let rest = |waits: &mut Waits| {
            let later = waits.by_clock.split_off(&(Clock(clock.0 + 1), 0));
            std::mem::replace(&mut waits.by_clock, later)
        };
        // Not woken under the lock.
        let woken = rest(&mut self.waits());
        woken.into_values().for_each(Waker::wake);
    }

    /// Nothing more becomes durable: wakes all that wait.
    pub(super) fn end(&self) {
        let mut waits = self.waits();
        waits.is_over = true;
        let woken = std::mem::take(&mut waits.by_clock);
        drop(waits);
        woken.into_values().for_each(Waker::wake);
    }

    /// Whether all up to `clock` are durable, or (false) may never be; otherwise `waker` is woken when that is known. The wait
    /// has `number` among those of its clock, or gets one.
    pub(super) fn poll(&self, clock: Clock, number: &mut Option<u64>, waker: &Waker) -> Poll<bool> {
        let mut waits = self.waits();
        // Under the lock: what becomes durable later wakes.
        if self.get() >= clock {
            return Poll::Ready(true);
        }
        if waits.is_over {
            return Poll::Ready(false);
        }
        let number = number.get_or_insert_with(|| {
            waits.next += 1;
            waits.next
        });
        waits.by_clock.insert((clock, *number), waker.clone());
        Poll::Pending
    }

    /// Gives up the wait of this number.
    pub(super) fn forget(&self, clock: Clock, number: u64) {
        self.waits().by_clock.remove(&(clock, number));
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
