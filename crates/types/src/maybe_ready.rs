//! A future whose result may be known when it is made.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A result that is known, or the future that will know it. So an operation that is done when it is called returns the
/// same type as one that waits, and costs no allocation and no state machine.
pub enum MaybeReady<T, F> {
    /// The result is known. `None` once it was taken.
    Ready(Option<T>),
    /// The result has to be waited for.
    Waits(F),
}

impl<T, F> MaybeReady<T, F> {
    /// Of an operation that is done.
    #[inline]
    pub fn ready(result: T) -> MaybeReady<T, F> {
        MaybeReady::Ready(Some(result))
    }
}

impl<T, F: Future<Output = T>> MaybeReady<T, Pin<Box<F>>> {
    /// The result, if it is known; otherwise that of the future that `waits` makes.
    #[inline]
    pub fn or_wait(result: Option<T>, waits: impl FnOnce() -> F) -> MaybeReady<T, Pin<Box<F>>> {
        match result {
            Some(result) => MaybeReady::ready(result),
            None => MaybeReady::Waits(Box::pin(waits())),
        }
    }
}

// The result is never pinned: it is moved out.
impl<T, F: Unpin> Unpin for MaybeReady<T, F> {}

impl<T, F: Future<Output = T> + Unpin> Future for MaybeReady<T, F> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            MaybeReady::Ready(result) => {
                Poll::Ready(result.take().expect("a future is not polled again once it is ready"))
            }
            MaybeReady::Waits(future) => Pin::new(future).poll(context),
        }
    }
}

impl<T, F> fmt::Debug for MaybeReady<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaybeReady::Ready(_) => f.write_str("Ready"),
            MaybeReady::Waits(_) => f.write_str("Waits"),
        }
    }
}
