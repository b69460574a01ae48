//! The configuration, which the manager sends to every node.

use super::epoch_end::{EpochEnd, FinalEnds};
use super::ids::{Generation, Incarnation, Revision};
use super::loss::{Loss, LossStage};
use crate::topology::{Partitioning, Topology};
use shoal_log::StreamMembers;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, ShardId, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The whole configuration at one revision. A later one replaces it; those between may be missed.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Configuration {
    /// The identity of the cluster, drawn when it was founded. `None` without managers.
    pub cluster: Option<ClusterId>,
    /// How often a majority of the managers was lost and the loss accepted.
    pub generation: Generation,
    /// The number of the configuration, which increases with every change.
    pub revision: Revision,
    /// The epoch that is open for new work.
    pub epoch: Epoch,
    /// Nodes, datacenters, tables and the shard map. The replicas and leaders of shards are in `shards`:
    /// those of the topology are only the initial ones.
    pub topology: Arc<Topology>,
    /// The state of each node.
    pub nodes: Vec<NodeStanding>,
    /// The replicas and the leader of each shard.
    pub shards: Vec<Assignment>,
    /// The last epoch up to which all ends are final.
    pub settled: Epoch,
    /// Final ends of epochs up to this one may be dropped that do not cover all of their epoch. A node that has
    /// versions of such an epoch, and has not received its ends, stops its process; a new process reads it from
    /// the streams that have entries of the epoch.
    pub forgotten: Epoch,
    /// Final ends of later epochs that do not cover all of their epoch, ascending. Any other later epoch that is
    /// closed and not in `ends` is covered as a whole.
    pub finals: Vec<FinalEnds>,
    /// For each closed epoch whose ends are not all known, the ends that shards have reported. Each is final.
    pub ends: BTreeMap<Epoch, Vec<Option<EpochEnd>>>,
    /// The move of a table between shards that is in progress.
    pub moving: Option<Move>,
}

/// The state of a node, by the manager's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct NodeStanding {
    /// The newest incarnation; 0 if the node never joined.
    pub incarnation: Incarnation,
    /// Whether its lease runs. A node that is not alive may run and be cut off.
    pub alive: bool,
    /// The epoch since which it is alive without interruption, in one process; without meaning if it is dead. Where deaths
    /// and returns begin epochs ([`ManagerOptions::membership_epochs`]), node and epoch name one membership.
    ///
    /// [`ManagerOptions::membership_epochs`]: super::ManagerOptions::membership_epochs
    pub since: Epoch,
    /// Whether it has been alive without interruption since its first process joined, or none has joined yet: what it does not
    /// have, it has not lost.
    pub is_first: bool,
}

/// The replicas and the leader of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Assignment {
    /// The leader; if it is not alive, no node that could lead was found yet.
    pub leader: NodeId,
    /// The incarnation of the leader that was appointed.
    pub incarnation: Incarnation,
    /// The leader's ballot: the epoch of its appointment, and its id.
    pub ballot: Ballot,
    /// The epoch in which its leadership began: that of the first of its appointments with none of another
    /// node in between. Identifies the leadership.
    pub since: Epoch,
    /// The voters, of which the empty ones do not vote. A majority is counted over all of them.
    pub voters: Vec<NodeId>,
    /// The voters that were added later, each with the epoch since which it votes. The others vote from the first one on.
    pub voting_since: BTreeMap<NodeId, Epoch>,
    /// The replicas that do not vote.
    pub learners: Vec<NodeId>,
    /// The first epoch in which the shard is *out*, if it is. From that one on it draws no clock and its end
    /// counts as known, so that nothing waits for it; it lacks the end of an earlier epoch.
    pub out: Option<Epoch>,
    /// Replicas without memory, and the epoch in which each had lost it. A voter among them may vote again
    /// when a leader of a later appointment has reported that it has caught up.
    pub empty: BTreeMap<NodeId, Epoch>,
    /// The voter that was added in the place of another, until one of the two has left.
    pub added: Option<AddedVoter>,
    /// The last loss of its majority that an operator has accepted.
    pub loss: Option<Loss>,
    /// Nodes that held the shard, and do not any more. Their processes may have something of it: none of them gets a
    /// replica of the shard before it has begun anew, without memory.
    pub left: BTreeSet<NodeId>,
}

