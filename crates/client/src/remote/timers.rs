//! One timer for all waits of a client, of which few reach their deadline.
//!
//! ```text
//!   a wait ──► deadlines, in order ◄── a task that sleeps until `looks_at`, and wakes those that are due
//! ```
//! Every wait for an answer has a deadline, and nearly every answer comes before it. A timer of the runtime for each of
//! them would wake the thread that drives the runtime, which sleeps until its next timer and has to learn of an earlier
//! one. Here a wait leaves its deadline behind. The task is woken only where the deadline is before the time at which it
//! looks next; where the deadline that it slept for was taken out meanwhile, it looks for the next one.
//!
//! Invariant: the task looks no later than at the first deadline.

use super::lock;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The deadlines of all waits.
#[derive(Debug)]
pub(super) struct Timers {
    deadlines: Mutex<Deadlines>,
    /// Wakes the task, which has to look earlier, or that the timers are gone.
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Deadlines {
    waits: BTreeMap<(Instant, u64), Waker>,
    last_number: u64,
    /// When the task looks next; none where it waits for a deadline.
    looks_at: Option<Instant>,
}

/// A wait until a deadline.
#[derive(Debug)]
pub(super) struct TimerWait {
    timers: Arc<Timers>,
    at: Instant,
    /// The number among those with the same deadline, once it was polled.
    number: Option<u64>,
}

impl Timers {
    /// Timers that the runtime drives until they are dropped.
    pub(super) fn start(runtime: &Handle) -> Arc<Timers> {
        let timers = Arc::new(Timers { deadlines: Mutex::default(), earlier: Arc::default() });
        runtime.spawn(run(Arc::downgrade(&timers), Arc::clone(&timers.earlier)));
        timers
    }

    /// Is done at that time.
    pub(super) fn sleep_until(self: &Arc<Self>, at: Instant) -> TimerWait {
        TimerWait { timers: Arc::clone(self), at, number: None }
    }

    /// Wakes the waits that are due, and says when to look next.
    fn look(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut due = Vec::new();
        let mut deadlines = lock(&self.deadlines);
        while let Some(first) = deadlines.waits.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        deadlines.looks_at = deadlines.waits.first_key_value().map(|((at, _), _)| *at);
        let next = deadlines.looks_at;
        drop(deadlines);
        due.into_iter().for_each(Waker::wake);
        next
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}

impl Deadlines {
    /// Keeps a wait. Says whether the task has to look earlier than it would.
    fn keep(&mut self, at: Instant, number: u64, waker: Waker) -> bool {
        self.waits.insert((at, number), waker);
        let is_earlier = self.looks_at.is_none_or(|looks_at| at < looks_at);
        if is_earlier {
            self.looks_at = Some(at);
        }
        is_earlier
    }
}

impl Future for TimerWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at <= Instant::now() {
            return Poll::Ready(());
        }
        let mut deadlines = lock(&self.timers.deadlines);
        let number = self.number.unwrap_or_else(|| {
            deadlines.last_number += 1;
            deadlines.last_number
        });
        let is_earlier = deadlines.keep(self.at, number, cx.waker().clone());
        drop(deadlines);
        if is_earlier {
            self.timers.earlier.notify_one();
        }
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for TimerWait {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.timers.deadlines).waits.remove(&(self.at, number));
        }
    }
}

/// Looks whenever a deadline may have come, until the timers are gone.
async fn run(timers: Weak<Timers>, earlier: Arc<Notify>) {
    loop {
        let Some(next) = timers.upgrade().map(|timers| timers.look()) else { return };
        tokio::select! {
            biased;
            () = earlier.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// How often the task looks is not asserted, but what it sees.
    #[tokio::test(start_paused = true)]
    async fn waits_end_at_their_deadlines_in_whatever_order_they_began() {
        let timers = Timers::start(&Handle::current());
        let began = Instant::now();
        let span = Duration::from_millis;
        let ended = |after: u64| {
            let wait = timers.sleep_until(began + span(after));
            async move {
                wait.await;
                began.elapsed()
            }
        };
        let ends = tokio::join!(ended(300), ended(100), ended(0), ended(200), ended(100));
        assert_eq!(ends, (span(300), span(100), span(0), span(200), span(100)));
        // After a time without any, in which the task has no deadline to look for.
        tokio::time::sleep(span(1000)).await;
        assert_eq!(ended(1500).await, span(1500));
        assert!(lock(&timers.deadlines).waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_dropped_leaves_nothing_and_those_behind_it_end() {
        let timers = Timers::start(&Handle::current());
        let began = Instant::now();
        let first = timers.sleep_until(began + Duration::from_millis(10));
        let second = timers.sleep_until(began + Duration::from_millis(30));
        tokio::select! {
            biased;
            () = first => panic!("it is not due"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        assert!(lock(&timers.deadlines).waits.is_empty());
        second.await;
        assert_eq!(began.elapsed(), Duration::from_millis(30));
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_ends_with_the_timers() {
        let timers = Timers::start(&Handle::current());
        let task = Arc::clone(&timers.earlier);
        timers.sleep_until(Instant::now() + Duration::from_millis(10)).await;
        drop(timers);
        while Arc::strong_count(&task) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
