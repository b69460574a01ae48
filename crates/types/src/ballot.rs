//! Ballots: which node may lead a stream, and which no longer.

use crate::clock::Epoch;
use crate::id::NodeId;
use crate::wire::{Coded, Short};
use std::fmt;

/// Orders the leaders of a stream: the epoch of the appointment, then the node. No two leaders
/// share one, since an epoch appoints one leader a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
pub struct Ballot {
    /// The epoch that made `node` the leader.
    pub epoch: Epoch,
    /// The node that leads under this ballot.
    pub node: NodeId,
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.node)
    }
}
