//! Values that futures wait for, in places that are used again: waiting for one allocates nothing and counts no references.
//!
//! ```text
//!          begin            fill               take, or the future is dropped
//!   free ────────► waiting ──────► filled ─────────────────────────────────────► free
//!                     └── the future is dropped ──► left ── fill ──────────────────┘
//! ```
//! Invariant: from `begin` on a place belongs to one use, until the value was taken or the future was dropped, and the
//! value has come. Each use has a number, and what fills or polls a place asserts that it belongs to the use meant.

use super::tasks::{LocalWakeups, Wakeup};
use crate::planted_bugs::{PlantedBug, PlantedBugs};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The places of one kind of values of one worker.
#[derive(Debug)]
pub struct SlotPool<T> {
    places: RefCell<Vec<Place<T>>>,
    /// The places that are free.
    free: RefCell<Vec<u32>>,
    uses: Cell<u64>,
    wakeups: Rc<LocalWakeups>,
    faults: PlantedBugs,
}

#[derive(Debug)]
struct Place<T> {
    of: SlotUse,
    state: PlaceState<T>,
}

#[derive(Debug)]
enum PlaceState<T> {
    Free,
    /// The future waits; it may not have been polled yet.
    Waiting(Option<Wakeup>),
    Filled(T),
    /// The future is gone, and the value has not come.
    Left,
}

/// One use of a place: names what is to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUse {
    place: u32,
    number: u64,
}

/// The future of a value that is waited for.
#[derive(Debug)]
pub(crate) struct PooledSlot<'a, T> {
    pool: &'a SlotPool<T>,
    of: SlotUse,
    is_over: bool,
}

impl<T> SlotPool<T> {
    /// No place yet. Tasks that wait are woken through `wakeups`.
    pub(crate) fn new(wakeups: &Rc<LocalWakeups>, faults: PlantedBugs) -> SlotPool<T> {
        SlotPool {
            places: RefCell::default(),
            free: RefCell::default(),
            uses: Cell::new(0),
            wakeups: Rc::clone(wakeups),
            faults,
        }
    }

    /// Begins to wait for a value, which [`fill`](SlotPool::fill) brings.
    pub(crate) fn begin(&self) -> PooledSlot<'_, T> {
        let mut places = self.places.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let none = SlotUse { place: 0, number: 0 };
            places.push(Place { of: none, state: PlaceState::Free });
            (places.len() - 1) as u32
        });
        self.uses.set(self.uses.get() + 1);
        let of = SlotUse { place, number: self.uses.get() };
        let found = &mut places[place as usize];
        let is_free = matches!(found.state, PlaceState::Free);
        let is_shared = self.faults.has(PlantedBug::ShareSlots);
        assert!(is_free || is_shared, "{:?} is used, and given to {of:?}", found.of);
        *found = Place { of, state: PlaceState::Waiting(None) };
        if is_shared {
            self.free.borrow_mut().push(place);
        }
        PooledSlot { pool: self, of, is_over: false }
    }

    /// Brings the value that is waited for, and wakes the task that waits. It may have left.
    ///
    /// # Panics
    /// If the place belongs to another use by now, or has its value.
    pub(crate) fn fill(&self, of: SlotUse, value: T) {
        let before = self.with(of, |state| match state {
            PlaceState::Left => std::mem::replace(state, PlaceState::Free),
            _ => std::mem::replace(state, PlaceState::Filled(value)),
        });
        match before {
            PlaceState::Waiting(wakeup) => self.wakeups.wake(wakeup),
            PlaceState::Left => self.free.borrow_mut().push(of.place),
            PlaceState::Filled(_) | PlaceState::Free => panic!("{of:?} is filled twice"),
        }
    }

    /// How many places are in use.
    pub(crate) fn len(&self) -> usize {
        self.places.borrow().len() - self.free.borrow().len()
    }

    #[inline]
    fn with<R>(&self, of: SlotUse, change: impl FnOnce(&mut PlaceState<T>) -> R) -> R {
        let mut places = self.places.borrow_mut();
        let place = &mut places[of.place as usize];
        assert_eq!(place.of, of, "a place belongs to another use than the one that is meant");
        change(&mut place.state)
    }

    /// Ends a use that is waited for no more; where its value is still to come, `is_left` keeps the place for it. It asserts
    /// nothing: it may run while what an assertion has found unwinds.
    fn end(&self, of: SlotUse, is_left: bool) -> Option<T> {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(of.place as usize).filter(|place| place.of == of)?;
        if is_left && matches!(place.state, PlaceState::Waiting(_)) {
            place.state = PlaceState::Left;
            return None;
        }
        let before = std::mem::replace(&mut place.state, PlaceState::Free);
        self.free.borrow_mut().push(of.place);
        match before {
            PlaceState::Filled(value) => Some(value),
            PlaceState::Waiting(_) | PlaceState::Left | PlaceState::Free => None,
        }
    }
}

