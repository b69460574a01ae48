//! The loss of a majority of a shard's voters at once.

use crate::draw::one_of;
use shoal_types::{NodeId, Random, ShardId};

/// A shard that loses a majority of its voters at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MajorityLoss {
    /// The shard that loses its majority.
    pub shard: ShardId,
    /// Time from the start of the clients, in nanoseconds.
    pub after_ns: u64,
    /// What happens to the voters.
    pub fate: Fate,
}

/// What happens to a majority of voters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The voters restart without memory: the shard is lost for good.
    Emptied,
    /// The voters stay crashed until the end of the run.
    Gone,
    /// The voters are cut off until all faults are healed, with their memory intact.
    CutOff,
    /// The voters lose power while another one has all that is durable; they return with their disks when an operator has accepted
    /// the loss.
    Accepted,
}

/// The loss of a majority that an operator is about to accept.
#[derive(Debug)]
pub(crate) struct AcceptedLoss {
    pub(crate) shard: ShardId,
    /// The voters that stay down until it is over.
    pub(crate) down: Vec<NodeId>,
}

impl MajorityLoss {
    /// Draws a loss within the `span_ns` for which clients run.
    pub fn draw(random: &mut Random, shards: u32, span_ns: u64) -> MajorityLoss {
        MajorityLoss {
            shard: ShardId(random.below(shards.into()) as u32),
            after_ns: span_ns * random.range_inclusive(5, 50) / 100,
            fate: one_of(random, &[Fate::Emptied, Fate::Emptied, Fate::Gone, Fate::CutOff]),
        }
    }

    /// Draws a loss that is accepted, so early that it is over while clients run.
    pub fn draw_accepted(random: &mut Random, shards: u32, span_ns: u64) -> MajorityLoss {
        MajorityLoss {
            shard: ShardId(random.below(shards.into()) as u32),
            after_ns: span_ns * random.range_inclusive(5, 30) / 100,
            fate: Fate::Accepted,
        }
    }

    /// Whether the shard's contents are lost for good.
    pub fn is_final(&self) -> bool {
        match self.fate {
            Fate::Emptied | Fate::Gone => true,
            Fate::CutOff | Fate::Accepted => false,
        }
    }
}
