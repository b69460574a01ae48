//! The two counters that order certified transactions of one shard.

use std::fmt;

/// The configuration's number, and nothing else. Memory reclamation speaks of guards, not epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Epoch(pub u32);

/// A shard's logical counter. Drawn while the transaction holds its locks on that shard (rule M2),
/// so install order and clock order agree on every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Clock(pub u64);

impl Clock {
    /// Below every clock that is ever drawn.
    pub const ZERO: Clock = Clock(0);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
