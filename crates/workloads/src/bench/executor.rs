//! Runs a transaction's future to its end on the calling thread.
//!
//! An embedded database's futures are ready at once; one that waits for a conflict to pass wakes itself,
//! and is polled again. One that waits for an answer over a network lets the thread sleep.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Polls before the thread offers its processor to others.
const SPINS: u32 = 64;

/// Wakes the thread that waits.
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Release)
            && thread::current().id() != self.thread.id()
        {
            self.thread.unpark();
        }
    }
}

thread_local! {
    /// Each thread has one for all its transactions: a waker that comes late wakes in vain.
    static SLEEPER: (Arc<Sleeper>, Waker) = {
        let thread = thread::current();
        let sleeper = Arc::new(Sleeper { thread, is_woken: AtomicBool::new(false) });
        (Arc::clone(&sleeper), Waker::from(sleeper))
    };
}

/// Polls `future` until it is ready.
#[inline]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    SLEEPER.with(|(sleeper, waker)| {
        let mut context = Context::from_waker(waker);
        let mut spins = 0;
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => wait(sleeper, &mut spins),
            }
        }
    })
}

#[cold]
fn wait(sleeper: &Sleeper, spins: &mut u32) {
    if !sleeper.is_woken.swap(false, Ordering::Acquire) {
        while !sleeper.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    } else if *spins < SPINS {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn futures_that_wake_themselves_and_those_that_others_wake_end() {
        let mut left = 200;
        block_on(poll_fn(|context| {
            left -= 1;
            context.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let mut asked = false;
        block_on(poll_fn(|context| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        }));
    }
}
