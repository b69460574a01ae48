//! Exponential back-off: how long to wait before an attempt is repeated.
//!
//! Used wherever something is tried again: attempts of a transaction after a conflict, requests that are sent again, peers
//! that are dialled again. What is tried again may have failed because of too much load, and every attempt adds to it:
//! so the wait doubles from one attempt to the next, up to a limit. Randomness comes from the caller, so that a simulated run
//! can be repeated.
//!
//! ```
//! use shoal_types::{Backoff, Random};
//! use std::time::Duration;
//!
//! let [least, most] = [10, 50].map(Duration::from_millis);
//! let mut backoff = Backoff::new(least, most);
//! assert_eq!([0; 4].map(|_| backoff.advance().as_millis()), [10, 20, 40, 50]);
//! backoff.reset();
//! assert!(backoff.draw_below(&mut Random::new(7)) < least);
//! assert_eq!(backoff.bound(), 2 * least);
//! ```

use crate::random::Random;
use std::time::Duration;

/// A wait that doubles with every attempt, from `least` up to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    bound: Duration,
}

impl Backoff {
    /// The back-off before the first wait, which is `least`; `most` counts where it is less than that.
    #[must_use]
    pub const fn new(least: Duration, most: Duration) -> Backoff {
        let bound = if least.as_nanos() < most.as_nanos() { least } else { most };
        Backoff { least: bound, most, bound }
    }

    /// The present wait, before jitter.
    #[must_use]
    pub const fn bound(&self) -> Duration {
        self.bound
    }

    /// The present wait without jitter. The next one is twice as long, unless the limit is less.
    pub fn advance(&mut self) -> Duration {
        let bound = self.bound;
        self.bound = bound.saturating_mul(2).min(self.most);
        bound
    }

    /// The present wait with full jitter: drawn uniformly from zero up to it, and never all of it. It separates rivals
    /// that met at the same moment.
    pub fn draw_below(&mut self, random: &mut Random) -> Duration {
        below(self.advance(), random)
    }

    /// The present wait with half of it as jitter: between a half and the whole, so that those that lost the same peer do
    /// not all come back at once, and none comes back at once.
    pub fn draw_from_half(&mut self, random: &mut Random) -> Duration {
        self.advance().mul_f64(0.5 + random.unit() / 2.0)
    }

    /// Begins again with the least wait, after a success.
    pub fn reset(&mut self) {
        self.bound = self.least;
    }
}

/// A duration drawn uniformly from zero up to `longest`, and less than it unless that is zero.
pub fn below(longest: Duration, random: &mut Random) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.below(nanos.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(3);
    const MOST: Duration = Duration::from_millis(10);

    #[test]
    fn waits_double_up_to_the_limit_and_begin_again() {
        let mut backoff = Backoff::new(LEAST, MOST);
        for expected in [LEAST, 2 * LEAST, MOST, MOST] {
            assert_eq!(backoff.bound(), expected);
            assert_eq!(backoff.advance(), expected);
        }
        backoff.reset();
        assert_eq!(backoff.advance(), LEAST);
    }

    #[test]
    fn no_wait_is_longer_than_the_limit() {
        assert_eq!(Backoff::new(MOST, LEAST).advance(), LEAST);
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!([endless.advance(), endless.advance()], [Duration::MAX; 2]);
    }

    #[test]
    fn jitter_keeps_its_bounds() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let mut backoff = Backoff::new(LEAST, MOST);
            assert!(backoff.draw_below(&mut random) < LEAST);
            let half = backoff.draw_from_half(&mut random);
            assert!((LEAST..=2 * LEAST).contains(&half), "{half:?}");
        }
        assert_eq!(below(Duration::ZERO, &mut random), Duration::ZERO);
    }
}