/// A voter that was added in the place of another, which has not left yet. Both count in majorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct AddedVoter {
    /// The voter that was added.
    pub node: NodeId,
    /// The voter that leaves when the added one has caught up.
    pub in_place_of: NodeId,
    /// The epoch at whose end it was added; `None` when a leader of a later appointment has reported that it has caught up.
    pub catching_up_after: Option<Epoch>,
    /// Whether it was a learner before, and becomes one again where the replacement is given up.
    pub was_learner: bool,
    /// Whether the replacement is given up: the added voter leaves again.
    pub is_given_up: bool,
}

/// A replica of which the manager has no report yet that it has caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchingUp {
    /// The node that holds the replica.
    pub node: NodeId,
    /// A voter has caught up when a leader says so that was appointed in a later epoch.
    pub after: Epoch,
    /// Whether the replica has lost its memory, and does not vote.
    pub is_empty: bool,
}

/// A table whose partitions change their shards.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Move {
    /// The table whose keys move.
    pub table: TableId,
    /// How its keys will be divided.
    pub partitioning: Partitioning,
    /// The epoch that began with the move.
    pub begun: Epoch,
}

impl Assignment {
    /// Whether the node holds a replica.
    #[must_use]
    pub fn holds(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    /// Whether the leader is the process of this node with that incarnation; it may still have to recover the shard.
    #[must_use]
    pub fn is_led_by(&self, node: NodeId, incarnation: Incarnation) -> bool {
        (self.leader, self.incarnation) == (node, incarnation)
    }

    /// The members of the shard's streams.
    #[must_use]
    pub fn members(&self) -> StreamMembers {
        let (voters, learners) = (self.voters.clone(), self.learners.clone());
        let stage = self.loss.as_ref().map(|loss| loss.stage);
        StreamMembers { voters, learners, all_promise: stage == Some(LossStage::Preparing) }
    }

    /// All replicas, voters first.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// The replicas of which a leader is to report that they have caught up.
    pub fn catching_up(&self) -> impl Iterator<Item = CatchingUp> + '_ {
        let of_empty = |(node, after): (&NodeId, &Epoch)| CatchingUp {
            node: *node,
            after: *after,
            is_empty: true,
        };
        let added = self.added.filter(|added| !self.empty.contains_key(&added.node));
        let added = added.and_then(|AddedVoter { node, catching_up_after, .. }| {
            catching_up_after.map(|after| CatchingUp { node, after, is_empty: false })
        });
        self.empty.iter().map(of_empty).chain(added)
    }

    /// Voters that have their promises and accepted entries.
    pub fn full_voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().copied().filter(|node| !self.empty.contains_key(node))
    }
}

impl Configuration {
    /// The order of configurations: a greater key is newer.
    #[must_use]
    pub fn age(&self) -> (Generation, Revision) {
        (self.generation, self.revision)
    }

    /// The assignment of a shard; `None` if there is no such shard.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&Assignment> {
        self.shards.get(shard.0 as usize)
    }

    /// The final ends of an epoch; `None` if it is open, or some shard has not reported its end.
    #[must_use]
    pub fn last(&self, epoch: Epoch) -> Option<FinalEnds> {
        if epoch >= self.epoch || self.ends.contains_key(&epoch) {
            return None;
        }
        Some(match self.finals.binary_search_by_key(&epoch, FinalEnds::epoch) {
            Ok(at) => self.finals[at].clone(),
            Err(_) => FinalEnds::whole(epoch, self.shards.len()),
        })
    }

    /// Whether a shard still has to report how a closed epoch ended there.
    #[must_use]
    pub fn lacks_end(&self, epoch: Epoch, shard: ShardId) -> bool {
        let ends = self.ends.get(&epoch).and_then(|ends| ends.get(shard.0 as usize));
        ends.is_some_and(Option::is_none)
    }

    /// The epochs that are closed and whose ends are not final: leaders have to report for them.
    pub fn closing(&self) -> impl Iterator<Item = Epoch> + '_ {
        self.ends.keys().copied()
    }
}
