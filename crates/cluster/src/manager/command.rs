//! The commands of the managers' replicated log.

use super::epoch_end::EpochEnd;
use super::ids::{Ask, Incarnation, ProcessInstance, Revision, Term};
use super::loss::Knowledge;
use crate::topology::{Partitioning, TableDefinition, TableMap, TableStanding, Topology};
use shoal_types::wire::Coded;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, ShardId, TableId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A command, with the term and the time of its proposal.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Command {
    /// The term of the manager that proposed it. Void if a later term has begun.
    pub term: Term,
    /// The clock of the manager that proposed it, read when it proposed; except for [`Action::Take`] and [`Action::Found`], after its own one
    /// was applied to its own machine.
    pub at: Time,
    /// The change of the state machine.
    pub action: Action,
}

/// The last heartbeat that a node's manager took, this term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct HeartbeatRecord {
    /// The node that sent the heartbeat.
    pub node: NodeId,
    /// The incarnation under which it was sent.
    pub incarnation: Incarnation,
    /// The number of the heartbeat; a lower one than an earlier one renews nothing.
    pub round: u64,
    /// The time of its arrival, on the receiving manager's clock.
    pub at: Time,
    /// The revision of the configuration that the node has.
    pub known: Revision,
}

/// A claim of a leadership, under which a node makes a request. It counts while the configuration has the
/// same leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct LeadershipClaim {
    /// The node that claims to lead.
    pub node: NodeId,
    /// The incarnation of that node.
    pub incarnation: Incarnation,
    /// The shard that it claims to lead.
    pub shard: ShardId,
    /// The ballot of its appointment.
    pub ballot: Ballot,
}

/// What a command does. All but `Take` and `Found` are harmless when repeated.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
// Retired tags: 0 (founding), 1 and 2 (ticks and joins of another form), 3, 10 and 11 (ends of epochs as
// numbers).
pub enum Action {
    /// A term begins. Its manager proposes nothing else before it has seen this applied. The first one in the log founds
    /// the cluster.
    #[coded(tag = 9)]
    Take {
        /// The identity that the proposing manager has drawn. Ignored once the cluster has one.
        drawn: ClusterId,
    },
    /// The same, by a manager that knows of no `Take`: the first one in the log founds the cluster, of this shape. A manager
    /// that reads the log later may have been started with the file of a cluster that has other nodes by then.
    #[coded(tag = 15)]
    Found {
        /// The identity that the proposing manager has drawn.
        drawn: ClusterId,
        /// The topology that the file of the proposing manager has.
        topology: Arc<Topology>,
    },
    /// A time, by which leases run out and leaders are appointed.
    #[coded(tag = 7)]
    Tick {
        /// The last heartbeat of each node from which the manager has received one in the last lease.
        heartbeats: Vec<HeartbeatRecord>,
    },
    /// A node's new process is admitted, if no other was since `after`. So a message of a former process,
    /// however late, admits no node.
    #[coded(tag = 8)]
    Join {
        /// The node to admit.
        node: NodeId,
        /// The process that asks to be admitted.
        instance: ProcessInstance,
        /// The incarnation before it.
        after: Incarnation,
        /// Whether the former process's memory is lost: promises, streams, data.
        lost: bool,
        /// When the manager last received a heartbeat of the former process; it accepts no more of them.
        last_heartbeat: Time,
    },
    /// A shard's part of the end of an epoch.
    #[coded(tag = 12)]
    Report {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// The closed epoch that the report is about.
        epoch: Epoch,
        /// How it ended there, in the engine's form.
        end: EpochEnd,
    },
    /// A transaction is blocked in the open epoch, and blocks a healthy shard, or its coordinator cannot end it: the epoch is to
    /// end before any node is known to be dead. Void while an epoch before it is not settled and this one is younger than a
    /// lease.
    #[coded(tag = 6)]
    Close {
        /// The node that asks for it, and the shard. Any node of the cluster may: it need not lead the shard, and the claim is
        /// only its name.
        claim: LeadershipClaim,
        /// The epoch that is to be closed.
        epoch: Epoch,
    },
    /// A replica that was empty has all that its leader began with, under the leader's ballot.
    #[coded(tag = 4)]
    CaughtUp {
        /// The leader of the shard, which reports it.
        claim: LeadershipClaim,
        /// The node of the replica that has caught up.
        replica: NodeId,
        /// The incarnation of that node.
        incarnation: Incarnation,
    },
    /// A node has stopped to apply reports about a shard whose majority is lost, and reports what it knows.
    #[coded(tag = 13)]
    Known {
        /// The node that reports.
        node: NodeId,
        /// The incarnation of that node.
        incarnation: Incarnation,
        /// The shard whose majority is lost.
        shard: ShardId,
        /// The epoch that began with the loss, which identifies the loss.
        begun: Epoch,
        /// The node's knowledge of the epochs before.
        knowledge: Knowledge,
    },
    /// The leader has prepared at all survivors of such a shard.
    #[coded(tag = 14)]
    Held {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// Up to where the survivors hold each of these epochs.
        held: BTreeMap<Epoch, EpochEnd>,
    },
    /// All data of a shard has as many copies as it is to have.
    #[coded(tag = 16)]
    Whole {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// The epoch in which that was so.
        epoch: Epoch,
    },
    /// A change is asked for.
    #[coded(tag = 5)]
    Change {
        /// The id of the request.
        ask: Ask,
        /// The change that the operator or client asks for.
        change: ClusterChange,
    },
}

