//! The commands of the managers' replicated log.

use super::epoch_end::EpochEnd;
use super::loss::Knowledge;
use crate::topology::Partitioning;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, ShardId, TableId, Time};
use std::collections::BTreeMap;
use std::fmt;

use super::Revision;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
pub(super) use number;

number!(/** A term of one manager, in one process of it; a later one is higher. 0 belongs to none. */ Term(u64));
number!(/** One instance of a node's process, drawn at random at its start. Only for equality. */ ProcessInstance(u64));
number!(/** The survivors of a node that the manager has admitted, counted from 1. */ Incarnation(u32));
number!(/** A request to change something, numbered by who asks. */ Ask(u64));

/// A command, with the term and the time of its proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The term of the manager that proposed it. Void if a later term has begun.
    pub term: Term,
    /// That manager's clock, read when it proposed; except for [`Action::Take`], after its own `Take`
    /// was applied to its own machine.
    pub at: Time,
    /// What to do.
    pub action: Action,
}

/// The last heartbeat of a node that a manager received in this term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatRecord {
    /// The node that sent the heartbeat.
    pub node: NodeId,
    /// The node's incarnation.
    pub incarnation: Incarnation,
    /// The number of the heartbeat; a lower one than an earlier one renews nothing.
    pub round: u64,
    /// The time of its arrival, on the receiving manager's clock.
    pub at: Time,
    /// The revision of the configuration that the node has.
    pub known: Revision,
}

/// The leadership on whose behalf a report is made. The report counts while the configuration has the same
/// leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeadershipClaim {
    /// The leader.
    pub node: NodeId,
    /// The leader's incarnation.
    pub incarnation: Incarnation,
    /// The shard that it leads.
    pub shard: ShardId,
    /// The ballot under which it leads.
    pub ballot: Ballot,
}

/// The effect of a command. All but `Take` may be repeated without harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A term begins. Its manager proposes nothing else before it has seen this applied. The first one in the log founds
    /// the cluster.
    Take {
        /// The identity that the proposing manager has drawn. Ignored once the cluster has one.
        drawn: ClusterId,
    },
    /// Time passes: leases run out, leaders are appointed.
    Tick {
        /// The last heartbeat of each node from which the manager has received one in the last lease.
        heard: Vec<HeartbeatRecord>,
    },
    /// Admits a node's new process, if no other was admitted since `after`. So a message of a former process,
    /// however late, admits none.
    Join {
        /// The node.
        node: NodeId,
        /// Its new process.
        instance: ProcessInstance,
        /// The incarnation before it.
        after: Incarnation,
        /// Whether the former process's memory is lost: promises, streams, data.
        lost: bool,
        /// When the manager last received a heartbeat of the former process; it accepts no more of them.
        heard: Time,
    },
    /// A shard's part of the end of an epoch.
    Report {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// The closed epoch.
        epoch: Epoch,
        /// How it ended there, in the engine's form.
        end: EpochEnd,
    },
    /// A transaction is blocked in the open epoch and holds up a healthy shard: the epoch is closed before a
    /// node is declared dead. Void while an earlier epoch is not settled and this one is younger than a
    /// lease.
    Close {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// The epoch to close.
        epoch: Epoch,
    },
    /// A replica that was empty has accepted, under the leader's ballot, all entries with which that began.
    CaughtUp {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// The replica.
        replica: NodeId,
        /// The replica's incarnation.
        incarnation: Incarnation,
    },
    /// A node has stopped to apply reports about a shard whose majority is lost, and reports what it knows.
    Known {
        /// The node.
        node: NodeId,
        /// The node's incarnation.
        incarnation: Incarnation,
        /// The shard.
        shard: ShardId,
        /// The epoch that began with the loss, which identifies the loss.
        begun: Epoch,
        /// The node's knowledge of the epochs before.
        knowledge: Knowledge,
    },
    /// The leader has prepared at all survivors of such a shard.
    Held {
        /// The leadership that reports.
        claim: LeadershipClaim,
        /// Up to where the survivors hold each of these epochs.
        held: BTreeMap<Epoch, EpochEnd>,
    },
    /// Requests a change of the cluster.
    Change {
        /// The id of the request.
        ask: Ask,
        /// The requested change.
        change: ClusterChange,
    },
}

/// A change of the cluster that a node or an operator requests. A repeat is granted like the first, except
/// for the end of a move, which is over by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChange {
    /// Replaces a replica by another node in the same role, in steps: the new node catches up as a learner;
    /// if it is to vote, an epoch begins in which it does. Replaces an unfinished request for the same shard.
    ReplaceReplica {
        /// The shard of the replica.
        shard: ShardId,
        /// The outgoing node. It may be dead; it may not lead.
        outgoing: NodeId,
        /// The incoming node.
        incoming: NodeId,
    },
    /// Cancels the replacement of a replica of this shard, if it is not completed.
    KeepReplicas {
        /// The shard.
        shard: ShardId,
    },
    /// Accepts that the majority of a shard's voters is lost for good: only the other replicas' data remains.
    AcceptLoss {
        /// The shard.
        shard: ShardId,
        /// Drawn by the operator, to recognise a repeat.
        number: u64,
        /// Seconds since 1970, on the operator's clock.
        at_s: u64,
    },
    /// Creates a table.
    CreateTable {
        /// Its name.
        name: String,
        /// How its keys are distributed.
        partitioning: Partitioning,
    },
    /// Begins to distribute a table's keys otherwise, in a new epoch; the shards copy, and hold writes to
    /// keys that move.
    BeginMove {
        /// The table.
        table: TableId,
        /// How its keys will be distributed.
        partitioning: Partitioning,
    },
    /// All keys are copied: the new partitioning becomes valid.
    EndMove {
        /// The table.
        table: TableId,
    },
    /// Cancels a move: the old partitioning stays.
    CancelMove {
        /// The table.
        table: TableId,
    },
}
