//! How a transaction that met a conflict is run again: after a while, not forever.

use shoal_types::{Aborted, Backoff, Conflict, Error, Random, Result};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// The first and the longest pause after a conflict: of the length of a small transaction, and of a few turns of the
/// scheduler, after which what is in the way has run.
const PAUSE_MIN: Duration = Duration::from_nanos(512);
const PAUSE_MAX: Duration = Duration::from_millis(4);

/// In a pause that is no longer than this, of the length of most long transactions, the thread keeps its core. Reading a clock
/// would take longer than the first pause: so turns of a loop are counted.
const SPIN_MAX: Duration = Duration::from_micros(64);

/// How long a turn of the loop takes: the instruction by which processors recognise such loops takes 20 to 70 ns today.
const TURN_NANOS: u128 = 32;

/// From this attempt on the thread also offers its core to others: the one in the way may be waiting
/// for it.
const YIELD_FROM: u32 = 16;

/// The attempts of one transaction.
pub(crate) struct LocalRetries {
    attempts: u32,
    attempts_max: u32,
    backoff: Backoff,
    random: Random,
}

impl LocalRetries {
    /// None yet, of at most `attempts_max`; `seed` separates the pauses of rivals.
    pub(crate) fn new(attempts_max: u32, seed: u64) -> LocalRetries {
        let backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        LocalRetries { attempts: 0, attempts_max, backoff, random: Random::new(seed) }
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
    #[allow(
        clippy::disallowed_methods,
        reason = "a pause takes time, and what is in the way says nothing when it is over"
    )]
    pub(crate) fn pause_blocking(&mut self, error: Error) -> Result<()> {
        let conflict = match error {
            Error::Aborted(Aborted::Conflict(conflict)) => conflict,
            other => return Err(other),
        };
        self.count(conflict)?;
        let pause = self.backoff.draw_below(&mut self.random);
        if pause > SPIN_MAX {
            std::thread::sleep(pause);
            return Ok(());
        }
        for _ in 0..pause.as_nanos() / TURN_NANOS {
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
