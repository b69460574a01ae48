//! Lengths of the sequence, in entries.

use shoal_types::wire::{Coded, Short};
use std::fmt;

/// A number of entries, counted from the beginning of the stream. Entries count from 0, so the
/// entry of index `i` is the last one of `LogLength(i + 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
#[repr(transparent)]
pub struct LogLength(pub u64);

impl LogLength {
    /// The length of a log without entries.
    pub const ZERO: LogLength = LogLength(0);

    /// This length plus `entries`; `None` if it overflows.
    #[must_use]
    pub fn checked_add(self, entries: usize) -> Option<LogLength> {
        self.0.checked_add(entries as u64).map(LogLength)
    }

    /// By how many entries this length exceeds `shorter`; 0 if it does not.
    #[must_use]
    pub fn beyond(self, shorter: LogLength) -> u64 {
        self.0.saturating_sub(shorter.0)
    }
}

impl fmt::Display for LogLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
