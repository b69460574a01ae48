//! How a transaction that met a conflict is run again: after a while, not forever.

use shoal_types::{Aborted, Conflict, Error, Random, Result};
use std::future::poll_fn;
use std::task::Poll;

/// The longest pause is `FIRST_SPINS << DOUBLINGS_MAX` turns of a loop, about half a millisecond.
const FIRST_SPINS: u64 = 64;
const DOUBLINGS_MAX: u32 = 12;

/// From this attempt on the thread also offers its core to others: the one in the way may be waiting
/// for it.
const YIELD_FROM: u32 = 4;

/// The attempts of one transaction.
pub(crate) struct LocalRetries {
    attempts: u32,
    attempts_max: u32,
    random: Random,
}

impl LocalRetries {
    /// None yet, of at most `attempts_max`; `seed` tells the pauses of rivals apart.
    pub(crate) fn new(attempts_max: u32, seed: u64) -> LocalRetries {
        LocalRetries { attempts: 0, attempts_max, random: Random::new(seed) }
    }

    /// Pauses after an attempt that `error` ended; lets the executor run other tasks.
    ///
    /// # Errors
    /// `error` itself where a retry is no use, [`Aborted::RetriesExhausted`] where none is left.
    pub(crate) async fn pause(&mut self, error: Error) -> Result<()> {
        self.pause_blocking(error)?;
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        Ok(())
    }

    /// [`pause`](LocalRetries::pause) without an executor.
    pub(crate) fn pause_blocking(&mut self, error: Error) -> Result<()> {
        let conflict = match error {
            Error::Aborted(Aborted::Conflict(conflict)) => conflict,
            other => return Err(other),
        };
        self.count(conflict)?;
        let longest = FIRST_SPINS << self.attempts.min(DOUBLINGS_MAX);
        for _ in 0..self.random.below(longest) {
            std::hint::spin_loop();
        }
        if self.attempts >= YIELD_FROM {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn count(&mut self, last: Conflict) -> Result<()> {
        self.attempts += 1;
        if self.attempts >= self.attempts_max {
            Err(Aborted::RetriesExhausted { attempts: self.attempts, last })?;
        }
        Ok(())
    }
}
