//! Why the manager refuses a change of the cluster.

use crate::topology::{REPLICAS_MAX, TopologyError};
use shoal_types::{NodeId, Rejected, ShardId, TableId};
use thiserror::Error;

/// Why a change was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChangeRefusal {
    /// No shard has this number.
    #[error("there is no shard {0}; they count from 0")]
    NoShard(ShardId),
    /// No node has this number.
    #[error("there is no node {0}; name one of the topology")]
    NoNode(NodeId),
    /// The node was removed.
    #[error("{0} was removed from the cluster; name another node, or add one")]
    NodeRemoved(NodeId),
    /// The node cannot be removed while it is alive.
    #[error("{0} is alive; stop its process first, and ask again when its lease has run out")]
    NodeLives(NodeId),
    /// The node cannot be removed while it holds replicas.
    #[error("{node} holds a replica of {shard}; drain it first")]
    NodeHolds {
        /// The node that was to be removed.
        node: NodeId,
        /// The first shard of which it holds a replica.
        shard: ShardId,
    },
    /// No table has this number.
    #[error("there is no table {0}; create it first")]
    NoTable(TableId),
    /// The outgoing node has no replica.
    #[error("{node} holds no replica of {shard}; name one that does")]
    HoldsNone {
        /// The shard whose replica was to be replaced.
        shard: ShardId,
        /// The node that was named as outgoing.
        node: NodeId,
    },
    /// The incoming node has a replica of the shard already.
    #[error("{node} holds a replica of {shard} already; name one that does not")]
    Holds {
        /// The shard whose replica was to be replaced.
        shard: ShardId,
        /// The node that was named as incoming.
        node: NodeId,
    },
    /// The incoming node held the shard before.
    #[error(
        "{node} held a replica of {shard} before; restart it first, without its logs if it has some, or name another node"
    )]
    HeldBefore {
        /// The shard whose replica was to be replaced.
        shard: ShardId,
        /// The node that was named as incoming.
        node: NodeId,
    },
    /// The outgoing node leads the shard, and cannot hand it over.
    #[error(
        "{node} leads {shard}, and no other replica can; start one first, or stop {node} if it is a learner"
    )]
    Leads {
        /// The shard whose replica was to be replaced.
        shard: ShardId,
        /// The node that was named as outgoing, and leads.
        node: NodeId,
    },
    /// Another replica of the shard is being replaced, and has a voter beside it already.
    #[error(
        "{node} is taking the place of {in_place_of} in {shard}; wait for that, or replace {node} by {in_place_of} to give it up"
    )]
    Replacing {
        /// The shard whose replica was to be replaced.
        shard: ShardId,
        /// The voter that was added.
        node: NodeId,
        /// The voter that it replaces.
        in_place_of: NodeId,
    },
    /// The shard has lost nothing.
    #[error("a majority of {0} is alive and has its memory: there is no loss to accept")]
    HasMajority(ShardId),
    /// The engine cannot continue after a loss.
    #[error(
        "the engine of this cluster cannot go on without what the majority of {0} held: start voters of {0} that have it in memory"
    )]
    LossUnsupported(ShardId),
    /// No live replica has its memory.
    #[error("no live replica of {0} has its memory; start those that do")]
    NoSurvivor(ShardId),
    /// There would be too many replicas meanwhile.
    #[error("{0} would have more than REPLICAS_MAX = {REPLICAS_MAX} replicas; remove one first")]
    TooManyReplicas(ShardId),
    /// The table is neither created nor dropped.
    #[error("{0}")]
    Table(#[from] Rejected),
    /// The table or its partitioning is invalid.
    #[error("{0}")]
    Invalid(#[from] TopologyError),
    /// Another move is in progress; there is one at a time.
    #[error("{0} is being moved; end or cancel that first")]
    MoveUnderWay(TableId),
    /// The table is not being moved.
    #[error("{0} is not being moved; begin that first")]
    NoMove(TableId),
    /// A former epoch is not settled yet.
    #[error("a former epoch is not settled yet; ask again when it is")]
    Unsettled,
}
