//! Lengths: how many entries of the sequence.

use std::fmt;

/// A number of entries, counted from the beginning of the stream. Entries count from 0, so the
/// entry of index `i` is the last one of `Length(i + 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Length(pub u64);

impl Length {
    /// Nothing.
    pub const ZERO: Length = Length(0);

    /// That many entries more; `None` where there is no such length.
    #[must_use]
    pub fn checked_add(self, entries: usize) -> Option<Length> {
        self.0.checked_add(entries as u64).map(Length)
    }

    /// How many entries this is more than `shorter`; none, if it is not.
    #[must_use]
    pub fn beyond(self, shorter: Length) -> u64 {
        self.0.saturating_sub(shorter.0)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
