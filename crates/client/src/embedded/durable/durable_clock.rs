//! How far a log is durable.
//!
//! ```text
//! group flushed ─► clock advances ─► first wait of each thread is woken ─ polled or dropped ─► wakes the others of its thread
//! ```
//! A thread that is woken once for each of its waits goes to sleep between them: with tens of waits in a group, the thread of the
//! log is longer at that than at its flush. So each thread is woken once, and wakes its other tasks itself, which takes no system call.

use shoal_types::Clock;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

/// How far a log is durable, and what waits for more.
#[derive(Debug, Default)]
pub(super) struct DurableClock {
    clock: AtomicU64,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// By the thread on which each was polled last. No queue is empty.
    by_thread: HashMap<ThreadId, WaitQueue>,
    next: u64,
    /// Nothing more becomes durable.
    is_over: bool,
}

/// The waits of a thread, by clock and number.
type WaitQueue = BTreeMap<(Clock, u64), Waker>;

/// Where a wait is, or was until it was woken.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitPlace {
    thread: ThreadId,
    clock: Clock,
    number: u64,
}

impl Waits {
    fn remove(&mut self, place: WaitPlace) {
        if let Some(queue) = self.by_thread.get_mut(&place.thread) {
            queue.remove(&(place.clock, place.number));
            if queue.is_empty() {
                self.by_thread.remove(&place.thread);
            }
        }
    }

    /// Takes the waits of a thread that are over when all up to `clock` are durable.
    fn take_due(&mut self, thread: ThreadId, clock: Clock) -> WaitQueue {
        let Some(queue) = self.by_thread.get_mut(&thread) else { return WaitQueue::new() };
        let later = queue.split_off(&(Clock(clock.0 + 1), 0));
        let due = std::mem::replace(queue, later);
        if queue.is_empty() {
            self.by_thread.remove(&thread);
        }
        due
    }

    /// Takes the first wait of each thread, if it is over when all up to `clock` are durable.
    fn take_first_due(&mut self, clock: Clock) -> Vec<Waker> {
        let first_due = |queue: &mut WaitQueue| {
            let first = queue.first_entry().filter(|first| first.key().0 <= clock);
            first.map(|first| first.remove())
        };
        let woken = self.by_thread.values_mut().filter_map(first_due).collect();
        self.by_thread.retain(|_, queue| !queue.is_empty());
        woken
    }
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

    /// All up to `clock` are durable: wakes the threads of those that waited for them.
    pub(super) fn advance(&self, clock: Clock) {
        self.clock.fetch_max(clock.0, Ordering::AcqRel);
        // Not woken under the lock, here and below.
        let woken = self.waits().take_first_due(clock);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Nothing more becomes durable: wakes all that wait.
    pub(super) fn end(&self) {
        let mut waits = self.waits();
        waits.is_over = true;
        let woken = std::mem::take(&mut waits.by_thread);
        drop(waits);
        woken.into_values().flat_map(WaitQueue::into_values).for_each(Waker::wake);
    }

    /// Whether all up to `clock` are durable, or (false) may never be; otherwise `waker` is woken when that is known. The wait
    /// gets a place, or another one in place of that. Once it is over it has none.
    pub(super) fn poll(
        &self,
        clock: Clock,
        place: &mut Option<WaitPlace>,
        waker: &Waker,
    ) -> Poll<bool> {
        let mut waits = self.waits();
        let former = place.take();
        former.into_iter().for_each(|former| waits.remove(former));
        // Under the lock: what becomes durable later wakes.
        let durable = self.get();
        if durable >= clock {
            let others = former.map(|former| waits.take_due(former.thread, durable));
            drop(waits);
            others.into_iter().flat_map(WaitQueue::into_values).for_each(Waker::wake);
            return Poll::Ready(true);
        }
        if waits.is_over {
            return Poll::Ready(false);
        }
        let number = former.map_or(waits.next, |former| former.number);
        waits.next = waits.next.max(number + 1);
        let thread = thread::current().id();
        waits.by_thread.entry(thread).or_default().insert((clock, number), waker.clone());
        *place = Some(WaitPlace { thread, clock, number });
        Poll::Pending
    }

    /// Gives up the wait at this place. If it was woken, it wakes the others of its thread.
    pub(super) fn forget(&self, place: WaitPlace) {
        let mut waits = self.waits();
        waits.remove(place);
        let others = waits.take_due(place.thread, self.get());
        drop(waits);
        others.into_values().for_each(Waker::wake);
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for clocks 1 to `count` on this thread, and how often each was woken.
    fn waiting(durable: &DurableClock, count: u64) -> Vec<(Arc<Count>, Option<WaitPlace>)> {
        let wait = |clock| {
            let (count, mut place) = (Arc::new(Count::default()), None);
            let waker = Waker::from(Arc::clone(&count));
            assert_eq!(durable.poll(Clock(clock), &mut place, &waker), Poll::Pending);
            (count, place)
        };
        (1..=count).map(wait).collect()
    }

    fn woken(waits: &[(Arc<Count>, Option<WaitPlace>)]) -> Vec<usize> {
        waits.iter().map(|(count, _)| count.0.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_thread_is_woken_once_and_wakes_its_other_waits() {
        let durable = DurableClock::new(Clock(0));
        let mut waits = waiting(&durable, 4);
        durable.advance(Clock(3));
        assert_eq!(woken(&waits), [1, 0, 0, 0]);
        let (_, place) = &mut waits[0];
        assert_eq!(durable.poll(Clock(1), place, Waker::noop()), Poll::Ready(true));
        assert!(place.is_none());
        assert_eq!(woken(&waits), [1, 1, 1, 0]);
        durable.end();
        assert_eq!(woken(&waits), [1, 1, 1, 1]);
        assert!(durable.waits().by_thread.is_empty());
    }

    #[test]
    fn a_wait_that_is_given_up_after_it_was_woken_wakes_the_others() {
        let durable = DurableClock::new(Clock(0));
        let waits = waiting(&durable, 3);
        durable.forget(waits[1].1.expect("it waits"));
        durable.advance(Clock(3));
        assert_eq!(woken(&waits), [1, 0, 0]);
        durable.forget(waits[0].1.expect("it waits"));
        assert_eq!(woken(&waits), [1, 0, 1]);
        assert!(durable.waits().by_thread.is_empty());
    }

    #[test]
    fn threads_are_woken_each_for_itself() {
        let durable = DurableClock::new(Clock(0));
        let waits = [(); 2].map(|()| {
            thread::scope(|scope| scope.spawn(|| waiting(&durable, 2)).join().expect("it waits"))
        });
        durable.advance(Clock(2));
        assert_eq!([woken(&waits[0]), woken(&waits[1])], [[1, 0], [1, 0]]);
        // As long as those do nothing, each advance wakes another.
        durable.advance(Clock(3));
        assert_eq!([woken(&waits[0]), woken(&waits[1])], [[1, 1], [1, 1]]);
    }
}
