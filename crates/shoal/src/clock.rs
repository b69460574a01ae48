//! The one place of the command where the time is read: for what people wait for, and how long it takes.

use std::time::Instant;

/// Reads the process's monotonic clock.
#[expect(clippy::disallowed_methods, reason = "see the module")]
pub fn now() -> Instant {
    Instant::now()
}