impl<T> PooledSlot<'_, T> {
    /// What names the use to the part that fills it.
    pub(crate) fn of(&self) -> SlotUse {
        self.of
    }

    /// Whether the value was taken, or the use ended otherwise.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends the use: nothing will fill it any more. Returns the value, if it has come and was not taken.
    pub(crate) fn withdraw(&mut self) -> Option<T> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        self.pool.end(self.of, false)
    }
}

impl<T> Future for PooledSlot<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let pool = self.pool;
        let is_filled = pool.with(self.of, |state| match state {
            PlaceState::Filled(_) => true,
            PlaceState::Waiting(wakeup) => {
                pool.wakeups.update(wakeup, context.waker());
                false
            }
            PlaceState::Left | PlaceState::Free => {
                panic!("{:?} is polled when it is over", self.of)
            }
        });
        match is_filled.then(|| self.withdraw()).flatten() {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for PooledSlot<'_, T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.pool.end(self.of, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::tasks::Tasks;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    fn pool(faults: PlantedBugs) -> SlotPool<u32> {
        SlotPool::new(&Rc::default(), faults)
    }

    fn poll(slot: &mut PooledSlot<'_, u32>) -> Poll<u32> {
        Pin::new(slot).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_place_is_used_again_once_its_value_was_taken() {
        let pool = pool(PlantedBugs::NONE);
        let (mut first, mut second) = (pool.begin(), pool.begin());
        assert!(poll(&mut first).is_pending());
        pool.fill(second.of(), 2);
        pool.fill(first.of(), 1);
        assert_eq!([poll(&mut first), poll(&mut second)], [Poll::Ready(1), Poll::Ready(2)]);
        assert_eq!(pool.len(), 0);
        let used = [first.of().place, second.of().place];
        let again = [pool.begin(), pool.begin()];
        assert!(again.iter().all(|slot| used.contains(&slot.of().place)));
        assert_eq!((pool.len(), pool.places.borrow().len()), (2, 2));
    }

    #[test]
    fn a_place_that_was_left_is_free_when_its_value_comes() {
        let pool = pool(PlantedBugs::NONE);
        let (left, late, mut withdrawn) = (pool.begin(), pool.begin(), pool.begin());
        let (left_use, late_use) = (left.of(), late.of());
        drop(left);
        pool.fill(late_use, 7);
        drop(late);
        assert_eq!(pool.len(), 2, "a value may still come");
        pool.fill(left_use, 7);
        assert_eq!(pool.len(), 1);
        assert_eq!(withdrawn.withdraw(), None);
        drop(withdrawn);
        assert_eq!(pool.len(), 0);
        let mut filled = pool.begin();
        pool.fill(filled.of(), 8);
        assert_eq!([filled.withdraw(), filled.withdraw()], [Some(8), None]);
    }

    #[test]
    fn the_task_that_waits_is_woken_and_no_other() {
        let wakeups = Rc::<LocalWakeups>::default();
        let pool = Rc::new(SlotPool::<u32>::new(&wakeups, PlantedBugs::NONE));
        let mut tasks = Tasks::new(&wakeups);
        let uses = Rc::new(RefCell::new(Vec::new()));
        let sum = Rc::new(Cell::new(0));
        for _ in 0..2 {
            let (pool, uses, sum) = (Rc::clone(&pool), Rc::clone(&uses), Rc::clone(&sum));
            tasks.spawn(Box::pin(async move {
                let slot = pool.begin();
                uses.borrow_mut().push(slot.of());
                let value = slot.await;
                sum.set(sum.get() + value);
            }));
        }
        tasks.begin_round();
        while tasks.poll_next() {}
        let uses = uses.take();
        pool.fill(uses[1], 5);
        tasks.begin_round();
        assert!(tasks.poll_next() && !tasks.poll_next(), "one was woken");
        assert_eq!(sum.get(), 5);
        pool.fill(uses[0], 6);
        tasks.begin_round();
        assert!(tasks.poll_next());
        assert_eq!((sum.get(), pool.len()), (11, 0));
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn another_waker_than_that_of_the_task_is_woken() {
        let pool = pool(PlantedBugs::NONE);
        let mut slot = pool.begin();
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        for _ in 0..2 {
            assert!(Pin::new(&mut slot).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        pool.fill(slot.of(), 1);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    #[should_panic(expected = "another use than the one that is meant")]
    fn a_use_that_is_over_gets_no_value() {
        let pool = pool(PlantedBugs::NONE);
        let mut over = pool.begin();
        over.withdraw();
        let _next = pool.begin();
        pool.fill(over.of(), 1);
    }

    #[test]
    #[should_panic(expected = "is filled twice")]
    fn a_value_comes_once() {
        let pool = pool(PlantedBugs::NONE);
        let slot = pool.begin();
        pool.fill(slot.of(), 1);
        pool.fill(slot.of(), 2);
    }

    #[cfg(feature = "planted")]
    #[test]
    #[should_panic(expected = "another use than the one that is meant")]
    fn a_place_that_is_shared_is_noticed() {
        let pool = pool(PlantedBugs::only(PlantedBug::ShareSlots));
        let slots = [pool.begin(), pool.begin()];
        pool.fill(slots[0].of(), 1);
    }
}
