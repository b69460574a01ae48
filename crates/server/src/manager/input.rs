//! The inputs of a manager inbox, and the way to it.

use super::operator::FromOperator;
use super::shared_status::SharedStatus;
use crate::envelope::{RpcReply, RpcRequest};
use shoal_cluster::manager::ToManager;
use shoal_raft::LogMembers;
use shoal_types::{ClusterId, NodeId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Most inputs that wait at a manager inbox. More get lost, and are said again.
const LETTERS_MAX: usize = 1 << 14;

/// What comes to a manager inbox from its node.
#[derive(Debug)]
pub(crate) enum ManagerInput {
    /// A node says something to managers, and which version of their list it has.
    FromNode { from: NodeId, version: u64, message: ToManager },
    /// Another manager inbox asks something.
    Ask { from: NodeId, number: u64, question: RpcRequest },
    /// The answer of another node to a request with this number.
    Answer { from: NodeId, number: u64, answer: RpcReply },
    /// Who the managers are, as another manager inbox knows.
    Members { from: NodeId, members: LogMembers },
    /// The node has joined this cluster, and belongs to it for good.
    Joined(ClusterId),
    /// An operator wants something changed.
    Operator { client: shoal_net::ConnectedClient, wanted: FromOperator },
}

/// The way to the manager inbox of this process.
#[derive(Debug, Clone)]
pub(crate) struct InputSender {
    input_queue: mpsc::Sender<ManagerInput>,
    shared_status: Arc<SharedStatus>,
    /// How long a lease lasts that managers grant.
    pub(crate) lease: Duration,
}

impl InputSender {
    /// A way, and its end, of a node whose file names these managers.
    pub(crate) fn new(named: Vec<NodeId>, lease: Duration) -> (InputSender, InputReceiver) {
        let (input_queue, received) = mpsc::channel(LETTERS_MAX);
        let shared_status = Arc::new(SharedStatus::new(named));
        let manager_inputs =
            InputSender { input_queue, shared_status: Arc::clone(&shared_status), lease };
        (manager_inputs, InputReceiver { input_queue: received, shared_status })
    }

    /// Leaves an input. It gets lost if too many wait, or if the manager inbox is no more.
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
            tracing::debug!("an input to the manager got lost");
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

    /// Of the manager that is hosted here, how it is, and whether it votes by the latest list that is known.
    pub(crate) fn hosted(&self) -> Option<(shoal_raft::LogMember, shoal_raft::RaftStatus, bool)> {
        let state = self.shared_status.state();
        let log = state.log.as_ref()?;
        Some((log.me(), log.status(), state.known.voters.contains(&log.me())))
    }
}

/// The end of a [`InputSender`].
#[derive(Debug)]
pub(crate) struct InputReceiver {
    pub(super) input_queue: mpsc::Receiver<ManagerInput>,
    pub(super) shared_status: Arc<SharedStatus>,
}
