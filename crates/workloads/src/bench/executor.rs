//! Runs a transaction's future to its end on the calling thread.
//!
//! No waker: an embedded database's futures are ready at once, and while one waits for a conflict
//! to pass there is nothing else for a closed-loop client to do. So a pending future is polled
//! again, politely.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls before the thread offers its processor to others.
const SPINS: u32 = 64;

/// Polls `future` until it is ready.
#[inline]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut spins = 0;
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending if spins < SPINS => {
                spins += 1;
                std::hint::spin_loop();
            }
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
