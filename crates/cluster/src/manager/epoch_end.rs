//! How an epoch ended on a shard, as the shard's leader reports it: an opaque payload. The manager keeps the first
//! report for each shard and epoch, and does not interpret it: only the nodes' engines do.
//!
//! The manager compares ends in one place only: where the loss of a shard's majority was accepted, it takes
//! the greater of two ends (`accept_loss.rs`). So an engine whose clusters may accept losses writes payloads whose
//! byte order is the order of the ends: an engine that counts writes a big-endian number.

use bytes::Bytes;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, ShardId};
use std::fmt;

/// The most bytes of an end's payload: the manager keeps an end for each shard and each epoch that lost
/// something.
pub const EPOCH_END_BYTES_MAX: usize = 256;

/// How an epoch ended on one shard. The order is that of what was kept: all of the epoch is the most.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Coded)]
pub enum EpochEnd {
    /// Part of the epoch was kept.
    #[coded(tag = 0)]
    Part {
        /// Which part, in the engine's own form.
        payload: Bytes,
    },
    /// All of the epoch was kept: nothing was left hanging. Such ends are forgotten once all shards have theirs.
    #[coded(tag = 1)]
    Whole,
}

impl EpochEnd {
    /// The end of an epoch of which the part in `payload` was kept.
    #[must_use]
    pub fn part(payload: &[u8]) -> EpochEnd {
        EpochEnd::Part { payload: Bytes::copy_from_slice(payload) }
    }

    /// The end of an epoch that was kept up to this number, whose big-endian bytes are the payload;
    /// `u64::MAX` stands for all of it.
    #[must_use]
    pub fn up_to(number: u64) -> EpochEnd {
        match number {
            u64::MAX => EpochEnd::Whole,
            _ => EpochEnd::part(&number.to_be_bytes()),
        }
    }

    /// The number of [`EpochEnd::up_to`], and `u64::MAX` for an epoch that was kept whole; `None` for a payload of another
    /// form.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            EpochEnd::Part { payload } => Some(u64::from_be_bytes(payload[..].try_into().ok()?)),
            EpochEnd::Whole => Some(u64::MAX),
        }
    }

    /// Whether the payload is within [`EPOCH_END_BYTES_MAX`].
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        match self {
            EpochEnd::Part { payload } => payload.len() <= EPOCH_END_BYTES_MAX,
            EpochEnd::Whole => true,
        }
    }
}

impl Default for EpochEnd {
    /// Nothing of the epoch was kept: the least end.
    fn default() -> EpochEnd {
        EpochEnd::Part { payload: Bytes::new() }
    }
}

impl fmt::Debug for EpochEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.number()) {
            (EpochEnd::Whole, _) => f.write_str("whole"),
            (EpochEnd::Part { .. }, Some(number)) => write!(f, "{number}"),
            (EpochEnd::Part { payload }, None) => write!(f, "{payload:?}"),
        }
    }
}

/// How an epoch ended on every shard: final, and the same on every node.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct FinalEnds {
    epoch: Epoch,
    ends: Vec<EpochEnd>,
}

impl FinalEnds {
    /// The final ends of an epoch, one for each shard, in their order.
    #[must_use]
    pub fn new(epoch: Epoch, ends: Vec<EpochEnd>) -> FinalEnds {
        FinalEnds { epoch, ends }
    }

    /// The ends of an epoch that was kept whole on `shards` shards.
    #[must_use]
    pub fn whole(epoch: Epoch, shards: usize) -> FinalEnds {
        FinalEnds { epoch, ends: vec![EpochEnd::Whole; shards] }
    }

    /// The epoch that ended.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.ends.len()
    }

    /// The ends of all shards, in their order.
    #[must_use]
    pub fn ends(&self) -> &[EpochEnd] {
        &self.ends
    }

    /// How the epoch ended on a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    #[must_use]
    pub fn of(&self, shard: ShardId) -> &EpochEnd {
        &self.ends[shard.0 as usize]
    }

    /// Whether every shard kept all of the epoch.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ends.iter().all(|end| *end == EpochEnd::Whole)
    }

    /// Replaces the end of a shard by a greater one. Returns whether it was greater. Only a planted bug does
    /// that.
    pub(super) fn raise(&mut self, shard: ShardId, end: &EpochEnd) -> bool {
        let before = &mut self.ends[shard.0 as usize];
        let is_greater = end > before;
        if is_greater {
            before.clone_from(end);
        }
        is_greater
    }

    /// Whether all payloads are within their limit.
    pub(super) fn is_within_limits(&self) -> bool {
        self.ends.iter().all(EpochEnd::is_within_limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_ordered_by_what_was_kept() {
        let ascending = [
            EpochEnd::default(),
            EpochEnd::up_to(0),
            EpochEnd::up_to(255),
            EpochEnd::up_to(256),
            EpochEnd::up_to(u64::MAX - 1),
            EpochEnd::Whole,
        ];
        assert!(ascending.is_sorted_by(|less, more| less < more));
        let numbers = ascending.iter().map(EpochEnd::number);
        let expected = [None, Some(0), Some(255), Some(256), Some(u64::MAX - 1), Some(u64::MAX)];
        assert!(numbers.eq(expected));
    }

    #[test]
    fn only_ends_that_are_all_whole_are_whole() {
        let ends = vec![EpochEnd::Whole, EpochEnd::up_to(7)];
        let mut ends = FinalEnds::new(Epoch(3), ends);
        assert!(!ends.is_whole());
        assert!(!ends.raise(ShardId(1), &EpochEnd::up_to(7)), "not greater");
        assert!(ends.raise(ShardId(1), &EpochEnd::Whole));
        assert_eq!(ends, FinalEnds::whole(Epoch(3), 2));
    }

    #[test]
    fn a_payload_has_a_limit() {
        assert!(EpochEnd::part(&[0; EPOCH_END_BYTES_MAX]).is_within_limits());
        assert!(!EpochEnd::part(&[0; EPOCH_END_BYTES_MAX + 1]).is_within_limits());
    }
}
