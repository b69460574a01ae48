//! The messages between nodes and managers.
//!
//! Messages may be lost, repeated, reordered, and arbitrarily late. Nodes send to all replicas of the manager, or to
//! the leader if they know it; other replicas drop the message.

use super::command::{LeadershipClaim, TableChange};
use super::configuration::Configuration;
use super::epoch_end::EpochEnd;
use super::ids::{Ask, Generation, Incarnation, ProcessInstance, Revision};
use super::recovery::Recollection;
use super::request::ManagerRequest;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Epoch, Rejected, TableId};
use std::sync::Arc;

/// From a node to the manager.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ToManager {
    /// Sent periodically; renews the node's lease from its sending. Answered by `Granted`, or by `OtherProcess`
    /// or `Welcome` where the process is not that of the incarnation.
    #[coded(tag = 0)]
    Heartbeat {
        /// The process that sends it, whether or not it is admitted.
        instance: ProcessInstance,
        /// The incarnation of the process; 0 if it does not know one.
        incarnation: Incarnation,
        /// The number of the heartbeat in this process.
        round: u64,
        /// The number of the latest heartbeat that was granted, from which the manager sees whether the node
        /// receives its grants.
        granted: u64,
        /// The revision of the configuration that the sender has.
        known: Revision,
    },
    /// Asks to admit the sender. In answer to `OtherProcess`. A repeat is answered with the same `Welcome`.
    #[coded(tag = 1)]
    Join {
        /// The process that asks to be admitted.
        instance: ProcessInstance,
        /// The incarnation before it, from `OtherProcess`.
        after: Incarnation,
        /// Whether the memory of the former process is lost.
        lost: bool,
    },
    /// A request of this node. A report is repeated until `Reported`, other requests until the configuration
    /// shows that they were received; all of them until the configuration says that another node has to make
    /// the request, or none.
    #[coded(tag = 2)]
    Request {
        /// The incarnation under which the sender is admitted; requests of others are dropped.
        incarnation: Incarnation,
        /// The ballot under which it leads the request's shard. The first for [`ManagerRequest::Known`], for which no leader
        /// is needed.
        ballot: Ballot,
        /// The request, which is about one shard.
        request: ManagerRequest,
    },
    /// What a node knows of the former managers. In answer to `Recall`.
    #[coded(tag = 3)]
    Recalled {
        /// The generation of the `Recall`.
        generation: Generation,
        /// The state of the node, and the generation to which it has pledged.
        recollection: Recollection,
    },
    /// A client of the node asks for a change of tables. Repeated until `TableChanged`.
    #[coded(tag = 4)]
    ChangeTable {
        /// The incarnation under which the sender is admitted; requests of others are dropped.
        incarnation: Incarnation,
        /// The number of the request, which the client has drawn.
        ask: Ask,
        /// The change that is asked for.
        change: TableChange,
    },
}

impl ToManager {
    /// Whether the ends of epochs in it are within [`EPOCH_END_BYTES_MAX`](super::EPOCH_END_BYTES_MAX).
    pub(super) fn is_within_limits(&self) -> bool {
        match self {
            ToManager::Request { request, .. } => request.is_within_limits(),
            ToManager::Recalled { recollection, .. } => {
                let mut ends = recollection.epochs.ends.values().flatten().flatten();
                ends.all(EpochEnd::is_within_limits)
            }
            ToManager::Heartbeat { .. }
            | ToManager::Join { .. }
            | ToManager::ChangeTable { .. } => true,
        }
    }
}

impl ToNode {
    /// The configuration that comes with it.
    #[must_use]
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        match self {
            ToNode::Welcome { configuration, .. } | ToNode::Configured { configuration } => {
                Some(configuration)
            }
            ToNode::Granted { configuration, .. } => configuration.as_ref(),
            ToNode::OtherProcess { .. }
            | ToNode::Reported { .. }
            | ToNode::Recall { .. }
            | ToNode::TableChanged { .. } => None,
        }
    }
}

/// From a manager to a node. Its content was applied, or is a lease that the manager may grant, and so was
/// true at some time; revisions, incarnations and rounds order the messages.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ToNode {
    /// The newest incarnation of this node is another process: join after it. In answer to `Heartbeat`
    /// and `Join`.
    #[coded(tag = 0)]
    OtherProcess {
        /// The process that asked.
        instance: ProcessInstance,
        /// The newest incarnation of the node, after which it may join.
        incarnation: Incarnation,
        /// The process that has this incarnation, if there is one.
        admitted: ProcessInstance,
    },
    /// The process is admitted. In answer to `Join` and `Heartbeat`.
    #[coded(tag = 1)]
    Welcome {
        /// The process that is meant.
        instance: ProcessInstance,
        /// The incarnation that the process has from now on.
        incarnation: Incarnation,
        /// The configuration with which the process begins.
        configuration: Arc<Configuration>,
    },
    /// The lease is renewed, from the sending of this heartbeat, for a node that has this configuration.
    #[coded(tag = 2)]
    Granted {
        /// The generation of the manager that grants it.
        generation: Generation,
        /// The incarnation that is meant.
        incarnation: Incarnation,
        /// The number of the heartbeat that is granted.
        round: u64,
        /// The revision of the configuration at that time.
        revision: Revision,
        /// The configuration, if the heartbeat named an older revision.
        configuration: Option<Arc<Configuration>>,
    },
    /// The configuration has changed. Sent once; a node that misses it receives it with the next grant.
    #[coded(tag = 3)]
    Configured {
        /// A configuration of a greater revision.
        configuration: Arc<Configuration>,
    },
    /// A report is accepted, now or earlier; the node stops to repeat it.
    #[coded(tag = 4)]
    Reported {
        /// The leadership under which it was reported.
        claim: LeadershipClaim,
        /// The epoch that the report is about.
        epoch: Epoch,
    },
    /// A majority of the managers is lost, and the sender is to begin this generation: it asks for the node's
    /// state. Answered by `Recalled`; a repeat likewise.
    #[coded(tag = 5)]
    Recall {
        /// The generation that the asking manager is to begin.
        generation: Generation,
        /// Whether the node pledges: it gives up its lease, and from now on accepts managers of this
        /// generation only. Otherwise nothing changes.
        pledges: bool,
    },
    /// The answer to `ChangeTable`: the change is in the log of the managers, or refused. Said once for each time it was
    /// asked for.
    #[coded(tag = 6)]
    TableChanged {
        /// The number of the request.
        ask: Ask,
        /// The table that was created, or dropped; or why not.
        result: Result<TableId, Rejected>,
    },
}
