//! The requests of a node's engine to the manager, which the node's manager client sends in the node's name.

use super::epoch_end::EpochEnd;
use super::ids::Incarnation;
use super::loss::Knowledge;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Epoch, NodeId, ShardId};
use std::collections::BTreeMap;

/// A request of a node's engine to the manager.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ManagerRequest {
    /// How a closed epoch ended on a shard that this node leads. Once for each appointment, by one worker;
    /// dropped and counted if this node does not have to report it. The node may have learned from another
    /// one that the epoch is closed, before the manager says so: then it is repeated until that is known.
    #[coded(tag = 0)]
    Report {
        /// The shard that reports.
        shard: ShardId,
        /// The closed epoch that the report is about.
        epoch: Epoch,
        /// How it ended there, in the engine's form.
        end: EpochEnd,
    },
    /// Close the open epoch: on a shard that this node leads a transaction is blocked whose coordinator does
    /// not answer, or a transaction that this node coordinates has waited too long for a shard. Once for each epoch by each
    /// worker; dropped and counted if the epoch is closed. The manager may ignore it if it may wait.
    #[coded(tag = 1)]
    Close {
        /// The shard on which the transaction hangs, or for which it has waited.
        shard: ShardId,
        /// The epoch to close; it is open as the node knows.
        epoch: Epoch,
    },
    /// An empty replica of a shard that this node leads has all that its ballot began with, accepted under
    /// that ballot. Dropped and counted if the configuration does not call it empty, or has another ballot or
    /// process by now: the replica may lack what was decided after the base of an earlier ballot, with
    /// acceptances that it has lost.
    #[coded(tag = 2)]
    CaughtUp {
        /// The shard of the replica.
        shard: ShardId,
        /// The node of the replica that has caught up.
        replica: NodeId,
        /// The ballot under which the leader had the replica accept all.
        ballot: Ballot,
        /// The incarnation of the replica's node then.
        incarnation: Incarnation,
    },
    /// What this node knows of a shard whose majority is lost: it has stopped to learn more. Once for each
    /// such loss, by one worker; repeated until the configuration shows that it is known.
    #[coded(tag = 3)]
    Known {
        /// The shard whose majority is lost.
        shard: ShardId,
        /// The epoch that began with the loss.
        begun: Epoch,
        /// What the node knows of the epochs before.
        knowledge: Knowledge,
    },
    /// This node has prepared at the survivors of such a shard. Once for each appointment.
    #[coded(tag = 4)]
    Held {
        /// The shard whose majority is lost.
        shard: ShardId,
        /// Up to where they have all of these epochs.
        held: BTreeMap<Epoch, EpochEnd>,
    },
    /// All data of a shard that this node leads has as many copies as it is to have. The engine repeats it, as long as that is so.
    #[coded(tag = 5)]
    Whole {
        /// The shard that it is about.
        shard: ShardId,
        /// The epoch in which that is so.
        epoch: Epoch,
    },
}

impl ManagerRequest {
    /// The shard that it is about.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        match self {
            ManagerRequest::Report { shard, .. }
            | ManagerRequest::Close { shard, .. }
            | ManagerRequest::CaughtUp { shard, .. }
            | ManagerRequest::Known { shard, .. }
            | ManagerRequest::Held { shard, .. }
            | ManagerRequest::Whole { shard, .. } => *shard,
        }
    }

    /// Whether the ends of epochs in it are within [`EPOCH_END_BYTES_MAX`](super::EPOCH_END_BYTES_MAX).
    pub(super) fn is_within_limits(&self) -> bool {
        let all = |ends: &BTreeMap<Epoch, EpochEnd>| ends.values().all(EpochEnd::is_within_limits);
        match self {
            ManagerRequest::Report { end, .. } => end.is_within_limits(),
            ManagerRequest::Known { knowledge, .. } => {
                all(&knowledge.durable) && all(&knowledge.ends)
            }
            ManagerRequest::Held { held, .. } => all(held),
            ManagerRequest::Close { .. }
            | ManagerRequest::CaughtUp { .. }
            | ManagerRequest::Whole { .. } => true,
        }
    }
}
