//! When something is sent again that was not answered.

use shoal_types::{Backoff, Time};

/// When something is sent again, on the local clock, and after how long after that.
#[derive(Debug, Clone, Copy)]
pub struct Repetition {
    at: Time,
    backoff: Backoff,
}

impl Repetition {
    /// Of what is not sent yet: it is due.
    pub fn at_once(now: Time, backoff: Backoff) -> Repetition {
        Repetition { at: now, backoff }
    }

    /// Of what is sent now.
    pub fn later(now: Time, mut backoff: Backoff) -> Repetition {
        Repetition { at: now + backoff.advance(), backoff }
    }

    /// Whether it is due.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.at <= now
    }

    /// When it is due.
    #[must_use]
    pub fn at(&self) -> Time {
        self.at
    }

    /// Whether it is due; then it is sent now, and due again later.
    pub fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.is_due(now);
        if is_due {
            self.at = now + self.backoff.advance();
        }
        is_due
    }
}
