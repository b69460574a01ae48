//! A place for one value that a future waits for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Filled once by the engine, taken once by a future.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    state: RefCell<(Option<T>, Option<Waker>)>,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot { state: RefCell::new((None, None)) }
    }
}

impl<T> Slot<T> {
    /// Fills it and wakes who waits. What was there before stays: the first answer counts.
    pub(crate) fn fill(&self, value: T) {
        let mut state = self.state.borrow_mut();
        state.0.get_or_insert(value);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    /// Whether the value is there.
    pub(crate) fn is_filled(&self) -> bool {
        self.state.borrow().0.is_some()
    }

    /// Waits until the value is there, and leaves it.
    pub(crate) async fn filled(&self) {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if state.0.is_some() {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits for the value and takes it.
    pub(crate) async fn take(&self) -> T {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if let Some(value) = state.0.take() {
                return Poll::Ready(value);
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::tasks::Tasks;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn a_value_can_be_waited_for_and_left() {
        let (slot, seen) = (Rc::new(Slot::default()), Rc::new(RefCell::new(Vec::new())));
        let mut tasks = Tasks::default();
        let (waited, noted) = (Rc::clone(&slot), Rc::clone(&seen));
        tasks.spawn(Box::pin(async move {
            waited.filled().await;
            noted.borrow_mut().push(waited.is_filled());
            let value = waited.take().await;
            noted.borrow_mut().push(value == 7 && !waited.is_filled());
        }));
        for value in [None, Some(7)] {
            value.into_iter().for_each(|value| slot.fill(value));
            tasks.begin_round();
            while tasks.poll_next() {}
        }
        assert_eq!(*seen.borrow(), [true, true]);
    }
}
