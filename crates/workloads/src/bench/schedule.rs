//! Wakes clients that share a thread when their next transactions are due: none of them may block it.
//!
//! ```text
//!  client ── wait(due) ──► timers, by time ──► the thread of the schedule sleeps until the first, and wakes its client
//! ```
//! Invariant: once the schedule is over, nothing waits.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How long the thread sleeps where nothing waits; a new timer wakes it.
const IDLE: Duration = Duration::from_secs(3600);

/// The times for which clients wait.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    timers: Mutex<Timers>,
    /// A timer is the first now, or the schedule is over.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Timers {
    /// By time, and by a number where several are due at once.
    waiting: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    is_over: bool,
}

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `due`, or until the schedule is over.
    pub(super) async fn wait(&self, due: Instant) {
        let mut own = None;
        poll_fn(|context| {
            let mut timers = self.lock();
            if let Some(own) = own.take() {
                timers.waiting.remove(&own);
            }
            if timers.is_over || Instant::now() >= due {
                return Poll::Ready(());
            }
            let timer = (due, timers.next);
            timers.next += 1;
            timers.waiting.insert(timer, context.waker().clone());
            own = Some(timer);
            if timers.waiting.first_key_value().is_some_and(|(first, _)| *first == timer) {
                self.changed.notify_one();
            }
            Poll::Pending
        })
        .await;
    }

    /// Wakes clients until the schedule is over: the work of a thread.
    pub(super) fn run(&self) {
        let mut timers = self.lock();
        while !timers.is_over {
            let now = Instant::now();
            let first = timers.waiting.first_key_value().map(|((due, _), _)| *due);
            let pause = first.map_or(IDLE, |due| due.saturating_duration_since(now));
            if pause.is_zero() {
                let waiter = timers.waiting.pop_first();
                drop(timers);
                waiter.into_iter().for_each(|(_, waker)| waker.wake());
                timers = self.lock();
            } else {
                let waited = self.changed.wait_timeout(timers, pause);
                timers = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Ends it: all clients that wait are woken at once.
    pub(super) fn end(&self) {
        let mut timers = self.lock();
        timers.is_over = true;
        let waiting = std::mem::take(&mut timers.waiting);
        drop(timers);
        self.changed.notify_one();
        waiting.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::block_on;
    use std::sync::Arc;

    #[test]
    fn clients_are_woken_when_they_are_due_and_at_the_end() {
        let schedule = Arc::new(Schedule::default());
        let runner = Arc::clone(&schedule);
        let thread = std::thread::spawn(move || runner.run());
        let due = Instant::now() + Duration::from_millis(5);
        block_on(schedule.wait(due));
        assert!(Instant::now() >= due);
        let far = due + IDLE;
        let waiter = Arc::clone(&schedule);
        let waiting = std::thread::spawn(move || block_on(waiter.wait(far)));
        schedule.end();
        waiting.join().expect("it was woken");
        thread.join().expect("it has ended");
        block_on(schedule.wait(far));
        assert!(schedule.lock().waiting.is_empty());
    }
}