/// A table is to come, or to go.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum TableChange {
    /// A table with a name of its own gets the next id. Where one has the name and the same definition, that is the
    /// answer. A repeat of a request that has created one is answered with that one, also where it was dropped since.
    #[coded(tag = 0)]
    Create {
        /// The name of the table; no other has it.
        name: String,
        /// How its keys are divided.
        definition: TableDefinition,
    },
    /// The table goes, with all its rows; its id is never given again.
    #[coded(tag = 1)]
    Drop {
        /// The table to drop. A later one of the same name has another id.
        table: TableId,
    },
}

impl TableChange {
    /// Whether a node with these tables has the change that the manager has answered with `table`.
    #[must_use]
    pub fn is_contained_in(&self, table: TableId, tables: &TableMap) -> bool {
        match self {
            TableChange::Create { .. } => tables.standing(table) != TableStanding::NotGiven,
            TableChange::Drop { .. } => tables.standing(table) == TableStanding::Dropped,
        }
    }
}

/// A change of the cluster that a node or an operator asks for. A repeat is granted like the first, but for the end
/// of a move: there is nothing to end any more.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
// The tag 2 was the creation of a table without a request to recognise.
pub enum ClusterChange {
    /// Replace a replica by one of another node, in the same role. It takes effect in steps: the new one
    /// catches up as a learner; if it is to vote, an epoch begins in which it does. Replaces an unfinished
    /// one of the same shard.
    #[coded(tag = 0)]
    ReplaceReplica {
        /// The shard of the replica.
        shard: ShardId,
        /// The outgoing node. It may be dead; it may not lead.
        outgoing: NodeId,
        /// The node that takes over the replica; it must not have one of the shard.
        incoming: NodeId,
    },
    /// Cancel the replacement of a replica of this shard, if it is not done.
    #[coded(tag = 1)]
    KeepReplicas {
        /// The shard whose replacement is given up.
        shard: ShardId,
    },
    /// Accept that the majority of a shard's voters is lost for good: the shard goes on with what the other
    /// replicas have.
    #[coded(tag = 6)]
    AcceptLoss {
        /// The shard whose majority of voters is lost.
        shard: ShardId,
        /// Drawn by the operator, to recognise a repeat.
        number: u64,
        /// Seconds since 1970, on the operator's clock.
        at_s: u64,
    },
    /// A table is to come, or to go.
    #[coded(tag = 7)]
    Table(TableChange),
    /// A node joins the cluster's topology, with the next number and without replicas. A repeat is one of a node with the same
    /// name, datacenter and address.
    #[coded(tag = 8)]
    AddNode {
        /// The name of the node, which no other has or had.
        name: String,
        /// The name of its datacenter.
        datacenter: String,
        /// The address at which it listens, which no other node has.
        address: Option<String>,
    },
    /// A node leaves the cluster's topology for good. It must be dead, and hold no replica.
    #[coded(tag = 9)]
    RemoveNode {
        /// The node, whose number is never given again.
        node: NodeId,
    },
    /// Begin to repartition a table. Begins an epoch; the shards copy, and hold writes to what moves.
    #[coded(tag = 3)]
    BeginMove {
        /// The table whose keys move.
        table: TableId,
        /// How its keys will be distributed.
        partitioning: Partitioning,
    },
    /// End a move, of which all is copied: the new partitioning holds.
    #[coded(tag = 4)]
    EndMove {
        /// The table whose move ends.
        table: TableId,
    },
    /// Cancel a move: the old partitioning stays.
    #[coded(tag = 5)]
    CancelMove {
        /// The table whose move is given up.
        table: TableId,
    },
}
