//! The two counters that order certified transactions of one shard.
//!
//! Versions of a key are ordered by (epoch, clock): within an epoch by the clock the shard drew,
//! between epochs by the epoch alone. Clocks of different shards are never compared, and clocks of
//! different epochs neither; [`stamp`](crate::stamp) relates them.

use crate::wire::{Coded, Short};
use std::fmt;

/// The configuration's number, and nothing else. Memory reclamation has guards, not epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
#[repr(transparent)]
pub struct Epoch(pub u32);

/// A shard's logical counter. Drawn while the transaction holds its locks on that shard (rule M2),
/// so install order and clock order agree on every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
#[repr(transparent)]
pub struct Clock(pub u64);

impl Clock {
    /// Below every clock that is ever drawn.
    pub const ZERO: Clock = Clock(0);

    /// Above every clock that is ever drawn: the watermark of a shard that closed its epoch with
    /// nothing left hanging.
    pub const MAX: Clock = Clock(u64::MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_epoch_then_clock() {
        assert!((Epoch(1), Clock::MAX) < (Epoch(2), Clock::ZERO));
        assert!((Epoch(2), Clock(7)) < (Epoch(2), Clock(8)));
        assert_eq!(format!("{} {}", Epoch(2), Clock(7)), "e2 7");
    }
}
