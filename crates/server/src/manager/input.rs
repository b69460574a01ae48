//! The inputs of a manager inbox, and its queue.

use super::operator::FromOperator;
use super::shared_status::SharedStatus;
use crate::envelope::{RpcReply, RpcRequest};
use shoal_cluster::manager::ToManager;
use shoal_cluster::topology::Topology;
use shoal_raft::LogMembers;
use shoal_types::{ClusterId, NodeId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Most inputs that wait for a manager inbox. More are dropped, and are sent again by their senders.
const INPUTS_MAX: usize = 1 << 14;

/// An input of a manager inbox.
#[derive(Debug)]
pub(crate) enum ManagerInput {
    /// A message of a node to managers, and the version of the node's list of them.
    FromNode { from: NodeId, version: u64, message: ToManager },
    /// A request of another manager inbox.
    Ask { from: NodeId, number: u64, question: RpcRequest },
    /// The reply of another manager inbox to the request with this number.
    Answer { from: NodeId, number: u64, answer: RpcReply },
    /// The list of managers that another manager inbox has.
    Members { from: NodeId, members: LogMembers },
    /// The node has joined this cluster, and belongs to it for good.
    Joined(ClusterId),
    /// The configuration has other nodes than before.
    Topology(Arc<Topology>),
    /// A request of an operator.
    Operator { client: shoal_net::ConnectedClient, wanted: FromOperator },
}

/// Sends inputs to the manager inbox of this process.
#[derive(Debug, Clone)]
pub(crate) struct InputSender {
    input_queue: mpsc::Sender<ManagerInput>,
    shared_status: Arc<SharedStatus>,
    /// The duration of leases.
    pub(crate) lease: Duration,
}

impl InputSender {
    /// The two ends of the queue of a node whose file names these managers.
    pub(crate) fn new(named: Vec<NodeId>, lease: Duration) -> (InputSender, InputReceiver) {
        let (input_queue, received) = mpsc::channel(INPUTS_MAX);
        let shared_status = Arc::new(SharedStatus::new(named));
        let manager_inputs =
            InputSender { input_queue, shared_status: Arc::clone(&shared_status), lease };
        (manager_inputs, InputReceiver { input_queue: received, shared_status })
    }

    /// Sends an input. It is dropped if too many wait, or if the manager inbox has ended.
    pub(crate) fn post(&self, manager_input: ManagerInput) {
        if let ManagerInput::FromNode {
            from,
            version,
            message: message @ ToManager::Heartbeat { .. },
        } = &manager_input
            && !self.shared_status.keep_heartbeat(*from, *version, message)
        {
            return;
        }
        if self.input_queue.try_send(manager_input).is_err() {
            tracing::debug!("an input to the manager was dropped");
        }
    }

    /// The nodes that have managers, as far as is known here, and the version of that list; 0 for that of the file.
    pub(crate) fn managers(&self) -> (u64, Vec<NodeId>) {
        let state = self.shared_status.state();
        match state.known.version {
            0 => (0, self.shared_status.named.clone()),
            version => (version, state.known.nodes().into_iter().collect()),
        }
    }

    /// The member and the status of the manager on this node, and whether it votes by the latest list that is
    /// known.
    pub(crate) fn hosted(&self) -> Option<(shoal_raft::LogMember, shoal_raft::RaftStatus, bool)> {
        let state = self.shared_status.state();
        let log = state.log.as_ref()?;
        Some((log.me(), log.status(), state.known.voters.contains(&log.me())))
    }
}

/// The receiving end of an [`InputSender`].
#[derive(Debug)]
pub(crate) struct InputReceiver {
    pub(super) input_queue: mpsc::Receiver<ManagerInput>,
    pub(super) shared_status: Arc<SharedStatus>,
}
