//! Stamps: the version vector clock of a transaction, stored sparsely (design §5, Mako §4.2).

use crate::clock::{Clock, Epoch};
use crate::id::ShardId;

/// One remote entry of a stamp: the greatest clock of `shard` that the transaction depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct RemoteClock {
    /// Whose clock.
    pub shard: ShardId,
    /// How far.
    pub clock: Clock,
}

/// A transaction's stamp as one shard keeps it: its epoch, the clock that shard drew for it, and
/// entries for the other shards it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Stamp {
    /// The configuration under which the transaction was certified.
    pub epoch: Epoch,
    /// The clock of the shard that holds the stamp.
    pub clock: Clock,
    /// Entries for other shards, by shard number, each shard once.
    remote: Vec<RemoteClock>,
}

/// A borrowed [`Stamp`], as a version in the store holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampRef<'a> {
    /// See [`Stamp::epoch`].
    pub epoch: Epoch,
    /// See [`Stamp::clock`].
    pub clock: Clock,
    /// See [`Stamp`]: by shard number, each shard once.
    pub remote: &'a [RemoteClock],
}

impl Stamp {
    /// A stamp without remote entries: all that a single-shard transaction ever needs.
    pub fn local(epoch: Epoch, clock: Clock) -> Stamp {
        Stamp { epoch, clock, remote: Vec::new() }
    }

    /// Borrows it.
    pub fn as_ref(&self) -> StampRef<'_> {
        StampRef { epoch: self.epoch, clock: self.clock, remote: &self.remote }
    }
}
