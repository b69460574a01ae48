//! Waits until what a transaction wrote and read is durable.

use super::shared::Shared;
use shoal_types::{Clock, Result, Unknown};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A wait until all up to a clock is durable: a future. An error says that it may never be.
pub(crate) struct Durability {
    /// `None` where nothing is to be waited for.
    shared: Option<Arc<Shared>>,
    clock: Clock,
    /// The number among the waits, once it has one.
    number: Option<u64>,
}

impl Durability {
    /// Of what is durable, or in memory only.
    #[inline]
    pub(crate) fn reached() -> Durability {
        Durability { shared: None, clock: Clock::ZERO, number: None }
    }

    pub(super) fn of(shared: Arc<Shared>, clock: Clock) -> Durability {
        let shared = (shared.durable.get() < clock).then_some(shared);
        Durability { shared, clock, number: None }
    }

    /// Whether there is nothing to wait for.
    #[inline]
    pub(crate) fn is_reached(&self) -> bool {
        self.shared.is_none()
    }

    /// Waits on the calling thread.
    ///
    /// # Errors
    /// [`Unknown::LogFailed`].
    #[inline]
    pub(crate) fn wait(self) -> Result<()> {
        if self.is_reached() { Ok(()) } else { block_on(self) }
    }
}

impl Future for Durability {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(shared) = self.shared.clone() else { return Poll::Ready(Ok(())) };
        let clock = self.clock;
        let result = match shared.durable.poll(clock, &mut self.number, context.waker()) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(true) => Ok(()),
            Poll::Ready(false) => Err(Unknown::LogFailed.into()),
        };
        self.shared = None;
        Poll::Ready(result)
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        if let (Some(shared), Some(number)) = (&self.shared, self.number) {
            shared.durable.forget(self.clock, number);
        }
    }
}

impl fmt::Debug for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Durability({}, reached: {})", self.clock, self.is_reached())
    }
}

/// A thread that waits for a future.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cold]
fn block_on(mut wait: Durability) -> Result<()> {
    thread_local! {
        static WAKER: Waker = Arc::new(Sleeper(thread::current())).into();
    }
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            match Pin::new(&mut wait).poll(&mut context) {
                Poll::Ready(result) => return result,
                // Other causes may unpark the thread.
                Poll::Pending => thread::park(),
            }
        }
    })
}
