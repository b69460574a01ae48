//! The commands of other threads of the process to a worker.

use crate::status::NodeStatus;
use bytes::Bytes;
use shoal_cluster::manager::ToNode;
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{NodeId, WorkerId};
use std::fmt;
use tokio::sync::oneshot;

/// The worker of each node that exchanges messages with managers.
pub(crate) const HOST: WorkerId = WorkerId(0);

/// Makes a task on the thread where it is to run.
pub type MakeTask = Box<dyn FnOnce(&LocalDatabase) -> Task + Send>;

/// A command of another thread of the process.
pub enum WorkerCommand {
    /// A message of this process's manager to this node.
    FromManager(ToNode),
    /// Send this to the same worker of another node.
    Send {
        /// The node that the frame is for.
        to: NodeId,
        /// A whole frame.
        frame: Bytes,
    },
    /// Run this task beside the transactions of clients.
    Spawn(MakeTask),
    /// Send the status of the worker.
    Look(oneshot::Sender<NodeStatus>),
    /// Take what has happened on the worker's disk.
    TakeDiskNews,
    /// Answer a client.
    Answer {
        /// The client to be answered.
        client: shoal_net::ConnectedClient,
        /// A whole frame.
        frame: Bytes,
    },
}

impl fmt::Debug for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerCommand::FromManager(message) => {
                f.debug_tuple("FromManager").field(message).finish()
            }
            WorkerCommand::Send { to, frame } => {
                write!(f, "Send {{ to: {to}, {} bytes }}", frame.len())
            }
            WorkerCommand::Spawn(_) => f.write_str("Spawn"),
            WorkerCommand::Look(_) => f.write_str("Look"),
            WorkerCommand::TakeDiskNews => f.write_str("TakeDiskNews"),
            WorkerCommand::Answer { client, frame } => {
                write!(f, "Answer {{ client: {client}, {} bytes }}", frame.len())
            }
        }
    }
}
