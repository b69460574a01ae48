//! The configuration: what the manager tells every node.

use super::command::{Incarnation, number};
use super::epoch_end::{EpochEnd, FinalEnds};
use super::loss::{Loss, LossStage};
use super::recovery::Generation;
use crate::topology::{Partitioning, Topology};
use shoal_log::StreamMembers;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, ShardId, TableId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

number!(/** Counts the changes of the configuration, with and without a new epoch. */ Revision(u64));

/// The whole configuration at one revision. A later one replaces it; those between may be missed.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Configuration {
    /// The identity of the cluster, drawn when it was founded. `None` without managers.
    pub cluster: Option<ClusterId>,
    /// How often a majority of the managers was lost, and the loss accepted.
    pub generation: Generation,
    /// Greater than that of any earlier one.
    pub revision: Revision,
    /// The epoch that is open for new work.
    pub epoch: Epoch,
    /// Nodes, datacenters, tables and the shard map. Who holds and leads a shard is said by `shards`:
    /// the topology only knows how it began.
    pub topology: Arc<Topology>,
    /// Of each node.
    pub nodes: Vec<NodeStanding>,
    /// Of each shard.
    pub shards: Vec<Assignment>,
    /// The last epoch whose FVW is final; so are those of all before.
    pub settled: Epoch,
    /// Some FVWs of epochs up to this one, which do not cover all of their epoch, are kept no more. A node that has
    /// something of such an epoch, and has not heard how it ended, ends its process; one that begins hears of it from the
    /// streams that have something of it.
    pub forgotten: Epoch,
    /// FVWs, ascending: those later ones that do not cover all of their epoch. Any other of a later epoch that is closed
    /// and not in `ends` covers all.
    pub finals: Vec<FinalEnds>,
    /// Of each closed epoch whose FVW is not final: how it ended on the shards that have said so. Final, shard by shard.
    pub ends: BTreeMap<Epoch, Vec<Option<EpochEnd>>>,
    /// What is being moved between shards.
    pub moving: Option<Move>,
}

/// What the manager thinks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct NodeStanding {
    /// Its newest; 0 if it never joined.
    pub incarnation: Incarnation,
    /// Whether it is heard. It may be alive and cut off.
    pub alive: bool,
}

/// Who holds a shard, and who leads it.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Assignment {
    /// The leader; if it is not alive, no node that could lead was found yet.
    pub leader: NodeId,
    /// The incarnation of the leader that was appointed.
    pub incarnation: Incarnation,
    /// Its ballot: the epoch of its appointment, and its name.
    pub ballot: Ballot,
    /// The epoch in which its leadership began: the first of its appointments with none of another node between. Names
    /// the leadership.
    pub since: Epoch,
    /// Those who vote, but for the empty ones. A majority is one of them all.
    pub voters: Vec<NodeId>,
    /// Those who do not.
    pub learners: Vec<NodeId>,
    /// If the shard is *out*: since which epoch. In that one and those that follow it draws no clock and its end counts
    /// as known, so that nothing waits for it; it lacks the end of an epoch before.
    pub out: Option<Epoch>,
    /// Replicas without memory, and the epoch in which they had lost it. A voter among them is given
    /// its vote back when a leader of a later appointment has said that it has caught up.
    pub empty: BTreeMap<NodeId, Epoch>,
    /// The loss of its majority, if an operator has accepted one.
    pub loss: Option<Loss>,
}

/// A table whose partitions change their shards.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Move {
    /// The table.
    pub table: TableId,
    /// How its keys will be divided.
    pub partitioning: Partitioning,
    /// The epoch that began with it.
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

    /// Those who replicate the streams of the shard.
    #[must_use]
    pub fn members(&self) -> StreamMembers {
        let (voters, learners) = (self.voters.clone(), self.learners.clone());
        let stage = self.loss.as_ref().map(|loss| loss.stage);
        StreamMembers { voters, learners, all_promise: stage == Some(LossStage::Preparing) }
    }

    /// All holders, voters first.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// Voters that remember what they promised and accepted.
    pub fn full_voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().copied().filter(|node| !self.empty.contains_key(node))
    }
}

impl Configuration {
    /// Who holds and leads a shard; `None` where there is no such one.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&Assignment> {
        self.shards.get(shard.0 as usize)
    }

    /// The FVW of an epoch; `None` if it is open, or some shard has not said how it ended.
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

    /// Does a shard still have to say how a closed epoch ended there?
    #[must_use]
    pub fn lacks_end(&self, epoch: Epoch, shard: ShardId) -> bool {
        let ends = self.ends.get(&epoch).and_then(|ends| ends.get(shard.0 as usize));
        ends.is_some_and(Option::is_none)
    }

    /// The epochs that are closed and whose FVW is not final: leaders have to report for them.
    pub fn closing(&self) -> impl Iterator<Item = Epoch> + '_ {
        self.ends.keys().copied()
    }
}
