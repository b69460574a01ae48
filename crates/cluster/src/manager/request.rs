//! What a node has the manager told, as it travels from an engine to the node's manager client, which says it in the node's
//! name.

use super::epoch_end::EpochEnd;
use super::ids::Incarnation;
use super::loss::Knowledge;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Epoch, NodeId, ShardId};
use std::collections::BTreeMap;

/// What a node has the manager told.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ManagerRequest {
    /// How a closed epoch ended on a shard that this node leads. Once for each appointment, by one worker; dropped and counted
    /// if that is not asked of this node. The node may have heard from another one that the epoch is closed, before the
    /// manager says so: then it is said until that is known.
    #[coded(tag = 0)]
    Report {
        /// The shard that reports.
        shard: ShardId,
        /// The closed epoch that the report is about.
        epoch: Epoch,
        /// How it ended there, in the engine's form.
        end: EpochEnd,
    },
    /// Close the open epoch: on a shard that this node leads something hangs whose coordinator is silent. Once for each epoch
    /// by each worker; dropped and counted if that is over. Nothing comes of it if it may wait.
    #[coded(tag = 1)]
    Close {
        /// The shard on which the transaction hangs.
        shard: ShardId,
        /// The epoch to close; it is open as the node knows.
        epoch: Epoch,
    },
    /// An empty replica of a shard that this node leads has all that was there when its ballot began, accepted under that
    /// ballot. Dropped and counted if the configuration does not call it empty, or speaks of another ballot or process by now:
    /// what was decided after the base of an earlier ballot, with help that the replica has forgotten, it may lack.
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
    /// What this node knows of a shard whose majority is lost: it has stopped to learn more. Once for each such loss, by one
    /// worker; repeated until the configuration says that it is known.
    #[coded(tag = 3)]
    Known {
        /// The shard whose majority is lost.
        shard: ShardId,
        /// The epoch that began with the loss.
        begun: Epoch,
        /// What the node knows of the epochs before.
        knowledge: Knowledge,
    },
    /// The survivors of such a shard are prepared, by this node. Once for each appointment.
    #[coded(tag = 4)]
    Held {
        /// The shard whose majority is lost.
        shard: ShardId,
        /// They have all of these epochs up to there.
        held: BTreeMap<Epoch, EpochEnd>,
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
            | ManagerRequest::Held { shard, .. } => *shard,
        }
    }

    /// Whether the ends of epochs that it tells are within [`EPOCH_END_BYTES_MAX`](super::EPOCH_END_BYTES_MAX).
    pub(super) fn is_within_limits(&self) -> bool {
        let all = |ends: &BTreeMap<Epoch, EpochEnd>| ends.values().all(EpochEnd::is_within_limits);
        match self {
            ManagerRequest::Report { end, .. } => end.is_within_limits(),
            ManagerRequest::Known { knowledge, .. } => {
                all(&knowledge.durable) && all(&knowledge.ends)
            }
            ManagerRequest::Held { held, .. } => all(held),
            ManagerRequest::Close { .. } | ManagerRequest::CaughtUp { .. } => true,
        }
    }
}
