//! What the operations of a transaction return that may have to be waited for.

use shoal_types::Result;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of an operation of a [`Transaction`](crate::Transaction).
pub struct TransactionFuture<'f, T> {
    inner: FuturePlace<'f, T>,
}

enum FuturePlace<'f, T> {
    /// The result; `None` once it was taken.
    Ready(Option<Result<T>>),
    Waits(Pin<Box<dyn Future<Output = Result<T>> + Send + 'f>>),
}

impl<'f, T> TransactionFuture<'f, T> {
    #[inline]
    pub(crate) fn ready(result: Result<T>) -> TransactionFuture<'f, T> {
        TransactionFuture { inner: FuturePlace::Ready(Some(result)) }
    }

    pub(crate) fn waits(
        future: impl Future<Output = Result<T>> + Send + 'f,
    ) -> TransactionFuture<'f, T> {
        TransactionFuture { inner: FuturePlace::Waits(Box::pin(future)) }
    }
}

// The result is never pinned: it is moved out.
impl<T> Unpin for TransactionFuture<'_, T> {}

impl<T> Future for TransactionFuture<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.get_mut().inner {
            FuturePlace::Ready(result) => {
                Poll::Ready(result.take().expect("a future is not polled again once it is ready"))
            }
            FuturePlace::Waits(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for TransactionFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            FuturePlace::Ready(_) => f.write_str("Ready"),
            FuturePlace::Waits(_) => f.write_str("Waits"),
        }
    }
}
