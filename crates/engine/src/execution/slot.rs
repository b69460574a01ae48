//! A place for one value that a future waits for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Filled once by the engine, taken once by a future. Others may wait for the filling as well.
#[derive(Debug)]
pub struct ResultSlot<T> {
    state: RefCell<SlotState<T>>,
}

#[derive(Debug)]
struct SlotState<T> {
    value: Option<T>,
    /// The value came. It stays true when the value is taken.
    came: bool,
    /// The wakers of what waits: mostly one.
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl<T> Default for ResultSlot<T> {
    fn default() -> ResultSlot<T> {
        let state = SlotState { value: None, came: false, first: None, others: Vec::new() };
        ResultSlot { state: RefCell::new(state) }
    }
}

impl<T> ResultSlot<T> {
    /// Fills it and wakes all that wait. What came before stays: the first answer counts.
    pub fn fill(&self, value: T) {
        let mut state = self.state.borrow_mut();
        if std::mem::replace(&mut state.came, true) {
            return;
        }
        state.value = Some(value);
        let (first, others) = (state.first.take(), std::mem::take(&mut state.others));
        drop(state);
        first.into_iter().chain(others).for_each(Waker::wake);
    }

    /// Whether the value came. It may be taken already.
    pub(crate) fn is_filled(&self) -> bool {
        self.state.borrow().came
    }

    /// Waits until the value came, and leaves it.
    pub(crate) async fn filled(&self) {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if state.came {
                return Poll::Ready(());
            }
            state.wait(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Waits for the value and takes it.
    pub async fn take(&self) -> T {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if let Some(value) = state.value.take() {
                return Poll::Ready(value);
            }
            state.wait(context.waker());
            Poll::Pending
        })
        .await
    }
}

impl<T> SlotState<T> {
    fn wait(&mut self, waker: &Waker) {
        if self.first.iter().chain(&self.others).any(|waiting| waiting.will_wake(waker)) {
            return;
        }
        match &self.first {
            None => self.first = Some(waker.clone()),
            Some(_) => self.others.push(waker.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake};

    /// Counts how often it is woken.
    #[derive(Default)]
    struct WakeCounter(AtomicU32);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake_counter() -> (Arc<WakeCounter>, Waker) {
        let wake_counter = Arc::<WakeCounter>::default();
        (Arc::clone(&wake_counter), Waker::from(wake_counter))
    }

    #[test]
    fn a_value_can_be_waited_for_and_left() {
        let (slot, (_, waker)) = (ResultSlot::default(), wake_counter());
        let mut context = Context::from_waker(&waker);
        let (mut filled, mut taken) = (pin!(slot.filled()), pin!(slot.take()));
        assert!(!slot.is_filled() && filled.as_mut().poll(&mut context).is_pending());
        slot.fill(7);
        slot.fill(8);
        assert_eq!(filled.as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(taken.as_mut().poll(&mut context), Poll::Ready(7));
        assert!(slot.is_filled());
    }

    #[test]
    fn who_waits_for_the_filling_need_not_come_before_the_value_is_taken() {
        let (slot, (_, waker)) = (ResultSlot::default(), wake_counter());
        let mut context = Context::from_waker(&waker);
        let (mut filled, mut taken) = (pin!(slot.filled()), pin!(slot.take()));
        assert!(filled.as_mut().poll(&mut context).is_pending());
        slot.fill(7);
        assert_eq!(taken.as_mut().poll(&mut context), Poll::Ready(7));
        assert_eq!(filled.as_mut().poll(&mut context), Poll::Ready(()));
    }

    #[test]
    fn all_who_wait_are_woken_and_each_once() {
        let (slot, bells) =
            (ResultSlot::default(), [wake_counter(), wake_counter(), wake_counter()]);
        let mut waiting = [pin!(slot.filled()), pin!(slot.filled()), pin!(slot.filled())];
        for _ in 0..2 {
            for (filled, (_, waker)) in waiting.iter_mut().zip(&bells) {
                assert!(filled.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
        }
        slot.fill(7);
        assert!(bells.iter().all(|(wake_counter, _)| wake_counter.0.load(Ordering::Relaxed) == 1));
    }
}
