//! What the operations of a transaction return that may have to be waited for.

use shoal_types::{MaybeReady, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of an operation of a [`Transaction`](crate::Transaction).
pub struct TransactionFuture<'f, T> {
    inner: MaybeReady<Result<T>, WaitingFuture<'f, T>>,
}

/// What may move between threads while it waits.
type WaitingFuture<'f, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'f>>;

impl<'f, T> TransactionFuture<'f, T> {
    #[inline]
    pub(crate) fn ready(result: Result<T>) -> TransactionFuture<'f, T> {
        TransactionFuture { inner: MaybeReady::ready(result) }
    }

    pub(crate) fn waits(
        future: impl Future<Output = Result<T>> + Send + 'f,
    ) -> TransactionFuture<'f, T> {
        TransactionFuture { inner: MaybeReady::Waits(Box::pin(future)) }
    }
}

impl<T> Future for TransactionFuture<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.inner).poll(context)
    }
}

impl<T> fmt::Debug for TransactionFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
