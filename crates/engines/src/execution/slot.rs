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
